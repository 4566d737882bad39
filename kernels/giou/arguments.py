"""What both dialects' GIOU kernels share: sizes of tiles, and the checks of arguments."""

from __future__ import annotations

import math
from typing import Any

from kernels.arguments import dtype_name, require_array, require_dtype

FIRST_BOXES = 256
"""Boxes a partition in the first tile of the forward kernel."""


def no_scores(boxes: Any) -> Any:
    """An empty float32 array of the framework of `boxes`, without their last axis."""
    scores = boxes.sum(-1)
    return scores.float() if hasattr(scores, "float") else scores.astype("float32")


def check_gradient(grad: Any, boxes: Any) -> None:
    """Refuse a gradient that does not fit the boxes.

    Raises:
        TypeError, ValueError: another dtype than float32, or another shape than one GIOU a pair.
    """
    leading = tuple(boxes.shape[:-1])
    if tuple(grad.shape) != leading:
        raise ValueError(
            f"grad has shape {tuple(grad.shape)} for boxes of shape {tuple(boxes.shape)}: there "
            f"is one GIOU a pair. Pass a gradient of shape {leading}."
        )
    if dtype_name(grad) != "float32":
        raise TypeError(f"grad is {dtype_name(grad)}: GIOUs are float32. Cast the gradient first.")


def check_arguments(boxes1: Any, boxes2: Any, eps: Any) -> float:
    """Refuse what the kernels cannot take, before anything is traced; return eps as a float."""
    for name, boxes in (("boxes1", boxes1), ("boxes2", boxes2)):
        require_array(name, boxes)
        if len(boxes.shape) == 0 or boxes.shape[-1] != 4:
            raise ValueError(
                f"{name} has shape {tuple(boxes.shape)}. The last axis of boxes is x1, y1, x2, y2, "
                "so it has 4 elements. Reshape or slice first."
            )
        require_dtype(name, boxes, "GIOU")
    if tuple(boxes1.shape) != tuple(boxes2.shape):
        raise ValueError(
            f"boxes1 has shape {tuple(boxes1.shape)} and boxes2 {tuple(boxes2.shape)}. Each box "
            "has one partner, and the kernel does not broadcast. Expand one to the other's shape, "
            "or match predictions with targets first."
        )
    if isinstance(eps, bool) or not isinstance(eps, (int, float)):
        raise TypeError(
            f"eps is a {type(eps).__name__}. It is compiled into the kernel, so it must be a "
            "Python number."
        )
    if not 0 <= eps < math.inf:
        raise ValueError(f"eps is {eps}. It keeps denominators from zero: pass 0 or a bit more.")
    return float(eps)
