"""SwiGLU as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.swiglu import nki_swiglu, nki_swiglu_backward
from kernels.swiglu.arguments import check
from kernels.torch_rules import no_second_derivative, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep both operands."""
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad_y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """One launch gives both gradients."""
    return _swiglu_backward(grad_y, *ctx.saved_tensors)


@operator(
    "swiglu",
    fake=lambda gate, up: gate.new_empty(gate.shape),
    keep=_keep,
    backward=_gradients,
)
def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return nki_swiglu(gate, up) if gate.numel() else gate.new_empty(gate.shape)


@operator(
    "swiglu_backward",
    fake=lambda grad_y, gate, up: (gate.new_empty(gate.shape), up.new_empty(up.shape)),
    backward=no_second_derivative("swiglu", "torch.nn.functional.silu(gate) * up"),
)
def _swiglu_backward(
    grad_y: torch.Tensor, gate: torch.Tensor, up: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    if not gate.numel():
        return gate.new_empty(gate.shape), up.new_empty(up.shape)
    return nki_swiglu_backward(grad_y, gate, up)


def swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """``torch.nn.functional.silu(gate) * up`` with the NKI kernels, differentiable once.

    Args:
        gate: float32, bfloat16 or float16, on the CPU, a neuron or an XLA device, with at least one
            axis.
        up: shape, dtype and device of ``gate``.

    Returns:
        Shape and dtype of ``gate``. Computed in float32 and rounded once.

    Raises:
        TypeError: not a tensor, another dtype such as float64, or two dtypes.
        ValueError: no axis, or two shapes: nothing is broadcast.

    Notes:
        Works under ``torch.func`` (``grad``, ``vmap``), ``torch.compile`` and ``torch.export``.
        Under ``torch.autocast`` the dtypes stay, as those of ``silu`` and of products do. Keeps
        ``gate`` and ``up`` for the backward pass.

    Pseudocode:
        forward:   y = silu(gate) * up,  silu(x) = x * sigmoid(x)
        backward:  grad_gate = grad_y * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
                   grad_up = grad_y * silu(gate)
    """
    require_tensors(gate=gate, up=up)
    check(gate, up)
    return _swiglu(gate, up)
