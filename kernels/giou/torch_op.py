"""Generalized IoU as a differentiable PyTorch operator around the NKI kernels, and the loss.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.giou import nki_giou, nki_giou_backward
from kernels.giou.arguments import check_arguments
from kernels.torch_rules import no_second_derivative, operator


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep the boxes. The backward kernel computes the areas again."""
    boxes1, boxes2, ctx.eps, ctx.clamp = inputs
    ctx.save_for_backward(boxes1, boxes2)


def _gradients(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """Launch the backward kernel, for as many sides as need it."""
    boxes1, boxes2 = ctx.saved_tensors
    settings = ctx.eps, ctx.clamp
    first, second = ctx.needs_input_grad[:2]
    if first and second:
        return *_giou_backward(grad, boxes1, boxes2, *settings), None, None
    if first:
        return _giou_backward_of_one(grad, boxes1, boxes2, *settings), None, None, None
    # GIOU is symmetric.
    return None, _giou_backward_of_one(grad, boxes2, boxes1, *settings), None, None


_NO_SECOND = no_second_derivative("giou", "PyTorch's own operators")


@operator(
    "giou",
    fake=lambda boxes1, *_: boxes1.new_empty(boxes1.shape[:-1], dtype=torch.float32),
    keep=_keep,
    backward=_gradients,
)
def _giou(boxes1: torch.Tensor, boxes2: torch.Tensor, eps: float, clamp: bool) -> torch.Tensor:
    return nki_giou(boxes1, boxes2, eps, clamp=clamp)


@operator(
    "giou_backward",
    fake=lambda grad, boxes1, boxes2, *_: (
        boxes1.new_empty(boxes1.shape),
        boxes2.new_empty(boxes2.shape),
    ),
    backward=_NO_SECOND,
)
def _giou_backward(
    grad: torch.Tensor, boxes1: torch.Tensor, boxes2: torch.Tensor, eps: float, clamp: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    grad1, grad2 = nki_giou_backward(grad, boxes1, boxes2, eps, clamp=clamp)
    return grad1, grad2


@operator(
    "giou_backward_of_one",
    fake=lambda grad, boxes1, *_: boxes1.new_empty(boxes1.shape),
    backward=_NO_SECOND,
)
def _giou_backward_of_one(
    grad: torch.Tensor, boxes1: torch.Tensor, boxes2: torch.Tensor, eps: float, clamp: bool
) -> torch.Tensor:
    return nki_giou_backward(grad, boxes1, boxes2, eps, clamp=clamp, both=False)[0]


def giou(
    boxes1: torch.Tensor, boxes2: torch.Tensor, eps: float = 1e-7, *, clamp: bool = False
) -> torch.Tensor:
    """Generalized IoU of each box with its partner by NKI kernels, differentiably.

    Dimensions:
        Any leading axes, such as (batch, n). The last axis is x1, y1, x2, y2.

    Args:
        boxes1: (..., 4), float32, bfloat16, float16 or an integer type, on the CPU or an XLA
            device. Integers are taken to float32, as torchvision does.
        boxes2: (..., 4), same shape and device; any of these dtypes.
        eps, clamp: as for :func:`kernels.giou.nki_giou`.

    Returns:
        (...), float32, also for 16-bit boxes, as torchvision's loss.

    Raises:
        TypeError, ValueError: as :func:`kernels.giou.nki_giou`; float64 is refused.
        NotImplementedError: in a second derivative.

    Notes:
        Works under ``torch.func`` (``grad``, ``vmap``), ``torch.compile`` and ``torch.export``.
        Under ``torch.autocast`` the dtypes stay: scores are float32 anyway. Gradients have the
        dtype of their boxes. Only the boxes that require a gradient cost anything.

    Pseudocode:
        forward:   I / (U + eps) - (C - U) / (C + eps)
        backward:  see nki_giou_backward_kernel
    """
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        if not isinstance(boxes, torch.Tensor):
            raise TypeError(
                f"{name} is a {type(boxes).__name__}. Pass PyTorch tensors: torch.from_numpy(x)."
            )
    boxes1, boxes2 = _floating(boxes1), _floating(boxes2)
    return _giou(boxes1, boxes2, check_arguments(boxes1, boxes2, eps), bool(clamp))


def generalized_box_iou_loss(
    boxes1: torch.Tensor, boxes2: torch.Tensor, reduction: str = "none", eps: float = 1e-7
) -> torch.Tensor:
    """The loss ``1 - GIOU``, with the signature of ``torchvision.ops.generalized_box_iou_loss``.

    Args:
        boxes1: (..., 4) predictions, as for :func:`giou`.
        boxes2: (..., 4) targets.
        reduction: "none", "mean" or "sum".
        eps: added to both denominators.

    Returns:
        (...) float32 with ``reduction="none"``, otherwise a scalar. The mean of no boxes is 0.

    Raises:
        TypeError, ValueError: as :func:`giou`, and for another reduction.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}. It is one of 'none', 'mean' and 'sum'.")
    loss = 1 - giou(boxes1, boxes2, eps)
    if reduction == "none":
        return loss
    # The sum of nothing is 0, and differentiable; its mean would be NaN.
    return loss.sum() if reduction == "sum" or loss.numel() == 0 else loss.mean()


def _floating(boxes: torch.Tensor) -> torch.Tensor:
    """Integers as float32; other dtypes as they are, for the check of arguments to judge."""
    return boxes if boxes.is_floating_point() or boxes.is_complex() else boxes.float()
