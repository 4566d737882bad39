"""Attention as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (heads stay on their devices), ``custom_vmap`` (a batch is more heads) and
``custom_vjp`` (the gradients).

Where several query heads share a key head, queries have one axis more in these layers, the heads of
a group, so that the axes in front are those of the keys.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from kernels.attention import nki_attention, nki_attention_backward
from kernels.attention.arguments import check, require_flag
from kernels.jax_rules import batchable, no_second_derivative, vary_alike

# JAX differentiates these two only for a second derivative: `_attention` below has the first.


@functools.cache
def _values(scale: float, causal: bool, grouped: bool) -> Any:
    """The forward function, o and lse, with rules for sharding and for ``vmap``."""

    def launch(q: Any, k: Any, v: Any) -> tuple:
        o, lse = nki_attention(_heads(q, k), k, v, scale, causal)
        return o.reshape(q.shape), lse.reshape(q.shape[:-1])

    rule = "... q d, ... k d, ... k d -> ... q d, ... q"
    forward = batchable(launch, _with_groups(rule) if grouped else rule)
    return no_second_derivative(forward, "attention", "jax.nn.dot_product_attention")


@functools.cache
def _gradients(scale: float, causal: bool, grouped: bool) -> Any:
    """The backward function, the gradients of q, k and v, with rules as above."""

    def launch(g: Any, q: Any, k: Any, v: Any, o: Any, lse: Any) -> tuple:
        whole_g, whole_q, whole_o = (_heads(x, k) for x in (g, q, o))
        lse = lse.reshape(whole_q.shape[:-1])
        grad_q, *grads = nki_attention_backward(whole_g, whole_q, k, v, whole_o, lse, scale, causal)
        return grad_q.reshape(q.shape), *grads

    rule = "... q d, ... q d, ... k d, ... k d, ... q d, ... q -> ... q d, ... k d, ... k d"
    backward = batchable(launch, _with_groups(rule) if grouped else rule)
    return no_second_derivative(backward, "attention", "jax.nn.dot_product_attention")


def _with_groups(rule: str) -> str:
    """A rule for sharding in which arrays of queries have an axis for the heads of a group."""
    return rule.replace("... q", "... g q")


def _heads(x: Any, k: Any) -> Any:
    """An array of queries with its groups, if it has such an axis, merged into one of heads."""
    return x if x.ndim == k.ndim else x.reshape(*k.shape[:-3], -1, *x.shape[-2:])


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(q: Any, k: Any, v: Any, scale: float, causal: bool) -> jax.Array:
    return _forward(q, k, v, scale, causal)[0]


def _forward(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[jax.Array, tuple]:
    """o, and what the backward pass reads."""
    if 0 in (*q.shape, *k.shape):  # nothing to attend to: nothing to launch
        return jnp.zeros_like(q), (q, k, v, None, None)
    o, lse = _values(scale, causal, q.ndim > k.ndim)(q, k, v)
    return o, (q, k, v, o, lse)


def _backward(scale: float, causal: bool, residuals: tuple, grad_o: jax.Array) -> tuple:
    q, k, v, o, lse = residuals
    if o is None:
        return tuple(map(jnp.zeros_like, (q, k, v)))
    return tuple(_gradients(scale, causal, q.ndim > k.ndim)(grad_o, q, k, v, o, lse))


_attention.defvjp(_forward, _backward)


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False, scale: float | None = None
) -> jax.Array:
    """``softmax(scale * q @ k.T) @ v`` with the NKI kernels; differentiable once, in reverse mode.

    Dimensions:
        "...": sequences: any axes. H, G: heads of queries, and of keys and values; G divides H,
        and the axis may be missing in all three.
        Q, K: queries and keys, up to 16384. D: elements of a head, 1 to 128.

    Args:
        q: (..., H, Q, D), float32, bfloat16 or float16. Heads come before the sequence, unlike in
            ``jax.nn.dot_product_attention``.
        k, v: (..., G, K, D); dtype and axes in front of ``q``. As there, H / G query heads, one
            after the other, share a head of keys and values (grouped-query attention).
        causal: whether query i sees keys 0 to i only; a Python bool.
        scale: of the scores, positive; a Python number, 1 / sqrt(D) when None.

    Returns:
        (..., H, Q, D), dtype of ``q``.

    Raises:
        TypeError: not an array, several dtypes, another, a traced ``scale`` or ``causal``, or a
            mask in the place of ``causal``.
        ValueError: shapes that do not fit (nothing is broadcast), H no multiple of G, a head or a
            sequence that is too long, or a scale that is not positive.
        NotImplementedError: differentiated twice.

    Notes:
        Scores are float32; weights are rounded to the dtype of ``q`` before they meet the values.
        They are never in HBM: memory grows with the length of a sequence, not with its square.
        NaN, an infinity, or a score that overflows float32 may make NaN of other queries of its
        head, too. Shared keys and values are not repeated in memory, and their gradients are summed
        up over the heads that share them in float32. Works under ``jit``, ``grad`` and ``vmap``.
        With any axes before those of a head sharded over devices, nothing moves, as long as a
        device has all the query heads of its key heads.

    Pseudocode:
        weights = softmax(scale * q @ k.T)
        forward:   o = weights @ v
        backward:  grad_weights = grad_o @ v.T
                   grad_scores = weights * (grad_weights - sum(grad_o * o))
                   grad_q, grad_k = scale * grad_scores @ k, scale * grad_scores.T @ q
                   grad_v = weights.T @ grad_o
    """
    for name, constant in (("scale", scale), ("causal", causal)):
        if isinstance(constant, jax.core.Tracer):
            raise TypeError(
                f"{name} is traced. It is compiled into the kernel, so it must be a Python value. "
                "Leave it out of what jax.jit traces: jax.jit(attention, static_argnums=(3, 4))."
            )
    _, scale = check(q, k, v, scale)
    causal = require_flag("causal", causal)
    q, k, v = vary_alike(*map(jnp.asarray, (q, k, v)))
    if q.shape[:-2] == k.shape[:-2]:
        return _attention(q, k, v, scale, causal)
    group = q.shape[-3] // k.shape[-3]
    in_groups = q.reshape(*k.shape[:-2], group, *q.shape[-2:])
    return _attention(in_groups, k, v, scale, causal).reshape(q.shape)
