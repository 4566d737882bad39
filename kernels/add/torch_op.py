"""Tensor addition as a differentiable PyTorch operator around the NKI kernel.

A raw NKI kernel is opaque to PyTorch. Registered as an operator it has a gradient, a batching rule
for ``torch.func.vmap``, and shapes without values, by which ``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.add import nki_tensor_add
from kernels.add.arguments import check
from kernels.torch_rules import operator, require_tensors


def _both(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """dc/da = dc/db = 1, so both gradients are the incoming one, and nothing is kept for them."""
    return grad, grad


@operator(
    "add",
    fake=lambda a, b: a.new_empty(a.shape),
    backward=_both,
)
def _add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return nki_tensor_add(a, b) if a.numel() else a.new_empty(a.shape)


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """``torch.add`` with the NKI kernel, differentiable any number of times.

    Args:
        a: float32, bfloat16 or float16, on the CPU, a neuron or an XLA device, with at least one
            axis.
        b: shape, dtype and device of ``a``.

    Returns:
        Shape and dtype of ``a``.

    Raises:
        TypeError: not a tensor, another dtype, or two dtypes.
        ValueError: no axis, or two shapes.

    Notes:
        Not as ``torch.add``: nothing is broadcast, two dtypes are not promoted, and there are no
        numbers, no ``alpha`` and no ``out``. Under ``torch.autocast`` the dtypes stay, as
        PyTorch's do. Works under ``torch.func`` (``grad``, ``vmap``), ``torch.compile`` and
        ``torch.export``.

    Pseudocode:
        forward:   c = a + b
        backward:  grad_a = grad_b = grad_c
    """
    require_tensors(a=a, b=b)
    check(a, b)
    return _add(a, b)
