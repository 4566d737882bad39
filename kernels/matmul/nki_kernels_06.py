"""Matrix product in ``import nki`` (NKI 0.6), and the callers that launch it.

The blocks are those of ``nki_kernels``, whose text says why they have this size. What differs: a
slice ends where a matrix ends, so that nothing is padded with zeros; ``accumulate`` says which
product is added to those before it; the cores of a logical core share the longer axis of the
result.

Both dialects add up the same chunks of the contraction in the same order. Within a chunk the
simulator leaves the order to BLAS, which it hands other shapes for each: unpadded tiles here,
padded ones there. So the results agree to the last bit where no sum is rounded, and to the rounding
of a float32 sum elsewhere.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.logical_core import cores
from kernels.matmul.arguments import (
    BLOCK,
    CHUNK_BYTES,
    KEPT_BYTES,
    TILE_K,
    TILE_M,
    TILE_N,
    cut,
    filled_shape,
)

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}
"""Bytes of an element: a dtype of this dialect is a string."""


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
    m_first, m_last, n_first, n_last = 0, m_size, 0, n_size
    if m_size >= n_size:
        m_first, m_last = _share(m_size)
    else:
        n_first, n_last = _share(n_size)

    chunk = CHUNK_BYTES // BLOCK // ITEM_BYTES[lhs.dtype] * TILE_K
    _, k_tiles, tile_k = cut(k_size, chunk, TILE_K)
    chunks = _pieces(0, k_size, k_tiles * tile_k)
    _, m_tiles, tile_m = cut(max(m_last - m_first, 1), BLOCK, TILE_M)
    _, n_tiles, tile_n = cut(max(n_last - n_first, 1), BLOCK, TILE_N)
    row_bytes = len(chunks) * k_tiles * m_tiles * tile_m * ITEM_BYTES[lhs.dtype]
    keep_left = row_bytes <= KEPT_BYTES

    for rows in _pieces(m_first, m_last, m_tiles * tile_m):
        if keep_left:
            kept = [_load(lhs, not transpose_lhs, k, rows, tile_k) for k in chunks]
        for cols in _pieces(n_first, n_last, n_tiles * tile_n):
            width = cols[1] - cols[0]
            sums = nl.ndarray((tile_m, m_tiles, width), dtype=nl.float32, buffer=nl.sbuf)
            for number in range(len(chunks)):
                k = chunks[number]
                left = kept[number] if keep_left else _load(lhs, not transpose_lhs, k, rows, tile_k)
                right = _load(rhs, transpose_rhs, k, cols, tile_k)
                _multiply(sums, left, right, k[1] - k[0], rows, tile_m, tile_n, number == 0)
            for first, last in _pieces(rows[0], rows[1], tile_m):
                part = sums[0 : last - first, (first - rows[0]) // tile_m, 0:width]
                result = part
                if out.dtype != sums.dtype:
                    result = nl.ndarray((last - first, width), dtype=out.dtype, buffer=nl.sbuf)
                    nisa.tensor_copy(dst=result, src=part)
                nisa.dma_copy(dst=out[first:last, cols[0] : cols[1]], src=result)
    return out


def _multiply(sums, left, right, depth, rows, tile_m, tile_n, fresh):
    """Add the product of two chunks to the sums of a block, or begin them with it.

    Args:
        sums: (tile_m, tiles, columns) float32 in SBUF.
        left, right: from :func:`_load`.
        depth: how much of the contraction the chunks hold.
        rows: of the result, first and end.
        tile_m, tile_n: rows and columns of a product.
        fresh: whether the sums begin here.
    """
    tile_k, width = left.shape[0], right.shape[2]
    for i, (top, bottom) in enumerate(_pieces(0, rows[1] - rows[0], tile_m)):
        for begin, end in _pieces(0, width, tile_n):
            product = nl.ndarray((bottom - top, end - begin), dtype=nl.float32, buffer=nl.psum)
            for t, (start, stop) in enumerate(_pieces(0, depth, tile_k)):
                nisa.nc_matmul(
                    dst=product,
                    stationary=left[0 : stop - start, t, top:bottom],
                    moving=right[0 : stop - start, t, begin:end],
                    accumulate=t > 0,
                )
            total = sums[0 : bottom - top, i, begin:end]
            if fresh:
                nisa.tensor_copy(dst=total, src=product)
            else:
                nisa.tensor_tensor(dst=total, data1=total, data2=product, op=nl.add)


def _load(operand, swapped, contraction, columns, tile_k):
    """A chunk of an operand in SBUF, its contraction on the partitions.

    Args:
        operand: (K, columns) in HBM, or (columns, K) where ``swapped``.
        swapped: whether DMA has to transpose.
        contraction, columns: of each axis, where the chunk begins and ends.
        tile_k: elements of a tile of the contraction.

    Returns:
        (tile_k, tiles, columns). What the last tile lacks is not written, and not read.
    """
    tiles = _pieces(contraction[0], contraction[1], tile_k)
    begin, end = columns
    chunk = nl.ndarray((tile_k, len(tiles), end - begin), dtype=operand.dtype, buffer=nl.sbuf)
    for t, (start, stop) in enumerate(tiles):
        tile = chunk[0 : stop - start, t, 0 : end - begin]
        if swapped:
            nisa.dma_transpose(dst=tile, src=operand[begin:end, start:stop])
        else:
            nisa.dma_copy(dst=tile, src=operand[start:stop, begin:end])
    return chunk


def _share(size):
    """Begin and end of this core's part of an axis."""
    part = (size + nl.num_programs(0) - 1) // nl.num_programs(0)
    first = nl.program_id(0) * part
    return first, min(first + part, size)


