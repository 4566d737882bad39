"""Matrix product in NumPy, forward and backward: what the NKI kernel is checked against.

Nothing here imports NKI. Both functions compute in float32, or in float64 when given float64, and
round once to the dtype of the first operand.
"""

from __future__ import annotations

import numpy as np


def matmul(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Multiply the rows of a with b.

    Args:
        a: (..., K), float32, float16, bfloat16 or float64.
        b: (K, N), dtype of ``a``.

    Returns:
        (..., N), dtype of ``a``.
    """
    wide = np.promote_types(a.dtype, np.float32)
    return (a.astype(wide, copy=False) @ b.astype(wide, copy=False)).astype(a.dtype, copy=False)


def matmul_backward(
    grad_c: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The gradients of :func:`matmul` for both operands.

    Args:
        grad_c: (..., N), gradient of the loss for the product.
        a, b: (..., K) and (K, N), as in the forward pass.

    Returns:
        grad_a: (..., K), ``grad_c @ b.T``.
        grad_b: (K, N), ``a.T @ grad_c`` over all rows.
    """
    rows = a.reshape(-1, a.shape[-1])
    return matmul(grad_c, b.T), matmul(rows.T, grad_c.reshape(-1, grad_c.shape[-1]))
