"""The softmax kernels on NumPy arrays: values, gradients, odd shapes, dtypes, refusals.

The reference runs in float64. The kernels compute in float32 and round once: half a step of the
output's dtype, and float32 errors below 1e-5 of the value. Most of these are in the exponent: a
difference of 80 is rounded by up to 4e-6, and so is its exponential.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.softmax import (
    nki_softmax,
    nki_softmax_backward,
    nki_softmax_kernel,
    reference,
)

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def draw(shape, dtype=np.float32, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape, np.float32)).astype(dtype)


def check(x, grad_y):
    """Forward and backward against the reference; what the kernels returned."""
    y = nki_softmax(x)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    step = float(ml_dtypes.finfo(x.dtype).eps) / 2 + 1e-5
    tiny = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    exact = reference.softmax(x.astype(np.float64))
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=step, atol=tiny)

    grad_x = nki_softmax_backward(grad_y, y)
    assert grad_x.dtype == x.dtype
    grad, out = grad_y.astype(np.float64), y.astype(np.float64)
    exact = reference.softmax_backward(grad, out)
    terms = (np.abs(grad) + np.abs(grad * out).sum(axis=-1, keepdims=True)) * out
    error = np.abs(grad_x.astype(np.float64) - exact)
    assert (error <= step * np.abs(exact) + 1e-5 * terms + tiny).all()
    return y, grad_x


# 129 rows need a second tile; 2049 elements a second chunk; 8193 are loaded twice.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "shape", [(1, 1), (7,), (129, 300), (3, 2049), (130, 8192), (2, 8193), (2, 3, 5, 20001)]
)
def test_any_shape(shape, dtype, in_dialect):
    """The dialects agree to the last bit, and so do one core and two."""
    x, grad_y = draw(shape, dtype), draw(shape, dtype, seed=1)
    theirs = check(x, grad_y)
    in_dialect("nki")
    ours = check(x, grad_y)
    on_two = nki_softmax(x, lnc=2), nki_softmax_backward(grad_y, ours[0], lnc=2)
    for a, b, c in zip(ours, theirs, on_two, strict=True):
        assert a.tobytes() == b.tobytes() == c.tobytes()


def test_import_nki_on_trainium1(in_dialect, monkeypatch):
    """Its Scalar Engine has no tensor_scalar; 520 rows take all the ways through the kernel."""
    x, grad_y = draw((520, 70)), draw((520, 70), seed=1)
    theirs = check(x, grad_y)
    in_dialect("nki")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    for a, b in zip(check(x, grad_y), theirs, strict=True):
        np.testing.assert_array_equal(a, b)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 260), st.one_of(st.integers(1, 2500), st.integers(8100, 8300))),
    dtype=st.sampled_from(DTYPES),
    scale=st.sampled_from([0.0, 1.0, 30.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernels_equal_the_reference(shape, dtype, scale, seed):
    check(draw(shape, dtype, seed, scale), draw(shape, dtype, seed + 1))


@pytest.mark.parametrize("cols", [100, 9000])
def test_large_elements_do_not_overflow(cols, dialect):
    """exp(88.8) is more than float32 holds; the largest comes last."""
    x = np.linspace(-1e4, 1e4, cols, dtype=np.float32)[None]
    y = nki_softmax(x)
    np.testing.assert_allclose(y, reference.softmax(x.astype(np.float64)), rtol=1e-5, atol=1e-37)
    np.testing.assert_allclose(nki_softmax(x + 1e6).sum(), 1, rtol=1e-6)


def test_special_values(dialect):
    """NaN spreads over its row; -inf takes no share, unless all of a row is -inf."""
    x = draw((4, 6))
    x[0, 2], x[1, 3], x[2] = np.nan, -np.inf, -np.inf
    y = nki_softmax(x)
    assert np.isnan(y[0]).all()
    assert y[1, 3] == 0
    assert np.isfinite(y[1]).all()
    assert np.isnan(y[2]).all()
    assert np.isfinite(y[3]).all()


def test_reference_gradient_equals_finite_differences():
    x, grad_y = draw((3, 5)).astype(np.float64), draw((3, 5), seed=1).astype(np.float64)
    found = reference.softmax_backward(grad_y, reference.softmax(x))
    assert_is_gradient([found], lambda x: (reference.softmax(x) * grad_y).sum(), [x])


def test_moving_the_data_is_the_limit():
    import nkisim

    for dtype in (np.float32, ml_dtypes.bfloat16):
        timeline = nkisim.profile(
            nki_softmax_kernel, nkisim.TensorSpec((4096, 4096), np.dtype(dtype))
        )
        resource, least = timeline.roofline
        assert resource == "DMA queues"
        assert least >= 0.85 * timeline.latency_us


X = draw((4, 6))


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (np.float32(1), ValueError, "no axis"),
        (X[:0], ValueError, "no elements"),
        (X[:, :0], ValueError, "no elements"),
        (X.astype(int), TypeError, "x is int64"),
        (X.astype(np.float64), TypeError, "x is float64"),
        ([1.0], TypeError, "x is a list"),
    ],
)
def test_refused_inputs(x, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_softmax(x)


@pytest.mark.parametrize(
    ("grad_y", "error", "message"),
    [
        (X[:3], ValueError, r"grad_y is float32 of shape \(3, 6\)"),
        (X.astype(np.float16), ValueError, "grad_y is float16"),
        (None, TypeError, "grad_y is a NoneType"),
    ],
)
def test_refused_gradients(grad_y, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_softmax_backward(grad_y, X)
