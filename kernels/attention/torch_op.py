"""Attention as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to autograd. :class:`AttentionFunction` ties the forward kernel to the
backward one, and gives both a batching rule for ``torch.func.vmap``.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention import nki_attention, nki_attention_backward
from kernels.attention.arguments import check
from kernels.torch_rules import batched, no_second_derivative


class AttentionFunction(torch.autograd.Function):
    """``(o, lse)`` of q, k, v, scale and causal. Call it through :func:`attention`."""

    @staticmethod
    def forward(
        q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Run the kernel. Autograd is off in here, and lets nobody change a view made in here in
        place: a detached tensor is none. Without queries or keys there is nothing to run."""
        if 0 in (*q.shape, *k.shape):
            return torch.zeros_like(q), q.new_zeros(q.shape[:-1], dtype=torch.float32)
        o, lse = nki_attention(q, k, v, scale, causal)
        return o.detach(), lse.detach()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep what the backward kernel reads: a number a query, and no weights."""
        q, k, v, ctx.scale, ctx.causal = inputs
        o, lse = output
        ctx.mark_non_differentiable(lse)
        ctx.save_for_backward(q, k, v, o, lse)

    @staticmethod
    def backward(ctx: Any, grad_o: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
        """One launch gives all three gradients."""
        grads = AttentionBackwardFunction.apply(grad_o, *ctx.saved_tensors, ctx.scale, ctx.causal)
        return *grads, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A batch is more heads: one launch."""
        return AttentionFunction.apply(*batched(info.batch_size, in_dims, inputs)), (0, 0)


class AttentionBackwardFunction(torch.autograd.Function):
    """The gradients of q, k and v."""

    @staticmethod
    def forward(
        grad_o: torch.Tensor,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        o: torch.Tensor,
        lse: torch.Tensor,
        scale: float,
        causal: bool,
    ) -> tuple[torch.Tensor, ...]:
        """Run the kernel, and hand out no views, as above."""
        if 0 in (*q.shape, *k.shape):
            return tuple(torch.zeros_like(x) for x in (q, k, v))
        grads = nki_attention_backward(grad_o, q, k, v, o, lse, scale, causal)
        return tuple(grad.detach() for grad in grads)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
        """Keep nothing: there is no second derivative."""

    backward = no_second_derivative("attention", "torch.nn.functional.scaled_dot_product_attention")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> Any:
        """A batch is more heads: one launch."""
        args = batched(info.batch_size, in_dims, inputs)
        return AttentionBackwardFunction.apply(*args), (0, 0, 0)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` with the NKI kernels.

    Dimensions:
        "...": sequences and heads: any axes. Q, K: queries and keys, up to 16384.
        D: elements of a head, 1 to 128.

    Args:
        query: (..., Q, D), float32, bfloat16 or float16, on the CPU or an XLA device.
        key, value: (..., K, D); dtype, device and axes in front of ``query``.
        is_causal: whether query i sees keys 0 to i only.
        scale: of the scores, positive; 1 / sqrt(D) when None.

    Returns:
        (..., Q, D), dtype of ``query``.

    Raises:
        TypeError: not a tensor, several dtypes, or another, such as float64.
        ValueError: shapes that do not fit (nothing is broadcast), a head or a sequence that is too
            long, or a scale that is not positive.

    Notes:
        No attention mask, no dropout. Scores are float32; weights are rounded to the dtype of
        ``query`` before they meet the values. They are never in HBM: memory grows with the length
        of a sequence, not with its square. Differentiable once; works under ``torch.func``
        (``grad``, ``vmap``) and ``torch.no_grad``.

    Pseudocode:
        weights = softmax(scale * query @ key.T)
        forward:   o = weights @ value
        backward:  grad_weights = grad_o @ value.T
                   grad_scores = weights * (grad_weights - sum(grad_o * o))
                   grad_query, grad_key = scale * grad_scores @ key, scale * grad_scores.T @ query
                   grad_value = weights.T @ grad_o
    """
    for name, x in (("query", query), ("key", key), ("value", value)):
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}. Pass a PyTorch tensor.")
    _, scale = check(query, key, value, scale)
    o, _ = AttentionFunction.apply(query, key, value, scale, bool(is_causal))
    return o
