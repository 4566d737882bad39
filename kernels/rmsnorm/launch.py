"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.launch import kernel_of
from kernels.rmsnorm.arguments import (
    check_gradient,
    rows_and_cols,
)


def nki_rms_norm(
    x: Any, weight: Any, eps: float = 1e-5, *, lnc: int | None = None
) -> tuple[Any, Any]:
    """Normalise over the last axes of an array with :func:`nki_rms_norm_kernel`.

    Dimensions:
        weight.shape: the axes that are normalised, together of 1 to 16384 elements.
        "...": any number of axes before them, together of at least 1 row.

    Args:
        x: (..., *weight.shape), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor (CPU
            or XLA) or a JAX array.
        weight: the scale of each element; any of these dtypes, framework and device of ``x``.
        eps: added to the mean square of a row.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        y: (..., *weight.shape), dtype of ``x``.
        invvar: (...), float32: ``1 / sqrt(mean(x**2) + eps)`` of each row.

    Raises:
        TypeError: not an array, or a dtype that the kernel does not take.
        ValueError: shapes that do not fit, rows longer than 16384, or no elements.
    """
    lead, n_cols = rows_and_cols(x, weight)
    y, invvar = kernel_of("rmsnorm", "nki_rms_norm_kernel", lnc)(
        x.reshape((-1, n_cols)), weight.reshape((1, n_cols)), float(eps)
    )
    return y.reshape(tuple(x.shape)), invvar.reshape(lead)


def nki_rms_norm_backward(
    grad_y: Any, x: Any, weight: Any, invvar: Any, *, lnc: int | None = None
) -> tuple[Any, Any]:
    """The gradients of :func:`nki_rms_norm`, with :func:`nki_rms_norm_backward_kernel`.

    Args:
        grad_y: gradient of the loss for y; shape and dtype of ``x``.
        x, weight, lnc: as in the forward pass.
        invvar: what the forward pass returned.

    Returns:
        grad_x: shape and dtype of ``x``.
        grad_weight: shape of ``weight``, float32, summed over all rows. Two cores add it up in
            another order than one, so its last bits may differ between them.

    Raises:
        TypeError, ValueError: as :func:`nki_rms_norm`; also when ``grad_y`` or ``invvar`` do not
            fit ``x``.
    """
    lead, n_cols = rows_and_cols(x, weight)
    check_gradient(grad_y, x, invvar, lead)
    grad_x, grad_weight = kernel_of("rmsnorm", "nki_rms_norm_backward_kernel", lnc)(
        grad_y.reshape((-1, n_cols)),
        x.reshape((-1, n_cols)),
        weight.reshape((1, n_cols)),
        invvar.reshape((-1, 1)),
    )
    return grad_x.reshape(tuple(x.shape)), grad_weight.reshape(tuple(weight.shape))
