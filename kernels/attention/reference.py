"""Attention in NumPy, forward and backward: what the NKI kernels are checked against.

Nothing here imports NKI. All scores are in memory at once. Both functions compute in float32, or in
float64 when given float64, and round once to the dtype of the queries.
"""

from __future__ import annotations

import numpy as np


def attention(
    q: np.ndarray, k: np.ndarray, v: np.ndarray, scale: float, causal: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """``softmax(scale * q @ k.T) @ v``.

    Args:
        q: (..., H, Q, D), float32, float16, bfloat16 or float64.
        k, v: (..., G, K, D), dtype of ``q``. Where they have fewer heads than ``q``, query head h
            reads key head h // (H / G). The axes of heads may be missing in all three.
        scale: of the scores.
        causal: whether query i sees keys 0 to i only.

    Returns:
        o: (..., H, Q, D), dtype of ``q``.
        lse: (..., H, Q), float32 (float64 for float64 q): ``log(sum(exp(scale * scores)))``.
    """
    wide = [x.astype(np.promote_types(x.dtype, np.float32), copy=False) for x in (q, k, v)]
    wide[1:] = (_for_each_query_head(x, q) for x in wide[1:])
    weights, lse = _weights(wide[0], wide[1], scale, causal)
    return (weights @ wide[2]).astype(q.dtype, copy=False), lse


def attention_backward(
    grad_o: np.ndarray,
    q: np.ndarray,
    k: np.ndarray,
    v: np.ndarray,
    scale: float,
    causal: bool = False,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The gradients of :func:`attention` for q, k and v.

    Args:
        grad_o: gradient of the loss for o, shape of q.
        q, k, v, scale, causal: as in the forward pass.

    Returns:
        Three arrays with the shapes of q, k and v, in the dtype of ``q``.
    """
    kind = np.promote_types(q.dtype, np.float32)
    grad, *wide = (x.astype(kind, copy=False) for x in (grad_o, q, k, v))
    wide[1:] = (_for_each_query_head(x, q) for x in wide[1:])
    weights, _ = _weights(wide[0], wide[1], scale, causal)
    grad_weights = grad @ wide[2].swapaxes(-1, -2)
    dots = (grad_weights * weights).sum(axis=-1, keepdims=True)
    grad_scores = weights * (grad_weights - dots) * kind.type(scale)
    grad_q = grad_scores @ wide[1]
    grad_k = _over_the_group(grad_scores.swapaxes(-1, -2) @ wide[0], k)
    grad_v = _over_the_group(weights.swapaxes(-1, -2) @ grad, v)
    return grad_q.astype(q.dtype), grad_k.astype(q.dtype), grad_v.astype(q.dtype)


def _for_each_query_head(x: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Keys or values, each head as many times as heads of q share it."""
    return x if x.shape[:-2] == q.shape[:-2] else x.repeat(q.shape[-3] // x.shape[-3], axis=-3)


def _over_the_group(grad: np.ndarray, x: np.ndarray) -> np.ndarray:
    """The sum of the gradients of what :func:`_for_each_query_head` repeats."""
    if x.shape[:-2] == grad.shape[:-2]:
        return grad
    return grad.reshape(*x.shape[:-2], -1, *x.shape[-2:]).sum(axis=-3)


def _weights(
    q: np.ndarray, k: np.ndarray, scale: float, causal: bool
) -> tuple[np.ndarray, np.ndarray]:
    """The softmax of the scores, (..., Q, K), and the logarithm of the sum of the exponentials."""
    scores = q @ k.swapaxes(-1, -2) * q.dtype.type(scale)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    largest = scores.max(axis=-1, keepdims=True)
    exponentials = np.exp(scores - largest)
    total = exponentials.sum(axis=-1, keepdims=True)
    return exponentials / total, (largest + np.log(total)).squeeze(-1)