def _pieces(begin, end, size):
    """Begin and end of each piece of an axis; the last one may be shorter."""
    return [(at, min(at + size, end)) for at in range(begin, end, size)]


def nki_matmul(
    a: Any, b: Any, transpose_a: bool = False, transpose_b: bool = False, *, lnc: int | None = None
) -> Any:
    """Multiply matrices with :func:`nki_matmul_kernel`.

    Dimensions:
        M, N: rows and columns of the result. K: the contraction. All at least 1.
        "...": any number of axes, none included, whose elements are rows.

    Args:
        a: (..., K), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX array.
        b: (K, N), or (N, K) with ``transpose_b``; dtype, framework and device of ``a``.
        transpose_a: a is (..., M), b is (..., N) with the same axes before the last one, and the
            contraction runs over all of these: the gradient of a weight. Not together with
            ``transpose_b``.
        transpose_b: b comes with its axes swapped.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (..., N), or (M, N) with ``transpose_a``; dtype of ``a``. Products are summed in float32 and
        rounded once.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: shapes that do not fit, or an axis of no elements.
    """
    shape = filled_shape(a, b, transpose_a, transpose_b)
    rows = a.reshape((-1, a.shape[-1]))
    columns = b.reshape((-1, b.shape[-1])) if transpose_a else b
    return nki_matmul_kernel[cores(lnc)](rows, columns, transpose_a, transpose_b).reshape(shape)


def nki_matmul_backward(grad_c: Any, a: Any, b: Any, *, lnc: int | None = None) -> tuple[Any, Any]:
    """The gradients of ``nki_matmul(a, b)``, one launch each.

    Args:
        grad_c: (..., N), gradient of the loss for the product; dtype of ``a``.
        a, b: (..., K) and (K, N), as in the forward pass.
        lnc: as in the forward pass.

    Returns:
        grad_a: (..., K), ``grad_c @ b.T``.
        grad_b: (K, N), ``a.T @ grad_c`` summed over all rows. Both in the dtype of ``a``.

    Raises:
        TypeError, ValueError: as :func:`nki_matmul`.
    """
    return (
        nki_matmul(grad_c, b, transpose_b=True, lnc=lnc),
        nki_matmul(a, grad_c, transpose_a=True, lnc=lnc),
    )
