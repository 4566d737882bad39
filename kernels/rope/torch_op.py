"""The rotary embedding as a differentiable PyTorch operator around the NKI kernel.

A raw NKI kernel is opaque to autograd. :class:`RopeFunction` gives it a backward pass, which is the
same kernel with the negative angles, and a batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.rope import nki_rope
from kernels.rope.arguments import check
from kernels.torch_rules import one_by_one


class RopeFunction(torch.autograd.Function):
    """The rotation of x by tables cos and sin, or back. Call it through :func:`rope`."""

    @staticmethod
    def forward(
        x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, inverse: bool
    ) -> torch.Tensor:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place: a detached tensor is none."""
        return nki_rope(x, cos, sin, inverse).detach() if x.numel() else torch.empty_like(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        """Keep the tables, and nothing of x: the rotation is linear."""
        _, cos, sin, ctx.inverse = inputs
        ctx.save_for_backward(cos, sin)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        """The rotation back, which can be differentiated in turn. Tables are constants."""
        return RopeFunction.apply(grad, *ctx.saved_tensors, not ctx.inverse), None, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
        """A batch of x is more heads: one launch. A batch of tables is one launch an element."""
        if in_dims[1] is not None or in_dims[2] is not None:
            (results,) = one_by_one(RopeFunction.apply, info.batch_size, in_dims, inputs)
            return results, 0
        x, *rest = inputs
        return RopeFunction.apply(x.movedim(in_dims[0], 0), *rest), 0


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of elements of queries or keys by an angle of its position.

    Dimensions:
        "...": sequences and heads: any axes. S: positions. D: elements of a head, even, 2 to 2048.

    Args:
        x: (..., S, D), float32, bfloat16 or float16, on the CPU or an XLA device.
        cos, sin: (S, D / 2) float32, device of ``x``: see
            :func:`kernels.rope.reference.rotations`. Constants.

    Returns:
        Shape and dtype of ``x``. Element i is paired with element i + D / 2, as in Llama's
        published code for Hugging Face.

    Raises:
        TypeError: not a tensor, or another dtype.
        ValueError: shapes that do not fit, a head that is too long, or tables that want a gradient.

    Notes:
        Differentiable any number of times. Works under ``torch.func`` (``grad``, ``vmap``) and
        ``torch.no_grad``.

    Pseudocode:
        forward:   left, right = halves of x
                   y = left * cos - right * sin, right * cos + left * sin
        backward:  the same for grad_y, with -sin
    """
    for name, value in (("x", x), ("cos", cos), ("sin", sin)):
        if not isinstance(value, torch.Tensor):
            raise TypeError(f"{name} is a {type(value).__name__}. Pass a PyTorch tensor.")
    if cos.requires_grad or sin.requires_grad:
        raise ValueError("cos or sin wants a gradient, and the kernel gives none. Detach them.")
    check(x, cos, sin)
    return RopeFunction.apply(x, cos, sin, False)
