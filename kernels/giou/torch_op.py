"""Generalized IoU as a differentiable PyTorch operator around the NKI kernels, and the loss.

A raw NKI kernel is opaque to autograd. :class:`Giou` gives it its backward kernel, and both have a
batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.giou import nki_giou, nki_giou_backward
from kernels.torch_rules import batched, no_second_derivative


class Giou(torch.autograd.Function):
    """GIOU by the NKI kernel, and its gradient by another. Call it through :func:`giou`."""

    @staticmethod
    def forward(
        boxes1: torch.Tensor, boxes2: torch.Tensor, eps: float, clamp: bool
    ) -> torch.Tensor:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place. The caller's reshape makes a view; a detached tensor is none."""
        return nki_giou(boxes1, boxes2, eps, clamp=clamp).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the boxes. The backward kernel computes the areas again."""
        boxes1, boxes2, ctx.eps, ctx.clamp = inputs
        ctx.save_for_backward(boxes1, boxes2)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """Launch the backward kernel, for as many sides as need it."""
        boxes1, boxes2 = ctx.saved_tensors
        settings = ctx.eps, ctx.clamp
        first, second = ctx.needs_input_grad[:2]
        if first and second:
            grads = GiouBackward.apply(grad, boxes1, boxes2, *settings, True)
        elif first:
            grads = (*GiouBackward.apply(grad, boxes1, boxes2, *settings, False), None)
        else:  # GIOU is symmetric
            grads = (None, *GiouBackward.apply(grad, boxes2, boxes1, *settings, False))
        return *grads, None, None

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], boxes1: Any, boxes2: Any, *settings: Any
    ) -> tuple[torch.Tensor, int]:
        """One kernel launch, whatever the batch size."""
        return Giou.apply(*batched(info.batch_size, in_dims[:2], (boxes1, boxes2)), *settings), 0


class GiouBackward(torch.autograd.Function):
    """The gradient of :class:`Giou`. It has no gradient of its own."""

    @staticmethod
    def forward(
        grad: torch.Tensor,
        boxes1: torch.Tensor,
        boxes2: torch.Tensor,
        eps: float,
        clamp: bool,
        both: bool,
    ) -> tuple[torch.Tensor, ...]:
        """Run the backward kernel, and hand out no views, as above."""
        grads = nki_giou_backward(grad, boxes1, boxes2, eps, clamp=clamp, both=both)
        return tuple(grad.detach() for grad in grads)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        """Nothing to keep."""

    backward = no_second_derivative("giou", "PyTorch's own operators")

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], grad: Any, boxes1: Any, boxes2: Any, *rest: Any
    ) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
        """One kernel launch, whatever the batch size."""
        arrays = batched(info.batch_size, in_dims[:3], (grad, boxes1, boxes2))
        grads = GiouBackward.apply(*arrays, *rest)
        return grads, (0,) * len(grads)


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
        Supports ``backward`` and ``torch.func`` (``grad``, ``vmap``). Gradients have the dtype of
        their boxes. Only the boxes that require a gradient cost anything.

    Pseudocode:
        forward:   I / (U + eps) - (C - U) / (C + eps)
        backward:  see nki_giou_backward_kernel
    """
    if not isinstance(boxes1, torch.Tensor) and not isinstance(boxes2, torch.Tensor):
        raise TypeError(f"boxes1 is a {type(boxes1).__name__}. Pass PyTorch tensors.")
    return Giou.apply(_floating(boxes1), _floating(boxes2), eps, clamp)


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


def _floating(boxes: Any) -> Any:
    """Integers as float32; anything else as it is, for the kernel's caller to judge."""
    if not isinstance(boxes, torch.Tensor) or boxes.is_floating_point() or boxes.is_complex():
        return boxes
    return boxes.float()
