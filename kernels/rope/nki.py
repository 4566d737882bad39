"""The rotary embedding in ``import nki``.

The instructions are those of ``neuronxcc``, whose text says why each is there. What differs: each
instruction names its destination, which the kernel has declared; the tiles are shared by the cores
of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

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
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. Products and
        sums are float32, and the result is rounded once. The result is the one of the kernel in
        ``neuronxcc.nki``, to the last bit.

    Pseudocode:
        for 128 positions, and as many heads as have 2048 elements, at a time:
            left, right = halves of x
            y = left * cos - right * sin, right * cos + left * sin
    """
    heads, length, size = x.shape
    y = nl.ndarray((heads, length, size), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = []
    for head, n_heads in pieces(heads, TILE_COLS // size):
        for first, rows in pieces(length, TILE_ROWS):
            tiles.append((head, n_heads, first, rows))
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        head, n_heads, first, rows = tiles[number]
        # Positions first: they lie on the partitions.
        pattern = [[size, rows], [length * size, n_heads], [1, size]]
        place = (head * length + first) * size
        tile = nl.ndarray((rows, n_heads, size), dtype=x.dtype, buffer=nl.sbuf)
        cos_tile = nl.ndarray((rows, size // 2), dtype=nl.float32, buffer=nl.sbuf)
        sin_tile = nl.ndarray((rows, size // 2), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x.ap(pattern, offset=place))
        nisa.dma_copy(dst=cos_tile, src=cos[first : first + rows, 0 : size // 2])
        nisa.dma_copy(dst=sin_tile, src=sin[first : first + rows, 0 : size // 2])
        result = rotated(tile, cos_tile, sin_tile, inverse)
        nisa.dma_copy(dst=y.ap(pattern, offset=place), src=result)
    return y


def rotated(tile, cos, sin, inverse):
    """The rotation of a tile (positions, heads, D) by tables (positions, D / 2), in SBUF."""
    rows, heads, size = tile.shape
    half = size // 2
    # The same for each head.
    cos = cos.expand_dim(1).broadcast(1, heads)
    sin = sin.expand_dim(1).broadcast(1, heads)
    left, right = tile[0:rows, 0:heads, 0:half], tile[0:rows, 0:heads, half:size]
    minus, plus = (nl.add, nl.subtract) if inverse else (nl.subtract, nl.add)
    result = nl.ndarray((rows, heads, size), dtype=tile.dtype, buffer=nl.sbuf)
    for first, combine, by_cos, by_sin in ((0, minus, left, right), (half, plus, right, left)):
        product = nl.ndarray((rows, heads, half), dtype=nl.float32, buffer=nl.sbuf)
        other = nl.ndarray((rows, heads, half), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(dst=product, data1=by_cos, data2=cos, op=nl.multiply)
        nisa.tensor_tensor(dst=other, data1=by_sin, data2=sin, op=nl.multiply)
        nisa.tensor_tensor(
            dst=result[0:rows, 0:heads, first : first + half],
            data1=product,
            data2=other,
            op=combine,
        )
    return result
