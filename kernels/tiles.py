"""How an axis is cut, for kernels of both dialects and their callers. Integers only, no NKI.

NKI evaluates what is here while it traces a kernel.
"""

from __future__ import annotations

PARTITIONS = 128
"""Partitions of SBUF and PSUM, the most rows a tile can have (``nl.tile_size.pmax``)."""

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element. In ``import nki`` a dtype is a string, and has no ``itemsize``."""


def ceil_div(a: int, b: int) -> int:
    """The least integer that is not below a / b."""
    return (a + b - 1) // b


def pieces(size: int, piece: int, first: int = 0) -> list[tuple[int, int]]:
    """Start and length of each piece of `size` elements from `first` on; the last may be shorter.

    Args:
        size: elements, at least 0.
        piece: elements of a piece, at least 1.
        first: where the first piece starts.
    """
    return [(first + at, min(piece, size - at)) for at in range(0, size, piece)]
