"""Attention as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (heads stay on their devices), ``custom_vmap`` (a batch is more heads) and
``custom_vjp`` (the gradients).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from kernels.attention import nki_attention, nki_attention_backward
from kernels.attention.arguments import check
from kernels.jax_rules import batchable, no_second_derivative, vary_alike

# JAX differentiates these two only for a second derivative: `_attention` below has the first.


@functools.cache
def _values(scale: float, causal: bool) -> Any:
    """The forward function, o and lse, with rules for sharding and for ``vmap``."""
    forward = batchable(
        lambda q, k, v: nki_attention(q, k, v, scale, causal),
        "... q d, ... k d, ... k d -> ... q d, ... q",
    )
    return no_second_derivative(forward, "attention", "jax.nn.dot_product_attention")


@functools.cache
def _gradients(scale: float, causal: bool) -> Any:
    """The backward function, the gradients of q, k and v, with rules as above."""
    backward = batchable(
        lambda g, q, k, v, o, lse: nki_attention_backward(g, q, k, v, o, lse, scale, causal),
        "... q d, ... q d, ... k d, ... k d, ... q d, ... q -> ... q d, ... k d, ... k d",
    )
    return no_second_derivative(backward, "attention", "jax.nn.dot_product_attention")


@functools.partial(jax.custom_vjp, nondiff_argnums=(3, 4))
def _attention(q: Any, k: Any, v: Any, scale: float, causal: bool) -> jax.Array:
    return _forward(q, k, v, scale, causal)[0]


def _forward(q: Any, k: Any, v: Any, scale: float, causal: bool) -> tuple[jax.Array, tuple]:
    """o, and what the backward pass reads."""
    if 0 in (*q.shape, *k.shape):  # nothing to attend to: nothing to launch
        return jnp.zeros_like(q), (q, k, v, None, None)
    o, lse = _values(scale, causal)(q, k, v)
    return o, (q, k, v, o, lse)


def _backward(scale: float, causal: bool, residuals: tuple, grad_o: jax.Array) -> tuple:
    q, k, v, o, lse = residuals
    if o is None:
        return tuple(map(jnp.zeros_like, (q, k, v)))
    return tuple(_gradients(scale, causal)(grad_o, q, k, v, o, lse))


_attention.defvjp(_forward, _backward)


def attention(
    q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False, scale: float | None = None
) -> jax.Array:
    """``softmax(scale * q @ k.T) @ v`` with the NKI kernels; differentiable once, in reverse mode.

    Dimensions:
        "...": sequences and heads: any axes. Q, K: queries and keys, up to 16384.
        D: elements of a head, 1 to 128.

    Args:
        q: (..., Q, D), float32, bfloat16 or float16. Heads come before the sequence, unlike in
            ``jax.nn.dot_product_attention``.
        k, v: (..., K, D); dtype and axes in front of ``q``.
        causal: whether query i sees keys 0 to i only; a Python bool.
        scale: of the scores, positive; a Python number, 1 / sqrt(D) when None.

    Returns:
        (..., Q, D), dtype of ``q``.

    Raises:
        TypeError: not an array, several dtypes, another, or a traced ``scale`` or ``causal``.
        ValueError: shapes that do not fit (nothing is broadcast), a head or a sequence that is too
            long, or a scale that is not positive.
        NotImplementedError: differentiated twice.

    Notes:
        Scores are float32; weights are rounded to the dtype of ``q`` before they meet the values.
        They are never in HBM: memory grows with the length of a sequence, not with its square.
        Works under ``jit``, ``grad`` and ``vmap``. With any axes before those of a head sharded
        over devices, nothing moves.

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
    return _attention(*vary_alike(*map(jnp.asarray, (q, k, v))), scale, bool(causal))
