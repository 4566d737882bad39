"""Launching the attention kernels on the arrays of any framework, after a check of the operands."""

from __future__ import annotations

import math
from typing import Any

from kernels.arguments import dtype_name, require_array
from kernels.attention.nki_kernels import (
    DTYPES,
    MAX_HEAD,
    MAX_LENGTH,
    nki_attention_backward_kernel,
    nki_attention_kernel,
)


def nki_attention(
    q: Any, k: Any, v: Any, scale: float | None = None, causal: bool = False
) -> tuple[Any, Any]:
    """``softmax(scale * q @ k.T) @ v`` with :func:`nki_attention_kernel`.

    Dimensions:
        "...": heads, sequences: any axes. Q, K: queries and keys of a sequence, 1 to 16384.
        D: elements of a query, key or value, 1 to 128.

    Args:
        q: (..., Q, D), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX
            array.
        k, v: (..., K, D); dtype, framework, device and axes in front of ``q``.
        scale: of the scores, positive; 1 / sqrt(D) when None.
        causal: whether query i sees keys 0 to i only.

    Returns:
        o: (..., Q, D), dtype of ``q``.
        lse: (..., Q), float32: ``log(sum(exp(scale * scores)))`` of each query.

    Raises:
        TypeError: not an array, another dtype, or several.
        ValueError: shapes that do not fit, a sequence or a head that is too long, an axis of no
            elements, or a scale that is not positive.
    """
    lead, scale = check(q, k, v, scale)
    _refuse_empty(q, k)
    o, lse = nki_attention_kernel(*map(_by_head, (q, k, v)), scale, bool(causal))
    return o.reshape(tuple(q.shape)), lse.reshape((*lead, q.shape[-2]))


def nki_attention_backward(
    grad_o: Any,
    q: Any,
    k: Any,
    v: Any,
    o: Any,
    lse: Any,
    scale: float | None = None,
    causal: bool = False,
) -> tuple[Any, Any, Any]:
    """The gradients of :func:`nki_attention`, with :func:`nki_attention_backward_kernel`.

    Args:
        grad_o: gradient of the loss for o; shape and dtype of ``q``.
        q, k, v, scale, causal: as in the forward pass.
        o, lse: what the forward pass returned.

    Returns:
        The gradients of q, k and v, each with its shape and dtype.

    Raises:
        TypeError, ValueError: as :func:`nki_attention`; also when ``grad_o``, ``o`` or ``lse`` do
            not fit ``q``.
    """
    lead, scale = check(q, k, v, scale)
    _refuse_empty(q, k)
    rows = (*lead, q.shape[-2])
    for name, array, shape, dtype in (
        ("grad_o", grad_o, tuple(q.shape), dtype_name(q)),
        ("o", o, tuple(q.shape), dtype_name(q)),
        ("lse", lse, rows, "float32"),
    ):
        if tuple(array.shape) != shape or dtype_name(array) != dtype:
            raise ValueError(
                f"{name} is {dtype_name(array)} of shape {tuple(array.shape)}, and should be "
                f"{dtype} of shape {shape}, as in the forward pass. Pass what it returned."
            )
    grads = nki_attention_backward_kernel(
        *map(_by_head, (grad_o, q, k, v, o)),
        lse.reshape((-1, q.shape[-2], 1)),
        scale,
        bool(causal),
    )
    return tuple(grad.reshape(tuple(x.shape)) for grad, x in zip(grads, (q, k, v), strict=True))


def check(q: Any, k: Any, v: Any, scale: float | None) -> tuple[tuple[int, ...], float]:
    """Check the operands of an attention.

    Args:
        q, k, v, scale: as in :func:`nki_attention`; axes may have no elements.

    Returns:
        The shape of the axes before those of a head, and the scale.

    Raises:
        TypeError: not an array, a dtype that the kernels do not take, or several.
        ValueError: shapes that do not fit, a sequence or a head that is too long, or a
            scale that is not positive.
    """
    for name, array in (("q", q), ("k", k), ("v", v)):
        require_array(name, array)
        if dtype_name(array) not in DTYPES:
            raise TypeError(
                f"{name} is {dtype_name(array)}. The attention kernels take {', '.join(DTYPES)}. "
                "Cast it first."
            )
        if dtype_name(array) != dtype_name(q):
            raise TypeError(
                f"q is {dtype_name(q)} and {name} {dtype_name(array)}. All three must have one "
                "dtype. Cast them."
            )
    shapes = [tuple(x.shape) for x in (q, k, v)]
    lead, head = shapes[0][:-2], shapes[0][-1:]
    if (
        len(shapes[0]) < 2
        or any(s[:-2] != lead or s[-1:] != head for s in shapes)
        or shapes[1] != shapes[2]
    ):
        raise ValueError(
            f"q, k and v have shapes {shapes[0]}, {shapes[1]} and {shapes[2]}. They must be "
            "(..., Q, D), (..., K, D) and (..., K, D), with the same axes in front."
        )
    (n_queries, size), n_keys = shapes[0][-2:], shapes[1][-2]
    if not 1 <= size <= MAX_HEAD:
        raise ValueError(
            f"q has shape {shapes[0]}: heads of {size} elements. The contraction of the scores "
            f"lies on the partitions, and takes 1 to {MAX_HEAD}. Split the heads."
        )
    if max(n_queries, n_keys) > MAX_LENGTH:
        raise ValueError(
            f"q and k have shapes {shapes[0]} and {shapes[1]}: a sequence of "
            f"{max(n_queries, n_keys)}. The kernels take up to {MAX_LENGTH}. Split the queries, or "
            "merge attentions of parts of the keys by their lse."
        )
    if scale is None:
        scale = 1 / math.sqrt(size)
    if not 0 < scale < math.inf:
        raise ValueError(
            f"scale is {scale}. It must be a positive number: the largest score is looked for "
            "before it is scaled. For a negative one negate q."
        )
    return lead, float(scale)


def _refuse_empty(q: Any, k: Any) -> None:
    if 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: an axis of no elements. A "
            "launch has at least one query and one key. Skip the call for empty arrays."
        )


def _by_head(x: Any) -> Any:
    return x.reshape((-1, *x.shape[-2:]))
