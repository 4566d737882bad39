"""Answers to the exercises on GIOU in `import nki`."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def widths(boxes):
    n = boxes.shape[0]
    out = nl.ndarray((n, 1), dtype=boxes.dtype, buffer=nl.shared_hbm)
    x1 = nl.ndarray((n, 1), dtype=boxes.dtype, buffer=nl.sbuf)
    x2 = nl.ndarray((n, 1), dtype=boxes.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=x1, src=boxes.ap([[4, n], [1, 1]], offset=0))
    nisa.dma_copy(dst=x2, src=boxes.ap([[4, n], [1, 1]], offset=2))
    nisa.tensor_tensor(dst=x2, data1=x2, data2=x1, op=nl.subtract)
    nisa.dma_copy(dst=out, src=x2)
    return out


@nki.jit
def ratio(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    right = nl.ndarray(b.shape, dtype=b.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=left, src=a)
    nisa.dma_copy(dst=right, src=b)
    nisa.activation(dst=right, op=nl.reciprocal, data=right)
    nisa.tensor_tensor(dst=left, data1=left, data2=right, op=nl.multiply)
    nisa.dma_copy(dst=out, src=left)
    return out
