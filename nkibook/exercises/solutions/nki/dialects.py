"""Answers, in `import nki`, to the exercises of the page on the two dialects."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    for tile in range((a.shape[0] + 127) // 128):
        rows = slice(tile * 128, min((tile + 1) * 128, a.shape[0]))
        here = nl.ndarray(a[rows].shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=here, src=a[rows])
        nisa.tensor_tensor(dst=here, data1=here, data2=here, op=nl.add)
        nisa.dma_copy(dst=out[rows], src=here)
    return out


@nki.jit
def product(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    out = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    for k in range(a_t.shape[0] // 128):
        rows = slice(k * 128, (k + 1) * 128)
        left, right = nl.load(a_t[rows]), nl.load(b[rows])
        nisa.nc_matmul(dst=total, stationary=left, moving=right,
                       accumulate=k > 0)
    result = nl.ndarray(shape, dtype=out.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out
