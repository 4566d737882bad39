"""RMSNorm in `import nki`: values, gradients, shapes, dtypes, frameworks, and the older dialect.

Errors are bounded as in test_rmsnorm: half a step of the output's dtype, and float32's own error
relative to the terms of a sum.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.rmsnorm import neuronxcc, reference
from kernels.rmsnorm.nki import nki_rms_norm, nki_rms_norm_backward
from nkisim import KernelError

EPS = 1e-5
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# 129 and 300 rows need a second and third tile; 1025 and 2049 elements one more chunk.
SHAPES = [(1, 1), (1, 700), (127, 1), (128, 512), (129, 129), (300, 200), (5, 1025), (130, 2049)]


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def arrays(shape, axes=1, dtype=np.float32, weight_dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    x, grad_y = (rng.standard_normal(shape, np.float32).astype(dtype) for _ in range(2))
    weight = 1 + 0.5 * rng.standard_normal(shape[-axes:], np.float32)
    return x, weight.astype(weight_dtype), grad_y


def check(x, weight, grad_y, lnc, eps=EPS):
    """Forward and backward against NumPy in float64; what the kernels returned."""
    step = float(ml_dtypes.finfo(x.dtype).eps) / 2 + 2e-6
    tiny = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    y, invvar = nki_rms_norm(x, weight, eps, lnc=lnc)
    grad_x, grad_weight = nki_rms_norm_backward(grad_y, x, weight, invvar, lnc=lnc)
    assert (y.dtype, invvar.dtype, grad_x.dtype) == (x.dtype, np.float32, x.dtype)
    assert (grad_weight.dtype, grad_weight.shape) == (np.float32, weight.shape)

    wide_x, wide_weight, wide_grad = (a.astype(np.float64) for a in (x, weight, grad_y))
    expected, expected_invvar = reference.rms_norm(wide_x, wide_weight, eps)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=step, atol=tiny)
    np.testing.assert_allclose(invvar, expected_invvar, rtol=2e-6)

    lead = x.ndim - weight.ndim
    each_row = np.expand_dims(invvar.astype(np.float64), tuple(range(lead, x.ndim)))
    expected_x, expected_weight = reference.rms_norm_backward(
        wide_grad, wide_x, wide_weight, invvar.astype(np.float64)
    )
    size = np.abs(each_row * wide_grad * wide_weight)
    size = size.max(axis=tuple(range(lead, x.ndim)), keepdims=True) + np.abs(expected_x)
    error = np.abs(grad_x.astype(np.float64) - expected_x)
    assert (error <= step * np.abs(expected_x) + 4e-6 * size).all()
    terms = np.abs(wide_grad * wide_x * each_row).sum(axis=tuple(range(lead)))
    assert (np.abs(grad_weight - expected_weight) <= 2e-6 * terms).all()
    return y, invvar, grad_x, grad_weight


def assert_same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape, dtype):
    """Against the reference on one and two cores, and to the last bit against the older dialect."""
    x, weight, grad_y = arrays(shape, dtype=dtype)
    ours = check(x, weight, grad_y, 1)
    y, invvar = neuronxcc.nki_rms_norm(x, weight, EPS)
    theirs = y, invvar, *neuronxcc.nki_rms_norm_backward(grad_y, x, weight, invvar)
    for a, b in zip(ours, theirs, strict=True):
        assert_same_bits(a, b)
    two = check(x, weight, grad_y, 2)
    for a, b in zip(two[:3], ours[:3], strict=True):
        assert_same_bits(a, b)  # the fourth is a sum in another order


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("weight_dtype", DTYPES)
def test_weight_of_another_dtype(weight_dtype, lnc):
    for dtype in DTYPES:
        check(*arrays((130, 300), dtype=dtype, weight_dtype=weight_dtype), lnc)


@pytest.mark.parametrize(("shape", "axes"), [((7,), 1), ((2, 70, 3, 5), 2), ((6, 4), 2)])
def test_last_axes(shape, axes):
    """Any number of axes is normalised, and any number precedes them."""
    _, invvar, *_ = check(*arrays(shape, axes), 2)
    assert invvar.shape == shape[:-axes]


@pytest.mark.parametrize("eps", [0.0, 1e-6, 10.0])
def test_eps(eps):
    check(*arrays((3, 70)), 1, eps)


@pytest.mark.parametrize("cols", [10922, 10923, 16384])
def test_longest_rows(cols):
    """Up to 10922 float32 columns the backward kernel keeps x, from there on it loads it twice."""
    check(*arrays((3, cols)), 1)


def test_refused_inputs():
    x, weight, grad_y = arrays((4, 8))
    invvar = np.ones(4, np.float32)
    with pytest.raises(ValueError, match="The last axes of x"):
        nki_rms_norm(x, weight[:7])
    with pytest.raises(TypeError, match="x is float64"):
        nki_rms_norm(x.astype(np.float64), weight)
    with pytest.raises(ValueError, match="no rows"):
        nki_rms_norm(x[:0], weight)
    with pytest.raises(ValueError, match="invvar is float32 of shape"):
        nki_rms_norm_backward(grad_y, x, weight, invvar[:3])
    with pytest.raises(KernelError, match="1 or 2"):
        nki_rms_norm(x, weight, lnc=3)
