"""Answers to the exercises on average pooling in `import nki`."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def max_pool(x, k):
    c, h, w = x.shape
    out = nl.ndarray((c, h // k, w // k), dtype=x.dtype, buffer=nl.shared_hbm)
    image = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    best = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=image, src=x)
    windows = image.ap([[h * w, c], [k * w, h // k], [k, w // k], [w, k], [1, k]])
    nisa.tensor_reduce(dst=best, op=nl.maximum, data=windows, axis=(3, 4))
    nisa.dma_copy(dst=out, src=best)
    return out


@nki.jit
def overlapping(x):
    c, h, w = x.shape
    rows, cols = (h - 1) // 2, (w - 1) // 2
    out = nl.ndarray((c, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    image = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    total = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=image, src=x)
    windows = image.ap([[h * w, c], [2 * w, rows], [2, cols], [w, 3], [1, 3]])
    nisa.tensor_reduce(dst=total, op=nl.add, data=windows, axis=(3, 4))
    nisa.tensor_scalar(dst=total, data=total, op0=nl.multiply, operand0=1 / 9)
    nisa.dma_copy(dst=out, src=total)
    return out
