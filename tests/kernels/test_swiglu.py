"""The SwiGLU kernels in both dialects: values, gradients, odd shapes, dtypes, refusals.

The reference runs in float64. The kernels compute in float32 and round once: half a step of the
output's dtype, and float32 errors below 1e-5 of the largest factor.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient

from kernels.swiglu import nki_swiglu, nki_swiglu_backward, reference

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]


def draw(shape, dtype=np.float32, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape, np.float32)).astype(dtype)


# 129 rows need a second tile, 2049 elements a second one, too; at 30 exp(-x) leaves float16.
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("scale", [1.0, 30.0])
@pytest.mark.parametrize("shape", [(1,), (129, 300), (3, 2049), (2, 3, 5, 7)])
def test_any_shape(shape, scale, dtype, dialect):
    gate, up, grad = (draw(shape, dtype, seed, scale) for seed in range(3))
    exact = [x.astype(np.float64) for x in (grad, gate, up)]
    found = nki_swiglu(gate, up), *nki_swiglu_backward(grad, gate, up)
    expected = reference.swiglu(*exact[1:]), *reference.swiglu_backward(*exact)
    info = ml_dtypes.finfo(dtype)
    for got, wanted in zip(found, expected, strict=True):
        assert (got.shape, got.dtype) == (gate.shape, gate.dtype)
        np.testing.assert_allclose(
            got.astype(np.float64),
            wanted,
            rtol=float(info.eps) / 2 + 1e-5,
            atol=float(info.smallest_subnormal) + 1e-6 * scale,
        )
    if dialect == "nki":
        again = (
            nki_swiglu(gate, up, lnc=2),
            *nki_swiglu_backward(grad, gate, up, lnc=2),
        )
        assert [x.tobytes() for x in again] == [x.tobytes() for x in found]


def test_reference_gradients_equal_finite_differences():
    gate, up, grad = (draw((3, 5), np.float64, seed) for seed in range(3))
    found = reference.swiglu_backward(grad, gate, up)
    assert_is_gradient(found, lambda *x: (reference.swiglu(*x) * grad).sum(), (gate, up))


X = draw((4, 6))


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ((X, X[:3]), ValueError, "must have one shape"),
        ((X[0, 0], X[0, 0]), ValueError, "at least one axis"),
        ((X[:0], X[:0]), ValueError, "no elements"),
        ((X, X.astype(np.float16)), TypeError, "up float16"),
        ((X.astype(int), X), TypeError, "gate is int64"),
        ((X, [1.0]), TypeError, "up is a list"),
    ],
)
def test_refused_inputs(args, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_swiglu(*args)
    with pytest.raises(ValueError, match="grad_y is float32 of shape"):
        nki_swiglu_backward(X[:3], X, X)
