"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.launch import kernel_of
from kernels.softmax.arguments import check_filled, check_gradient


def nki_softmax(x: Any, *, lnc: int | None = None) -> Any:
    """The softmax over the last axis of an array, with :func:`nki_softmax_kernel`.

    Args:
        x: (..., N), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX array.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis, or no elements.
    """
    check_filled("x", x)
    return kernel_of("softmax", "nki_softmax_kernel", lnc)(x.reshape((-1, x.shape[-1]))).reshape(
        tuple(x.shape)
    )


def nki_softmax_backward(grad_y: Any, y: Any, *, lnc: int | None = None) -> Any:
    """The gradient of :func:`nki_softmax`, with :func:`nki_softmax_backward_kernel`.

    Args:
        grad_y: gradient of the loss for y; shape and dtype of ``y``.
        y: (..., N), what the forward pass returned.
        lnc: as in the forward pass.

    Returns:
        The gradient of x: shape and dtype of ``y``.

    Raises:
        TypeError, ValueError: as :func:`nki_softmax`; also when ``grad_y`` does not fit ``y``.
    """
    check_gradient(grad_y, y)
    rows = (-1, y.shape[-1])
    grad_x = kernel_of("softmax", "nki_softmax_backward_kernel", lnc)(
        grad_y.reshape(rows), y.reshape(rows)
    )
    return grad_x.reshape(tuple(y.shape))
