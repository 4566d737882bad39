"""Centred rows: your kernel."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def centred(x, w):
    """(n, d) and (d,) float32 in HBM to (n, d): each row without its mean, times the weights."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x[0:1])  # one row; go on from here
    nl.store(out[0:1], tile)
    return out
