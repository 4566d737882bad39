"""Answers to the exercises on fast matrix products."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def load_once(a_t, b):
    (k_size, m_size), n_size = a_t.shape, b.shape[1]
    c = nl.ndarray((m_size, n_size), a_t.dtype, buffer=nl.shared_hbm)
    tiles = [nl.ds(m, min(128, m_size - m))
             for m in nl.static_range(0, m_size, 128)]
    totals = [nl.zeros(c[rows].shape, nl.float32, buffer=nl.psum)
              for rows in tiles]
    for k in nl.static_range(0, k_size, 128):
        part = nl.ds(k, min(128, k_size - k))
        left, right = nl.load(a_t[part]), nl.load(b[part])
        for rows, total in zip(tiles, totals, strict=True):
            total += nisa.nc_matmul(left[:, rows], right)
    for rows, total in zip(tiles, totals, strict=True):
        nl.store(c[rows], value=nl.copy(total, dtype=c.dtype))
    return c


@nki.jit
def wide_loads(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    c = nl.ndarray(shape, a_t.dtype, buffer=nl.shared_hbm)
    left = nl.load(a_t)
    width = 512
    for n in nl.affine_range(b.shape[1] // width):
        cols = nl.ds(n * width, width)
        product = nisa.nc_matmul(left, nl.load(b[:, cols]))
        nl.store(c[:, cols], value=nl.copy(product, dtype=c.dtype))
    return c
