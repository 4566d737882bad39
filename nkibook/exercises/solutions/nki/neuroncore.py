"""Answers in `import nki` to the exercises on the NeuronCore."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import math

import nki
import nki.isa as nisa
import nki.language as nl


def tiles_in_sbuf(columns, itemsize):
    partition = 224 * 1024
    return partition // (columns * itemsize)


def operations_for_free(itemsize, cycles_each):
    dma = 4 * itemsize / 370e9
    vector = cycles_each / (128 * 0.96e9)
    return math.floor(dma / vector)


@nki.jit
def transpose(x):
    rows, columns = x.shape
    y = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.sbuf)
    turned = nl.ndarray((columns, rows), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.nc_transpose(dst=turned, data=tile)
    nisa.dma_copy(dst=y, src=turned)
    return y


@nki.jit
def double_tall(x):
    rows, columns = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in range(0, rows, 128):
        end = min(start + 128, rows)
        tile = nl.ndarray((end - start, columns), dtype=x.dtype,
                          buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[start:end])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,
                           operand0=2.0)
        nisa.dma_copy(dst=y[start:end], src=tile)
    return y
