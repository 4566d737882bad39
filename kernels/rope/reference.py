"""The rotary embedding in NumPy: what the NKI kernels are checked against, and its tables.

Nothing here imports NKI.
"""

from __future__ import annotations

import numpy as np


def rotations(length: int, size: int, base: float = 10000.0) -> tuple[np.ndarray, np.ndarray]:
    """Cosine and sine of the angle by which each pair is rotated at each position.

    Args:
        length: positions, from 0 on.
        size: elements of a head, even.
        base: pair i turns by ``base ** (-2 * i / size)`` from one position to the next.

    Returns:
        cos, sin: (length, size / 2), float32.
    """
    angles = np.outer(np.arange(length), float(base) ** -(np.arange(0, size, 2) / size))
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def rope(x: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """Rotate each pair (element i, element i + D / 2) of a head by an angle of its position.

    Args:
        x: (..., S, D), float32, float16, bfloat16 or float64.
        cos, sin: (S, D / 2), of the angles.

    Returns:
        Shape and dtype of ``x``. Computed in float32, in float64 for float64, and rounded once.
    """
    wide = x.astype(np.promote_types(x.dtype, np.float32), copy=False)
    left, right = np.split(wide, 2, axis=-1)
    turned = left * cos - right * sin, right * cos + left * sin
    return np.concatenate(turned, axis=-1).astype(x.dtype, copy=False)


def rope_backward(grad: np.ndarray, cos: np.ndarray, sin: np.ndarray) -> np.ndarray:
    """The gradient of :func:`rope` for ``x``: the rotation by the negative angles."""
    return rope(grad, cos, -sin)
