"""What both dialects' pooling kernels share: limits, and the check of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import require_array, require_dtype
from kernels.avgpool.geometry import Pooling

WHOLE_ROWS = 1.25
"""Rows are loaded whole when that is at most this many times what the windows need of them."""


def constants(settings: Pooling) -> tuple[Any, ...]:
    """The settings as plain numbers and tuples, in the order in which kernels take them."""
    return (
        settings.kernel_size,
        settings.stride,
        settings.padding,
        settings.ceil_mode,
        settings.count_include_pad,
        settings.divisor_override,
    )


def check(name: str, array: Any, *, no_images: bool = False) -> None:
    """Refuse what the kernels cannot pool, before anything is traced.

    Args:
        name: of the array, for messages.
        array: wants 3 or 4 axes, elements, and float32, bfloat16 or float16.
        no_images: whether 4 axes may begin with one of size 0, for callers who launch nothing then.

    Raises:
        TypeError, ValueError: it is something else.
    """
    require_array(name, array)
    shape = tuple(array.shape)
    if len(shape) not in (3, 4):
        raise ValueError(
            f"{name} has shape {shape}: {len(shape)} dimensions. Pass (channels, height, width) or "
            "(batch, channels, height, width)."
        )
    if 0 in (shape[1:] if no_images and len(shape) == 4 else shape):
        raise ValueError(
            f"{name} has shape {shape}: no elements. A launch needs at least one. Skip the call "
            "for empty tensors."
        )
    require_dtype(name, array, "pooling")
