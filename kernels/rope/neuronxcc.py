"""The rotary embedding as an NKI kernel.

A rotation is undone by the rotation by the negative angle, and that is its gradient, too. So one
kernel serves both passes.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from kernels.rope.arguments import TILE_COLS, TILE_ROWS
from kernels.tiles import pieces


@nki.jit
def nki_rope_kernel(x, cos, sin, inverse=False):
    """Rotate each pair (element i, element i + D / 2) of each head by an angle of its position.

    Dimensions:
        H: heads, of all sequences of a batch. S: positions. D: elements of a head, even, 2 to 2048.
        They need not be multiples of anything else.

    Args:
        x: (H, S, D) in HBM; float32, bfloat16 or float16.
        cos, sin: (S, D / 2) float32 in HBM, of the angles.
        inverse: whether to rotate by the negative angles; known while compiling.

    Returns:
        (H, S, D) in HBM, dtype of ``x``.

    Notes:
        Launch without a grid. Products and sums are float32, and the result is rounded once.
        Positions lie on the partitions, so that one load of the tables serves all heads of a tile.

    Pseudocode:
        for 128 positions, and as many heads as have 2048 elements, at a time:
            left, right = halves of x
            y = left * cos - right * sin, right * cos + left * sin
    """
    heads, length, size = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for head, n_heads in pieces(heads, TILE_COLS // size):
        for first, rows in pieces(length, TILE_ROWS):
            i_row = nl.arange(rows)[:, None, None]
            i_head = nl.arange(n_heads)[None, :, None]
            i_col = nl.arange(size)[None, None, :]
            place = head + i_head, first + i_row, i_col
            tile = rotated(
                nl.load(x[place]),
                nl.load(cos[nl.ds(first, rows), :]),
                nl.load(sin[nl.ds(first, rows), :]),
                inverse,
            )
            nl.store(y[place], value=tile)
    return y


def rotated(tile, cos, sin, inverse):
    """The rotation of a tile (positions, heads, D) by tables (positions, D / 2), in SBUF."""
    half = cos.shape[1]
    cos, sin = cos.expand_dims(1), sin.expand_dims(1)  # the same for each head
    left, right = tile[:, :, nl.ds(0, half)], tile[:, :, nl.ds(half, half)]
    minus, plus = (nl.add, nl.subtract) if inverse else (nl.subtract, nl.add)
    result = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
    for place, combine, terms in (
        (nl.ds(0, half), minus, (left, right)),
        (nl.ds(half, half), plus, (right, left)),
    ):
        result[:, :, place] = combine(
            nl.multiply(terms[0], cos, dtype=nl.float32),
            nl.multiply(terms[1], sin, dtype=nl.float32),
            dtype=tile.dtype,
        )
    return result
