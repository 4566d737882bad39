"""Forms of one matrix product in `import nki`, from loads in the innermost loop to two accumulators
by turns, as nki-autotune measured them on a trn2. The kernels are our own, in the same loops and
with the same buffers.

Each takes lhs_t (K, M) and rhs (K, N), multiples of 128 and N of 512, and gives lhs_t.T @ rhs.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

P, N_TILE = 128, 512


@nki.jit
def sunk_loads(lhs_t, rhs):
    """Both operands are loaded for each product, into one tile each; one accumulator."""
    (k_size, m_size), n_size = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((P, P), dtype=lhs_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((P, N_TILE), dtype=rhs.dtype, buffer=nl.sbuf)
    result = nl.ndarray((P, N_TILE), dtype=lhs_t.dtype, buffer=nl.sbuf)
    total = nl.ndarray((P, N_TILE), dtype=nl.float32, buffer=nl.psum)
    for m in range(m_size // P):
        rows = nl.ds(m * P, P)
        for n in range(n_size // N_TILE):
            columns = nl.ds(n * N_TILE, N_TILE)
            nisa.memset(dst=total, value=0.0)
            for k in range(k_size // P):
                inner = nl.ds(k * P, P)
                nisa.dma_copy(dst=left, src=lhs_t[inner, rows])
                nisa.dma_copy(dst=right, src=rhs[inner, columns])
                nisa.nc_matmul(dst=total, stationary=left, moving=right)
            nisa.tensor_copy(dst=result, src=total)
            nisa.dma_copy(dst=out[rows, columns], src=result)
    return out


@nki.jit
def resident(lhs_t, rhs, accumulators=1):
    """Both operands are loaded before the first product; products of a row of tiles add up in one
    accumulator of the whole row, or in two by turns. All results are stored at the end."""
    (k_size, m_size), n_size = lhs_t.shape, rhs.shape[1]
    k_tiles, m_tiles = k_size // P, m_size // P
    out = nl.ndarray((m_size, n_size), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((P, k_tiles, m_size), dtype=lhs_t.dtype, buffer=nl.sbuf)
    right = nl.ndarray((P, k_tiles, n_size), dtype=rhs.dtype, buffer=nl.sbuf)
    results = nl.ndarray((P, m_tiles, n_size), dtype=lhs_t.dtype, buffer=nl.sbuf)
    totals = nl.ndarray((P, accumulators, n_size), dtype=nl.float32, buffer=nl.psum)
    for tiles, source in ((left, lhs_t), (right, rhs)):
        for k in range(k_tiles):
            nisa.dma_copy(dst=tiles[:, k, :], src=source[k * P : (k + 1) * P, :])
    for m in range(m_tiles):
        turn = m % accumulators
        nisa.memset(dst=totals[:, turn, :], value=0.0)
        for n in range(n_size // N_TILE):
            columns = slice(n * N_TILE, (n + 1) * N_TILE)
            for k in range(k_tiles):
                nisa.nc_matmul(
                    dst=totals[:, turn, columns],
                    stationary=left[:, k, m * P : (m + 1) * P],
                    moving=right[:, k, columns],
                )
        nisa.tensor_copy(dst=results[:, m, :], src=totals[:, turn, :])
    for m in range(m_tiles):
        nisa.dma_copy(dst=out[m * P : (m + 1) * P, :], src=results[:, m, :])
    return out
