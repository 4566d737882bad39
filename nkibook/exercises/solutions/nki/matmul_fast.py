"""Answers in `import nki` to the exercises on fast matrix products."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def load_once(a_t, b):
    (k_size, m_size), n_size = a_t.shape, b.shape[1]
    c = nl.ndarray((m_size, n_size), dtype=a_t.dtype, buffer=nl.shared_hbm)
    tiles = [slice(m, min(m + 128, m_size)) for m in range(0, m_size, 128)]
    totals = []
    for rows in tiles:
        shape = c[rows].shape
        totals.append(nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum))
    for k in range(0, k_size, 128):
        part = slice(k, min(k + 128, k_size))
        left, right = nl.load(a_t[part]), nl.load(b[part])
        for i in range(len(tiles)):
            nisa.nc_matmul(dst=totals[i], stationary=left[:, tiles[i]],
                           moving=right, accumulate=k > 0)
    for i in range(len(tiles)):
        result = nl.ndarray(totals[i].shape, dtype=c.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=result, src=totals[i])
        nisa.dma_copy(dst=c[tiles[i]], src=result)
    return c


@nki.jit
def wide_loads(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    c = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    left = nl.load(a_t)
    width = 512
    for n in range(b.shape[1] // width):
        cols = slice(n * width, (n + 1) * width)
        here = (shape[0], width)
        product = nl.ndarray(here, dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray(here, dtype=c.dtype, buffer=nl.sbuf)
        right = nl.load(b[:, cols])
        nisa.nc_matmul(dst=product, stationary=left, moving=right)
        nisa.tensor_copy(dst=result, src=product)
        nisa.dma_copy(dst=c[:, cols], src=result)
    return c
