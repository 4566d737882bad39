"""What iterations repeat is left out, and nothing else."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from ml_dtypes import bfloat16

import nkisim
from nkisim.cost import model
from nkisim.kernel import Kernel

F32 = np.dtype(np.float32)


def angles(freq, tiles):
    """Positions times frequencies, less whole turns: another range of positions in each tile."""
    out = nl.ndarray((128, tiles * 512), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    factor = nl.load(freq)
    column = nl.arange(512)[None, :] + 0 * nl.arange(128)[:, None]
    for i in nl.affine_range(tiles):
        position = nisa.iota(i * 512 + column, dtype=nl.float32)
        angle = nisa.tensor_scalar(position, op0=nl.multiply, operand0=factor)
        turns = nl.floor(nisa.tensor_scalar(angle, op0=nl.multiply, operand0=0.16))
        left = nisa.scalar_tensor_tensor(
            data=turns, op0=nl.multiply, operand0=-6.25, op1=nl.add, operand1=angle
        )
        nl.store(out[:, nl.ds(i * 512, 512)], nl.copy(left, dtype=nl.bfloat16))
    return out


def triangles(x):
    """What is left of a diagonal that moves on."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:512]
    ones = nl.full((128, 512), 1.0, nl.float32)
    for i in nl.affine_range(x.shape[1] // 512):
        mask = nisa.affine_select(
            pred=(i * 512 + f <= p + 1024), on_true_tile=ones, on_false_value=0.0
        )
        nl.store(out[:, nl.ds(i * 512, 512)], nl.multiply(nl.load(x[:, nl.ds(i * 512, 512)]), mask))
    return out


CASES = [
    (angles, (nkisim.TensorSpec((128, 1), F32), 40), "iota", 40),
    (triangles, (nkisim.TensorSpec((128, 512 * 40), F32),), "affine_select", 40),
]


@pytest.mark.parametrize(("function", "args", "label", "count"), CASES)
def test_coordinates_that_move_on_are_computed_anew(function, args, label, count):
    kernel = Kernel(function)
    rolled = nkisim.profile(kernel, *args)
    whole = model.timeline(Kernel(function).specialize(args, {}).program.trace)
    assert rolled.latency_us == pytest.approx(whole.latency_us, rel=1e-12)
    assert sum(r.count for r in rolled.lines if r.label.startswith(label)) == count


def test_what_does_not_fit_is_not_kept_for_later_iterations():
    def sums(x, offsets):
        rows, columns = x.shape
        out = nl.ndarray((rows, len(offsets)), dtype=nl.float32, buffer=nl.shared_hbm)
        for t in nl.affine_range(rows // 128):
            tile = nl.load(x[nl.ds(t * 128, 128)])
            found = nl.ndarray((128, len(offsets)), dtype=nl.float32)
            for at, offset in enumerate(offsets):
                index = offset + nl.arange(columns)[None, :] + 0 * nl.arange(128)[:, None]
                position = nisa.iota(index, dtype=nl.float32)
                weighted = nisa.tensor_tensor(tile, position, op=nl.multiply)
                found[:, at : at + 1] = nl.sum(weighted, axis=1, keepdims=True)
            nl.store(out[nl.ds(t * 128, 128)], found)
        return out

    def profiled(count):
        offsets = tuple(range(0, count * 2048, 2048))
        return nkisim.profile(Kernel(sums), nkisim.TensorSpec((1024, 2048), F32), offsets)

    few, many = profiled(4), profiled(40)
    assert few.choices["iota hoisted out of a loop"] == 4 * 7
    assert many.spilled_bytes == 0
    assert not any("SBUF overflows" in f.text for f in many.findings)


@pytest.mark.parametrize("stores", [False, True])
@pytest.mark.parametrize("rows", [False, True])
def test_an_address_that_is_one_number_leaves_a_transfer_as_it_is(stores, rows):
    """But for the time in which GpSimd writes the descriptors."""

    def moved(w, index, dynamic):
        experts, height, width = w.shape
        at = nl.load(index)[0, 0] if dynamic else 3
        p, f = nl.arange(height)[:, None], nl.arange(width)[None, :]
        if stores:
            out = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.shared_hbm)
            target = out.reshape((experts * height, width))[at + p, f] if rows else out[at]
            nl.store(target, nl.load(w[2]))
            return out
        out = nl.ndarray((height, width), dtype=w.dtype, buffer=nl.shared_hbm)
        source = w.reshape((experts * height, width))[at + p, f] if rows else w[at]
        nl.store(out, nl.load(source))
        return out

    args = (
        nkisim.TensorSpec((8, 128, 4096), np.dtype(bfloat16)),
        nkisim.TensorSpec((1, 1), np.int32),
    )
    with nkisim.checks(output="off"):
        static, dynamic = (nkisim.profile(nki.jit(moved), *args, d) for d in (False, True))
    assert dynamic.latency_us - static.latency_us < 4.0  # the index, and its descriptors
    assert dynamic.hbm_bytes == static.hbm_bytes + 4
    assert not any("DMA engines" in f.text for f in dynamic.findings)
