"""Softmax as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from operator import index
from typing import Any

import torch

from kernels.softmax import nki_softmax, nki_softmax_backward
from kernels.softmax.arguments import check
from kernels.torch_rules import autocast, no_second_derivative, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep the result, which is all that the backward kernel reads."""
    ctx.save_for_backward(output)


def _gradient(ctx: Any, grad_y: torch.Tensor) -> torch.Tensor:
    """One launch."""
    return _softmax_backward(grad_y, *ctx.saved_tensors)


@operator(
    "softmax",
    fake=lambda x: x.new_empty(x.shape),
    keep=_keep,
    backward=_gradient,
)
def _softmax(x: torch.Tensor) -> torch.Tensor:
    return nki_softmax(x) if x.numel() else x.new_empty(x.shape)


@operator(
    "softmax_backward",
    fake=lambda grad_y, y: y.new_empty(y.shape),
    backward=no_second_derivative("softmax", "torch.softmax"),
)
def _softmax_backward(grad_y: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return nki_softmax_backward(grad_y, y) if y.numel() else y.new_empty(y.shape)


def softmax(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``torch.softmax`` with the NKI kernels, differentiable once.

    Args:
        input: float32, bfloat16 or float16, on the CPU, a neuron or an XLA device, with at least
            one axis.
        dim: the axis that is normalised. Others than the last one are moved there first.

    Returns:
        Shape and dtype of ``input``. Powers and sums are float32 and the result is rounded once.

    Raises:
        TypeError: not a tensor, a ``dim`` that is no integer, or another dtype, such as integers or
            float64 (which PyTorch takes and a NeuronCore does not have).
        ValueError: no axis. IndexError: ``dim`` is none of the axes.

    Notes:
        Not as ``torch.softmax``: there are no ``dtype`` and no ``out``. Under ``torch.autocast``
        the input is taken to float32 where PyTorch's is, which is not on the CPU.
        The largest element is subtracted first, so that nothing overflows. As in PyTorch, NaN in a
        row makes NaN of it, and so does a row of -inf. Works under ``torch.func`` (``grad``,
        ``vmap``), ``torch.compile`` and ``torch.export``.

    Pseudocode:
        forward:   y = exp(input - max(input)); y = y / sum(y)
        backward:  grad_input = (grad_y - sum(grad_y * y)) * y
    """
    require_tensors(input=input)
    if input.device.type != "cpu":  # PyTorch's lists for other devices have it, that one has not
        (input,) = autocast(torch.float32, input)
    check(input, "input")
    dim = index(dim)
    if not -input.ndim <= dim < input.ndim:
        raise IndexError(
            f"dim is {dim}, and input has {input.ndim} axes: -{input.ndim} to {input.ndim - 1}."
        )
    if dim in (-1, input.ndim - 1):
        return _softmax(input)
    # A copy, as PyTorch's is: a view made without gradients cannot be changed in place with them.
    moved = _softmax(input.movedim(dim, -1)).movedim(-1, dim)
    return moved.clone(memory_format=torch.contiguous_format)
