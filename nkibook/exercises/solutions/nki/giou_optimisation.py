"""Answers in `import nki` to the exercises of the page that optimises GIOU."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def contrast(a, b):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for i in range(a.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        s, t = nl.load(a[rows]), nl.load(b[rows])
        per_sum = nl.reciprocal(nl.add(s, t))
        result = nl.multiply(nl.subtract(s, t), per_sum)
        nisa.dma_copy(dst=out[rows], src=result)
    return out


@nki.jit
def two_factors(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        tile = nl.load(x[rows])
        squares = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.activation(dst=squares, op=nl.square, data=tile)
        more, less = nl.add(squares, tile), nl.subtract(squares, tile)
        nisa.dma_copy(dst=out[rows], src=nl.multiply(more, less))
    return out
