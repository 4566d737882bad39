"""Answers to the exercises on matrices in `import nki`."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def causal(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    kept = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a)
    nisa.affine_select(
        dst=kept,
        pattern=[[-1, a.shape[1]]],
        channel_multiplier=1,
        on_true_tile=tile,
        on_false_value=0.0,
        cmp_op=nl.greater_equal,
    )
    nisa.dma_copy(dst=out, src=kept)
    return out


@nki.jit
def product(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    out = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    for k in range((a_t.shape[0] + 127) // 128):
        rows = slice(k * 128, min((k + 1) * 128, a_t.shape[0]))
        left = nl.ndarray(a_t[rows].shape, dtype=a_t.dtype, buffer=nl.sbuf)
        right = nl.ndarray(b[rows].shape, dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=left, src=a_t[rows])
        nisa.dma_copy(dst=right, src=b[rows])
        nisa.nc_matmul(dst=total, stationary=left, moving=right, accumulate=k > 0)
    result = nl.ndarray(shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out
