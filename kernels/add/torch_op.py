"""Tensor addition as a differentiable PyTorch operator around the NKI kernel.

A raw NKI kernel is opaque to autograd. :class:`Add` gives it a backward pass, and a batching rule
for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.add import nki_tensor_add
from kernels.torch_rules import batched


class Add(torch.autograd.Function):
    """``c = a + b`` with the NKI kernel forward. Call it through :func:`add`."""

    @staticmethod
    def forward(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        """Run the kernel. Autograd is off in here."""
        return nki_tensor_add(a, b)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Save nothing: the gradient of a sum does not depend on its terms."""

    @staticmethod
    def backward(ctx: Any, grad_c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """dc/da = dc/db = 1, so both gradients are the incoming one."""
        return grad_c, grad_c

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, int | None], a: torch.Tensor, b: torch.Tensor
    ) -> tuple[torch.Tensor, int]:
        """Put the batch in the rows: one kernel launch, whatever the batch size."""
        a, b = batched(info.batch_size, in_dims, (a, b))
        return add(a.flatten(0, 1), b.flatten(0, 1)).reshape(a.shape), 0


def add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Add two matrices with the NKI kernel, differentiably.

    Dimensions:
        M: rows. N: columns. Any sizes of at least 1.

    Args:
        a: (M, N), float32, bfloat16 or float16, on the CPU or an XLA device.
        b: (M, N), same dtype and device.

    Returns:
        (M, N), same dtype and device.

    Raises:
        TypeError, ValueError: as :func:`kernels.add.nki_tensor_add`.

    Notes:
        Supports ``backward``, double backward and ``torch.func`` (``grad``, ``vmap``).

    Pseudocode:
        forward:   c = a + b
        backward:  grad_a = grad_b = grad_c
    """
    return Add.apply(a, b)
