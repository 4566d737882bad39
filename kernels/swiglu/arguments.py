"""What both dialects' SwiGLU kernels share: sizes of tiles, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_dtype, require_elements, require_like
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Rows of a tile."""

TILE_COLS = 2048
"""Columns of a tile: in float32 8 KiB a partition, above the 4 KiB at which a DMA is efficient."""


def check(gate: Any, up: Any) -> None:
    """Refuse what the kernels do not take; arrays of no elements pass.

    Args:
        gate, up: the operands.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: no axis, or two shapes.
    """
    for name, array in (("gate", gate), ("up", up)):
        require_dtype(name, array, "SwiGLU")
    if dtype_name(gate) != dtype_name(up):
        raise TypeError(
            f"gate is {dtype_name(gate)} and up {dtype_name(up)}. Both must have one dtype. Cast "
            "one."
        )
    shapes = tuple(gate.shape), tuple(up.shape)
    if shapes[0] != shapes[1] or not shapes[0]:
        raise ValueError(
            f"gate has shape {shapes[0]} and up {shapes[1]}. They must have one shape, of at least "
            "one axis. Nothing is broadcast: expand one of them."
        )


def check_filled(gate: Any, up: Any) -> None:
    """As :func:`check`, and refuse arrays of no elements, with ValueError."""
    check(gate, up)
    require_elements("gate", gate)


def check_gradient(grad_y: Any, gate: Any, up: Any) -> None:
    """As :func:`check_filled`, and refuse a ``grad_y`` that is not as ``gate``, with ValueError."""
    check_filled(gate, up)
    require_like("grad_y", grad_y, tuple(gate.shape), dtype_name(gate))
