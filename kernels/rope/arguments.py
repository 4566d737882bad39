"""What both dialects' kernels of the rotary embedding share: sizes, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_array, require_dtype
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Positions of a tile."""

TILE_COLS = 2048
"""Most elements of a position in a tile: those of several heads, side by side. Also the longest
head."""


def check(x: Any, cos: Any, sin: Any) -> None:
    """Refuse what the kernel does not take; axes may have no elements.

    Args:
        x, cos, sin: as in :func:`kernels.rope.nki_rope`.

    Raises:
        TypeError: not an array, or a dtype that the kernel does not take.
        ValueError: shapes that do not fit, or a head that is too long.
    """
    require_dtype("x", x, "rotary embedding")
    shape = tuple(x.shape)
    if len(shape) < 2:
        raise ValueError(
            f"x has shape {shape}. It must be (..., S, D): positions, and the elements of a head."
        )
    length, size = shape[-2:]
    if size % 2 or not 2 <= size <= TILE_COLS:
        raise ValueError(
            f"x has shape {shape}: heads of {size} elements. The kernel rotates pairs, and takes "
            f"an even number of 2 to {TILE_COLS}. Pad the heads, or split them."
        )
    for name, table in (("cos", cos), ("sin", sin)):
        require_array(name, table)
        if dtype_name(table) != "float32":
            raise TypeError(
                f"{name} is {dtype_name(table)}. Angles of late positions need float32, whatever "
                "the dtype of x. Cast it."
            )
        if tuple(table.shape) != (length, size // 2):
            raise ValueError(
                f"{name} has shape {tuple(table.shape)} and x {shape}. It must be (S, D / 2), here "
                f"{(length, size // 2)}: an angle for each position and each pair."
            )


def check_filled(x: Any, cos: Any, sin: Any) -> None:
    """As :func:`check`, and refuse arrays of no elements, with ValueError."""
    check(x, cos, sin)
    if 0 in tuple(x.shape):
        raise ValueError(
            f"x has shape {tuple(x.shape)}: no elements. A launch has at least one. Skip the call "
            "for empty arrays."
        )
