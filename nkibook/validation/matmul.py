"""Matrix products in the four stages of the NKI tutorial on matrix multiplication, and others that
were measured on trn2.

Unless they say otherwise they take lhsT (K, M) and rhs (K, N) and give lhsT.T @ rhs (M, N). K and M
are multiples of 128 and N of 512, and of the blocks where there are any.
"""

from __future__ import annotations

import itertools

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TILE_K = TILE_M = 128
TILE_N = 512
DEPTH = 8  # tiles of K that one PSUM tile sums up, where the sum goes on in SBUF


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


@nki.jit
def matmul_groups(lhsT, rhs, rows, columns, wide_left=1, wide_right=1, on_vector=False):
    """Every tile of both operands is loaded where it is used, for groups of output tiles.

    Args:
        lhsT, rhs: (K, M) and (K, N).
        rows, columns: of a group, in tiles.
        wide_left, wide_right: tiles of lhsT and of rhs that are loaded at a time.
        on_vector: whether Vector copies the results; else that is left to the compiler.
    """
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    copies = nisa.vector_engine if on_vector else nisa.unknown_engine
    group = list(itertools.product(range(rows), range(columns)))
    for m in nl.affine_range(m_size // TILE_M // rows):
        for n in nl.affine_range(n_size // TILE_N // columns):
            acc = [nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum) for _ in group]
            for k in nl.affine_range(k_size // TILE_K):
                right = _pieces(rhs, k, n * columns, columns, TILE_N, wide_right)
                left = _pieces(lhsT, k, m * rows, rows, TILE_M, wide_left)
                for total, (i, j) in zip(acc, group, strict=True):
                    total += nisa.nc_matmul(left[i], right[j])
            for total, (i, j) in zip(acc, group, strict=True):
                place = _tile(m * rows + i, TILE_M), _tile(n * columns + j, TILE_N)
                nl.store(out[place], nisa.tensor_copy(total, dtype=out.dtype, engine=copies))
    return out


@nki.jit
def matmul_lists(lhsT, rhs, block=1):
    """As hoisted, for blocks of block x block output tiles, with a buffer of its own for each tile
    of an operand."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    k_tiles = range(k_size // TILE_K)
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)

    def column_of(operand, at, size):
        return [nl.load(operand[_tile(k, TILE_K), _tile(at, size)]) for k in k_tiles]

    for m in nl.affine_range(m_size // TILE_M // block):
        left = [column_of(lhsT, m * block + i, TILE_M) for i in nl.static_range(block)]
        for n in nl.affine_range(n_size // TILE_N // block):
            right = [column_of(rhs, n * block + j, TILE_N) for j in nl.static_range(block)]
            for i, j in itertools.product(range(block), range(block)):
                acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
                for k in k_tiles:
                    acc += nisa.nc_matmul(left[i][k], right[j][k])
                row, column = _tile(m * block + i, TILE_M), _tile(n * block + j, TILE_N)
                nl.store(out[row, column], nl.copy(acc, dtype=out.dtype))
    return out


@nki.jit
def matmul_two_stages(lhsT, rhs, shared=False):
    """K in blocks of 1024, whose products are added up in SBUF; M in blocks of 512.

    `shared` takes one PSUM tile for the four tiles of a block of M, which then wait for each other.
    """
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    for n in nl.affine_range(n_size // TILE_N):
        column = nl.ds(n * TILE_N, TILE_N)
        sums = nl.zeros((nl.par_dim(TILE_M), m_size // TILE_M, TILE_N), dtype=lhsT.dtype)
        for k in nl.sequential_range(k_size // (DEPTH * TILE_K)):
            right = _deep(rhs, k, column, TILE_N)
            for m in nl.affine_range(m_size // TILE_N):
                left = _deep(lhsT, k, nl.ds(m * TILE_N, TILE_N), TILE_N)
                acc = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum) if shared else None
                for i in range(TILE_N // TILE_M):
                    at = m * (TILE_N // TILE_M) + i
                    part = _product(left, i, right, acc)
                    sums[:, at, :] = nl.add(sums[:, at, :], part)
        for m in nl.affine_range(m_size // TILE_M):
            nl.store(out[nl.ds(m * TILE_M, TILE_M), column], sums[:, m, :])
    return out


@nki.jit
def matmul_dma_transposed(lhs, rhs):
    """lhs @ rhs of lhs (M, K): DMA transposes blocks of 1024 x 1024 of lhs, again for each n."""
    (m_size, k_size), n_size = lhs.shape, rhs.shape[1]
    rows = DEPTH * TILE_M
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // rows):
        sums = nl.zeros((nl.par_dim(TILE_M), DEPTH, n_size), dtype=lhs.dtype)
        for n in nl.affine_range(n_size // TILE_N):
            column = nl.ds(n * TILE_N, TILE_N)
            for k in nl.sequential_range(k_size // (DEPTH * TILE_K)):
                left = nl.ndarray((nl.par_dim(TILE_K), DEPTH, rows), dtype=lhs.dtype)
                for q in nl.affine_range(DEPTH):
                    strip = lhs[nl.ds(m * rows, rows), nl.ds((k * DEPTH + q) * TILE_K, TILE_K)]
                    left[:, q, :] = nisa.dma_transpose(strip)
                right = _deep(rhs, k, column, TILE_N)
                for i in range(DEPTH):
                    part = _product(left, i, right)
                    sums[:, i, column] = nl.add(sums[:, i, column], part)
            for i in nl.affine_range(DEPTH):
                nl.store(out[nl.ds(m * rows + i * TILE_M, TILE_M), column], sums[:, i, column])
    return out


@nki.jit
def matmul_loads_first(lhsT, rhs):
    """All loads, tile by tile, then all products in one PSUM tile, then all stores."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    k_tiles, m_tiles, n_tiles = k_size // TILE_K, m_size // TILE_M, n_size // TILE_N
    out = nl.ndarray((m_size, n_size), dtype=lhsT.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray((nl.par_dim(TILE_K), k_tiles, m_tiles, TILE_M), dtype=lhsT.dtype)
    right = nl.ndarray((nl.par_dim(TILE_K), k_tiles, n_tiles, TILE_N), dtype=rhs.dtype)
    results = nl.ndarray((nl.par_dim(TILE_M), m_tiles, n_tiles, TILE_N), dtype=lhsT.dtype)
    for operand, tiles, size in ((lhsT, left, TILE_M), (rhs, right, TILE_N)):
        for k in nl.affine_range(k_tiles):
            for j in nl.affine_range(tiles.shape[2]):
                source = operand[nl.ds(k * TILE_K, TILE_K), nl.ds(j * size, size)]
                tiles[:, k, j, :] = nl.load(source)
    acc = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
    for m in nl.sequential_range(m_tiles):
        for n in nl.sequential_range(n_tiles):
            acc[...] = 0.0
            for k in nl.affine_range(k_tiles):
                acc[...] += nisa.nc_matmul(left[:, k, m, :], right[:, k, n, :])
            results[:, m, n, :] = nisa.tensor_copy(acc, dtype=lhsT.dtype)
    for m in nl.affine_range(m_tiles):
        for n in nl.affine_range(n_tiles):
            place = out[nl.ds(m * TILE_M, TILE_M), nl.ds(n * TILE_N, TILE_N)]
            nl.store(place, results[:, m, n, :])
    return out


@nki.jit
def matmul_column(lhsT, rhs, tiles=1):
    """A column of rhs stays in SBUF; lhsT is loaded `tiles` tiles at a time, for as many sums in
    fp32, in a loop over K whose iterations run in order."""
    (k_size, m_size), n_size = lhsT.shape, rhs.shape[1]
    k_tiles, wide = k_size // TILE_K, tiles * TILE_M
    out = nl.ndarray((m_size, n_size), dtype=nl.float32, buffer=nl.shared_hbm)
    for n in nl.affine_range(n_size // TILE_N):
        right = nl.ndarray((k_tiles, nl.par_dim(TILE_K), TILE_N), dtype=rhs.dtype)
        for k in nl.affine_range(k_tiles):
            right[k] = nl.load(rhs[_tile(k, TILE_K), _tile(n, TILE_N)])
        for m in nl.affine_range(m_size // wide):
            total = nl.zeros((tiles, nl.par_dim(TILE_M), TILE_N), nl.float32, buffer=nl.psum)
            for k in nl.sequential_range(k_tiles):
                left = nl.load(lhsT[_tile(k, TILE_K), _tile(m, wide)])
                for i in range(tiles):
                    total[i] += nl.matmul(left[:, _tile(i, TILE_M)], right[k], transpose_x=True)
            for i in range(tiles):
                nl.store(out[_tile(m * tiles + i, TILE_M), _tile(n, TILE_N)], total[i])
    return out


@nki.jit
def double_product(q, k, v):
    """(q @ k.T) @ v of square matrices: DMA transposes k, block by block, and q again for each.

    The size is a multiple of 1024.
    """
    size = q.shape[0]
    tiles, blocks, per_block = size // TILE_M, size // TILE_N, TILE_N // TILE_M
    out = nl.ndarray((size, size), dtype=q.dtype, buffer=nl.shared_hbm)
    scores = nl.ndarray((nl.par_dim(TILE_M), tiles, tiles, TILE_M), dtype=q.dtype)  # transposed
    for b in nl.affine_range(blocks):
        columns = nl.ndarray((nl.par_dim(TILE_K), tiles, TILE_N), dtype=k.dtype)
        for d in nl.affine_range(tiles):
            source = k[nl.ds(b * TILE_N, TILE_N), nl.ds(d * TILE_K, TILE_K)]
            columns[:, d, :] = nisa.dma_transpose(source)
        for i in nl.affine_range(tiles):
            acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for d in nl.affine_range(tiles):
                rows = q[nl.ds(i * TILE_M, TILE_M), nl.ds(d * TILE_K, TILE_K)]
                acc += nisa.nc_matmul(nisa.dma_transpose(rows), columns[:, d, :])
            part = nisa.tensor_copy(acc, dtype=q.dtype)
            for j in nl.affine_range(per_block):
                turned = nisa.nc_transpose(part[:, nl.ds(j * TILE_M, TILE_M)])
                scores[:, b * per_block + j, i, :] = nisa.tensor_copy(turned, dtype=q.dtype)
    for b in nl.affine_range(blocks):
        values = nl.ndarray((nl.par_dim(TILE_K), tiles, TILE_N), dtype=v.dtype)
        column = nl.ds(b * TILE_N, TILE_N)
        for d in nl.affine_range(tiles):
            values[:, d, :] = nl.load(v[nl.ds(d * TILE_K, TILE_K), column])
        for i in nl.affine_range(tiles):
            acc = nl.zeros((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
            for d in nl.affine_range(tiles):
                acc += nisa.nc_matmul(scores[:, d, i, :], values[:, d, :])
            nl.store(out[nl.ds(i * TILE_M, TILE_M), column], nl.copy(acc, dtype=out.dtype))
    return out


def _pieces(operand, k, first, count, size, wide):
    """`count` tiles of row `k` of an operand's tiles, from `first` on, loaded `wide` at a time."""
    tiles = []
    for at in nl.static_range(0, count, wide):
        columns = nl.ds((first + at) * size, wide * size)
        piece = nl.load(operand[_tile(k, TILE_K), columns])
        tiles += [piece[:, _tile(i, size)] for i in nl.static_range(wide)]
    return tiles


def _deep(operand, k, part, width):
    """`DEPTH` tiles of an operand, one above the other in HBM, side by side on chip."""
    tiles = nl.ndarray((nl.par_dim(TILE_K), DEPTH, width), dtype=operand.dtype)
    for q in nl.affine_range(DEPTH):
        tiles[:, q, :] = nl.load(operand[nl.ds((k * DEPTH + q) * TILE_K, TILE_K), part])
    return tiles


def _product(left, at, right, acc=None):
    """Of tile `at` of the columns of `left` with `right`, in SBUF; summed in `acc` if given."""
    if acc is None:
        acc = nl.ndarray((TILE_M, TILE_N), nl.float32, buffer=nl.psum)
    acc[...] = 0.0
    for q in nl.affine_range(DEPTH):
        acc[...] += nisa.nc_matmul(left[:, q, nl.ds(at * TILE_M, TILE_M)], right[:, q, :])
    return nisa.tensor_copy(acc, dtype=left.dtype)
