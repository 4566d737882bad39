"""Answers in `import nki` to the exercises on average pooling in PyTorch."""

import nki
import nki.isa as nisa
import nki.language as nl

# fmt: off
# The lines are those of the page, which shows 77 columns.


@nki.jit
def max_pool(x, k):
    c, h, w = x.shape
    rows, cols = h // k, w // k
    out = nl.ndarray((c, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    best = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    windows = nl.load(x).ap(
        [[h * w, c], [k * w, rows], [k, cols], [w, k], [1, k]])
    op = nl.maximum
    nisa.tensor_reduce(dst=best, op=op, data=windows, axis=(3, 4))
    nisa.dma_copy(dst=out, src=best)
    return out


@nki.jit
def stride_three(x):
    c, h, w = x.shape
    rows, cols = (h - 2) // 3 + 1, (w - 2) // 3 + 1
    out = nl.ndarray((c, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    mean = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    windows = nl.load(x).ap(
        [[h * w, c], [3 * w, rows], [3, cols], [w, 2], [1, 2]])
    nisa.tensor_reduce(dst=mean, op=nl.add, data=windows, axis=(3, 4))
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=0.25)
    nisa.dma_copy(dst=out, src=mean)
    return out


@nki.jit
def dilated(x):
    c, h, w = x.shape
    rows, cols = h - 2, w - 2
    out = nl.ndarray((c, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    mean = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    windows = nl.load(x).ap(
        [[h * w, c], [w, rows], [1, cols], [2 * w, 2], [2, 2]])
    nisa.tensor_reduce(dst=mean, op=nl.add, data=windows, axis=(3, 4))
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=0.25)
    nisa.dma_copy(dst=out, src=mean)
    return out


@nki.jit
def rectangles(x, kh, kw):
    c, h, w = x.shape
    rows, cols, share = h // kh, w // kw, 1 / (kh * kw)
    out = nl.ndarray((c, rows, cols), dtype=x.dtype, buffer=nl.shared_hbm)
    mean = nl.ndarray(out.shape, dtype=x.dtype, buffer=nl.sbuf)
    windows = nl.load(x).ap(
        [[h * w, c], [kh * w, rows], [kw, cols], [w, kh], [1, kw]])
    nisa.tensor_reduce(dst=mean, op=nl.add, data=windows, axis=(3, 4))
    nisa.tensor_scalar(dst=mean, data=mean, op0=nl.multiply, operand0=share)
    nisa.dma_copy(dst=out, src=mean)
    return out
