"""SwiGLU in ``import nki``, forward and backward.

The instructions are those of ``neuronxcc``, whose text says why each is there. What differs: each
instruction names its destination, which the kernel has declared; the tiles are shared by the cores
of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.swiglu.arguments import TILE_COLS, TILE_ROWS
from kernels.tiles import pieces


@nki.jit
def nki_swiglu_kernel(gate, up):
    """``silu(gate) * up``, with ``silu(x) = x / (1 + exp(-x))``.

    Dimensions:
        M, N: rows and columns. At least 1; they need not be multiples of anything.

    Args:
        gate: (M, N) in HBM; float32, bfloat16 or float16.
        up: (M, N) in HBM, dtype of ``gate``.

    Returns:
        (M, N) in HBM, dtype of ``gate``.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. silu and the
        product are float32, and the result is rounded once.

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            y = silu(gate) * up
    """
    n_rows, n_cols = gate.shape
    y = nl.ndarray((n_rows, n_cols), dtype=gate.dtype, buffer=nl.shared_hbm)
    tiles = _tiles(n_rows, n_cols)
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, last, start, stop = tiles[number]
        shape = (last - first, stop - start)
        gate_tile = _loaded(gate[first:last, start:stop])
        up_tile = _loaded(up[first:last, start:stop])
        silu = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray(shape, dtype=gate.dtype, buffer=nl.sbuf)
        nisa.activation(dst=silu, op=nl.silu, data=gate_tile)
        nisa.tensor_tensor(dst=result, data1=silu, data2=up_tile, op=nl.multiply)
        nisa.dma_copy(dst=y[first:last, start:stop], src=result)
    return y


@nki.jit
def nki_swiglu_backward_kernel(grad_y, gate, up):
    """The gradients of :func:`nki_swiglu_kernel`.

    Dimensions:
        M, N: rows and columns. At least 1; they need not be multiples of anything.

    Args:
        grad_y: (M, N) in HBM, gradient of the loss for ``y``; dtype of ``gate``.
        gate: (M, N) in HBM; float32, bfloat16 or float16.
        up: (M, N) in HBM, dtype of ``gate``.

    Returns:
        grad_gate, grad_up: (M, N) in HBM, dtype of ``gate``.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``, as the forward kernel. silu is computed again,
        from ``gate``. Everything is float32, and results are rounded once.

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            grad_gate = grad_y * up * silu'(gate)
            grad_up = grad_y * silu(gate)
    """
    n_rows, n_cols = gate.shape
    grad_gate = nl.ndarray((n_rows, n_cols), dtype=gate.dtype, buffer=nl.shared_hbm)
    grad_up = nl.ndarray((n_rows, n_cols), dtype=gate.dtype, buffer=nl.shared_hbm)
    tiles = _tiles(n_rows, n_cols)
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, last, start, stop = tiles[number]
        shape = (last - first, stop - start)
        grad = _loaded(grad_y[first:last, start:stop])
        gate_tile = _loaded(gate[first:last, start:stop])
        up_tile = _loaded(up[first:last, start:stop])
        silu = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        slope = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        to_up = nl.ndarray(shape, dtype=gate.dtype, buffer=nl.sbuf)
        to_gate = nl.ndarray(shape, dtype=gate.dtype, buffer=nl.sbuf)
        nisa.activation(dst=silu, op=nl.silu, data=gate_tile)
        nisa.activation(dst=slope, op=nl.silu_dx, data=gate_tile)
        nisa.tensor_tensor(dst=to_up, data1=grad, data2=silu, op=nl.multiply)
        nisa.dma_copy(dst=grad_up[first:last, start:stop], src=to_up)
        nisa.tensor_tensor(dst=product, data1=grad, data2=up_tile, op=nl.multiply)
        nisa.tensor_tensor(dst=to_gate, data1=product, data2=slope, op=nl.multiply)
        nisa.dma_copy(dst=grad_gate[first:last, start:stop], src=to_gate)
    return grad_gate, grad_up


def _tiles(n_rows, n_cols):
    """First and last row and column of each tile; the last are outside of it."""
    tiles = []
    for first, height in pieces(n_rows, TILE_ROWS):
        for start, width in pieces(n_cols, TILE_COLS):
            tiles.append((first, first + height, start, start + width))
    return tiles


def _loaded(part):
    """A part of a matrix in SBUF."""
    tile = nl.ndarray(part.shape, dtype=part.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=part)
    return tile
