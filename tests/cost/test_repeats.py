"""What iterations repeat is left out, and nothing else."""

from __future__ import annotations

import dataclasses

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import neuronxcc.nki.typing as nt
import numpy as np
import pytest
from ml_dtypes import bfloat16

import nkisim
from nkibook.validation import matmul, mlp
from nkisim.machine import GEN2, GEN3
from nkisim.runtime.kernel import Kernel

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
    found = nkisim.profile(Kernel(function), *args)
    assert sum(r.count for r in found.lines if r.label.startswith(label)) == count


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


# -- operands of matmuls that loops load again, as the compiler for trn2 keeps them


def loads_of(kernel, core, *args):
    """The profile, and how many loads it has."""
    t = nkisim.profile(nki.jit(kernel).on(core), *args)
    return t, sum(task.label == "load" for task in t._core.work.tasks)


def bf16(*shape):
    return nkisim.TensorSpec(shape, np.dtype(bfloat16))


# lhsT (4096, 256) and rhs of so many tiles of columns, each 32 KiB a partition: of 192 KiB, 144 are
# for operands. A row of lhsT's tiles, 8 KiB, is used again by the next columns in any case.
@pytest.mark.parametrize(("columns", "rounds"), [(1, 1), (3, 1), (5, 2)])
def test_operands_that_fit_are_loaded_once_on_trn2(columns, rounds):
    lhs_t, rhs = bf16(4096, 256), bf16(4096, 512 * columns)
    t, loads = loads_of(matmul.matmul_tiled.func, GEN3, lhs_t, rhs)
    assert loads == 2 * 32 + rounds * 32 * columns
    stored = 256 * 512 * columns * 2
    assert t.hbm_bytes == 4096 * 256 * 2 + rounds * 4096 * 512 * columns * 2 + stored
    assert t.spilled_bytes == 0


def test_on_trn1_operands_are_loaded_as_often_as_the_text_says():
    t, loads = loads_of(matmul.matmul_tiled.func, GEN2, bf16(512, 512), bf16(512, 1024))
    assert loads == 4 * 2 * 4 * 2
    assert not any("load hoisted" in choice for choice in t.choices)
    _, kept = loads_of(matmul.matmul_tiled.func, GEN3, bf16(512, 512), bf16(512, 1024))
    assert kept == 4 * 4 + 4 * 2


def products(x, w, how):
    """x.T @ w of x (K, M) and w (K, 512). Vector reads the tiles of w as well, or w is written,
    which a later load has to see."""
    (depth, rows), columns = x.shape, w.shape[1]
    out = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    source = w
    if how.startswith("written"):
        source = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.private_hbm)
        for k in nl.affine_range(depth // 128):
            nl.store(source[nl.ds(k * 128, 128)], nl.load(w[nl.ds(k * 128, 128)]))
    for m in nl.sequential_range(rows // 128):
        row = nl.ds(m * 128, 128)
        total = nl.zeros((128, columns), nl.float32, buffer=nl.psum)
        most = nl.zeros((128, columns), nl.float32)
        for k in nl.affine_range(depth // 128):
            part = nl.ds(k * 128, 128)
            right = nl.load(source[part])
            total += nisa.nc_matmul(nl.load(x[part, row]), right)
            if how == "Vector":
                most[...] = nl.maximum(most, right)
        result = nl.copy(total) if how != "Vector" else nl.add(total, most)
        nl.store(out[row], result)
        if how == "written again":
            nl.store(source[nl.ds(0, 128)], nl.copy(total, dtype=w.dtype))
    return out


@pytest.mark.parametrize(
    ("how", "rounds"), [("plain", 1), ("Vector", 5), ("written", 1), ("written again", 5)]
)
def test_only_what_the_tensor_engine_alone_reads_and_nothing_changes_is_kept(how, rounds):
    _, loads = loads_of(products, GEN3, bf16(384, 640), bf16(384, 512), how)
    assert loads == 3 * 5 + rounds * 3 + 3 * how.startswith("written")


def twice(x, w: nt.mutable_tensor, changed):
    """x.T @ w of x (K, M) and w (K, 512), two times; in between, w may be written, for once."""
    out = nl.ndarray((2, x.shape[1], w.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    for turn in nl.static_range(2):
        total = nl.zeros((x.shape[1], w.shape[1]), nl.float32, buffer=nl.psum)
        for k in nl.affine_range(x.shape[0] // 128):
            part = nl.ds(k * 128, 128)
            total += nisa.nc_matmul(nl.load(x[part]), nl.load(w[part]))
        nl.store(out[turn], nl.copy(total))
        if turn == 0 and changed:
            nl.store(w[nl.ds(0, 128)], nl.copy(total, dtype=w.dtype))
    return out, w


@pytest.mark.parametrize(("changed", "loads"), [(False, 6), (True, 9)])
def test_an_argument_that_is_written_is_loaded_again(changed, loads):
    _, found = loads_of(twice, GEN3, bf16(384, 128), bf16(384, 512), changed)
    assert found == loads


def _starts(room):
    """Of a product and GELU on trn2, where so many bytes a partition of operands are kept: loads
    of operands, loads of the bias, and the time that their starts and those of stores take."""
    timing = dataclasses.replace(GEN3.timing, kept_operand_bytes=room)
    core = dataclasses.replace(GEN3, timing=timing)
    shapes = (512, 384), (512, 1024), (1, 1024)
    bf16 = [nkisim.TensorSpec(shape, np.dtype(nl.bfloat16)) for shape in shapes]
    t = nkisim.profile(mlp.product_gelu.on(core), *bf16)
    loads = [line.count for line in t.lines if line.label == "load"]
    return max(loads), min(loads), t.engines["Sync"].busy_us


def test_what_had_no_room_to_stay_is_loaded_by_the_compiler():
    """3 x 2 tiles of the result, 4 of the contraction: 3 x 4 tiles of one operand and 4 x 2 of the
    other, of 256 and 1024 bytes a partition."""
    dma = GEN3.timing.dma
    operands, bias, us = _starts(64 * 1024)
    assert (operands, bias) == (12 + 8, 2)  # each once
    assert us == pytest.approx((20 + 2 + 6) * dma.trigger_ns / 1e3)
    operands, bias, us = _starts(4 * 1280)  # what one tile of the result takes
    assert operands > 20
    again = operands - 20
    first = 20 + bias + 6
    assert us <= (first * dma.trigger_ns + again * dma.spill_trigger_ns) / 1e3 + 1e-6
    operands, bias, us = _starts(0)
    assert (operands, bias) == (3 * 2 * 4 * 2, 6)  # as the text has them
    assert us == pytest.approx((48 + 6 + 6) * dma.trigger_ns / 1e3)
