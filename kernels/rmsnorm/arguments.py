"""What both dialects' RMSNorm kernels share: sizes of tiles, and the checks of arguments."""

from __future__ import annotations

import math
from typing import Any

from kernels.arguments import dtype_name, require_dtype, require_like
from kernels.tiles import PARTITIONS

TILE_ROWS = PARTITIONS
"""Rows of a tile."""

CHUNK_BYTES = 8 * 1024
"""Bytes of a row that one instruction of the forward kernel takes, in the dtype of x: above the
4 KiB at which a DMA is efficient, and small beside the rows."""

BACKWARD_CHUNK = 1024
"""Elements of a row that one instruction of the backward kernel takes. It has four intermediate
float32 tiles in flight."""

MAX_COLS = 16384
"""Longest row. In float32 the input and the weight then take 128 KiB of the 176 KiB that a kernel
may use in each partition of SBUF."""

RESIDENT_BYTES = 128 * 1024
"""Bytes a partition that the backward kernel may fill with rows of x, grad_y and weight. When they
need more, x is loaded twice instead of being kept."""


def leading_shape(x: Any, weight: Any) -> tuple[int, ...]:
    """Check that ``weight`` fits the last axes of ``x``; return the shape of the axes before them.

    Args:
        x, weight: as in :func:`kernels.rmsnorm.nki_rms_norm`, or with no rows.

    Raises:
        TypeError: not an array, or a dtype that the kernels do not take.
        ValueError: shapes that do not fit, or rows of no elements or more than 16384.
    """
    for name, array in (("x", x), ("weight", weight)):
        require_dtype(name, array, "RMSNorm")
    shape, axes = tuple(x.shape), tuple(weight.shape)
    if not axes:
        raise ValueError(
            "weight has shape (): no axis to normalise. Its shape names the last axes of x, for "
            "example (x.shape[-1],)."
        )
    if shape[-len(axes) :] != axes:
        raise ValueError(
            f"weight has shape {axes} and x {shape}. The last axes of x, which are normalised, "
            "must be those of weight."
        )
    n_cols = math.prod(axes)
    if not 1 <= n_cols <= MAX_COLS:
        raise ValueError(
            f"weight has shape {axes}: rows of {n_cols} elements. The kernels keep whole rows in "
            f"SBUF, and take 1 to {MAX_COLS} elements. Normalise over fewer axes."
        )
    return shape[: len(shape) - len(axes)]


def check_gradient(grad_y: Any, x: Any, invvar: Any, lead: tuple[int, ...]) -> None:
    """Refuse arguments of the backward pass that do not fit ``x``.

    Args:
        grad_y, x, invvar: as in :func:`kernels.rmsnorm.nki_rms_norm_backward`.
        lead: the shape that ``invvar`` has.

    Raises:
        ValueError: another shape or dtype than in the forward pass.
    """
    require_like("grad_y", grad_y, tuple(x.shape), dtype_name(x))
    require_like("invvar", invvar, lead, "float32")


def rows_and_cols(x: Any, weight: Any) -> tuple[tuple[int, ...], int]:
    """The leading shape, which must have rows, and the length of a row.

    Raises:
        TypeError, ValueError: as :func:`leading_shape`; also when there is no row.
    """
    lead = leading_shape(x, weight)
    if 0 in lead:
        raise ValueError(
            f"x has shape {tuple(x.shape)}: no rows. A launch has at least one. Skip the call for "
            "empty arrays."
        )
    return lead, math.prod(weight.shape)
