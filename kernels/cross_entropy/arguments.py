"""What both dialects' cross-entropy kernels share: sizes, and the checks of arguments."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from kernels.arguments import (
    dtype_name,
    require_array,
    require_dtype,
    require_elements,
    require_like,
)
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Rows of a tile."""

CHUNK = 2048
"""Logits of a row that one instruction takes."""

MAX_COLS = 2**24
"""Most classes. The backward kernel compares their numbers in float32, which holds integers up to
this one."""

MAX_SIZE = 2**31
"""Below this many logits: the forward kernel counts them in int32 to find those of the targets."""


def check(logits: Any, targets: Any) -> None:
    """Refuse what the operators do not take; arrays of no rows pass.

    Args:
        logits: (..., V), the operand.
        targets: (...), integers.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: shapes that do not fit, no classes, or too many.
    """
    require_dtype("logits", logits, "cross-entropy")
    require_array("targets", targets)
    if not dtype_name(targets).startswith(("int", "uint")):
        raise TypeError(
            f"targets is {dtype_name(targets)}. A target is the number of a class. Pass integers; "
            "probabilities of classes are not taken."
        )
    shape = tuple(logits.shape)
    if not shape or tuple(targets.shape) != shape[:-1]:
        raise ValueError(
            f"logits has shape {shape} and targets {tuple(targets.shape)}. They must be (..., V) "
            "and (...): the last axis of logits holds the classes."
        )
    if not 1 <= shape[-1] <= MAX_COLS or math.prod(shape) >= MAX_SIZE:
        raise ValueError(
            f"logits has shape {shape}. The kernels take 1 to {MAX_COLS} classes, and fewer than "
            f"{MAX_SIZE} logits. Split the rows."
        )


def check_filled(logits: Any, targets: Any) -> None:
    """As :func:`check`, and refuse arrays of no rows, targets that are not int32, and in a NumPy
    array such that are no class."""
    check(logits, targets)
    require_elements("logits", logits)
    if dtype_name(targets) != "int32":
        raise TypeError(f"targets is {dtype_name(targets)}. The kernels take int32. Cast it.")
    if isinstance(targets, np.ndarray):
        require_classes(targets, logits.shape[-1])


def require_ignore_index(ignore_index: Any) -> int:
    """The target of rows that do not count, as an int; TypeError for what is no integer."""
    if not isinstance(ignore_index, (int, np.integer)):
        raise TypeError(
            f"ignore_index is {ignore_index!r}, a {type(ignore_index).__name__}. It is compared "
            "with targets: pass an integer, such as -100."
        )
    return int(ignore_index)


def require_classes(targets: np.ndarray, classes: int, ignore_index: int | None = None) -> None:
    """Refuse a target that is no class.

    Args:
        targets: (...), integers.
        classes: how many there are.
        ignore_index: a target that is allowed, too.

    Raises:
        IndexError: a target is below 0, or not below `classes`.
    """
    wrong = (targets < 0) | (targets >= classes)
    if ignore_index is not None:
        wrong &= targets != ignore_index
    if wrong.any():
        at = [int(i) for i in np.argwhere(wrong)[0]]
        allowed = "" if ignore_index is None else f", or ignore_index, which is {ignore_index}"
        raise IndexError(
            f"targets[{', '.join(map(str, at))}] is {targets[tuple(at)]}, and logits has {classes} "
            f"classes: a target is 0 to {classes - 1}{allowed}. "
            + (
                "Mask such rows: the kernels know no padding."
                if ignore_index is None
                else "Pass the value that marks padding as ignore_index, or mend the targets."
            )
        )


def check_gradient(grad: Any, logits: Any, targets: Any, lse: Any) -> None:
    """As :func:`check_filled`; also refuse a ``grad`` or an ``lse`` that does not fit ``targets``,
    with ValueError."""
    check_filled(logits, targets)
    require_like("grad_loss", grad, tuple(targets.shape), "float32")
    require_like("lse", lse, tuple(targets.shape), "float32")
