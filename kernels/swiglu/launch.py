"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.launch import kernel_of
from kernels.swiglu.arguments import check_filled, check_gradient


def nki_swiglu(gate: Any, up: Any, *, lnc: int | None = None) -> Any:
    """``silu(gate) * up`` with :func:`nki_swiglu_kernel`.

    Args:
        gate: (..., N), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX
            array.
        up: (..., N), shape, dtype, framework and device of ``gate``.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        Shape and dtype of ``gate``.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: no axis, two shapes, or no elements.
    """
    check_filled(gate, up)
    rows = (-1, gate.shape[-1])
    y = kernel_of("swiglu", "nki_swiglu_kernel", lnc)(gate.reshape(rows), up.reshape(rows))
    return y.reshape(tuple(gate.shape))


def nki_swiglu_backward(
    grad_y: Any, gate: Any, up: Any, *, lnc: int | None = None
) -> tuple[Any, Any]:
    """The gradients of :func:`nki_swiglu`, with :func:`nki_swiglu_backward_kernel`.

    Args:
        grad_y: gradient of the loss for y; shape and dtype of ``gate``.
        gate, up, lnc: as in the forward pass.

    Returns:
        grad_gate, grad_up: shape and dtype of ``gate``.

    Raises:
        TypeError, ValueError: as :func:`nki_swiglu`; also when ``grad_y`` does not fit ``gate``.
    """
    check_gradient(grad_y, gate, up)
    rows = (-1, gate.shape[-1])
    grads = kernel_of("swiglu", "nki_swiglu_backward_kernel", lnc)(
        *(x.reshape(rows) for x in (grad_y, gate, up))
    )
    return grads[0].reshape(tuple(gate.shape)), grads[1].reshape(tuple(gate.shape))
