"""What both dialects' matmul kernels share: sizes, and the checks of arguments."""

from __future__ import annotations

from typing import Any

from kernels.arguments import dtype_name, require_dtype
from kernels.tiles import ceil_div

TILE_K = 128
"""Most of the contraction in one ``nc_matmul``: it lies on the 128 partitions."""

TILE_M = 128
"""Most rows of a product in one ``nc_matmul``: the columns of the stationary tile."""

TILE_N = 512
"""Most columns of a product in one ``nc_matmul``: 512 float32 fill a bank of PSUM."""

BLOCK = 1024
"""Most rows, and most columns, of the result that are worked on at a time."""

CHUNK_BYTES = 16 * 1024
"""Bytes a partition of an operand's block that are loaded at a time: 1024 elements of the
contraction in bfloat16, 512 in float32."""

KEPT_BYTES = 64 * 1024
"""Bytes a partition that the block of the left operand may take and stay for a row of blocks: 4096
elements of the contraction in bfloat16, 2048 in float32. Where it needs more, it is loaded anew for
each block of the result."""


def even_cut(size: int, block: int, tile: int) -> tuple[int, int, int]:
    """Blocks of an axis, tiles of a block and elements of a tile, as even as they can be.

    Args:
        size: elements of the axis, at least 1.
        block, tile: most elements of each.
    """
    blocks = ceil_div(size, block)
    tiles = ceil_div(ceil_div(size, blocks), tile)
    return blocks, tiles, ceil_div(size, blocks * tiles)


def result_shape(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False
) -> tuple[int, ...]:
    """Check the operands of a product; return its shape.

    Args:
        a, b, transpose_a, transpose_b: as in :func:`nki_matmul`, or with axes of no elements.

    Raises:
        TypeError: not an array, a dtype that the kernel does not take, or two dtypes.
        ValueError: shapes that do not fit.
    """
    for name, array in (("a", a), ("b", b)):
        require_dtype(name, array, "matmul")
    if dtype_name(a) != dtype_name(b):
        raise TypeError(
            f"a is {dtype_name(a)} and b {dtype_name(b)}. Both must have one dtype. Cast one."
        )
    if transpose_a and transpose_b:
        raise ValueError(
            "transpose_a and transpose_b are both set. Swap the operands instead: a.T @ b.T is "
            "(b @ a).T."
        )
    a_shape, b_shape = tuple(a.shape), tuple(b.shape)
    if not a_shape or (len(b_shape) != 2 and not transpose_a):
        raise ValueError(
            f"a has shape {a_shape} and b {b_shape}. a has rows of at least one axis, (..., K), "
            "and b is a matrix. Loop over a batch of matrices b, or map it with vmap."
        )
    if transpose_a:
        ours, theirs, shape = a_shape[:-1], b_shape[:-1], (a_shape[-1], *b_shape[-1:])
        fits = ours == theirs
        rule = "With transpose_a all axes but the last are contracted, and must be equal."
    else:
        ours, theirs = a_shape[-1], b_shape[1 if transpose_b else 0]
        fits, shape = ours == theirs, (*a_shape[:-1], b_shape[0 if transpose_b else 1])
        rule = f"The last axis of a must be the {'last' if transpose_b else 'first'} one of b."
    if not fits:
        raise ValueError(
            f"a has shape {a_shape} and b {b_shape}: a contraction of {ours} with {theirs}. {rule}"
        )
    return shape


def filled_shape(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> tuple[int, ...]:
    """As :func:`result_shape`, and refuse axes of no elements, with ValueError."""
    shape = result_shape(a, b, transpose_a, transpose_b)
    if 0 in (*a.shape, *b.shape):
        raise ValueError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}: an axis of no elements. A "
            "launch has at least one. Skip the call: the product is empty, or zeros."
        )
    return shape
