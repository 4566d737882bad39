"""Softmax in NumPy, forward and backward: what the NKI kernels are checked against.

Nothing here imports NKI. Both functions compute in float32, or in float64 when given float64, and
round once to the dtype of the input.
"""

from __future__ import annotations

import numpy as np


def softmax(x: np.ndarray) -> np.ndarray:
    """Divide the exponentials of the last axis by their sum.

    Args:
        x: (..., N), float32, float16, bfloat16 or float64.

    Returns:
        Shape and dtype of x.
    """
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True))
    return (exponentials / exponentials.sum(axis=-1, keepdims=True)).astype(x.dtype, copy=False)


def softmax_backward(grad_y: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The gradient of :func:`softmax` for its input.

    Args:
        grad_y: gradient of the loss for y, shape of y.
        y: (..., N), what the forward pass returned.

    Returns:
        Shape and dtype of y.
    """
    wide = np.promote_types(y.dtype, np.float32)
    grad, out = grad_y.astype(wide, copy=False), y.astype(wide, copy=False)
    return ((grad - (grad * out).sum(axis=-1, keepdims=True)) * out).astype(y.dtype, copy=False)
