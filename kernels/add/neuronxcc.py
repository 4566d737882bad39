"""Tensor addition as NKI kernels.

Three kernels compute ``c = a + b`` on 2-D tensors, each instance of the SPMD grid one tile:
the strict one of the tutorial, one for any shape, and the same one spread over two NeuronCores.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from kernels.add.arguments import TILE_COLS, TILE_ROWS, check_filled
from kernels.tiles import ceil_div

STRICT_COLS = 512
"""Columns of a tile of the strict kernel, as in the tutorial."""


@nki.jit
def nki_tensor_add_kernel_strict(a_input, b_input):
    """Add two tensors whose shapes are whole numbers of tiles.

    Dimensions:
        M: rows, a multiple of 128. N: columns, a multiple of 512.

    Args:
        a_input: (M, N) in HBM.
        b_input: (M, N) in HBM, same dtype as ``a_input``.

    Returns:
        (M, N) in HBM, dtype of ``a_input``.

    Notes:
        Launch on the grid ``[M // 128, N // 512]``. Each instance writes its own tile, so the
        instances need no order.

    Pseudocode:
        rows, cols = tile number program_id
        c[rows, cols] = a[rows, cols] + b[rows, cols]
    """
    c_output = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)

    # Where this instance's tile begins.
    first_row = nl.program_id(0) * TILE_ROWS
    first_col = nl.program_id(1) * STRICT_COLS
    i_row, i_col = nl.mgrid[0:TILE_ROWS, 0:STRICT_COLS]
    rows = first_row + i_row
    cols = first_col + i_col

    a_tile = nl.load(a_input[rows, cols])
    b_tile = nl.load(b_input[rows, cols])
    c_tile = a_tile + b_tile
    nl.store(c_output[rows, cols], value=c_tile)

    return c_output


@nki.jit
def nki_tensor_add_kernel(a_input, b_input):
    """Add two tensors of any 2-D shape.

    Dimensions:
        M: rows. N: columns. Both at least 1; they need not be multiples of anything.

    Args:
        a_input: (M, N) in HBM.
        b_input: (M, N) in HBM, same dtype as ``a_input``.

    Returns:
        (M, N) in HBM, dtype of ``a_input``.

    Notes:
        Launch on the grid ``[ceil(M / 128), ceil(N / 2048)]``; more instances do no harm. The mask
        keeps the tiles at the bottom and right edges inside the tensor. It compares index
        expressions, which the compiler knows, so it costs nothing at run time.

    Pseudocode:
        rows, cols = tile number program_id, cut where the tensor ends
        c[rows, cols] = a[rows, cols] + b[rows, cols]
    """
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray(a_input.shape, dtype=a_input.dtype, buffer=nl.shared_hbm)

    first_row = nl.program_id(0) * TILE_ROWS
    first_col = nl.program_id(1) * TILE_COLS
    i_row, i_col = nl.mgrid[0:TILE_ROWS, 0:TILE_COLS]
    rows = first_row + i_row
    cols = first_col + i_col
    inside = (rows < n_rows) & (cols < n_cols)

    a_tile = nl.load(a_input[rows, cols], mask=inside)
    b_tile = nl.load(b_input[rows, cols], mask=inside)
    c_tile = nl.add(a_tile, b_tile, mask=inside)
    nl.store(c_output[rows, cols], value=c_tile, mask=inside)

    return c_output


def nki_tensor_add_two_cores(a_input: Any, b_input: Any) -> Any:
    """Add two arrays with :func:`nki_tensor_add_kernel` on two NeuronCores.

    The cores take the row blocks in turn: core 0 the even ones, core 1 the odd ones. Both must see
    one HBM, which hardware offers from Trainium2 on (a logical NeuronCore of two physical ones).

    Args:
        a_input, b_input: (M, N), as for :func:`nki_tensor_add`.

    Returns:
        (M, N), dtype and framework of the inputs.

    Raises:
        TypeError: as :func:`nki_tensor_add`.
        ValueError: not 2-D, shapes that differ, or no elements.
    """
    check_filled(a_input, b_input)
    if len(a_input.shape) != 2:
        raise ValueError(f"a_input has shape {tuple(a_input.shape)}. It is a matrix. Reshape it.")
    n_rows, n_cols = a_input.shape
    rows_of_both = ceil_div(n_rows, 2 * TILE_ROWS)
    grid = (nl.spmd_dim(rows_of_both, nl.nc(2)), ceil_div(n_cols, TILE_COLS))
    return nki_tensor_add_kernel[grid](a_input, b_input)
