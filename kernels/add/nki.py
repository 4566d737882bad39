"""Tensor addition in ``import nki``.

The kernels of ``neuronxcc`` are in ``neuronxcc.nki``, the dialect up to SDK 2.29. What is
different here: there is no grid of tiles, so the kernel loops over them; there is no mask, so a
slice ends where the tensor ends; an instruction writes to a tile that the kernel has declared.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.add.arguments import TILE_COLS, TILE_ROWS
from kernels.tiles import ceil_div


@nki.jit
def nki_tensor_add_kernel(a_input, b_input):
    """Add two tensors of any 2-D shape.

    Dimensions:
        M: rows. N: columns. Both at least 1; they need not be multiples of anything.

    Args:
        a_input: (M, N) in HBM; float32, bfloat16 or float16.
        b_input: (M, N) in HBM, same dtype as ``a_input``.

    Returns:
        (M, N) in HBM, dtype of ``a_input``.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``. The cores of a logical core take the tiles in
        turn; each writes its own, so that they need no order.

    Pseudocode:
        for each tile of 128 rows and 2048 columns, cut where the tensor ends:
            c[rows, cols] = a[rows, cols] + b[rows, cols]
    """
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray((n_rows, n_cols), dtype=a_input.dtype, buffer=nl.shared_hbm)

    in_row = ceil_div(n_cols, TILE_COLS)
    n_tiles = ceil_div(n_rows, TILE_ROWS) * in_row
    for tile in range(nl.program_id(0), n_tiles, nl.num_programs(0)):
        first_row, first_col = tile // in_row * TILE_ROWS, tile % in_row * TILE_COLS
        last_row = min(first_row + TILE_ROWS, n_rows)
        last_col = min(first_col + TILE_COLS, n_cols)
        shape = (last_row - first_row, last_col - first_col)

        a_tile = nl.ndarray(shape, dtype=a_input.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray(shape, dtype=a_input.dtype, buffer=nl.sbuf)
        c_tile = nl.ndarray(shape, dtype=a_input.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_input[first_row:last_row, first_col:last_col])
        nisa.dma_copy(dst=b_tile, src=b_input[first_row:last_row, first_col:last_col])
        nisa.tensor_tensor(dst=c_tile, data1=a_tile, data2=b_tile, op=nl.add)
        nisa.dma_copy(dst=c_output[first_row:last_row, first_col:last_col], src=c_tile)

    return c_output
