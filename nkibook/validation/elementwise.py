"""The exponential of a matrix, in tiles of 128 rows."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def exp(x):
    """exp(x) of a matrix (rows, columns); rows need not be a multiple of 128."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:128, 0:columns]
    for i in nl.affine_range((rows + 127) // 128):
        inside = i * 128 + p < rows
        tile = nl.load(x[i * 128 + p, f], mask=inside)
        nl.store(out[i * 128 + p, f], nl.exp(tile, mask=inside), mask=inside)
    return out
