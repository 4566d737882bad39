"""Matrix product as an NKI kernel.

The Tensor Engine multiplies tiles: 128 elements of the contraction at a time, 128 rows and 512
columns of the result. Around that the kernel works in blocks of 1024 x 1024 of the result, so that
what is loaded is used 1024 times: a NeuronCore multiplies about 340 times while one bfloat16 number
arrives.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.matmul.arguments import (
    BLOCK,
    CHUNK_BYTES,
    KEPT_BYTES,
    TILE_K,
    TILE_M,
    TILE_N,
    even_cut,
)


@nki.jit
def nki_matmul_kernel(lhs, rhs, transpose_lhs=False, transpose_rhs=False):
    """Multiply two matrices.

    Dimensions:
        M, N: rows and columns of the result. K: the contraction. At least 1; no multiple of
        anything.

    Args:
        lhs: (M, K) in HBM, or (K, M) with ``transpose_lhs``; float32, bfloat16 or float16.
        rhs: (K, N) in HBM, or (N, K) with ``transpose_rhs``; dtype of ``lhs``.
        transpose_lhs, transpose_rhs: which operands come with their axes swapped; known while
            compiling.

    Returns:
        (M, N) in HBM, dtype of ``lhs``.

    Notes:
        Launch without a grid. Products are summed in float32 and rounded once. The Tensor Engine
        wants the contraction on the partitions of both operands. (K, M) and (K, N) are loaded that
        way; the other layouts are transposed by DMA. Axes are cut into even pieces; where they do
        not come out even, the rest of a tile is zero.

    Pseudocode:
        for each block of 1024 x 1024 of the result:
            for each chunk of K:
                sums += lhs chunk @ rhs chunk     # in PSUM, then added up in SBUF
            store sums
    """
    k_size, m_size = lhs.shape if transpose_lhs else lhs.shape[::-1]
    n_size = rhs.shape[0] if transpose_rhs else rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    m_blocks, m_tiles, tile_m = even_cut(m_size, BLOCK, TILE_M)
    n_blocks, n_tiles, tile_n = even_cut(n_size, BLOCK, TILE_N)
    chunk = CHUNK_BYTES // BLOCK // lhs.itemsize * TILE_K
    k_chunks, k_tiles, tile_k = even_cut(k_size, chunk, TILE_K)
    m_width, n_width, depth = m_tiles * tile_m, n_tiles * tile_n, k_tiles * tile_k
    keep_left = k_chunks * k_tiles * m_width * lhs.itemsize <= KEPT_BYTES
    i_row, i_col = nl.arange(tile_m)[:, None], nl.arange(n_width)[None, :]

    def load_left(m, k):
        columns = (m * m_width, m_size)
        return load_chunk(
            lhs, not transpose_lhs, (k * depth, k_size), columns, (tile_k, k_tiles, m_width)
        )

    def load_right(n, k):
        columns = (n * n_width, n_size)
        return load_chunk(
            rhs, transpose_rhs, (k * depth, k_size), columns, (tile_k, k_tiles, n_width)
        )

    for m in nl.affine_range(m_blocks):
        if keep_left:
            kept = [load_left(m, k) for k in nl.static_range(k_chunks)]
        for n in nl.affine_range(n_blocks):
            sums = nl.zeros((nl.par_dim(tile_m), m_tiles, n_width), nl.float32, buffer=nl.sbuf)
            for k in nl.static_range(k_chunks):
                left = kept[k] if keep_left else load_left(m, k)
                right = load_right(n, k)
                for i in nl.affine_range(m_tiles):
                    for j in nl.affine_range(n_tiles):
                        rows, cols = nl.ds(i * tile_m, tile_m), nl.ds(j * tile_n, tile_n)
                        product = nl.zeros((tile_m, tile_n), nl.float32, buffer=nl.psum)
                        for t in nl.affine_range(k_tiles):
                            product += nisa.nc_matmul(left[:, t, rows], right[:, t, cols])
                        sums[:, i, cols] = nl.add(sums[:, i, cols], product)
            for i in nl.affine_range(m_tiles):
                rows, cols = m * m_width + i * tile_m + i_row, n * n_width + i_col
                inside = (rows < m_size) & (cols < n_size)
                nl.store(
                    out[rows, cols], value=nl.copy(sums[:, i, :], dtype=out.dtype), mask=inside
                )
    return out


def load_chunk(operand, swapped, contraction, columns, shape):
    """A chunk of an operand in SBUF, its contraction on the partitions.

    Args:
        operand: (K, columns) in HBM, or (columns, K) where ``swapped``.
        swapped: whether DMA has to transpose.
        contraction, columns: for each axis where the chunk begins and how long the axis is.
        shape: of the chunk: elements of a tile of the contraction, such tiles, columns.

    Returns:
        A tile of this shape. Elements outside of the operand are zero.
    """
    (first_k, k_size), (first, size) = contraction, columns
    tile_k, k_tiles, width = shape
    chunk = nl.ndarray((nl.par_dim(tile_k), k_tiles, width), dtype=operand.dtype, buffer=nl.sbuf)
    ragged = k_size % (tile_k * k_tiles) or size % width
    if ragged:
        chunk[...] = 0.0
    i_k, i_column = nl.arange(tile_k)[:, None], nl.arange(width)[None, :]
    for t in range(k_tiles):
        start = first_k + t * tile_k
        inside = (start + i_k < k_size) & (first + i_column < size)
        if swapped:
            rows, cols = nl.arange(width)[:, None], nl.arange(tile_k)[None, :]
            kept = (first + rows < size) & (start + cols < k_size)
            tile = nl.load_transpose2d(operand[first + rows, start + cols], mask=kept)
            chunk[i_k, t, i_column] = nl.copy(tile, mask=inside) if ragged else tile
        else:
            chunk[i_k, t, i_column] = nl.load(operand[start + i_k, first + i_column], mask=inside)
    return chunk
