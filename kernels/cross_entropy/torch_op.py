"""Softmax cross-entropy as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to autograd. :class:`CrossEntropyFunction` ties the forward kernel to the
backward one, and gives both a batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward
from kernels.cross_entropy.arguments import check
from kernels.torch_rules import batched, no_second_derivative


class CrossEntropyFunction(torch.autograd.Function):
    """``(loss, lse)`` of logits and targets. Call it through :func:`cross_entropy`."""

    @staticmethod
    def forward(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place: a detached tensor is none. Without rows there is nothing to run."""
        if not logits.numel():
            nothing = logits.new_zeros(targets.shape, dtype=torch.float32)
            return nothing, nothing.clone()
        loss, lse = nki_cross_entropy(logits, targets)
        return loss.detach(), lse.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep what the backward kernel reads: a number a row, and no probabilities."""
        _, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(*inputs, lse)

    @staticmethod
    def backward(ctx: Any, grad_loss: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
        """One launch."""
        return CrossEntropyBackwardFunction.apply(grad_loss, *ctx.saved_tensors), None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A batch is more rows."""
        return CrossEntropyFunction.apply(*batched(info.batch_size, in_dims, inputs)), (0, 0)


class CrossEntropyBackwardFunction(torch.autograd.Function):
    """The gradient of the logits."""

    @staticmethod
    def forward(
        grad_loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor
    ) -> torch.Tensor:
        """Run the kernel, and hand out no view, as above."""
        if not logits.numel():
            return torch.empty_like(logits)
        return nki_cross_entropy_backward(grad_loss, logits, targets, lse).detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep nothing: there is no second derivative."""

    backward = no_second_derivative("cross_entropy", "torch.nn.functional.cross_entropy")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        """A batch is more rows."""
        args = batched(info.batch_size, in_dims, inputs)
        return CrossEntropyBackwardFunction.apply(*args), 0


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """``torch.nn.functional.cross_entropy(..., reduction="none")`` with the NKI kernels.

    Dimensions:
        "...": rows, any number of axes. V: classes, up to 2**24.

    Args:
        logits: (..., V), float32, bfloat16 or float16, on the CPU or an XLA device; fewer than
            2**31. Classes are on the last axis, where PyTorch has them on the second one.
        targets: (...), integers from 0 to V - 1, device of ``logits``. A device does not check that
            they are.

    Returns:
        (...), float32 whatever the dtype of ``logits``: the loss of each row. A mean over rows in
        16 bits would lose most of it.

    Raises:
        TypeError: not a tensor, or another dtype.
        ValueError: shapes that do not fit, or too many classes.

    Notes:
        Reads each logit once forward and once backward; probabilities are never in HBM.
        Differentiable once; works under ``torch.func`` (``grad``, ``vmap``) and ``torch.no_grad``.

    Pseudocode:
        forward:   lse = log(sum(exp(logits))); loss = lse - logits[target]
        backward:  grad_logits = grad_loss * (exp(logits - lse) - (class == target))
    """
    for name, value in (("logits", logits), ("targets", targets)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}. Pass a PyTorch tensor.")
    check(logits, targets)
    loss, _ = CrossEntropyFunction.apply(logits, targets.to(torch.int32))
    return loss
