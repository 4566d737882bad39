"""Answers to the exercises on debugging a kernel."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def best(x):
    rows, cols = x.shape
    y = nl.ndarray((rows, 1), dtype=x.dtype, buffer=nl.shared_hbm)
    top = nl.full((rows, 1), float("-inf"), dtype=x.dtype)
    i_row, i_col = nl.mgrid[0:rows, 0:8]
    for j in nl.sequential_range((cols + 7) // 8):
        inside = j * 8 + i_col < cols
        block = nl.load(x[i_row, j * 8 + i_col], mask=inside)
        largest = nl.max(block, axis=1, keepdims=True, mask=inside)
        top[...] = nl.maximum(top, largest)
    nl.store(y, value=top)
    return y


@nki.jit
def padded(x):
    rows, cols = x.shape
    y = nl.ndarray((rows, cols + 2), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((rows, cols + 2), dtype=x.dtype)
    tile[:, nl.ds(1, cols)] = nl.load(x)
    nl.store(y, value=tile)
    return y


@nki.jit
def gram(x):
    rows, cols = x.shape
    y = nl.ndarray((cols, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((cols, cols), dtype=nl.float32, buffer=nl.psum)
    for t in nl.affine_range(rows // 4):
        block = nl.load(x[nl.ds(t * 4, 4), :])
        total += nisa.nc_matmul(block, block)
    nl.store(y, value=total)
    return y


@nki.jit
def softmax(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    top = nl.max(tile, axis=1, keepdims=True)
    weights = nl.exp(tile - top)
    total = nl.sum(weights, axis=1, keepdims=True)
    nl.store(y, value=weights / total)
    return y
