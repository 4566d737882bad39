"""Answers to the exercises on tuning."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def doubled(x, width=4096):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[1] // width):
        columns = nl.ds(i * width, width)
        tile = nl.load(x[:, columns])
        nl.store(out[:, columns], value=nl.multiply(tile, 2.0))
    return out
