"""RMSNorm in ``import nki``, forward and backward.

The instructions are those of ``neuronxcc``, whose text says why each is there. What differs: a
slice ends where the matrix ends, in place of a mask; each instruction names its destination; the
weight is spread over the partitions by the DMA that loads it; the tiles of rows are shared by the
cores of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.rmsnorm.arguments import (
    BACKWARD_CHUNK,
    CHUNK_BYTES,
    RESIDENT_BYTES,
    TILE_ROWS,
)
from kernels.tiles import ITEM_BYTES, ceil_div


@nki.jit
def nki_rms_norm_kernel(x_input, weight, eps):
    """Normalise each row of a matrix by its root mean square.

    Dimensions:
        M: rows, at least 1. N: row elements, 1 to 16384. They need not be multiples of anything.

    Args:
        x_input: (M, N) in HBM; float32, bfloat16 or float16.
        weight: (1, N) in HBM; any of these dtypes.
        eps: a number, known while compiling.

    Returns:
        y_output: (M, N) in HBM, dtype of ``x_input``.
        invvar_output: (M, 1) float32 in HBM, what the backward pass needs.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles of 128 rows in turn.
        Statistics and products are float32; each output element is rounded once.

    Pseudocode:
        for 128 rows at a time:
            invvar = rsqrt(sum(x * x) / N + eps)
            y = x * invvar * weight
    """
    n_rows, n_cols = x_input.shape
    y_output = nl.ndarray((n_rows, n_cols), dtype=x_input.dtype, buffer=nl.shared_hbm)
    invvar_output = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)

    width = min(CHUNK_BYTES // ITEM_BYTES[x_input.dtype], n_cols)
    n_chunks = ceil_div(n_cols, width)
    n_tiles = ceil_div(n_rows, TILE_ROWS)

    weight_tile = _on_all_partitions(weight)
    # An activation computes op(data * scale + bias). Its bias is a vector, one a partition.
    eps_tile = nl.ndarray((TILE_ROWS, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=eps_tile, value=eps)

    for tile in range(nl.program_id(0), n_tiles, nl.num_programs(0)):
        first, last = tile * TILE_ROWS, min((tile + 1) * TILE_ROWS, n_rows)
        lanes = last - first
        x_tile = nl.ndarray((lanes, n_cols), dtype=x_input.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=x_tile, src=x_input[first:last, 0:n_cols])

        square_sums = nl.ndarray((lanes, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
        for chunk in range(n_chunks):
            begin, end = chunk * width, min((chunk + 1) * width, n_cols)
            squares = nl.ndarray((lanes, end - begin), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation_reduce(
                dst=squares,
                op=nl.square,
                data=x_tile[0:lanes, begin:end],
                reduce_op=nl.add,
                reduce_res=square_sums[0:lanes, chunk : chunk + 1],
            )
        total = square_sums
        if n_chunks > 1:
            total = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=total, op=nl.add, data=square_sums, axis=1, keepdims=True)
        invvar = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation(
            dst=invvar, op=nl.rsqrt, data=total, bias=eps_tile[0:lanes, 0:1], scale=1 / n_cols
        )
        nisa.dma_copy(dst=invvar_output[first:last, 0:1], src=invvar)

        for chunk in range(n_chunks):
            begin, end = chunk * width, min((chunk + 1) * width, n_cols)
            y_chunk = nl.ndarray((lanes, end - begin), dtype=x_input.dtype, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=y_chunk,
                data=x_tile[0:lanes, begin:end],
                op0=nl.multiply,
                operand0=invvar,
                op1=nl.multiply,
                operand1=weight_tile[0:lanes, begin:end],
            )
            nisa.dma_copy(dst=y_output[first:last, begin:end], src=y_chunk)

    return y_output, invvar_output


@nki.jit
def nki_rms_norm_backward_kernel(grad_y, x_input, weight, invvar):
    """The gradients of :func:`nki_rms_norm_kernel` for ``x_input`` and ``weight``.

    Dimensions:
        M: rows, at least 1. N: row elements, 1 to 16384. They need not be multiples of anything.

    Args:
        grad_y: (M, N) in HBM, gradient of the loss for ``y_output``; dtype of ``x_input``.
        x_input: (M, N) in HBM; float32, bfloat16 or float16.
        weight: (1, N) in HBM; any of these dtypes.
        invvar: (M, 1) float32 in HBM, ``invvar_output`` of the forward pass.

    Returns:
        grad_x: (M, N) in HBM, dtype of ``x_input``.
        grad_weight: (N, 1) float32 in HBM, summed over the M rows.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``. Two cores take the tiles of 128 rows in turn, so
        each has a part of grad_weight; core 1 sends its part to core 0, which adds and stores.

    Pseudocode:
        for 128 rows at a time:
            xg = x * grad_y
            grad_weight += transpose(xg) @ invvar
            dot = sum(xg * weight)
            grad_x = grad_y * invvar * weight - x * dot * invvar**3 / N
    """
    n_rows, n_cols = x_input.shape
    grad_x = nl.ndarray((n_rows, n_cols), dtype=x_input.dtype, buffer=nl.shared_hbm)
    grad_weight = nl.ndarray((n_cols, 1), dtype=nl.float32, buffer=nl.shared_hbm)

    block = min(TILE_ROWS, n_cols)
    n_blocks = ceil_div(n_cols, block)
    row_bytes = n_cols * (2 * ITEM_BYTES[x_input.dtype] + ITEM_BYTES[weight.dtype])
    keep_x = row_bytes <= RESIDENT_BYTES

    weight_tile = _on_all_partitions(weight)
    weight_sums = nl.ndarray((block, n_blocks), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=weight_sums, value=0.0)

    for tile in range(nl.program_id(0), ceil_div(n_rows, TILE_ROWS), nl.num_programs(0)):
        first, last = tile * TILE_ROWS, min((tile + 1) * TILE_ROWS, n_rows)
        lanes = last - first
        r = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=r, src=invvar[first:last, 0:1])
        grad_tile = nl.ndarray((lanes, n_cols), dtype=x_input.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=grad_tile, src=grad_y[first:last, 0:n_cols])
        x_rows = x_input[first:last, 0:n_cols]
        x_tile = None
        if keep_x:
            x_tile = nl.ndarray((lanes, n_cols), dtype=x_input.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=x_tile, src=x_rows)
        tile_sums, dots = sums_of_tile((x_tile, x_rows), grad_tile, weight_tile, r)
        nisa.tensor_tensor(dst=weight_sums, data1=weight_sums, data2=tile_sums, op=nl.add)
        rows = grad_x[first:last, 0:n_cols]
        store_gradient(rows, (x_tile, x_rows), grad_tile, weight_tile, r, dots)

    if nl.num_programs(0) == 2:
        other = 1 - nl.program_id(0)
        from_other = nl.ndarray((block, n_blocks), dtype=nl.float32, buffer=nl.sbuf)
        nisa.sendrecv(
            src=weight_sums, dst=from_other, send_to_rank=other, recv_from_rank=other, pipe_id=0
        )
        nisa.tensor_tensor(dst=weight_sums, data1=weight_sums, data2=from_other, op=nl.add)
    if nl.program_id(0) == 0:
        for number in range(n_blocks):
            start, stop = number * block, min((number + 1) * block, n_cols)
            nisa.dma_copy(
                dst=grad_weight[start:stop, 0:1],
                src=weight_sums[0 : stop - start, number : number + 1],
            )
    return grad_x, grad_weight


def part_of_x(x, begin, end):
    """Columns of a tile of x: of the tile in SBUF, or loaded where there was no room for it."""
    x_tile, x_rows = x
    lanes = x_rows.shape[0]
    if x_tile is not None:
        return x_tile[0:lanes, begin:end]
    part = nl.ndarray((lanes, end - begin), dtype=x_rows.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=part, src=x_rows[0:lanes, begin:end])
    return part


def sums_of_tile(x, grad_tile, weight_tile, r):
    """Of up to 128 rows: the sum of x * grad_y * r of each column, one a partition of PSUM; and of
    each row the sums of x * grad_y * weight of each chunk of columns."""
    lanes, n_cols = grad_tile.shape
    width, block = min(BACKWARD_CHUNK, n_cols), min(TILE_ROWS, n_cols)
    n_chunks, n_blocks = ceil_div(n_cols, width), ceil_div(n_cols, block)
    dots = nl.ndarray((lanes, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
    tile_sums = nl.ndarray((block, n_blocks), dtype=nl.float32, buffer=nl.psum)
    if n_cols % block:
        nisa.memset(dst=tile_sums[0:block, n_blocks - 1 : n_blocks], value=0.0)
    for chunk in range(n_chunks):
        begin, end = chunk * width, min((chunk + 1) * width, n_cols)
        x_chunk = part_of_x(x, begin, end)
        xg = nl.ndarray((lanes, end - begin), dtype=nl.float32, buffer=nl.sbuf)
        xgw = nl.ndarray((lanes, end - begin), dtype=nl.float32, buffer=nl.sbuf)
        copied = nl.ndarray((lanes, end - begin), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_tensor(
            dst=xg, data1=x_chunk, data2=grad_tile[0:lanes, begin:end], op=nl.multiply
        )
        nisa.tensor_tensor(dst=xgw, data1=xg, data2=weight_tile[0:lanes, begin:end], op=nl.multiply)
        # The Scalar Engine adds up: the Vector Engine is the busiest.
        nisa.activation_reduce(
            dst=copied,
            op=nl.copy,
            data=xgw,
            reduce_op=nl.add,
            reduce_res=dots[0:lanes, chunk : chunk + 1],
        )
        for start in range(begin, end, block):
            stop = min(start + block, end)
            number = start // block
            nisa.nc_matmul(
                dst=tile_sums[0 : stop - start, number : number + 1],
                stationary=xg[0:lanes, start - begin : stop - begin],
                moving=r,
                accumulate=False,
            )
    return tile_sums, dots


def store_gradient(grad_x, x, grad_tile, weight_tile, r, dots):
    """Store up to 128 rows of grad_x: grad_y * r * weight - x * sum(dots) * r**3 / N."""
    lanes, n_cols = grad_tile.shape
    width = min(BACKWARD_CHUNK, n_cols)
    dot = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    r_squared = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    r_cubed = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    factor = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=dot, op=nl.add, data=dots, axis=1, keepdims=True)
    nisa.tensor_tensor(dst=r_squared, data1=r, data2=r, op=nl.multiply)
    nisa.tensor_tensor(dst=r_cubed, data1=r_squared, data2=r, op=nl.multiply)
    nisa.scalar_tensor_tensor(
        dst=factor,
        data=dot,
        op0=nl.multiply,
        operand0=-1 / n_cols,
        op1=nl.multiply,
        operand1=r_cubed,
    )
    for chunk in range(ceil_div(n_cols, width)):
        begin, end = chunk * width, min((chunk + 1) * width, n_cols)
        x_chunk = part_of_x(x, begin, end)
        direct = nl.ndarray((lanes, end - begin), dtype=nl.float32, buffer=nl.sbuf)
        both = nl.ndarray((lanes, end - begin), dtype=grad_x.dtype, buffer=nl.sbuf)
        nisa.scalar_tensor_tensor(
            dst=direct,
            data=grad_tile[0:lanes, begin:end],
            op0=nl.multiply,
            operand0=r,
            op1=nl.multiply,
            operand1=weight_tile[0:lanes, begin:end],
        )
        nisa.scalar_tensor_tensor(
            dst=both,
            data=x_chunk,
            op0=nl.multiply,
            operand0=factor,
            op1=nl.add,
            operand1=direct,
        )
        nisa.dma_copy(dst=grad_x[0:lanes, begin:end], src=both)


def _on_all_partitions(weight):
    """The weight (1, N) in each of the 128 partitions of an SBUF tile."""
    n_cols = weight.shape[1]
    tile = nl.ndarray((TILE_ROWS, n_cols), dtype=weight.dtype, buffer=nl.sbuf)
    # A step of 0 reads the one row for every partition.
    nisa.dma_copy(dst=tile, src=weight.ap([[0, TILE_ROWS], [1, n_cols]]))
    return tile
