"""RMSNorm in NumPy, forward and backward: what the NKI kernels are checked against.

Nothing here imports NKI. Both functions compute in float32, or in float64 when given float64, and
round once to the dtype of the input.
"""

from __future__ import annotations

import numpy as np


def rms_norm(x: np.ndarray, weight: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """Divide each row by its root mean square, then scale its elements.

    Args:
        x: (..., *weight.shape), float32, float16, bfloat16 or float64. A row is all of the axes
            that ``weight`` has.
        weight: the scales, one an element of a row.
        eps: added to the mean square; it keeps a row of zeros finite.

    Returns:
        y: shape and dtype of x.
        invvar: (...), float32 (float64 for float64 x): ``1 / sqrt(mean(x**2) + eps)`` of each row.
    """
    wide = np.promote_types(x.dtype, np.float32)
    axes = tuple(range(x.ndim - weight.ndim, x.ndim))
    x_wide = x.astype(wide, copy=False)
    mean_square = np.mean(x_wide * x_wide, axis=axes, keepdims=True)
    invvar = 1 / np.sqrt(mean_square + wide.type(eps))
    y = x_wide * invvar * weight.astype(wide, copy=False)
    return y.astype(x.dtype, copy=False), invvar.squeeze(axes)


def rms_norm_backward(
    grad_y: np.ndarray, x: np.ndarray, weight: np.ndarray, invvar: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of :func:`rms_norm` for its input and its weight.

    Args:
        grad_y: gradient of the loss for y, shape of x.
        x: input of the forward pass.
        weight: weight of the forward pass.
        invvar: what the forward pass returned.

    Returns:
        grad_x: shape and dtype of x.
        grad_weight: shape of weight, summed over all rows, float32 (float64 for float64 x).

    Notes:
        With x_hat = x * invvar: grad_x = invvar * (g - x_hat * mean(g * x_hat)) where
        g = grad_y * weight, and grad_weight = sum over rows of grad_y * x_hat.
    """
    wide = np.promote_types(x.dtype, np.float32)
    lead = x.ndim - weight.ndim
    axes = tuple(range(lead, x.ndim))
    invvar = np.expand_dims(invvar, axes)
    x_hat = x.astype(wide, copy=False) * invvar
    grad_y = grad_y.astype(wide, copy=False)
    g = grad_y * weight.astype(wide, copy=False)
    grad_x = invvar * (g - x_hat * np.mean(g * x_hat, axis=axes, keepdims=True))
    grad_weight = np.sum(grad_y * x_hat, axis=tuple(range(lead)))
    return grad_x.astype(x.dtype, copy=False), grad_weight
