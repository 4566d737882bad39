"""The Tensor Engine against NumPy: products, accumulation in PSUM, transposes, and their rules."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.errors import (
    MemorySpaceError,
    ParameterError,
    UninitializedReadError,
)

BF16 = np.dtype(ml_dtypes.bfloat16)
TYPES = [np.dtype(t) for t in ("float32", "float16")] + [
    BF16,
    np.dtype(ml_dtypes.float8_e4m3),
    np.dtype(ml_dtypes.float8_e5m2),
]
few = settings(max_examples=25, deadline=None)


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def product(a, b):
    return np.einsum("km,k...->m...", a.astype(float), b.astype(float))


def labels(kernel, *arrays):
    return [i.label for i in kernel.specialize(arrays, {}).program.instructions]


@given(
    k=st.integers(1, 128),
    m=st.integers(1, 128),
    n=st.integers(1, 512),
    types=st.tuples(st.sampled_from(TYPES), st.sampled_from(TYPES)),
)
@few
def test_product(k, m, n, types, compute):
    a, b = numbers((k, m), types[0]), numbers((k, n), types[1], seed=1)
    got = compute(lambda x, y: nisa.nc_matmul(x, y), a, b)
    assert got.dtype == np.float32
    assert got.shape == (m, n)
    # Inputs are exact in fp32, so only the fp32 accumulation of k products rounds.
    np.testing.assert_allclose(got, product(a, b), rtol=1e-5, atol=1e-5)


def test_operands_may_be_strided_and_moving_may_have_several_axes(compute):
    a, b = numbers((16, 20)), numbers((16, 6, 10))

    def body(x, y):
        p, i, j = nl.mgrid[0:16, 0:3, 0:5]
        return nisa.nc_matmul(x[:, 0:20:2], y[p, 2 * i, 2 * j + 1])

    got = compute(body, a, b)
    np.testing.assert_allclose(got, product(a[:, ::2], b[:, ::2, 1::2]), rtol=1e-5, atol=1e-5)


@nki.jit
def contraction(a, b):
    out = nl.ndarray((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)
    total = nl.zeros((a.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a.shape[0] // 128):
        x = nl.load(a[k * 128 : (k + 1) * 128, :])
        y = nl.load(b[k * 128 : (k + 1) * 128, :])
        total += nisa.nc_matmul(x, y)
    nl.store(out, nl.copy(total))
    return out


def test_accumulation_happens_in_psum():
    a, b = numbers((384, 64)), numbers((384, 300), seed=1)
    # 384 products of up to 4, added up in fp32.
    np.testing.assert_allclose(contraction(a, b), product(a, b), rtol=1e-5, atol=1e-4)
    seen = labels(contraction, a, b)
    assert seen.count("nc_matmul") == 3
    assert not any("tensor_tensor" in label for label in seen)  # no other engine adds


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_the_first_matmul_into_a_fresh_tile_starts_the_accumulation(loop):
    @nki.jit
    def kernel(a, b):
        out = nl.ndarray((2, 64, 40), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((2, nl.par_dim(64), 40), dtype=nl.float32, buffer=nl.psum)
        for half in nl.affine_range(2):
            for k in loop(3):
                rows = nl.ds(k * 128, 128)
                total[half] += nisa.nc_matmul(nl.load(a[rows, :]), nl.load(b[half, rows, :]))
            nl.store(out[half], nl.copy(total[half]))
        return out

    a, b = numbers((384, 64)), numbers((2, 384, 40), seed=1)
    want = np.stack([product(a, x) for x in b])
    np.testing.assert_allclose(kernel(a, b), want, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(kernel(a, b), want, rtol=1e-5, atol=1e-4)  # in a used workspace


def test_accumulating_over_a_part_of_a_written_tile_reads_the_rest(compute):
    def body(x, y):
        total = nl.ndarray((16, 40), dtype=nl.float32, buffer=nl.psum)
        total[:, 0:20] += nisa.nc_matmul(x, y[:, 0:20])
        total += nisa.nc_matmul(x, y)
        return nl.copy(total)

    with pytest.raises(UninitializedReadError, match="320 of 640"):
        compute(body, numbers((32, 16)), numbers((32, 40), seed=1))


def test_results_of_the_tensor_engine_are_operands_of_the_next(compute):
    """The compiler moves a result that the kernel has given no place from PSUM to SBUF."""
    x, y = numbers((64, 48)), numbers((64, 80), seed=1)
    got = compute(lambda a, b: nisa.nc_matmul(nisa.nc_transpose(nisa.nc_transpose(a)), b), x, y)
    np.testing.assert_allclose(got, product(x, y), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("use", [nisa.nc_transpose, lambda t: nisa.nc_matmul(t, t)])
def test_a_tile_that_is_placed_in_psum_is_no_operand(compute, use):
    def body(a):
        placed = nl.ndarray((48, 64), dtype=a.dtype, buffer=nl.psum)
        placed[...] = nisa.nc_transpose(a)
        return use(placed)

    with pytest.raises(MemorySpaceError, match="reads SBUF"):
        compute(body, numbers((64, 48)))


def test_a_product_that_is_used_twice_is_still_there(compute):
    a, b = numbers((32, 16)), numbers((32, 40), seed=1)

    def body(x, y):
        first = nl.zeros((16, 40), dtype=nl.float32, buffer=nl.psum)
        part = nisa.nc_matmul(x, y)
        first += part
        x[...] = nl.multiply(x, 0.0)  # must not reach back into the product
        first += nisa.nc_matmul(x, y)
        return nl.copy(first), nl.copy(part)

    total, part = compute(body, a, b)
    np.testing.assert_allclose(part, product(a, b), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(total, product(a, b), rtol=1e-5, atol=1e-5)


def test_accumulating_in_sbuf_is_an_addition(compute):
    a, b = numbers((8, 4)), numbers((8, 6), seed=1)

    def body(x, y):
        total = nl.full((4, 6), 1.0, dtype=nl.float32)
        total += nisa.nc_matmul(x, y)
        return total

    np.testing.assert_allclose(compute(body, a, b), 1 + product(a, b), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transpose_x", [False, True])
def test_language_matmul(transpose_x, compute):
    a, b = numbers((70, 50)), numbers((70 if transpose_x else 50, 90), seed=1)
    got = compute(lambda x, y: nl.matmul(x, y, transpose_x=transpose_x), a, b)
    wanted = (a.T if transpose_x else a).astype(float) @ b
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("transpose_x", [False, True])
def test_language_matmul_takes_results_of_the_tensor_engine(transpose_x, compute):
    a, b = numbers((70, 50)), numbers((90, 70 if transpose_x else 50), seed=1)

    def body(x, y):
        return nl.matmul(nl.transpose(nl.transpose(x)), nl.transpose(y), transpose_x=transpose_x)

    wanted = (a.T if transpose_x else a).astype(float) @ b.T
    np.testing.assert_allclose(compute(body, a, b), wanted, rtol=1e-5, atol=1e-5)


def test_masks_cut_the_contraction_and_the_columns(compute):
    a, b = numbers((20, 10)), numbers((20, 30), seed=1)

    def body(x, y):
        k, m, n = nl.arange(20)[:, None], nl.arange(10)[None, :], nl.arange(30)[None, :]
        return nisa.nc_matmul(x, y, mask=(k < 13) & (m < 7) & (n >= 4))

    def where():
        return (nl.arange(10)[:, None] < 7) & (nl.arange(30)[None, :] >= 4)

    got = compute(body, a, b, mask=where)
    np.testing.assert_allclose(got[:7, 4:], product(a[:13, :7], b[:13, 4:]), rtol=1e-5, atol=1e-5)
    assert (got[7:] == 77).all()
    assert (got[:, :4] == 77).all()


def test_undefined_columns_stay_columns(compute):
    b = numbers((8, 6), seed=1)

    def body(y, rows):
        x = nl.ndarray((8, 5), dtype=nl.float32)
        x[0:rows, 0:3] = nl.copy(y[0:rows, 0:3])
        return nisa.nc_matmul(x, y)[0:3, :]

    got = compute(lambda y: body(y, 8), b)  # columns 3 and 4 of x reach rows 3 and 4 only
    np.testing.assert_allclose(got, product(b[:, :3], b), rtol=1e-5, atol=1e-5)
    with pytest.raises(UninitializedReadError, match="nothing wrote"):
        compute(lambda y: body(y, 7), b)  # a row of the contraction reaches everything


@pytest.mark.parametrize("multiplies", [True, False])
def test_what_is_undefined_does_not_spread_in_transposes(multiplies):
    """Memory that a tile of other bytes has left: as fp16 they are NaN."""

    @nki.jit
    def kernel(first, x, eye):
        other = nl.ndarray((128, 1), nl.float32, buffer=nl.shared_hbm)
        out = nl.ndarray((128, 44), x.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:128, 0:128]
        identity = nl.load(eye)
        nl.store(other, nl.max(nl.multiply(nl.load(first), 1.0), axis=1))
        part = nl.ndarray((nl.par_dim(128), 128), x.dtype)
        part[i, j] = nl.load(x[i, j], mask=i < 44)
        if multiplies:
            turned = nisa.nc_matmul(part, identity, is_transpose=True)
        else:
            turned = nisa.nc_transpose(part, engine=nisa.tensor_engine)
        nl.store(out, nl.copy(turned, dtype=x.dtype)[0:128, 0:44])
        return other, out

    first = np.full((128, 64), 0x7E007E00, np.uint32).view(np.float32)
    x = numbers((44, 128), np.float16)
    np.testing.assert_array_equal(kernel(first, x, np.eye(128, dtype=np.float16))[1], x.T)


def test_double_row(compute):
    a = numbers((128, 2, 16), ml_dtypes.float8_e5m2)
    b = numbers((128, 2, 100), ml_dtypes.float8_e5m2, seed=1)
    got = compute(
        lambda x, y: nisa.nc_matmul(x, y, perf_mode="double_row_gen3"), a, b, target="trn2"
    )
    wanted = np.einsum("kri,krj->ij", a.astype(float), b.astype(float))
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-4)


@given(
    rows=st.integers(1, 128),
    columns=st.integers(1, 128),
    dtype=st.sampled_from(["float32", "bfloat16", "int32", "uint8"]),
)
@few
def test_transpose(rows, columns, dtype, compute):
    kind = BF16 if dtype == "bfloat16" else np.dtype(dtype)
    x = np.random.default_rng(3).integers(0, 100, (rows, columns)).astype(kind)
    for body in (nisa.nc_transpose, nl.transpose):
        got = compute(body, x)
        assert got.dtype == kind
        np.testing.assert_array_equal(got, x.T)


def test_transpose_of_several_axes_engines_and_types(compute):
    x = numbers((30, 4, 8))
    np.testing.assert_array_equal(compute(nisa.nc_transpose, x), x.reshape(30, 32).T)
    small = numbers((20, 32))
    on_vector = compute(lambda t: nisa.nc_transpose(t, engine=nisa.vector_engine), small)
    np.testing.assert_array_equal(on_vector, small.T)
    wide = compute(
        lambda t: nisa.nc_transpose(t, engine=nisa.tensor_engine, dtype=nl.bfloat16), small
    )
    np.testing.assert_array_equal(wide, small.T.astype(BF16))
    spaces = []
    compute(lambda t: (spaces.append(nisa.nc_transpose(t).space.name), t)[1], small)
    compute(lambda t: (spaces.append(nisa.nc_transpose(t).space.name), t)[1], numbers((33, 4)))
    assert spaces == ["SBUF", "PSUM"]


def test_transpose_in_place(compute):
    x = numbers((32, 32))

    def body(t):
        t[...] = nisa.nc_transpose(t)
        return t

    np.testing.assert_array_equal(compute(body, x), x.T)


def test_masks_of_the_operands_leave_the_result_its_shape(compute):
    # As nki-samples' rmsnorm_quant does in the last tile of a row.
    a, b = numbers((20, 10)), numbers((20, 30), seed=1)

    def body(x, y):
        m, n = nl.arange(10)[None, :], nl.arange(30)[None, :]
        out = nl.full((10, 30), 77, dtype=nl.float32, buffer=nl.psum)
        out[nl.arange(10)[:, None], n] = nisa.nc_matmul(
            x[nl.arange(20)[:, None], m][m < 7], y[nl.arange(20)[:, None], n + 6][n + 6 < 30]
        )
        return nl.copy(out)

    got = compute(body, a, b)
    np.testing.assert_allclose(got[:7, :24], product(a[:, :7], b[:, 6:]), rtol=1e-5, atol=1e-5)
    assert (got[7:] == 77).all()
    assert (got[:, 24:] == 77).all()


def test_masked_transpose(compute):
    x = numbers((20, 40))

    def body(t):
        return nisa.nc_transpose(
            t, mask=(nl.arange(20)[:, None] < 5) & (nl.arange(40)[None, :] >= 32)
        )

    def where():
        return (nl.arange(40)[:, None] >= 32) & (nl.arange(20)[None, :] < 5)

    got = compute(body, x, mask=where)
    wanted = np.full((40, 20), 77, np.float32)
    wanted[32:, :5] = x.T[32:, :5]
    np.testing.assert_array_equal(got, wanted)


def pe(t, position, size):
    return nisa.nc_matmul(t, t, tile_position=position, tile_size=size)


X = numbers((64, 64))
# fmt: off
REFUSED = {
    "outside the array": (lambda t: pe(t, (96, 0), (64, 64)), ParameterError, "128 rows"),
    "perf_mode on gen2": (lambda t: nisa.nc_matmul(t, t, perf_mode="double_row_gen3"),
        ParameterError, "NeuronCore-v3"),
    "which columns": (lambda t: nisa.nc_matmul(t, t, mask=nl.arange(64)[None, :] < 5),
        ParameterError, "it is open"),
    "transpose on scalar": (lambda t: nisa.nc_transpose(t, engine=nisa.scalar_engine),
        ParameterError, "tensor or"),
}
# fmt: on


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case, compute):
    body, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        compute(body, X)


def test_hints_change_no_value(compute):
    a = (numbers((32, 32)) > 0).astype(np.float32)
    b = numbers((32, 64), seed=1)
    got = compute(
        lambda x, y: nisa.nc_matmul(
            x, y, is_stationary_onezero=True, tile_position=(0, 0), tile_size=(64, 64)
        ),
        a,
        b,
    )
    np.testing.assert_allclose(got, product(a, b), rtol=1e-5, atol=1e-5)
    eye = np.eye(32, dtype=np.float32)
    flipped = compute(lambda x, y: nisa.nc_matmul(x, y, is_transpose=True), b[:, :20], eye)
    np.testing.assert_array_equal(flipped, b[:, :20].T)
