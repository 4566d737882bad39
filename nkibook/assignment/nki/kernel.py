"""Centred rows: your kernel."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def centred(x, w):
    """(n, d) and (d,) float32 in HBM to (n, d): each row without its mean, times the weights."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x[0:1])  # one row; go on from here
    nisa.dma_copy(dst=out[0:1], src=tile)
    return out
