"""Pairs of instructions that one could do, and sums that another engine could: found, promised what
the change gives, and only where the instruction set has it."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim

FACTOR = 1.3  # a gain is within this of what the change gives, either way
VECTOR = nisa.vector_engine
X = nkisim.TensorSpec((128, 16 * 512), np.dtype(np.float32))
COLUMN = nkisim.TensorSpec((128, 1), np.dtype(np.float32))


def on_parts(step):
    """A kernel that does `step(tile, column, fused)` for each (128, 512) tile of what it loads, and
    stores little of the results."""

    @nki.jit
    def kernel(x, column, fused):
        turns = x.shape[1] // 512
        out = nl.ndarray((x.shape[0], turns), x.dtype, buffer=nl.shared_hbm)
        every, per_row = nl.load(x), nl.load(column)
        last = nl.zeros(out.shape, x.dtype)
        for k in nl.static_range(turns):
            result = step(every[:, k * 512 : (k + 1) * 512], per_row, fused)
            last[0 : result.shape[0], k : k + 1] = nl.copy(result[:, 0:1])
        nl.store(out, last)
        return out

    return kernel


def scaled_then_shifted(tile, column, fused):
    if fused:
        return nisa.tensor_scalar(
            tile, np.maximum, 2.0, op1=np.minimum, operand1=column, engine=VECTOR
        )
    return nisa.tensor_scalar(
        nisa.tensor_scalar(tile, np.maximum, 2.0, engine=VECTOR), np.minimum, column, engine=VECTOR
    )


def scaled_plus_tile(tile, column, fused):
    if fused:
        return nisa.scalar_tensor_tensor(
            data=tile, op0=np.maximum, operand0=column, op1=np.add, operand1=tile
        )
    first = nisa.tensor_scalar(tile, np.maximum, column, engine=VECTOR)
    return nisa.tensor_tensor(tile, first, op=np.add)


def scaled_then_exp(tile, column, fused):
    """The Vector Engine has a second thing to do, so that the first shows."""
    if fused:
        found = nisa.activation(nl.exp, tile, scale=column)
    else:
        scaled = nisa.tensor_scalar(tile, np.multiply, column, engine=VECTOR)
        found = nisa.activation(nl.exp, scaled)
    return nisa.tensor_scalar(found, np.maximum, column, engine=VECTOR)


def exp_and_sum(tile, column, fused):
    total = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    if fused:
        nisa.activation_reduce(nl.exp, tile, reduce_op=np.add, reduce_res=total)
    else:
        total[...] = nisa.tensor_reduce(np.add, nisa.activation(nl.exp, tile), axis=(1,))
    return nisa.tensor_scalar(tile, np.maximum, total, engine=VECTOR)


def largest_of_scaled(tile, column, fused):
    largest = nl.ndarray((128, 1), nl.float32, buffer=nl.sbuf)
    if fused:
        nisa.tensor_scalar_reduce(
            data=tile, op0=np.multiply, operand0=column, reduce_op=np.max, reduce_res=largest
        )
    else:
        product = nisa.tensor_scalar(tile, np.multiply, column, engine=VECTOR)
        largest[...] = nisa.tensor_reduce(np.max, product, axis=(1,))
    return nisa.tensor_scalar(tile, np.maximum, largest, engine=VECTOR)


def total_of_rows(tile, column, fused):
    total = nl.ndarray((1, 512), nl.float32)
    if fused:
        total[...] = nl.copy(nisa.nc_matmul(nl.ones((128, 1), nl.float32), tile))
    else:
        total[...] = nisa.tensor_partition_reduce(np.add, tile)
    return nisa.tensor_scalar(tile[0:1], np.maximum, total[:, 1:2], engine=VECTOR)


CHANGES = {
    "two operators": ("nisa.tensor_scalar does", scaled_then_shifted),
    "with a tile": ("nisa.scalar_tensor_tensor", scaled_plus_tile),
    "scale": ("nisa.activation multiplies", scaled_then_exp),
    "sums on the side": ("nisa.activation_reduce", exp_and_sum),
    "largest on the side": ("nisa.tensor_scalar_reduce", largest_of_scaled),
    "sums over partitions": ("nisa.nc_matmul", total_of_rows),
}


def told(kernel, text, fused):
    return [f for f in nkisim.profile(kernel, X, COLUMN, fused).findings if text in f.text]


@pytest.mark.parametrize("case", CHANGES)
def test_the_gain_is_what_the_change_gives(case):
    text, step = CHANGES[case]
    kernel = on_parts(step)
    (found,) = told(kernel, text, False)
    was, now = (nkisim.profile(kernel, X, COLUMN, f).latency_us for f in (False, True))
    assert (was - now) / FACTOR <= found.gain_us <= (was - now) * FACTOR
    assert found.location is not None
    assert not told(kernel, text, True)


def needed_twice(tile, column, fused):
    first = nisa.tensor_scalar(tile, np.maximum, 2.0, engine=VECTOR)
    second = nisa.tensor_scalar(first, np.minimum, column, op1=np.multiply, operand1=3.0)
    return nisa.tensor_tensor(second, first, op=np.add)


def three_steps(tile, column, fused):
    first = nisa.tensor_scalar(tile, np.maximum, 2.0, op1=np.minimum, operand1=column)
    return nisa.tensor_scalar(first, np.multiply, 3.0, engine=VECTOR)


def of_a_part(tile, column, fused):
    first = nisa.tensor_scalar(tile, np.maximum, 2.0, engine=VECTOR)
    return nisa.tensor_scalar(first[:, 0:256], np.minimum, column, engine=VECTOR)


def under_a_mask(tile, column, fused):
    first = nisa.tensor_scalar(tile, np.maximum, 2.0, engine=VECTOR)
    i_p, i_f = nl.mgrid[0:128, 0:512]
    first[i_p, i_f] = nisa.tensor_scalar(
        first[i_p, i_f], np.minimum, column, engine=VECTOR, mask=i_f > i_p
    )
    return first


def of_integers(tile, column, fused):
    bits = nisa.tensor_copy(tile, dtype=np.int32, engine=VECTOR)
    first = nisa.tensor_scalar(bits, np.bitwise_and, 6)
    return nisa.tensor_scalar(first, np.bitwise_or, 1)


def scale_is_taken(tile, column, fused):
    scaled = nisa.tensor_scalar(tile, np.multiply, column, engine=VECTOR)
    found = nisa.activation(nl.exp, scaled, scale=2.0)
    return nisa.tensor_scalar(found, np.maximum, column, engine=VECTOR)


def by_halves(tile, column, fused):
    found = nisa.activation(nl.exp, tile)
    halves = found.reshape((128, 2, 256))
    return nisa.tensor_reduce(np.add, halves, axis=(2,))


def largest_of_swapped(tile, column, fused):
    first = nisa.tensor_scalar(tile, np.subtract, column, reverse0=True, engine=VECTOR)
    largest = nisa.tensor_reduce(np.max, first, axis=(1,))
    return nisa.tensor_scalar(tile, np.maximum, largest, engine=VECTOR)


def largest_of_one_less(tile, column, fused):
    largest = nl.max(nl.subtract(1.0, tile), axis=1, keepdims=True)
    return nisa.tensor_scalar(tile, np.maximum, largest, engine=VECTOR)


APART = [
    needed_twice,
    three_steps,
    of_a_part,
    under_a_mask,
    of_integers,
    scale_is_taken,
    by_halves,
    largest_of_swapped,
    largest_of_one_less,
]


@pytest.mark.parametrize("step", APART)
def test_what_no_instruction_does_is_not_advised(step):
    """Each of these kernels has a reason why one instruction cannot do both."""
    assert not told(on_parts(step), "could be part of", False)


def _product(left, right, width):
    """left.T @ right, both in SBUF, in tiles of so many columns."""
    (depth, rows), columns = left.shape, right.shape[1]
    out = nl.ndarray((rows, columns), dtype=left.dtype, buffer=nl.shared_hbm)
    a = nl.ndarray((nl.par_dim(128), depth // 128, rows), dtype=left.dtype)
    b = nl.ndarray((nl.par_dim(128), depth // 128, columns), dtype=left.dtype)
    for k in nl.affine_range(depth // 128):
        a[:, k, :] = nl.load(left[nl.ds(k * 128, 128), :])
        b[:, k, :] = nl.load(right[nl.ds(k * 128, 128), :])
    for m in nl.affine_range(rows // 128):
        c = nl.ndarray((nl.par_dim(128), columns), dtype=left.dtype)
        for n in nl.affine_range(columns // width):
            acc = nl.zeros((128, width), dtype=nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // 128):
                tile = b[:, k, nl.ds(n * width, width)]
                acc += nisa.nc_matmul(a[:, k, nl.ds(m * 128, 128)], tile)
            c[:, nl.ds(n * width, width)] = nl.copy(acc, dtype=left.dtype)
        nl.store(out[nl.ds(m * 128, 128), :], c)
    return out


@pytest.mark.parametrize("width", [64, 128, 256, 512])
def test_matmuls_with_room_for_more_columns_gain_what_is_claimed(width):
    x = nkisim.TensorSpec((1024, 1024), nl.bfloat16)
    t, longest = (nkisim.profile(nki.jit(_product), x, x, w) for w in (width, 512))
    claimed = [f.gain_us for f in t.findings if "moving columns" in f.text]
    if width == 512:
        assert not claimed
        return
    assert claimed == [pytest.approx(t.latency_us - longest.latency_us, rel=0.3)]


def test_matmuls_that_share_no_stationary_tile_are_not_called_short():
    def sums(x):
        out = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
        ones = nl.full((128, 1), 1.0, dtype=x.dtype)
        for i in nl.affine_range(x.shape[0] // 128):
            acc = nl.zeros((128, 1), nl.float32, buffer=nl.psum)
            for j in nl.affine_range(x.shape[1] // 128):
                tile = nl.load(x[nl.ds(i * 128, 128), nl.ds(j * 128, 128)])
                acc += nisa.nc_matmul(tile, ones)
            nl.store(out[nl.ds(i * 128, 128)], nl.copy(acc))
        return out

    t = nkisim.profile(nki.jit(sums), nkisim.TensorSpec((1024, 2048), np.dtype(np.float32)))
    assert not any("moving columns" in f.text for f in t.findings)
