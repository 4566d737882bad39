"""Softmax cross-entropy as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward
from kernels.cross_entropy.arguments import check
from kernels.torch_rules import autocast, no_second_derivative, operator


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Keep what the backward kernel reads: a number a row, and no probabilities."""
    _, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(*inputs, lse)


def _gradient(ctx: Any, grad_loss: torch.Tensor, _: Any) -> tuple[torch.Tensor, None]:
    """One launch."""
    return _cross_entropy_backward(grad_loss, *ctx.saved_tensors), None


def _empty(logits: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    losses = logits.new_empty(targets.shape, dtype=torch.float32)
    return losses, torch.empty_like(losses)


@operator(
    "cross_entropy",
    fake=_empty,
    keep=_keep,
    backward=_gradient,
)
def _cross_entropy(
    logits: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if not logits.numel():  # without rows there is nothing to run
        return _empty(logits, targets)
    return nki_cross_entropy(logits, targets)


@operator(
    "cross_entropy_backward",
    fake=lambda grad_loss, logits, targets, lse: logits.new_empty(logits.shape),
    backward=no_second_derivative("cross_entropy", "torch.nn.functional.cross_entropy"),
)
def _cross_entropy_backward(
    grad_loss: torch.Tensor, logits: torch.Tensor, targets: torch.Tensor, lse: torch.Tensor
) -> torch.Tensor:
    if not logits.numel():
        return logits.new_empty(logits.shape)
    return nki_cross_entropy_backward(grad_loss, logits, targets, lse)


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
    (logits,) = autocast(torch.float32, logits)
    check(logits, targets)
    loss, _ = _cross_entropy(logits, targets.to(torch.int32))
    return loss
