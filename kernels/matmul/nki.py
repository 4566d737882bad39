"""Matrix product in ``import nki``.

The blocks are those of ``neuronxcc``, whose text says why they have this size. What differs: a
slice ends where a matrix ends, so that nothing is padded with zeros; ``accumulate`` says which
product is added to those before it; the cores of a logical core share the longer axis of the
result.

Both dialects add up the same chunks of the contraction in the same order. Within a chunk the
simulator leaves the order to BLAS, which it hands other shapes for each: unpadded tiles here,
padded ones there. So the results agree to the last bit where no sum is rounded, and to the rounding
of a float32 sum elsewhere.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.matmul.arguments import (
    BLOCK,
    CHUNK_BYTES,
    KEPT_BYTES,
    TILE_K,
    TILE_M,
    TILE_N,
    even_cut,
)
from kernels.tiles import ITEM_BYTES, ceil_div, pieces


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
        Launch as ``kernel[1]`` or ``kernel[2]``: two cores halve the longer axis of the result.
        Products are summed in float32 and rounded once. The Tensor Engine wants the contraction on
        the partitions of both operands. (K, M) and (K, N) are loaded that way; the other layouts
        are transposed by DMA.

    Pseudocode:
        for each block of 1024 x 1024 of the result:
            for each chunk of K:
                sums += lhs chunk @ rhs chunk     # in PSUM, then added up in SBUF
            store sums
    """
    k_size, m_size = lhs.shape if transpose_lhs else lhs.shape[::-1]
    n_size = rhs.shape[0] if transpose_rhs else rhs.shape[1]
    out = nl.ndarray((m_size, n_size), dtype=lhs.dtype, buffer=nl.shared_hbm)

    # The part of the result that is this core's.
    m_first, m_part, n_first, n_part = 0, m_size, 0, n_size
    if m_size >= n_size:
        m_first, m_part = _share(m_size)
    else:
        n_first, n_part = _share(n_size)

    chunk = CHUNK_BYTES // BLOCK // ITEM_BYTES[lhs.dtype] * TILE_K
    _, k_tiles, tile_k = even_cut(k_size, chunk, TILE_K)
    chunks = pieces(k_size, k_tiles * tile_k)
    _, m_tiles, tile_m = even_cut(max(m_part, 1), BLOCK, TILE_M)
    _, n_tiles, tile_n = even_cut(max(n_part, 1), BLOCK, TILE_N)
    row_bytes = len(chunks) * k_tiles * m_tiles * tile_m * ITEM_BYTES[lhs.dtype]
    keep_left = row_bytes <= KEPT_BYTES

    for rows in pieces(m_part, m_tiles * tile_m, m_first):
        if keep_left:
            kept = [load_chunk(lhs, not transpose_lhs, k, rows, tile_k) for k in chunks]
        for cols in pieces(n_part, n_tiles * tile_n, n_first):
            first_col, width = cols
            sums = nl.ndarray((tile_m, m_tiles, width), dtype=nl.float32, buffer=nl.sbuf)
            for number in range(len(chunks)):
                k = chunks[number]
                left = (
                    kept[number]
                    if keep_left
                    else load_chunk(lhs, not transpose_lhs, k, rows, tile_k)
                )
                right = load_chunk(rhs, transpose_rhs, k, cols, tile_k)
                multiply(sums, left, right, k[1], rows[1], tile_m, tile_n, number == 0)
            for first, height in pieces(rows[1], tile_m):
                part = sums[0:height, first // tile_m, 0:width]
                result = part
                if out.dtype != sums.dtype:
                    result = nl.ndarray((height, width), dtype=out.dtype, buffer=nl.sbuf)
                    nisa.tensor_copy(dst=result, src=part)
                first += rows[0]
                nisa.dma_copy(
                    dst=out[first : first + height, first_col : first_col + width], src=result
                )
    return out


def multiply(sums, left, right, depth, rows, tile_m, tile_n, fresh):
    """Add the product of two chunks to the sums of a block, or begin them with it.

    Args:
        sums: (tile_m, tiles, columns) float32 in SBUF.
        left, right: from :func:`load_chunk`.
        depth: how much of the contraction the chunks hold.
        rows: how many of the result there are.
        tile_m, tile_n: rows and columns of a product.
        fresh: whether the sums begin here.
    """
    tile_k, width = left.shape[0], right.shape[2]
    for top, height in pieces(rows, tile_m):
        for begin, wide in pieces(width, tile_n):
            product = nl.ndarray((height, wide), dtype=nl.float32, buffer=nl.psum)
            for start, deep in pieces(depth, tile_k):
                t = start // tile_k
                nisa.nc_matmul(
                    dst=product,
                    stationary=left[0:deep, t, top : top + height],
                    moving=right[0:deep, t, begin : begin + wide],
                    accumulate=t > 0,
                )
            total = sums[0:height, top // tile_m, begin : begin + wide]
            if fresh:
                nisa.tensor_copy(dst=total, src=product)
            else:
                nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)


def load_chunk(operand, swapped, contraction, columns, tile_k):
    """A chunk of an operand in SBUF, its contraction on the partitions.

    Args:
        operand: (K, columns) in HBM, or (columns, K) where ``swapped``.
        swapped: whether DMA has to transpose.
        contraction, columns: of each axis, where the chunk begins and its length.
        tile_k: elements of a tile of the contraction.

    Returns:
        (tile_k, tiles, columns). What the last tile lacks is not written, and not read.
    """
    first_k, depth = contraction
    begin, width = columns
    end = begin + width
    chunk = nl.ndarray(
        (tile_k, ceil_div(depth, tile_k), width), dtype=operand.dtype, buffer=nl.sbuf
    )
    for at, deep in pieces(depth, tile_k):
        tile = chunk[0:deep, at // tile_k, 0:width]
        start, stop = first_k + at, first_k + at + deep
        if swapped:
            nisa.dma_transpose(dst=tile, src=operand[begin:end, start:stop])
        else:
            nisa.dma_copy(dst=tile, src=operand[start:stop, begin:end])
    return chunk


def _share(size):
    """Begin and length of this core's part of an axis; may be empty."""
    part = ceil_div(size, nl.num_programs(0))
    first = nl.program_id(0) * part
    return first, max(min(part, size - first), 0)
