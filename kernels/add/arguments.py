"""What both dialects' addition kernels share: the size of a tile, and the check of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_array, require_dtype, require_elements
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Rows of a tile."""

TILE_COLS = 2048
"""Columns of a tile: elements of the free axis, in each partition. A choice, not a limit. In
float32 a row of a tile is 8 KiB, above the 4 KiB at which a DMA is efficient; 512 columns are 2."""


def check(a: Any, b: Any) -> None:
    """Refuse what the kernel cannot add, before anything is traced; no elements pass.

    Raises:
        TypeError: no arrays, dtypes that differ, or one that the kernel does not take.
        ValueError: no axis, or shapes that differ.
    """
    for name, array in (("a_input", a), ("b_input", b)):
        require_array(name, array)
        if not array.shape:
            raise ValueError(f"{name} has shape (): no axis. Its last axis is a row of elements.")
    if tuple(a.shape) != tuple(b.shape):
        raise ValueError(
            f"a_input has shape {tuple(a.shape)} and b_input {tuple(b.shape)}. The kernel does not "
            "broadcast. Broadcast or slice one of them to the other's shape first."
        )
    dtype_a, dtype_b = dtype_name(a), dtype_name(b)
    if dtype_a != dtype_b:
        raise TypeError(
            f"a_input is {dtype_a} and b_input {dtype_b}. The kernel adds tensors of one dtype. "
            "Cast one of them first."
        )
    require_dtype("a_input", a, "add")


def check_filled(a: Any, b: Any) -> None:
    """As :func:`check`, and refuse arrays of no elements, with ValueError."""
    check(a, b)
    require_elements("a_input", a)
