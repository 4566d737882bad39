"""SwiGLU in NumPy, forward and backward: what the NKI kernels are checked against.

Nothing here imports NKI. Both functions compute in float32, or in float64 when given float64, and
round once to the dtype of the input.
"""

from __future__ import annotations

import numpy as np


def swiglu(gate: np.ndarray, up: np.ndarray) -> np.ndarray:
    """``silu(gate) * up``, with ``silu(x) = x / (1 + exp(-x))``.

    Args:
        gate, up: arrays of one shape; float32, float16, bfloat16 or float64.

    Returns:
        Shape and dtype of ``gate``.
    """
    wide, other = _wide(gate, up)
    return (wide * _sigmoid(wide) * other).astype(gate.dtype, copy=False)


def swiglu_backward(
    grad_y: np.ndarray, gate: np.ndarray, up: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of :func:`swiglu`.

    Args:
        grad_y: gradient of the loss for the result, of its shape.
        gate, up: as in the forward pass.

    Returns:
        grad_gate, grad_up: shape and dtype of ``gate``.
    """
    grad, wide, other = _wide(grad_y, gate, up)
    sigmoid = _sigmoid(wide)
    slope = sigmoid * (1 + wide * (1 - sigmoid))
    grads = grad * other * slope, grad * wide * sigmoid
    return grads[0].astype(gate.dtype, copy=False), grads[1].astype(gate.dtype, copy=False)


def _wide(*arrays: np.ndarray) -> tuple[np.ndarray, ...]:
    return tuple(x.astype(np.promote_types(x.dtype, np.float32), copy=False) for x in arrays)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    """``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, small) / (1 + small)
