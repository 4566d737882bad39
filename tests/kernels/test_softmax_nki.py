"""Softmax in `import nki`: values, gradients, shapes, dtypes, frameworks, and the older dialect.

Errors are bounded as in test_softmax: half a step of the output's dtype, and float32's own 1e-5.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from kernels.softmax import neuronxcc, reference
from kernels.softmax.nki import nki_softmax, nki_softmax_backward
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# 129 rows need a second tile, 300 a third; 2049 elements a second chunk; 8193 are loaded twice.
SHAPES = [(1, 1), (7,), (129, 300), (300, 70), (3, 2049), (130, 8192), (2, 8193), (2, 3, 5, 10001)]


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def draw(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape, dtype):
    """Against the reference; to the last bit on two cores, and against the older dialect."""
    x, grad_y = draw(shape, dtype), draw(shape, dtype, seed=1)
    step = float(ml_dtypes.finfo(x.dtype).eps) / 2 + 1e-5
    tiny = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    y = nki_softmax(x)
    assert (y.dtype, y.shape) == (x.dtype, x.shape)
    exact = reference.softmax(x.astype(np.float64))
    np.testing.assert_allclose(y.astype(np.float64), exact, rtol=step, atol=tiny)

    grad_x = nki_softmax_backward(grad_y, y)
    assert (grad_x.dtype, grad_x.shape) == (x.dtype, x.shape)
    grad, out = grad_y.astype(np.float64), y.astype(np.float64)
    exact = reference.softmax_backward(grad, out)
    terms = (np.abs(grad) + np.abs(grad * out).sum(axis=-1, keepdims=True)) * out
    error = np.abs(grad_x.astype(np.float64) - exact)
    assert (error <= step * np.abs(exact) + 1e-5 * terms + tiny).all()

    for other in (neuronxcc.nki_softmax(x), nki_softmax(x, lnc=2)):
        assert y.tobytes() == other.tobytes()
    for other in (
        neuronxcc.nki_softmax_backward(grad_y, y),
        nki_softmax_backward(grad_y, y, lnc=2),
    ):
        assert grad_x.tobytes() == other.tobytes()


def test_on_trainium1(monkeypatch):
    """Its Scalar Engine has no tensor_scalar; 520 rows take all the ways through the kernel."""
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    x, grad_y = draw((520, 70)), draw((520, 70), seed=1)
    y = nki_softmax(x)
    np.testing.assert_array_equal(y, neuronxcc.nki_softmax(x))
    expected = neuronxcc.nki_softmax_backward(grad_y, y)
    np.testing.assert_array_equal(nki_softmax_backward(grad_y, y), expected)


@pytest.mark.parametrize("cols", [100, 9000])
def test_large_elements_do_not_overflow(cols):
    x = np.linspace(-1e4, 1e4, cols, dtype=np.float32)[None]
    expected = reference.softmax(x.astype(np.float64))
    np.testing.assert_allclose(nki_softmax(x), expected, rtol=1e-5, atol=1e-37)


def test_refused_inputs():
    x = draw((4, 6))
    with pytest.raises(ValueError, match="no elements"):
        nki_softmax(x[:0])
    with pytest.raises(TypeError, match="x is float64"):
        nki_softmax(x.astype(np.float64))
    with pytest.raises(ValueError, match="grad_y is float32 of shape"):
        nki_softmax_backward(x[:3], x)
    with pytest.raises(KernelError, match="1 or 2"):
        nki_softmax(x, lnc=3)
