"""Answers, in `neuronxcc.nki`, to the exercises of the page on the two dialects."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def double(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    row, col = nl.arange(128)[:, None], nl.arange(a.shape[1])[None, :]
    for tile in nl.affine_range((a.shape[0] + 127) // 128):
        rows = tile * 128 + row
        inside = rows < a.shape[0]
        here = nl.load(a[rows, col], mask=inside)
        twice = nl.add(here, here, mask=inside)
        nl.store(out[rows, col], value=twice, mask=inside)
    return out


@nki.jit
def product(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    out = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    total = nl.zeros(shape, nl.float32, buffer=nl.psum)
    for k in nl.affine_range(a_t.shape[0] // 128):
        rows = nl.ds(k * 128, 128)
        total += nisa.nc_matmul(nl.load(a_t[rows]), nl.load(b[rows]))
    nl.store(out, value=nl.copy(total, dtype=out.dtype))
    return out
