"""Transposing a matrix with the Tensor Engine, tile by tile."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

P = 128


@nki.jit
def transpose_tiles(x):
    """x.T of x (rows, columns), multiples of 128: each tile is loaded, transposed and stored."""
    rows, columns = x.shape
    out = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(rows // P):
        for j in nl.affine_range(columns // P):
            row, column = nl.ds(i * P, P), nl.ds(j * P, P)
            turned = nisa.nc_transpose(nl.load(x[row, column]))
            nl.store(out[column, row], nl.copy(turned, dtype=x.dtype))
    return out
