"""Attention as a differentiable PyTorch operator around the NKI kernels.

A raw NKI kernel is opaque to PyTorch. Registered as operators, forward and backward kernel have a
gradient, batching rules for ``torch.func.vmap``, and shapes without values, by which
``torch.compile`` plans.
"""

from __future__ import annotations

from typing import Any

import torch

from kernels.attention import nki_attention, nki_attention_backward
from kernels.attention.arguments import check, require_flag
from kernels.torch_rules import autocast, no_second_derivative, operator, require_tensors


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Any, ...]) -> None:
    """Keep what the backward kernel reads: a number a query, and no weights."""
    q, k, v, ctx.scale, ctx.causal = inputs
    o, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.save_for_backward(q, k, v, o, lse)


def _gradients(ctx: Any, grad_o: torch.Tensor, _: Any) -> tuple[torch.Tensor | None, ...]:
    """One launch gives all three gradients."""
    grads = _attention_backward(grad_o, *ctx.saved_tensors, ctx.scale, ctx.causal)
    return *grads, None, None


def _empty(q: torch.Tensor, *_: Any) -> tuple[torch.Tensor, torch.Tensor]:
    return q.new_empty(q.shape), q.new_empty(q.shape[:-1], dtype=torch.float32)


def _empty_gradients(grad_o: Any, *inputs: Any) -> tuple[torch.Tensor, ...]:
    return tuple(x.new_empty(x.shape) for x in inputs[:3])


@operator(
    "attention",
    fake=_empty,
    keep=_keep,
    backward=_gradients,
)
def _attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float, causal: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    if 0 in (*q.shape, *k.shape):  # without queries or keys there is nothing to run
        return q.new_zeros(q.shape), q.new_zeros(q.shape[:-1], dtype=torch.float32)
    return nki_attention(q, k, v, scale, causal)


@operator(
    "attention_backward",
    fake=_empty_gradients,
    backward=no_second_derivative("attention", "torch.nn.functional.scaled_dot_product_attention"),
)
def _attention_backward(
    grad_o: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    scale: float,
    causal: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    if 0 in (*q.shape, *k.shape):
        return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
    return nki_attention_backward(grad_o, q, k, v, o, lse, scale, causal)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    is_causal: bool = False,
    scale: float | None = None,
) -> torch.Tensor:
    """``torch.nn.functional.scaled_dot_product_attention`` with the NKI kernels.

    Dimensions:
        "...": sequences: any axes. H, G: heads of queries, and of keys and values; G divides H,
        and the axis may be missing in all three.
        Q, K: queries and keys, up to 16384. D: elements of a head, 1 to 128.

    Args:
        query: (..., H, Q, D), float32, bfloat16 or float16, on the CPU, a neuron or an XLA device.
        key, value: (..., G, K, D); dtype, device and axes in front of ``query``. H / G query heads,
            one after the other, share a head of keys and values (grouped-query attention).
        is_causal: whether query i sees keys 0 to i only.
        scale: of the scores, positive; 1 / sqrt(D) when None.

    Returns:
        (..., H, Q, D), dtype of ``query``.

    Raises:
        TypeError: not a tensor, several dtypes, or another, such as float64; a mask in the place of
            ``is_causal``.
        ValueError: shapes that do not fit (nothing is broadcast), H no multiple of G, a head or a
            sequence that is too long, or a scale that is not positive.

    Notes:
        Not as in PyTorch: there are no ``attn_mask`` and no ``dropout_p``, so pass ``is_causal``
        and ``scale`` by name; and no ``enable_gqa``: heads are shared as with ``enable_gqa=True``
        wherever key and value, which must have equally many, have fewer than query. Shared ones are
        not repeated in memory, and their gradients are summed up, over the heads that share them,
        in float32. NaN, an infinity, or a score that overflows float32 may make NaN of other
        queries of its head, too. Under ``torch.autocast`` all three are cast to its dtype, as
        PyTorch's are. Scores are float32; weights are rounded to the dtype of ``query`` before they
        meet the values. They are never in HBM: memory grows with the length of a sequence, not with
        its square. Differentiable once; works under ``torch.func`` (``grad``, ``vmap``),
        ``torch.compile`` and ``torch.export``.

    Pseudocode:
        weights = softmax(scale * query @ key.T)
        forward:   o = weights @ value
        backward:  grad_weights = grad_o @ value.T
                   grad_scores = weights * (grad_weights - sum(grad_o * o))
                   grad_query, grad_key = scale * grad_scores @ key, scale * grad_scores.T @ query
                   grad_value = weights.T @ grad_o
    """
    require_tensors(query=query, key=key, value=value)
    query, key, value = autocast(None, query, key, value)
    _, scale = check(query, key, value, scale)
    o, _ = _attention(query, key, value, scale, require_flag("is_causal", is_causal))
    return o
