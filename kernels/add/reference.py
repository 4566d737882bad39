"""Tensor addition in NumPy: what the NKI kernels are checked against, and how they tile.

Nothing here imports NKI. Read it first: the kernels do the same, one grid instance a tile.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kernels.add.arguments import TILE_COLS, TILE_ROWS


def add(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Add in float32 and round once to the input dtype, as NeuronCore engines do.

    For float16 and bfloat16 this is the correctly rounded sum: float32 has more than twice their
    precision, so rounding twice changes nothing.

    Args:
        a: (M, N), float32, float16 or bfloat16.
        b: (M, N), same dtype.

    Returns:
        (M, N), same dtype.
    """
    return (a.astype(np.float32) + b.astype(np.float32)).astype(a.dtype)


def tiles(n_rows: int, n_cols: int) -> Iterator[tuple[slice, slice]]:
    """The parts of an (n_rows, n_cols) array that the grid's instances work on, in grid order.

    Tiles are 128x2048. Those at the bottom and right edges are smaller.
    """
    for first_row in range(0, n_rows, TILE_ROWS):
        for first_col in range(0, n_cols, TILE_COLS):
            yield (
                slice(first_row, min(first_row + TILE_ROWS, n_rows)),
                slice(first_col, min(first_col + TILE_COLS, n_cols)),
            )
