"""Softmax cross-entropy in NumPy, forward and backward: what the NKI kernels are checked against.

Nothing here imports NKI. Both functions compute in float32, or in float64 when given float64.
"""

from __future__ import annotations

import numpy as np


def cross_entropy(logits: np.ndarray, targets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """``-log(softmax(logits)[target])`` of each row.

    Args:
        logits: (..., V), float32, float16, bfloat16 or float64.
        targets: (...), integers from 0 to V - 1.

    Returns:
        loss: (...), float32 (float64 for float64).
        lse: (...), the same: ``log(sum(exp(logits)))``.
    """
    wide = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
    largest = wide.max(axis=-1, keepdims=True)
    lse = (np.log(np.exp(wide - largest).sum(axis=-1, keepdims=True)) + largest)[..., 0]
    picked = np.take_along_axis(wide, targets[..., None].astype(np.intp), axis=-1)[..., 0]
    return lse - picked, lse


def cross_entropy_backward(
    grad_loss: np.ndarray, logits: np.ndarray, targets: np.ndarray
) -> np.ndarray:
    """The gradient of :func:`cross_entropy` for the logits.

    Args:
        grad_loss: gradient of the total loss for each row's, shape of ``targets``.
        logits, targets: as in the forward pass.

    Returns:
        Shape and dtype of ``logits``.
    """
    wide = logits.astype(np.promote_types(logits.dtype, np.float32), copy=False)
    exponentials = np.exp(wide - wide.max(axis=-1, keepdims=True))
    weights = exponentials / exponentials.sum(axis=-1, keepdims=True)
    weights = weights - (np.arange(logits.shape[-1]) == targets[..., None])
    return (weights * grad_loss[..., None]).astype(logits.dtype, copy=False)
