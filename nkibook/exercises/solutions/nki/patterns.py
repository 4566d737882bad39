"""Answers in `import nki` to the exercises on kernel patterns."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def centred(x):
    rows, cols = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, rows, 128):
        here = slice(first, min(first + 128, rows))
        tile = nl.ndarray(x[here].shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[here])
        mean = nl.ndarray((tile.shape[0], 1), dtype=nl.float32,
                          buffer=nl.sbuf)
        nisa.tensor_reduce(mean, nl.add, tile, axis=1, keepdims=True)
        nisa.tensor_scalar(mean, mean, op0=nl.multiply, operand0=1 / cols)
        nisa.tensor_scalar(tile, tile, op0=nl.subtract, operand0=mean)
        nisa.dma_copy(dst=y[here], src=tile)
    return y


@nki.jit
def tripled(x):
    rows = x.shape[0]
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for t in range((rows + 63) // 64):
        here = slice(t * 64, min(t * 64 + 64, rows))
        tile = nl.ndarray(x[here].shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[here])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,
                           operand0=3.0)
        nisa.dma_copy(dst=y[here], src=tile)
    return y
