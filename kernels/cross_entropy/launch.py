"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.cross_entropy.arguments import check_filled, check_gradient
from kernels.launch import kernel_of


def nki_cross_entropy(logits: Any, targets: Any, *, lnc: int | None = None) -> tuple[Any, Any]:
    """The cross-entropy of each row of logits, with :func:`nki_cross_entropy_kernel`.

    Args:
        logits: (..., V), float32, bfloat16 or float16; up to 2**24 classes. A NumPy array, a
            PyTorch tensor or a JAX array.
        targets: (...), int32, from 0 to V - 1; framework and device of ``logits``. A device does
            not check that they are.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        loss: (...), float32.
        lse: (...), float32: ``log(sum(exp(logits)))`` of each row.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: shapes that do not fit, too many classes, or no elements.
    """
    check_filled(logits, targets)
    lead, n_cols = tuple(targets.shape), logits.shape[-1]
    kernel = kernel_of("cross_entropy", "nki_cross_entropy_kernel", lnc)
    results = kernel(logits.reshape((-1, n_cols)), targets.reshape((-1, 1)))
    return results[0].reshape(lead), results[1].reshape(lead)


def nki_cross_entropy_backward(
    grad_loss: Any, logits: Any, targets: Any, lse: Any, *, lnc: int | None = None
) -> Any:
    """The gradient of :func:`nki_cross_entropy` for the logits, with
    :func:`nki_cross_entropy_backward_kernel`.

    Args:
        grad_loss: gradient of the total loss for each row's: (...), float32.
        logits, targets, lnc: as in the forward pass.
        lse: what the forward pass returned.

    Returns:
        Shape and dtype of ``logits``.

    Raises:
        TypeError, ValueError: as :func:`nki_cross_entropy`; also when ``grad_loss`` or ``lse`` do
            not fit ``targets``.
    """
    check_gradient(grad_loss, logits, targets, lse)
    grad, target, sums = (x.reshape((-1, 1)) for x in (grad_loss, targets, lse))
    rows = logits.reshape((-1, logits.shape[-1]))
    kernel = kernel_of("cross_entropy", "nki_cross_entropy_backward_kernel", lnc)
    return kernel(grad, rows, target, sums).reshape(tuple(logits.shape))
