"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.giou.arguments import check_arguments, check_gradient, no_scores
from kernels.launch import kernel_of


def nki_giou(
    boxes1: Any, boxes2: Any, eps: float = 1e-7, *, clamp: bool = False, lnc: int | None = None
) -> Any:
    """Generalized IoU of each box with its partner, by :func:`nki_giou_kernel`.

    Dimensions:
        Any leading axes, such as (batch, n). The last axis is x1, y1, x2, y2.

    Args:
        boxes1: (..., 4); float32, bfloat16 or float16. A NumPy array, a PyTorch tensor (CPU or
            XLA) or a JAX array.
        boxes2: (..., 4), same shape, framework and device; any of these dtypes.
        eps: keeps denominators from zero; a number of at least 0. Another value is another kernel.
        clamp: False: add ``eps`` to both denominators, as torchvision's
            ``ops.generalized_box_iou_loss`` does. True: hold both denominators at ``eps`` or
            more, and widths and heights at 0 or more, as ``torch_giou`` of Rand's article does.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (...), float32. Empty when the boxes are.

    Raises:
        TypeError: not arrays, dtypes that the kernel does not take, or ``eps`` is no number.
        ValueError: the last axis is not 4, shapes that differ, or a negative ``eps``.

    Notes:
        Boxes are not checked for x1 <= x2 and y1 <= y2; the values of those that are not follow
        the definition. A NaN coordinate makes the GIOU of its own pair NaN; an infinite one may
        make it anything, and leaves other pairs alone. For boxes of positive size the rounding of
        float32 adds up to less than 1e-6. Areas from 2**42 on, as of boxes of two million pixels
        squared, are beyond the documented range of the Scalar Engine's reciprocal.
    """
    eps, clamp = check_arguments(boxes1, boxes2, eps), bool(clamp)
    leading = tuple(boxes1.shape[:-1])
    if 0 in leading:
        return no_scores(boxes1)
    scores = kernel_of("giou", "nki_giou_kernel", lnc)(
        boxes1.reshape(-1, 4), boxes2.reshape(-1, 4), eps, clamp
    )
    return scores.reshape(leading)


def nki_giou_backward(
    grad: Any,
    boxes1: Any,
    boxes2: Any,
    eps: float = 1e-7,
    *,
    clamp: bool = False,
    both: bool = True,
    lnc: int | None = None,
) -> tuple[Any, ...]:
    """Gradients of ``(grad * nki_giou(boxes1, boxes2)).sum()``.

    Args:
        grad: (...), float32: gradient of the loss with respect to each GIOU.
        boxes1, boxes2, eps, clamp, lnc: as for :func:`nki_giou`.
        both: whether the gradient for ``boxes2`` is wanted as well. Targets rarely need one.

    Returns:
        The gradient for ``boxes1`` in its shape and dtype; with ``both``, that for ``boxes2``
        after it.

    Raises:
        TypeError, ValueError: as :func:`nki_giou`, and for a ``grad`` of another shape or dtype.

    Notes:
        Where coordinates are equal, max and min pass half of the gradient to each, as
        ``torch.maximum`` and ``jax.numpy.maximum`` do. Boxes that only touch do not overlap, as in
        torchvision's code; with ``clamp`` the gradient passes there, as in ``torch.clamp``.
    """
    eps, clamp = check_arguments(boxes1, boxes2, eps), bool(clamp)
    check_gradient(grad, boxes1)
    if 0 in tuple(grad.shape):
        return (boxes1 * 1, boxes2 * 1) if both else (boxes1 * 1,)
    grads = kernel_of("giou", "nki_giou_backward_kernel", lnc)(
        grad.reshape(-1), boxes1.reshape(-1, 4), boxes2.reshape(-1, 4), eps, clamp, bool(both)
    )
    grads = grads if isinstance(grads, tuple | list) else (grads,)
    return tuple(g.reshape(tuple(boxes1.shape)) for g in grads)
