"""What both dialects' softmax kernels share: sizes, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_dtype, require_elements, require_like
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Rows of a tile."""

CHUNK = 2048
"""Elements of a row that one instruction takes."""

KEPT_COLS = 8192
"""Longest row that is loaded once. In float32 its exponentials take 32 KiB a partition, and so does
the row, of which the next one is loaded meanwhile."""


def check(x: Any, name: str = "x") -> None:
    """Refuse what the kernels do not take; arrays of no elements pass.

    Args:
        x: the operand.
        name: of the operand, for messages.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis.
    """
    require_dtype(name, x, "softmax")
    if not tuple(x.shape):
        raise ValueError(f"{name} has shape (): no axis to normalise. Its last axis is a row.")


def check_filled(name: str, x: Any) -> None:
    """As :func:`check`, and refuse arrays of no elements, with ValueError."""
    check(x, name)
    require_elements(name, x)


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
    require_like("grad_y", grad_y, tuple(y.shape), dtype_name(y))
