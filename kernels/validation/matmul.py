"""Matrix products in the four stages of the NKI tutorial on matrix multiplication.

All take lhsT (K, M) and rhs (K, N) and give lhsT.T @ rhs (M, N). K and M are multiples of 128 and
N of 512, and of the blocks where there are any.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TILE_K = TILE_M = 128
TILE_N = 512


def _tile(i, size):
    return slice(i * size, (i + 1) * size)


@nki.jit
def matmul_tiled(lhsT, rhs):
    """Every tile of both operands is loaded where it is used."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // TILE_M):
        for n in nl.affine_range(n_size // TILE_N):
            acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // TILE_K):
                left = nl.ndarray((TILE_K, TILE_M), dtype=lhsT.dtype, buffer=nl.sbuf)
                right = nl.ndarray((TILE_K, TILE_N), dtype=rhs.dtype, buffer=nl.sbuf)
                left[...] = nl.load(lhsT[_tile(k, TILE_K), _tile(m, TILE_M)])
                right[...] = nl.load(rhs[_tile(k, TILE_K), _tile(n, TILE_N)])
                acc += nl.matmul(left, right, transpose_x=True)
            result = nl.copy(acc, dtype=out.dtype)
            nl.store(out[_tile(m, TILE_M), _tile(n, TILE_N)], result)
    return out


@nki.jit
def matmul_hoisted(lhsT, rhs):
    """A column of lhsT tiles is loaded once for each m, a column of rhs tiles for each (m, n)."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    k_tiles = k_size // TILE_K
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    left_at, right_at = nl.mgrid[0:TILE_K, 0:TILE_M], nl.mgrid[0:TILE_K, 0:TILE_N]
    for m in nl.affine_range(m_size // TILE_M):
        # As wide as the tutorial's, which allocates TILE_N columns and fills TILE_M of them.
        left = nl.ndarray((k_tiles, nl.par_dim(TILE_K), TILE_N), dtype=lhsT.dtype)
        for k in nl.affine_range(k_tiles):
            source = lhsT[k * TILE_K + left_at.p, m * TILE_M + left_at.x]
            left[k, left_at.p, left_at.x] = nl.load(source)
        for n in nl.affine_range(n_size // TILE_N):
            right = nl.ndarray((k_tiles, nl.par_dim(TILE_K), TILE_N), dtype=rhs.dtype)
            for k in nl.affine_range(k_tiles):
                source = rhs[k * TILE_K + right_at.p, n * TILE_N + right_at.x]
                right[k, right_at.p, right_at.x] = nl.load(source)
            acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_tiles):
                acc += nl.matmul(
                    left[k, left_at.p, left_at.x],
                    right[k, right_at.p, right_at.x],
                    transpose_x=True,
                )
            result = nl.copy(acc, dtype=out.dtype)
            nl.store(out[m * TILE_M + right_at.p, n * TILE_N + right_at.x], result)
    return out


@nki.jit
def matmul_blocked(lhsT, rhs):
    """As hoisted, for blocks of 2 x 2 output tiles: each loaded tile is used twice."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    k_tiles, block = k_size // TILE_K, 2
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    left_at, right_at = nl.mgrid[0:TILE_K, 0:TILE_M], nl.mgrid[0:TILE_K, 0:TILE_N]
    for m in nl.affine_range(m_size // TILE_M // block):
        left = nl.ndarray((block, k_tiles, nl.par_dim(TILE_K), TILE_M), dtype=lhsT.dtype)
        for i in nl.affine_range(block):
            for k in nl.affine_range(k_tiles):
                source = lhsT[k * TILE_K + left_at.p, (m * block + i) * TILE_M + left_at.x]
                left[i, k, left_at.p, left_at.x] = nl.load(source)
        for n in nl.affine_range(n_size // TILE_N // block):
            right = nl.ndarray((block, k_tiles, nl.par_dim(TILE_K), TILE_N), dtype=rhs.dtype)
            for j in nl.affine_range(block):
                for k in nl.affine_range(k_tiles):
                    source = rhs[k * TILE_K + right_at.p, (n * block + j) * TILE_N + right_at.x]
                    right[j, k, right_at.p, right_at.x] = nl.load(source)
            for i in nl.affine_range(block):
                for j in nl.affine_range(block):
                    acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(k_tiles):
                        acc += nl.matmul(
                            left[i, k, left_at.p, left_at.x],
                            right[j, k, right_at.p, right_at.x],
                            transpose_x=True,
                        )
                    result = nl.copy(acc, dtype=out.dtype)
                    row, column = (m * block + i) * TILE_M, (n * block + j) * TILE_N
                    nl.store(out[row + right_at.p, column + right_at.x], result)
    return out


@nki.jit
def matmul_full(lhsT, rhs, tiles_m=16, tiles_n=2, tiles_k=8):
    """Blocks in all three dimensions; partial sums stay in SBUF, loads are 2 and 4 KiB a row."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    block_m, block_n, block_k = TILE_M * tiles_m, TILE_N * tiles_n, TILE_K * tiles_k
    blocks = m_size // block_m
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    wide_left, wide_right = nl.mgrid[0:TILE_K, 0:block_m], nl.mgrid[0:TILE_K, 0:block_n]
    left_at, right_at = nl.mgrid[0:TILE_K, 0:TILE_M], nl.mgrid[0:TILE_K, 0:TILE_N]
    for n in nl.affine_range(n_size // block_n):
        sums = nl.ndarray((blocks, tiles_m, tiles_n, nl.par_dim(TILE_M), TILE_N), dtype=lhsT.dtype)
        for m in nl.affine_range(blocks):
            for i in nl.affine_range(tiles_m):
                for j in nl.affine_range(tiles_n):
                    sums[m, i, j, right_at.p, right_at.x] = 0
        for k in nl.sequential_range(k_size // block_k):
            right = nl.ndarray((tiles_k, nl.par_dim(TILE_K), block_n), dtype=rhs.dtype)
            for q in nl.affine_range(tiles_k):
                row = (tiles_k * k + q) * TILE_K
                right[q, wide_right.p, wide_right.x] = nl.load(
                    rhs[row + wide_right.p, block_n * n + wide_right.x]
                )
            for m in nl.affine_range(blocks):
                left = nl.ndarray((tiles_k, nl.par_dim(TILE_K), block_m), dtype=lhsT.dtype)
                for q in nl.affine_range(tiles_k):
                    row = (tiles_k * k + q) * TILE_K
                    left[q, wide_left.p, wide_left.x] = nl.load(
                        lhsT[row + wide_left.p, block_m * m + wide_left.x]
                    )
                for j in nl.affine_range(tiles_n):
                    for i in nl.affine_range(tiles_m):
                        acc = nl.zeros((TILE_M, TILE_N), dtype=nl.float32, buffer=nl.psum)
                        for q in nl.affine_range(tiles_k):
                            acc[...] += nisa.nc_matmul(
                                left[q, left_at.p, i * TILE_M + left_at.x],
                                right[q, right_at.p, j * TILE_N + right_at.x],
                            )
                        sums[m, i, j, right_at.p, right_at.x] += acc[right_at.p, right_at.x]
        for m in nl.affine_range(blocks):
            for i in nl.affine_range(tiles_m):
                packed = nl.ndarray((TILE_K, block_n), dtype=sums.dtype, buffer=nl.sbuf)
                for j in nl.affine_range(tiles_n):
                    part = nl.copy(sums[m, i, j, right_at.p, right_at.x])
                    packed[right_at.p, j * TILE_N + right_at.x] = part
                row = (tiles_m * m + i) * TILE_K
                nl.store(
                    out[row + wide_right.p, block_n * n + wide_right.x],
                    packed[wide_right.p, wide_right.x],
                )
    return out
