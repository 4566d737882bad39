"""What both dialects' softmax kernels share: sizes, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_array

TILE_ROWS = 128
"""Rows of a tile: the partition axis of SBUF has 128 partitions (``nl.tile_size.pmax``)."""

CHUNK = 2048
"""Elements of a row that one instruction takes."""

KEPT_COLS = 8192
"""Longest row that is loaded once. In float32 its powers then take 32 KiB a partition, and so does
the row, of which the next one is loaded meanwhile."""

DTYPES = ("float32", "bfloat16", "float16")
"""Element types that the softmax kernels take."""


def cut(size: int, piece: int) -> list[tuple[int, int]]:
    """Start and length of each piece of an axis; the last one may be shorter."""
    return [(at, min(piece, size - at)) for at in range(0, size, piece)]


def check(x: Any, name: str = "x") -> None:
    """Refuse what the kernels do not take; arrays of no elements pass.

    Args:
        x: the operand.
        name: of the operand, for messages.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis.
    """
    require_array(name, x)
    if dtype_name(x) not in DTYPES:
        raise TypeError(
            f"{name} is {dtype_name(x)}. The softmax kernels take {', '.join(DTYPES)}. Cast it "
            "first."
        )
    if not tuple(x.shape):
        raise ValueError(f"{name} has shape (): no axis to normalise. Its last axis is a row.")


def check_filled(name: str, x: Any) -> None:
    """As :func:`check`, and refuse arrays of no elements, with ValueError."""
    check(x, name)
    if 0 in tuple(x.shape):
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}: no elements. A launch has at least one. Skip the "
            "call for empty arrays."
        )


def check_gradient(grad_y: Any, y: Any) -> None:
    """Refuse what the backward kernel does not take.

    Args:
        grad_y: gradient of the loss for y.
        y: what the forward pass returned.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis, no elements, or a ``grad_y`` that is not as ``y``.
    """
    check_filled("y", y)
    check(grad_y, "grad_y")
    if tuple(grad_y.shape) != tuple(y.shape) or dtype_name(grad_y) != dtype_name(y):
        raise ValueError(
            f"grad_y is {dtype_name(grad_y)} of shape {tuple(grad_y.shape)}, and should be "
            f"{dtype_name(y)} of shape {tuple(y.shape)}, as y."
        )
