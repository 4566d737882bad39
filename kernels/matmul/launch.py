"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.launch import kernel_of
from kernels.matmul.arguments import (
    filled_shape,
)


def nki_matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, *, lnc: int | None = None
) -> Any:
    """Multiply matrices with :func:`nki_matmul_kernel`.

    Dimensions:
        M, N: rows and columns of the result. K: the contraction. All at least 1.
        "...": any number of axes, none included, whose elements are rows.

    Args:
        a: (..., K), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX array.
        b: (K, N), or (N, K) with ``transpose_b``; dtype, framework and device of ``a``.
        transpose_a: a is (..., M), b is (..., N) with the same axes before the last one, and the
            contraction runs over all of these: the gradient of a weight. Not together with
            ``transpose_b``.
        transpose_b: b comes with its axes swapped.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (..., N), or (M, N) with ``transpose_a``; dtype of ``a``. Products are summed in float32 and
        rounded once.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: shapes that do not fit, or an axis of no elements.
    """
    shape = filled_shape(a, b, transpose_a, transpose_b)
    rows = a.reshape((-1, a.shape[-1]))
    columns = b.reshape((-1, b.shape[-1])) if transpose_a else b
    return kernel_of("matmul", "nki_matmul_kernel", lnc)(
        rows, columns, transpose_a, transpose_b
    ).reshape(shape)


def nki_matmul_backward(grad_c: Any, a: Any, b: Any, *, lnc: int | None = None) -> tuple[Any, Any]:
    """The gradients of ``nki_matmul(a, b)``, one launch each.

    Args:
        grad_c: (..., N), gradient of the loss for the product; dtype of ``a``.
        a, b: (..., K) and (K, N), as in the forward pass.
        lnc: as in the forward pass.

    Returns:
        grad_a: (..., K), ``grad_c @ b.T``.
        grad_b: (K, N), ``a.T @ grad_c`` summed over all rows. Both in the dtype of ``a``.

    Raises:
        TypeError, ValueError: as :func:`nki_matmul`.
    """
    return (
        nki_matmul(grad_c, b, transpose_b=True, lnc=lnc),
        nki_matmul(a, grad_c, transpose_a=True, lnc=lnc),
    )
