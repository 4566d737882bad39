"""SwiGLU as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to autograd. :class:`SwigluFunction` ties the forward kernel to the
backward one, and gives both a batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.swiglu import nki_swiglu, nki_swiglu_backward
from kernels.swiglu.arguments import check
from kernels.torch_rules import batched, no_second_derivative


class SwigluFunction(torch.autograd.Function):
    """``silu(gate) * up``. Call it through :func:`swiglu`."""

    @staticmethod
    def forward(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place: a detached tensor is none."""
        return nki_swiglu(gate, up).detach() if gate.numel() else torch.empty_like(gate)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep both operands."""
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad_y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """One launch gives both gradients."""
        return SwigluBackwardFunction.apply(grad_y, *ctx.saved_tensors)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        """A batch is more rows."""
        return SwigluFunction.apply(*batched(info.batch_size, in_dims, inputs)), 0


class SwigluBackwardFunction(torch.autograd.Function):
    """``(grad_gate, grad_up)`` of grad_y, gate and up."""

    @staticmethod
    def forward(
        grad_y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the kernel, and hand out no views, as above."""
        if not gate.numel():
            return torch.empty_like(gate), torch.empty_like(up)
        grad_gate, grad_up = nki_swiglu_backward(grad_y, gate, up)
        return grad_gate.detach(), grad_up.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep nothing: there is no second derivative."""

    backward = no_second_derivative("swiglu", "torch.nn.functional.silu(gate) * up")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A batch is more rows."""
        return SwigluBackwardFunction.apply(*batched(info.batch_size, in_dims, inputs)), (0, 0)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``torch.nn.functional.silu(gate) * up`` with the NKI kernels, differentiable once.

    Args:
        gate: float32, bfloat16 or float16, on the CPU or an XLA device, with at least one axis.
        up: shape, dtype and device of ``gate``.

    Returns:
        Shape and dtype of ``gate``. Computed in float32 and rounded once.

    Raises:
        TypeError: not a tensor, another dtype such as float64, or two dtypes.
        ValueError: no axis, or two shapes: nothing is broadcast.

    Notes:
        Works under ``torch.func`` (``grad``, ``vmap``) and ``torch.no_grad``. Keeps ``gate`` and
        ``up`` for the backward pass.

    Pseudocode:
        forward:   y = silu(gate) * up,  silu(x) = x * sigmoid(x)
        backward:  grad_gate = grad_y * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
                   grad_up = grad_y * silu(gate)
    """
    for name, value in (("gate", gate), ("up", up)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}. Pass a PyTorch tensor.")
    check(gate, up)
    return SwigluFunction.apply(gate, up)
