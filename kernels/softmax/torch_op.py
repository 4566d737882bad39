"""Softmax as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to autograd. :class:`SoftmaxFunction` ties the forward kernel to the
backward one, and gives both a batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.softmax import nki_softmax, nki_softmax_backward
from kernels.softmax.arguments import check
from kernels.torch_rules import batched, no_second_derivative


class SoftmaxFunction(torch.autograd.Function):
    """The softmax over the last axis. Call it through :func:`softmax`."""

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place: a detached tensor is none."""
        return nki_softmax(x).detach() if x.numel() else torch.empty_like(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the result, which is all that the backward kernel reads."""
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor) -> torch.Tensor:
        """One launch."""
        (y,) = ctx.saved_tensors
        return SoftmaxBackwardFunction.apply(grad_y, y)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, ...], x: torch.Tensor) -> tuple[Any, int]:
        """A batch is more rows."""
        return SoftmaxFunction.apply(x.movedim(in_dims[0], 0)), 0


class SoftmaxBackwardFunction(torch.autograd.Function):
    """The gradient of x, from grad_y and y."""

    @staticmethod
    def forward(grad_y: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Run the kernel, and hand out no view, as above."""
        return nki_softmax_backward(grad_y, y).detach() if y.numel() else torch.empty_like(y)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep nothing: there is no second derivative."""

    backward = no_second_derivative("softmax", "torch.softmax")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        """A batch is more rows."""
        return SoftmaxBackwardFunction.apply(*batched(info.batch_size, in_dims, inputs)), 0


def softmax(input: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """``torch.softmax`` with the NKI kernels, differentiable once.

    Args:
        input: float32, bfloat16 or float16, on the CPU or an XLA device, with at least one axis.
        dim: the axis that is normalised. Others than the last one are moved there first.

    Returns:
        Shape and dtype of ``input``. Powers and sums are float32 and the result is rounded once.

    Raises:
        TypeError: not a tensor, or another dtype, such as integers or float64 (which PyTorch takes
            and a NeuronCore does not have).
        ValueError: no axis. IndexError: ``dim`` is none of the axes.

    Notes:
        The largest element is subtracted first, so that nothing overflows. As in PyTorch, NaN in a
        row makes NaN of it, and so does a row of -inf. Works under ``torch.func`` (``grad``,
        ``vmap``) and ``torch.no_grad``.

    Pseudocode:
        forward:   y = exp(input - max(input)); y = y / sum(y)
        backward:  grad_input = (grad_y - sum(grad_y * y)) * y
    """
    if not isinstance(input, torch.Tensor):
        raise TypeError(f"input is a {type(input).__name__}. Pass a PyTorch tensor.")
    check(input, "input")
    if not -input.ndim <= dim < input.ndim:
        raise IndexError(
            f"dim is {dim}, and input has {input.ndim} axes: -{input.ndim} to {input.ndim - 1}."
        )
    if dim in (-1, input.ndim - 1):
        return SoftmaxFunction.apply(input)
    # A copy, as PyTorch's is: a view made without gradients cannot be changed in place with them.
    moved = SoftmaxFunction.apply(input.movedim(dim, -1)).movedim(-1, dim)
    return moved.clone(memory_format=torch.contiguous_format)
