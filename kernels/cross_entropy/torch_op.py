"""Softmax cross-entropy as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward
from kernels.cross_entropy.arguments import check, require_classes, require_ignore_index
from kernels.torch_rules import autocast, no_second_derivative, operator, require_tensors


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


def cross_entropy(
    logits: torch.Tensor,
    targets: torch.Tensor,
    ignore_index: int = -100,
    reduction: str = "none",
) -> torch.Tensor:
    """``torch.nn.functional.cross_entropy`` of classes on the last axis, with the NKI kernels.

    Dimensions:
        "...": rows, any number of axes. V: classes, up to 2**24.

    Args:
        logits: (..., V), float32, bfloat16 or float16, on the CPU, a neuron or an XLA device; fewer
            than 2**31.
        targets: (...), integers from 0 to V - 1 or ``ignore_index``, device of ``logits``.
        ignore_index: the target of rows that do not count: their loss and their gradient are 0.
        reduction: "none", "sum", or "mean" over the rows that count.

    Returns:
        (...), float32 whatever the dtype of ``logits``: the loss of each row; a number with another
        reduction. A mean over rows in 16 bits would lose most of it.

    Raises:
        TypeError: not a tensor, another dtype, or an ``ignore_index`` that is no integer.
        ValueError: shapes that do not fit, too many classes, or another reduction.
        IndexError: a target of a CPU tensor is no class.

    Notes:
        Not as in PyTorch: classes are on the last axis, not on the second; the result is float32;
        rows are not reduced by default; there are no ``weight`` of classes, no ``label_smoothing``,
        no probabilities as targets, and not the old ``size_average`` and ``reduce``. Where a device
        holds the targets, a graph is recorded, or ``torch.func`` is at work, nothing looks at their
        values first, and the loss of one that is no class is NaN. Reads each logit once forward and
        once backward; probabilities are never in HBM. Differentiable once; works under
        ``torch.func`` (``grad``, ``vmap``), ``torch.compile`` and ``torch.export``. Under
        ``torch.autocast`` logits are taken to float32, as PyTorch's are.

    Pseudocode:
        forward:   lse = log(sum(exp(logits))); loss = lse - logits[target]
        backward:  grad_logits = grad_loss * (exp(logits - lse) - (class == target))
    """
    require_tensors(logits=logits, targets=targets)
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}. It is one of 'none', 'mean' and 'sum'.")
    (logits,) = autocast(torch.float32, logits)
    check(logits, targets)
    ignore_index = require_ignore_index(ignore_index)
    numbers = targets.to(torch.int64)  # the kernels take int32, into which one that is none may fit
    counts = numbers != ignore_index
    all_count = False  # as far as one can see
    if _shows_values(targets):
        require_classes(targets.numpy(), int(logits.shape[-1]), ignore_index)
        all_count = bool(counts.all())
    if all_count:
        loss, _ = _cross_entropy(logits, numbers.to(torch.int32))
    else:
        is_class = counts & (numbers >= 0) & (numbers < logits.shape[-1])
        loss, _ = _cross_entropy(logits, torch.where(is_class, numbers, 0).to(torch.int32))
        loss = torch.where(is_class, loss, torch.where(counts, torch.nan, 0.0))
    if reduction == "none":
        return loss
    return loss.sum() if reduction == "sum" else loss.sum() / counts.sum()


def _shows_values(targets: torch.Tensor) -> bool:
    """Whether values can be read, here and for free."""
    return (
        not torch.compiler.is_compiling()
        and type(targets) is torch.Tensor
        and targets.device.type == "cpu"
        and not torch._C._are_functorch_transforms_active()
    )
