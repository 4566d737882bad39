"""Products that read operands at their source, and are joined: the same results as step by step."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from as_written import same_as_naive

from nkisim.numerics.plan import plan


def opcodes(program):
    keep = {b.number for b in program.output_buffers}
    return [step.instr.opcode for step in plan(program.trace, keep)]


def whole(rng, shape, dtype=np.float32):
    """Whole numbers, of which all sums are exact in any order."""
    return rng.integers(-4, 5, shape).astype(dtype)


@nki.jit
def tiled(a, b):
    """(m, k) times (k, n): transposed loads into one tile, sums in PSUM."""
    (m, k), n = a.shape, b.shape[1]
    out = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm)
    left = nl.ndarray((nl.par_dim(128), k // 128, m), a.dtype)
    right = nl.ndarray((nl.par_dim(128), k // 128, n), a.dtype)
    for t in range(k // 128):
        left[:, t, :] = nl.load_transpose2d(a[:, nl.ds(t * 128, 128)])
        right[:, t, :] = nl.load(b[nl.ds(t * 128, 128), :])
    total = nl.zeros((m, n), nl.float32, buffer=nl.psum)
    for t in nl.affine_range(k // 128):
        total += nisa.nc_matmul(left[:, t, :], right[:, t, :])
    nl.store(out, total)
    return out


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_a_sum_of_products_is_one_product(dtype):
    rng = np.random.default_rng(0)
    a, b = whole(rng, (33, 384), dtype), whole(rng, (384, 65), dtype)
    program = same_as_naive(tiled, a, b)
    assert opcodes(program).count("nc_matmul") == 1
    assert "dma_transpose" not in opcodes(program)
    want = a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_array_equal(tiled(a, b), want)


def test_another_order_of_summing_is_as_exact():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((2, 128, 128), np.float32).repeat(4, axis=2)
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    error = np.abs(tiled(a, np.ascontiguousarray(b.T)) - exact)
    # Each of 512 products and sums in fp32 is off by half a unit in the last place at most.
    assert (error <= 512 * 2**-24 * (np.abs(a) @ np.abs(b.T)) + 1e-30).all()


@nki.jit
def turned(x, y, columns=128):
    """x @ y by way of transposes on the Tensor Engine; of each, so many columns."""
    rows, k = x.shape
    out = nl.ndarray((columns, y.shape[1]), nl.float32, buffer=nl.shared_hbm)
    tile, total = nl.load(x), nl.zeros((columns, y.shape[1]), nl.float32, buffer=nl.psum)
    in_psum = nl.ndarray((nl.par_dim(32), k // 32, rows), x.dtype, buffer=nl.psum)
    for t in range(k // 32):
        in_psum[:, t, :] = nisa.nc_transpose(tile[:, nl.ds(t * 32, 32)], engine=nisa.tensor_engine)
    left = nl.copy(in_psum)
    for t in range(k // 32):
        total += nisa.nc_matmul(left[:, t, 0:columns], nl.load(y[nl.ds(t * 32, 32), :]))
    nl.store(out, total)
    return out


@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("columns", [128, 96])
def test_what_a_transpose_spreads(odd, columns):
    rng = np.random.default_rng(2)
    x, y = whole(rng, (128, 96)), whole(rng, (96, 40))
    if odd is not None:
        x[120, 40] = odd  # among the rows that 96 columns leave out
        x[7, 70] = odd
    program = same_as_naive(lambda_of(columns), x, y, compare=np.testing.assert_array_equal)
    steps = opcodes(program)
    # Where a product does not read whole rows of the transpose, it cannot tell what spreads.
    assert ("nc_transpose" in steps) == (columns < 128)
    got = turned(x, y, columns)
    if odd is None:
        np.testing.assert_array_equal(got, (x @ y)[:columns])
    else:
        assert np.isnan(got[:7]).all()  # rows that have none of them


def lambda_of(columns):
    @nki.jit
    def kernel(x, y):
        return turned.func(x, y, columns)

    return kernel


@nki.jit
def overwritten(x, y):
    """x.T @ y with an operand that changes after it was copied, and one that is read again."""
    out = nl.ndarray((x.shape[1], y.shape[1]), nl.float32, buffer=nl.shared_hbm)
    seen = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    source = nl.ndarray(x.shape, x.dtype)
    source[...] = nl.load(x)
    copied, right = nl.ndarray(x.shape, x.dtype), nl.load(y)
    copied[...] = nl.copy(source)
    source[...] = nl.add(source, 1)
    total = nl.zeros(out.shape, nl.float32, buffer=nl.psum)
    total += nisa.nc_matmul(copied, right)
    total += nisa.nc_matmul(source, right)
    nl.store(seen, source)
    nl.store(out, total)
    return out, seen


def test_an_operand_that_changes_later():
    rng = np.random.default_rng(3)
    x, y = whole(rng, (64, 30)), whole(rng, (64, 20))
    same_as_naive(overwritten, x, y)
    out, seen = overwritten(x, y)
    np.testing.assert_array_equal(out, x.T @ y + (x + 1).T @ y)
    np.testing.assert_array_equal(seen, x + 1)


@nki.jit
def blocked(a_t, b, step=64, again=False):
    """a_t.T @ b in tiles of step x step, a chunk of 64 of the contraction after the other."""
    (k, m), n = a_t.shape, b.shape[1]
    out = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm)
    products = nl.ndarray((m, n), nl.float32, buffer=nl.shared_hbm)
    sums = nl.zeros((nl.par_dim(64), m // step, n), nl.float32)
    for c in range(k // 64):
        left, right = (nl.load(x[nl.ds(c * 64, 64), :]) for x in (a_t, b))
        for i in range(m // step):
            for j in range(n // 64):
                rows, columns = nl.ds(i * step, 64), nl.ds(j * 64, 64)
                product = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
                product += nisa.nc_matmul(left[:, rows], right[:, columns])
                sums[:, i, columns] = nl.add(sums[:, i, columns], product)
                if again:  # what is read once more must have been computed
                    nl.store(products[rows, columns], product)
    for i in range(m // step):
        nl.store(out[nl.ds(i * step, 64), :], sums[:, i, :])
    return (out, products) if again else out


@pytest.mark.parametrize("shape", [(128, 192, 256), (64, 64, 64), (64, 128, 64), (192, 64, 128)])
@pytest.mark.parametrize("again", [False, True])
def test_tiles_side_by_side_are_one_product(shape, again):
    m, k, n = shape
    rng = np.random.default_rng(4)
    a_t, b = whole(rng, (k, m)), whole(rng, (k, n))

    @nki.jit
    def kernel(a_t, b):
        return blocked.func(a_t, b, 64, again)

    program = same_as_naive(kernel, a_t, b)
    tiles = (m // 64) * (k // 64) * (n // 64)
    assert opcodes(program).count("nc_matmul") == (tiles if again else 1)
    out = program.run([a_t, b])[0]
    np.testing.assert_array_equal(out, a_t.T @ b)


def test_tiles_that_overlap_are_not_one_product():
    """Sums of columns 0 to 63 and 32 to 95: in one call, an element would get one of two."""

    @nki.jit
    def kernel(a_t, b):
        out = nl.ndarray((64, 96), nl.float32, buffer=nl.shared_hbm)
        sums = nl.zeros((64, 96), nl.float32)
        left, right = nl.load(a_t), nl.load(b)
        for at in (0, 32):
            product = nl.zeros((64, 64), nl.float32, buffer=nl.psum)
            product += nisa.nc_matmul(left[:, nl.ds(at, 64)], right)
            sums[:, nl.ds(at, 64)] = nl.add(sums[:, nl.ds(at, 64)], product)
        nl.store(out, sums)
        return out

    rng = np.random.default_rng(5)
    a_t, b = whole(rng, (64, 128)), whole(rng, (64, 64))
    same_as_naive(kernel, a_t, b)
    want = np.zeros((64, 96), np.float32)
    for at in (0, 32):
        want[:, at : at + 64] += a_t[:, at : at + 64].T @ b
    np.testing.assert_array_equal(kernel(a_t, b), want)
