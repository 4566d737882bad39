"""The matmul kernel on NumPy arrays: values, layouts, gradients, odd shapes, dtypes, refusals.

The reference runs in float64. The kernel multiplies exactly (products of two 16-bit numbers fit
float32, those of float32 are rounded once), sums K of them in float32 in any order and rounds the
sum once: half a step of the output's dtype, and for the sum, with K roundings of 2**-24 that mostly
cancel, 2e-7 * sqrt(K) of the sum of absolute products.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.launch import kernel_of
from kernels.matmul import nki_matmul, nki_matmul_backward, nki_matmul_kernel, reference

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# (M, K, N): all different, so that no swap of axes hides. Below and above the tiles of 128, 128 and
# 512, the blocks of 1024, and the chunk of K, 512 in float32 and 1024 in 16 bits.
SHAPES = [
    (1, 1, 1),
    (1, 300, 2),
    (127, 1, 129),
    (128, 256, 512),
    (129, 130, 513),
    (3, 1030, 1100),
    (1025, 70, 5),
    (260, 513, 1500),
]


def draw(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def check(result, a, b):
    """Whether `result` is a @ b of two matrices, within the tolerance above."""
    assert result.dtype == a.dtype
    assert result.shape == (a.shape[0], b.shape[1])
    wide = a.astype(np.float64), b.astype(np.float64)
    expected = wide[0] @ wide[1]
    terms = np.abs(wide[0]) @ np.abs(wide[1])
    step = float(ml_dtypes.finfo(a.dtype).eps) / 2
    tiny = float(ml_dtypes.finfo(a.dtype).smallest_subnormal)
    tolerance = step * np.abs(expected) + 2e-7 * np.sqrt(a.shape[1]) * terms + tiny
    assert (np.abs(result.astype(np.float64) - expected) <= tolerance).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape, dtype, dialect):
    m, k, n = shape
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype, seed=1)
    check(nki_matmul(a, b), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("layout", list(itertools.product((False, True), repeat=2)))
def test_any_layout_in_import_nki(layout, shape, dtype, in_dialect):
    in_dialect("nki")
    m, k, n = shape
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype, seed=1)
    stored = [np.ascontiguousarray(x.T) if s else x for x, s in zip((a, b), layout, strict=True)]
    for lnc in (1, 2):
        check(kernel_of("matmul", "nki_matmul_kernel", lnc)(*stored, *layout), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_dialects_agree_to_the_last_bit_where_sums_are_exact(shape, dtype, in_dialect):
    """Small integers: no sum is rounded, so that the order of summation does not matter."""
    m, k, n = shape
    a, b = (
        np.random.default_rng(seed).integers(-2, 3, s).astype(dtype)
        for seed, s in enumerate(((m, k), (k, n)))
    )
    expected = nki_matmul(a, b)
    in_dialect("nki")
    for lnc in (1, 2):
        np.testing.assert_array_equal(nki_matmul(a, b, lnc=lnc), expected)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 400), st.integers(1, 1300), st.integers(1, 1300)),
    dtype=st.sampled_from(DTYPES),
    layout=st.tuples(st.booleans(), st.booleans()),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernel_equals_the_reference_in_any_layout(shape, dtype, layout, seed):
    m, k, n = shape
    a, b = draw(m, k, dtype=dtype, seed=seed), draw(k, n, dtype=dtype, seed=seed + 1)
    swapped = [np.ascontiguousarray(x.T) if s else x for x, s in zip((a, b), layout, strict=True)]
    check(nki_matmul_kernel(*swapped, *layout), a, b)


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("k", [2048, 2050, 4096, 4100])
def test_long_contractions(k, dtype, dialect):
    """Up to 2048 in float32, and 4096 in 16 bits, the block of a stays in SBUF for all of b."""
    a, b = draw(130, k, dtype=dtype), draw(k, 1030, dtype=dtype, seed=1)
    check(nki_matmul(a, b, lnc=2 if dialect == "nki" else None), a, b)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients_in_import_nki(dtype, lnc, in_dialect):
    in_dialect("nki")
    a, b, grad_c = (draw(*s, dtype=dtype) for s in ((3, 50, 130), (130, 70), (3, 50, 70)))
    grad_a, grad_b = nki_matmul_backward(grad_c, a, b, lnc=lnc)
    rows, columns = a.reshape(-1, 130), grad_c.reshape(-1, 70)
    check(grad_a.reshape(-1, 130), columns, np.ascontiguousarray(b.T))
    check(grad_b, np.ascontiguousarray(rows.T), columns)


@settings(max_examples=15, deadline=None)
@given(
    lead=st.lists(st.integers(1, 5), max_size=3).map(tuple),
    k=st.integers(1, 200),
    n=st.integers(1, 200),
    dtype=st.sampled_from(DTYPES),
)
def test_gradients_equal_the_reference(lead, k, n, dtype):
    a, b, grad_c = (draw(*s, dtype=dtype) for s in ((*lead, k), (k, n), (*lead, n)))
    if not lead:
        assert nki_matmul(a, b).shape == (n,)
        return
    grad_a, grad_b = nki_matmul_backward(grad_c, a, b)
    assert grad_a.shape == a.shape
    assert grad_b.shape == b.shape
    rows, columns = a.reshape(-1, k), grad_c.reshape(-1, n)
    check(grad_a.reshape(-1, k), columns, b.T)
    check(grad_b, rows.T, columns)
    expected = reference.matmul_backward(*(x.astype(np.float64) for x in (grad_c, a, b)))
    for ours, exact in zip((grad_a, grad_b), expected, strict=True):
        np.testing.assert_allclose(ours.astype(float), exact, rtol=2e-2, atol=0.5)


def test_reference_gradients_equal_finite_differences():
    a, b, grad_c = (x.astype(np.float64) for x in (draw(2, 3, 4), draw(4, 5), draw(2, 3, 5)))
    found = reference.matmul_backward(grad_c, a, b)
    assert_is_gradient(found, lambda *x: (reference.matmul(*x) * grad_c).sum(), (a, b))


def test_sums_are_float32_for_16_bit_operands(dialect):
    """bfloat16 cannot count above 256 in steps of 1, and 4096 * 32 overflows float16."""
    ones = np.ones((2, 4096), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(nki_matmul(ones, ones.T.copy()).astype(int), 4096)
    up, down = np.full((1, 4096), 32, np.float16), np.ones((4096, 1), np.float16)
    down[1::2] = -1
    np.testing.assert_array_equal(nki_matmul(up, down), 0)


def test_special_values(dialect):
    """NaN and infinity reach their row and column, and nothing else, edge tiles included."""
    a, b = draw(130, 131), draw(131, 140, seed=1)
    a[129, 130], b[7, 139] = np.nan, np.inf
    result = nki_matmul(a, b)
    assert np.isnan(result[129]).all()
    assert not np.isfinite(result[:, 139]).any()
    assert np.isfinite(result[:129, :139]).all()


def test_one_array_for_both():
    a = draw(140, 140)
    check(nki_matmul(a, a), a, a)


def test_most_of_the_peak():
    """The Tensor Engine is the limit at 4096, whatever the layout of a."""
    import nkisim

    square = nkisim.TensorSpec((4096, 4096), np.dtype(ml_dtypes.bfloat16))
    for transpose_lhs in (False, True):
        timeline = nkisim.profile(nki_matmul_kernel, square, square, transpose_lhs)
        resource, least = timeline.roofline
        assert resource == "Tensor"
        assert least >= 0.8 * timeline.latency_us


A, B = draw(4, 6), draw(6, 5)


@pytest.mark.parametrize(
    ("a", "b", "options", "error", "message"),
    [
        (A, B[:5], {}, ValueError, "contraction of 6 with 5. The last axis of a must be the first"),
        (A, B, {"transpose_b": True}, ValueError, "contraction of 6 with 5.* the last one of b"),
        (A, B, {"transpose_a": True}, ValueError, r"contraction of \(4,\) with \(6,\)"),
        (A, A, {"transpose_a": True, "transpose_b": True}, ValueError, "both set"),
        (np.float32(1), B, {}, ValueError, "a has shape ()"),
        (A, B[0], {}, ValueError, "b is a matrix"),
        (A, np.stack([B, B]), {}, ValueError, "vmap"),
        (A[:0], B, {}, ValueError, "no elements"),
        (A[:, :0], B[:0], {}, ValueError, "no elements"),
        (A.astype(int), B, {}, TypeError, "a is int64"),
        (A, B.astype(np.float64), {}, TypeError, "b is float64"),
        (A.astype(np.float16), B, {}, TypeError, "a is float16 and b float32"),
        ([[1.0]], B, {}, TypeError, "a is a list"),
        (A, None, {}, TypeError, "b is a NoneType"),
    ],
)
def test_refused_inputs(a, b, options, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_matmul(a, b, **options)
