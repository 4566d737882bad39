"""Answers to the exercises on kernel patterns."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def centred(x):
    rows, cols = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(128)[:, None], nl.arange(cols)[None, :]
    for t in nl.affine_range((rows + 127) // 128):
        row = t * 128 + i_p
        tile = nl.load(x[row, i_f], mask=row < rows)
        mean = nl.mean(tile, axis=1, keepdims=True)
        nl.store(y[row, i_f], value=nl.subtract(tile, mean), mask=row < rows)
    return y


@nki.jit
def tripled(x):
    rows, cols = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(64)[:, None], nl.arange(cols)[None, :]
    for t in nl.affine_range((rows + 63) // 64):
        row = t * 64 + i_p
        tile = nl.load(x[row, i_f], mask=row < rows)
        nl.store(y[row, i_f], value=tile * 3, mask=row < rows)
    return y
