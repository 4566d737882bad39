"""nl.loop_reduce, nl.all_reduce and the grids of matmul indices, against NumPy."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import (
    DTypeError,
    ParameterError,
    RaceError,
    UninitializedReadError,
    UnsupportedError,
)

BF16 = np.dtype(nl.bfloat16)


def numbers(*shape, dtype=np.float32):
    return np.random.default_rng(3).uniform(-2, 2, shape).astype(dtype)


OPS = {
    "add": (nl.add, np.add, 0.0),
    "max": (np.max, np.maximum, -9.0),
    "min": (nl.minimum, np.minimum, 0.25),  # not neutral: the destination is an operand
    "multiply": (np.multiply, np.multiply, 1.0),
}


# -- loop_reduce


@pytest.mark.parametrize("name", OPS)
def test_loop_reduce_into_a_name(name):
    op, reference, start = OPS[name]

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.shared_hbm)
        total = nl.full(x.shape[1:], start, x.dtype)
        for k in nl.affine_range(x.shape[0]):
            tile = nl.load(x[k])
            total = nl.loop_reduce(tile, op=op, loop_indices=[k], dtype=nl.float32)
        nl.store(out, total)
        return out

    x = numbers(5, 7, 9)
    wanted = reference.reduce(x, axis=0, initial=np.float32(start))
    np.testing.assert_allclose(kernel(x), wanted, rtol=1e-6)


def test_loop_reduce_into_a_part_of_a_tile_adds_nothing_but_itself():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[2:], x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((2, nl.par_dim(x.shape[2]), x.shape[3]), x.dtype)
        for i in nl.affine_range(x.shape[0]):
            for k in nl.sequential_range(x.shape[1]):
                total[1] = nl.loop_reduce(nl.load(x[i, k]), np.add, (i, k))
        nl.store(out, total[1])
        return out

    x = numbers(2, 3, 7, 9)
    np.testing.assert_allclose(kernel(x), x.sum((0, 1)), rtol=1e-6, atol=1e-6)
    program = kernel.specialize((x,), {}).program
    on_chip = [i.label for i in program.instructions if i.opcode not in ("dma_copy", "memset")]
    assert on_chip == ["tensor_tensor(add)"] * 6


def test_loop_reduce_into_tiles_that_nothing_wrote_starts_with_the_first():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((2, *x.shape[1:]), x.dtype, buffer=nl.shared_hbm)
        most = nl.ndarray((2, nl.par_dim(x.shape[1]), x.shape[2]), x.dtype)
        for b in nl.affine_range(2):
            for k in nl.affine_range(x.shape[0] // 2):
                tile = nl.load(x[2 * k + b])
                most[b] = nl.loop_reduce(tile, op=np.max, loop_indices=[k])
            nl.store(out[b], most[b])
        return out

    x = numbers(6, 7, 5) - 100  # below zero, so that no zero can stand in for the first
    np.testing.assert_array_equal(kernel(x), x.reshape(3, 2, 7, 5).max(0))


def test_loop_reduce_of_products_in_psum_under_a_mask():
    @nki.jit
    def kernel(a, b):
        rows, columns = a.shape[2], b.shape[2]
        out = nl.ndarray((rows, columns), np.float32, buffer=nl.shared_hbm)
        total = nl.zeros((rows, columns), np.float32)
        _, i_f = nl.mgrid[0:rows, 0:columns]
        for k in nl.affine_range(a.shape[0]):
            product = nisa.nc_matmul(nl.load(a[k]), nl.load(b[k]))
            total = nl.loop_reduce(product, nl.add, k, mask=i_f < columns - 2)
        nl.store(out, total)
        return out

    a, b = numbers(3, 6, 5), numbers(3, 6, 9)
    wanted = np.einsum("kcr,kcf->rf", a.astype(float), b.astype(float))
    wanted[:, -2:] = 0
    np.testing.assert_allclose(kernel(a, b), wanted, rtol=1e-5, atol=1e-6)


def reduce_in_a_loop(body):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 4), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, body(nl.load(x)))
        return out

    return kernel(numbers(4, 4))


def test_loop_reduce_needs_a_destination_that_exists():
    def body(x):
        for k in nl.affine_range(2):
            total = nl.loop_reduce(x, nl.add, [k])
        return total

    with pytest.raises(ParameterError, match="'total', which does not exist yet"):
        reduce_in_a_loop(body)


def test_loop_reduce_is_not_an_expression():
    def body(x):
        total = nl.zeros((4, 4), nl.float32)
        for k in nl.affine_range(2):
            total[...] = nl.loop_reduce(x, nl.add, [k]) * 2
        return total

    with pytest.raises(UninitializedReadError, match="loop_reduce result"):
        reduce_in_a_loop(body)


def test_loop_reduce_keeps_the_type_of_its_destination():
    def body(x):
        total = nl.zeros((4, 4), nl.float32)
        for k in nl.affine_range(2):
            total = nl.loop_reduce(x, nl.add, [k], dtype=nl.bfloat16)
        return total

    with pytest.raises(DTypeError, match="bfloat16 into"):
        reduce_in_a_loop(body)


# -- all_reduce


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("axes", "over"), [(0, (0,)), ((1,), (1,)), ([0, 1], (0, 1))])
def test_all_reduce(name, axes, over):
    op, reference, _ = OPS[name]

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.program_id(0), nl.program_id(1)
        part = nl.load(x[i, j])
        nl.store(out[i, j], nl.all_reduce(part, op=op, program_axes=axes) - part)
        return out

    x = numbers(2, 3, 7, 9)
    wanted = reference.reduce(x, axis=over, keepdims=True) - x
    np.testing.assert_allclose(kernel[2, 3](x), wanted, rtol=1e-5, atol=1e-6)


def test_all_reduce_takes_the_program_id_of_the_only_axis():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        nl.store(out[i], nl.all_reduce(nl.load(x[i]), op=np.add, program_axes=[i]))
        return out

    x = numbers(3, 7, 9)
    np.testing.assert_allclose(kernel[3](x), np.broadcast_to(x.sum(0), x.shape), rtol=1e-5)


def test_all_reduce_in_a_loop_feeds_the_next_iteration():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        mine = nl.ndarray(x.shape[1:], x.dtype)
        mine[...] = nl.load(x[i])
        for _ in range(3):
            mine[...] = nl.all_reduce(mine * (i + 1.0), np.add, 0)
        nl.store(out[i], mine)
        return out

    x = numbers(3, 4, 5)
    wanted = x
    for _ in range(3):
        total = (wanted * np.arange(1.0, 4.0)[:, None, None]).sum(0)
        wanted = np.broadcast_to(total, x.shape)
    for _ in range(2):  # and again with the workspace of the first run
        np.testing.assert_allclose(kernel[3](x), wanted, rtol=1e-5)


def test_all_reduce_rounds_once():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape[1:], x.dtype, buffer=nl.shared_hbm)
        total = nl.all_reduce(nl.load(x[nl.program_id(0)]), np.add, 0)
        nl.store(out, total, mask=nl.arange(4)[:, None] < 4 * (nl.program_id(0) == 0))
        return out

    x = np.full((8, 4, 4), 1 / 3, np.float32).astype(BF16)
    x[0] = 64
    wanted = x.astype(np.float32).sum(0).astype(BF16)
    np.testing.assert_array_equal(kernel[8](x).astype(np.float32), wanted.astype(np.float32))


def grid_kernel(body):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], body(nl.load(x[nl.program_id(0)])))
        return out

    return kernel


def test_all_reduce_refuses_to_be_left_out():
    kernel = grid_kernel(
        lambda t: nl.all_reduce(t, np.add, 0) if nl.program_id(0) < 2 else nl.copy(t)
    )
    with pytest.raises(ParameterError, match=r"instance \(0,\) waits at .* for nl.all_reduce"):
        kernel[3](numbers(3, 4, 4))


def test_all_reduce_refuses_unequal_shapes():
    kernel = grid_kernel(
        lambda t: t[:, 0:1] * nl.all_reduce(t[:, 0 : 1 + nl.program_id(0)], np.add, 0)[:, 0:1]
    )
    with pytest.raises(RaceError, match="another instance"):
        kernel[2](numbers(2, 4, 4))


def test_all_reduce_is_modelled():
    kernel = grid_kernel(lambda t: nl.all_reduce(t, np.add, 0))
    x = numbers(3, 4, 4)
    alone = grid_kernel(lambda t: nl.copy(t))
    assert nkisim.profile(kernel[3], x).body_us > nkisim.profile(alone[3], x).body_us


# -- the rest


def test_the_grids_of_matmul_indices(compute):
    x = numbers(128, 512)
    np.testing.assert_array_equal(compute(lambda t: nl.copy(t[nl.gemm_grid()]), x), x)
    narrow = compute(lambda t: nl.copy(t[nl.gemm_stationary_grid()]), x)
    np.testing.assert_array_equal(narrow, x[:, :128])


def test_operators_compiled_into_the_sdk_say_that_they_are_not_here():
    with pytest.raises(UnsupportedError, match="custom_op"):
        reduce_in_a_loop(lambda t: nisa.builtin_custom_op("sort", "lib.so", 1, 1, [t], [t]))
