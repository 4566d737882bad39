"""The rotary embedding as a differentiable PyTorch operator around the NKI kernel.

A raw NKI kernel is opaque to PyTorch. Registered as an operator it has a gradient, which is the
same kernel with the negative angles, a batching rule for ``torch.func.vmap``, and shapes without
values, by which ``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.rope import nki_rope
from kernels.rope.arguments import check
from kernels.torch_rules import one_by_one, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keep the tables, and nothing of x: the rotation is linear."""
    _, cos, sin, ctx.inverse = inputs
    ctx.save_for_backward(cos, sin)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
    """The rotation back, which can be differentiated in turn. Tables are constants."""
    return _rope(grad, *ctx.saved_tensors, not ctx.inverse), None, None, None


def _mapped(op: Any, info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, int]:
    """A batch of x is more heads: one launch. A batch of tables is one launch an element."""
    if in_dims[1] is not None or in_dims[2] is not None:
        (results,) = one_by_one(op, info.batch_size, in_dims, inputs)
        return results, 0
    x, *rest = inputs
    return op(x.movedim(in_dims[0], 0), *rest), 0


@operator(
    "rope",
    fake=lambda x, *_: x.new_empty(x.shape),
    vmap=_mapped,
    keep=_keep,
    backward=_gradient,
)
def _rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, inverse: bool) -> torch.Tensor:
    return nki_rope(x, cos, sin, inverse) if x.numel() else x.new_empty(x.shape)


def rope(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate each pair of elements of queries or keys by an angle of its position.

    Dimensions:
        "...": sequences and heads: any axes. S: positions. D: elements of a head, even, 2 to 2048.

    Args:
        x: (..., S, D), float32, bfloat16 or float16, on the CPU, a neuron or an XLA device.
        cos, sin: (S, D / 2) float32, device of ``x``: see
            :func:`kernels.rope.reference.rotations`. Constants.

    Returns:
        Shape and dtype of ``x``. Element i is paired with element i + D / 2, as in Llama's
        published code for Hugging Face.

    Raises:
        TypeError: not a tensor, or another dtype.
        ValueError: shapes that do not fit, a head that is too long, or tables that want a gradient.

    Notes:
        Differentiable any number of times. Works under ``torch.func`` (``grad``, ``vmap``),
        ``torch.compile`` and ``torch.export``. Under ``torch.autocast`` the dtypes stay.

    Pseudocode:
        forward:   left, right = halves of x
                   y = left * cos - right * sin, right * cos + left * sin
        backward:  the same for grad_y, with -sin
    """
    require_tensors(x=x, cos=cos, sin=sin)
    if cos.requires_grad or sin.requires_grad:
        raise ValueError("cos or sin wants a gradient, and the kernel gives none. Detach them.")
    check(x, cos, sin)
    return _rope(x, cos, sin, False)
