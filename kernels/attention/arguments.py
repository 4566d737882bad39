"""What both dialects' attention kernels share: sizes of tiles, and the checks of arguments."""

from __future__ import annotations

import math
from typing import Any

from kernels.arguments import dtype_name, require_dtype

TILE = 128
"""Queries of a tile, and keys of a tile where they lie on partitions."""

BANK = 512
"""Keys whose scores fill a bank of PSUM: the most that one ``nc_matmul`` computes."""

BLOCK = 2048
"""Keys after which the forward kernel updates the running maximum, and rescales."""

MAX_HEAD = 128
"""Longest query or key: the contraction of the scores lies on the partitions."""

MAX_LENGTH = 16384
"""Longest sequence. The backward kernel keeps a float32 gradient for all queries in SBUF."""

KEPT_BYTES = 64 * 1024
"""Bytes a partition that operands may take and stay for all tiles of a head. Where they need more,
they are loaded where they are used."""

NEVER = -1e30
"""Score of a key that a query does not see. Finite, so that a difference of two is not NaN."""


def require_flag(name: str, value: Any) -> bool:
    """Whether an attention is causal; TypeError for an array, which would be a mask."""
    if getattr(value, "shape", ()):
        raise TypeError(
            f"{name} is an array of shape {tuple(value.shape)}. The kernels take no mask: pass "
            "True, where query i sees keys 0 to i only, or False."
        )
    return bool(value)


def check(q: Any, k: Any, v: Any, scale: float | None) -> tuple[tuple[int, ...], float]:
    """Check the operands of an attention.

    Args:
        q, k, v, scale: as in :func:`kernels.attention.nki_attention`; axes may have no
            elements.

    Returns:
        The shape of the axes before those of a head, and the scale.

    Raises:
        TypeError: not an array, a dtype that the kernels do not take, or several.
        ValueError: shapes that do not fit, heads of queries that are no multiple of those of keys,
            a sequence or a head that is too long, or a scale that is not positive.
    """
    for name, array in (("q", q), ("k", k), ("v", v)):
        require_dtype(name, array, "attention")
        if dtype_name(array) != dtype_name(q):
            raise TypeError(
                f"q is {dtype_name(q)} and {name} {dtype_name(array)}. All three must have one "
                "dtype. Cast them."
            )
    shapes = [tuple(x.shape) for x in (q, k, v)]
    lead, of_keys = shapes[0][:-2], shapes[1][:-2]
    if (
        len(shapes[0]) < 2
        or len(shapes[1]) != len(shapes[0])
        or shapes[1][-1] != shapes[0][-1]
        or of_keys[:-1] != lead[:-1]
        or shapes[1] != shapes[2]
    ):
        raise ValueError(
            f"q, k and v have shapes {shapes[0]}, {shapes[1]} and {shapes[2]}. They must be "
            "(..., H, Q, D), (..., G, K, D) and (..., G, K, D), with the same axes in front of the "
            "H heads of q and the G of k and v; or (Q, D), (K, D) and (K, D)."
        )
    if of_keys != lead and (0 in (lead[-1], of_keys[-1]) or lead[-1] % of_keys[-1]):
        raise ValueError(
            f"q has {lead[-1]} heads and k {of_keys[-1]} (shapes {shapes[0]} and {shapes[1]}). As "
            "many query heads share each head of k and v, so theirs must divide those of q: pass "
            f"{lead[-1]} heads of k and v, or a divisor of it."
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
