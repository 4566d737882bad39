"""What launches the kernels, of either dialect, on arrays of NumPy, PyTorch or JAX."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_like
from kernels.attention.arguments import check
from kernels.launch import kernel_of


def nki_attention(
    q: Any,
    k: Any,
    v: Any,
    scale: float | None = None,
    causal: bool = False,
    *,
    lnc: int | None = None,
) -> tuple[Any, Any]:
    """``softmax(scale * q @ k.T) @ v`` with :func:`nki_attention_kernel`.

    Dimensions:
        "...": sequences: any axes. H, G: heads of queries, and of keys and values; G divides H,
        and the axis may be missing in all three. Q, K: queries and keys of a sequence, 1 to
        16384.
        D: elements of a query, key or value, 1 to 128.

    Args:
        q: (..., H, Q, D), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX
            array.
        k, v: (..., G, K, D); dtype, framework, device and axes in front of ``q``. Query head h
            reads key head h // (H / G).
        scale: of the scores, positive; 1 / sqrt(D) when None.
        causal: whether query i sees keys 0 to i only.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        o: (..., H, Q, D), dtype of ``q``.
        lse: (..., H, Q), float32: ``log(sum(exp(scale * scores)))`` of each query.

    Raises:
        TypeError: not an array, another dtype, or several.
        ValueError: shapes that do not fit, heads of queries that are no multiple of those of keys,
            a sequence or a head that is too long, an axis of no elements, or a scale that is not
            positive.
    """
    lead, scale = check(q, k, v, scale)
    _refuse_empty(q, k)
    launched = kernel_of("attention", "nki_attention_kernel", lnc)
    o, lse = launched(*map(_by_head, (q, k, v)), scale, bool(causal))
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
    *,
    lnc: int | None = None,
) -> tuple[Any, Any, Any]:
    """The gradients of :func:`nki_attention`, with :func:`nki_attention_backward_kernel`.

    Args:
        grad_o: gradient of the loss for o; shape and dtype of ``q``.
        q, k, v, scale, causal, lnc: as in the forward pass.
        o, lse: what the forward pass returned.

    Returns:
        The gradients of q, k and v, each with its shape and dtype.

    Raises:
        TypeError, ValueError: as :func:`nki_attention`; also when ``grad_o``, ``o`` or ``lse`` do
            not fit ``q``.
    """
    lead, scale = check(q, k, v, scale)
    _refuse_empty(q, k)
    require_like("grad_o", grad_o, tuple(q.shape), dtype_name(q))
    require_like("o", o, tuple(q.shape), dtype_name(q))
    require_like("lse", lse, (*lead, q.shape[-2]), "float32")
    launched = kernel_of("attention", "nki_attention_backward_kernel", lnc)
    grads = launched(
        *map(_by_head, (grad_o, q, k, v, o)),
        lse.reshape((-1, q.shape[-2], 1)),
        scale,
        bool(causal),
    )
    return tuple(grad.reshape(tuple(x.shape)) for grad, x in zip(grads, (q, k, v), strict=True))


def _refuse_empty(q: Any, k: Any) -> None:
    if 0 in (*q.shape, *k.shape):
        raise ValueError(
            f"q has shape {tuple(q.shape)} and k {tuple(k.shape)}: an axis of no elements. A "
            "launch has at least one query and one key. Skip the call for empty arrays."
        )


def _by_head(x: Any) -> Any:
    return x.reshape((-1, *x.shape[-2:]))
