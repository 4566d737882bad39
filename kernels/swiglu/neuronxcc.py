"""SwiGLU as NKI kernels, forward and backward.

Both kernels see matrices, in tiles of 128 rows and 2048 columns. The Scalar Engine computes silu
and its derivative, the Vector Engine multiplies.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

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
        Launch without a grid. silu and the product are float32, and the result is rounded once.

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            y = silu(gate) * up
    """
    n_rows, n_cols = gate.shape
    y = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    for first, height in pieces(n_rows, TILE_ROWS):
        for start, width in pieces(n_cols, TILE_COLS):
            place = nl.ds(first, height), nl.ds(start, width)
            silu = nisa.activation(op=nl.silu, data=nl.load(gate[place]), dtype=nl.float32)
            nl.store(y[place], value=nl.multiply(silu, nl.load(up[place]), dtype=y.dtype))
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
        Launch without a grid. silu is computed again, from ``gate``: to keep it would take an array
        more in HBM. Everything is float32, and results are rounded once.

    Pseudocode:
        for each tile of 128 rows and 2048 columns:
            grad_gate = grad_y * up * silu'(gate)
            grad_up = grad_y * silu(gate)
    """
    n_rows, n_cols = gate.shape
    grad_gate = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    grad_up = nl.ndarray(gate.shape, dtype=gate.dtype, buffer=nl.shared_hbm)
    for first, height in pieces(n_rows, TILE_ROWS):
        for start, width in pieces(n_cols, TILE_COLS):
            place = nl.ds(first, height), nl.ds(start, width)
            grad, gate_tile = nl.load(grad_y[place]), nl.load(gate[place])
            silu = nisa.activation(op=nl.silu, data=gate_tile, dtype=nl.float32)
            slope = nisa.activation(op=nl.silu_dx, data=gate_tile, dtype=nl.float32)
            nl.store(grad_up[place], value=nl.multiply(grad, silu, dtype=grad_up.dtype))
            product = nl.multiply(grad, nl.load(up[place]), dtype=nl.float32)
            nl.store(grad_gate[place], value=nl.multiply(product, slope, dtype=grad_gate.dtype))
    return grad_gate, grad_up
