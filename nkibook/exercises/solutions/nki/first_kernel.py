"""Answers in `import nki` to the exercises on a first kernel."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def difference(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    a_tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    b_tile = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a)
    nisa.dma_copy(dst=b_tile, src=b)
    nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile,
                       op=nl.subtract)
    nisa.dma_copy(dst=out, src=a_tile)
    return out


@nki.jit
def halved(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first in range(0, x.shape[0], 128):
        rows = slice(first, min(first + 128, x.shape[0]))
        tile = nl.ndarray(x[rows].shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[rows])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,
                           operand0=0.5)
        nisa.dma_copy(dst=out[rows], src=tile)
    return out
