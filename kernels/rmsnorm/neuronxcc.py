"""RMSNorm as NKI kernels, forward and backward.

Both kernels see a matrix: a row is what is normalised, 128 rows are a tile, one a partition. They
loop over the tiles inside one launch, so that the weight is loaded and spread over the partitions
once. Along a row, work goes in chunks, so that SBUF holds rows of up to 16384 elements.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.rmsnorm.arguments import (
    BACKWARD_CHUNK,
    CHUNK_BYTES,
    RESIDENT_BYTES,
    TILE_ROWS,
)
from kernels.tiles import ceil_div


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
        Launch without a grid. Statistics and products are float32; each output element is rounded
        once. The Scalar Engine squares and sums, the Vector Engine scales, so that both work while
        DMA moves the next tile.

    Pseudocode:
        for 128 rows at a time:
            invvar = rsqrt(sum(x * x) / N + eps)
            y = x * invvar * weight
    """
    n_rows, n_cols = x_input.shape
    y_output = nl.ndarray(x_input.shape, dtype=x_input.dtype, buffer=nl.shared_hbm)
    invvar_output = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)

    width = min(CHUNK_BYTES // x_input.itemsize, n_cols)
    n_chunks = ceil_div(n_cols, width)
    i_row = nl.arange(TILE_ROWS)[:, None]
    i_col = nl.arange(n_cols)[None, :]
    i_chunk = nl.arange(width)[None, :]
    i_one = nl.arange(1)[None, :]

    weight_tile = nl.broadcast_to(nl.load(weight), shape=(TILE_ROWS, n_cols))
    # An activation computes op(data * scale + bias). Its bias is a vector, one a partition.
    eps_tile = nl.full((TILE_ROWS, 1), eps, dtype=nl.float32, buffer=nl.sbuf)

    for tile in nl.affine_range(ceil_div(n_rows, TILE_ROWS)):
        rows = tile * TILE_ROWS + i_row
        in_rows = rows < n_rows
        x_tile = nl.load(x_input[rows, i_col], mask=in_rows)

        square_sums = nl.ndarray((TILE_ROWS, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
        for chunk in nl.affine_range(n_chunks):
            cols = chunk * width + i_chunk
            nisa.activation_reduce(
                op=nl.square,
                data=x_tile[i_row, cols],
                reduce_op=nl.add,
                reduce_res=square_sums[i_row, chunk + i_one],
                dtype=nl.float32,
                mask=in_rows & (cols < n_cols),
            )
        total = square_sums
        if n_chunks > 1:
            total = nl.sum(square_sums, axis=1, keepdims=True, mask=in_rows)
        invvar = nisa.activation(
            op=nl.rsqrt, data=total, bias=eps_tile, scale=1 / n_cols, mask=in_rows
        )
        nl.store(invvar_output[rows, i_one], value=invvar, mask=in_rows)

        for chunk in nl.affine_range(n_chunks):
            cols = chunk * width + i_chunk
            inside = in_rows & (cols < n_cols)
            y_chunk = nisa.scalar_tensor_tensor(
                data=x_tile[i_row, cols],
                op0=nl.multiply,
                operand0=invvar,
                op1=nl.multiply,
                operand1=weight_tile[i_row, cols],
                dtype=y_output.dtype,
                mask=inside,
            )
            nl.store(y_output[rows, cols], value=y_chunk, mask=inside)

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
        grad_weight: (N, 1) float32 in HBM, summed over the M rows. It is not rounded to the dtype
            of ``weight``, because it may be one term of a sum over devices.

    Notes:
        Launch without a grid. The sum over rows crosses partitions, which only the Tensor Engine
        does fast: a matmul adds up 128 rows of 128 columns of x * grad_y. Each partition gets the
        sum of one column, so grad_weight takes N / 128 elements of each partition, however many
        rows there are. The matmul also multiplies each row by its invvar.

    Pseudocode:
        for 128 rows at a time:
            xg = x * grad_y
            grad_weight += transpose(xg) @ invvar
            dot = sum(xg * weight)
            grad_x = grad_y * invvar * weight - x * dot * invvar**3 / N
    """
    n_rows, n_cols = x_input.shape
    grad_x = nl.ndarray(x_input.shape, dtype=x_input.dtype, buffer=nl.shared_hbm)
    grad_weight = nl.ndarray((n_cols, 1), dtype=nl.float32, buffer=nl.shared_hbm)

    block = min(TILE_ROWS, n_cols)
    n_blocks = ceil_div(n_cols, block)
    keep_x = n_cols * (2 * x_input.itemsize + weight.itemsize) <= RESIDENT_BYTES
    i_row = nl.arange(TILE_ROWS)[:, None]
    i_col = nl.arange(n_cols)[None, :]
    i_one = nl.arange(1)[None, :]
    i_lane = nl.arange(block)[:, None]

    weight_tile = nl.broadcast_to(nl.load(weight), shape=(TILE_ROWS, n_cols))
    weight_sums = nl.zeros((block, n_blocks), dtype=nl.float32, buffer=nl.sbuf)

    # Sequential: each tile adds to weight_sums.
    for tile in nl.sequential_range(ceil_div(n_rows, TILE_ROWS)):
        rows = tile * TILE_ROWS + i_row
        in_rows = rows < n_rows
        r = nl.load(invvar[rows, i_one], mask=in_rows)
        grad_tile = nl.load(grad_y[rows, i_col], mask=in_rows)
        x_tile = nl.load(x_input[rows, i_col], mask=in_rows) if keep_x else None
        x = (x_tile, x_input, rows, in_rows)
        tile_sums, dots = sums_of_tile(x, grad_tile, weight_tile, r)
        weight_sums[...] = nl.add(weight_sums, tile_sums)
        store_gradient(grad_x, x, grad_tile, weight_tile, r, dots)

    for number in nl.affine_range(n_blocks):
        elements = number * block + i_lane
        nl.store(
            grad_weight[elements, i_one],
            value=weight_sums[i_lane, number + i_one],
            mask=elements < n_cols,
        )
    return grad_x, grad_weight


def part_of_x(x, cols, inside):
    """Columns of a tile of x: of the tile in SBUF, or loaded where there was no room for it."""
    x_tile, x_input, rows, _ = x
    if x_tile is None:
        return nl.load(x_input[rows, cols], mask=inside)
    return x_tile[nl.arange(TILE_ROWS)[:, None], cols]


def sums_of_tile(x, grad_tile, weight_tile, r):
    """Of 128 rows: the sum of x * grad_y * r of each column, one a partition of PSUM; and of each
    row the sums of x * grad_y * weight of each chunk of columns."""
    in_rows = x[-1]
    n_cols = grad_tile.shape[1]
    width, block = min(BACKWARD_CHUNK, n_cols), min(TILE_ROWS, n_cols)
    n_chunks, n_blocks = ceil_div(n_cols, width), ceil_div(n_cols, block)
    blocks_in_chunk = ceil_div(width, block)
    i_row = nl.arange(TILE_ROWS)[:, None]
    i_chunk = nl.arange(width)[None, :]
    i_one = nl.arange(1)[None, :]
    i_lane = nl.arange(block)[:, None]
    i_block = nl.arange(block)[None, :]

    dots = nl.ndarray((TILE_ROWS, n_chunks), dtype=nl.float32, buffer=nl.sbuf)
    tile_sums = nl.ndarray((block, n_blocks), dtype=nl.float32, buffer=nl.psum)
    # Unrolled: the last chunk may have fewer blocks.
    for chunk in nl.static_range(n_chunks):
        cols = chunk * width + i_chunk
        inside = in_rows & (cols < n_cols)
        x_chunk = part_of_x(x, cols, inside)
        xg = nl.multiply(x_chunk, grad_tile[i_row, cols], dtype=nl.float32, mask=inside)
        xgw = nl.multiply(xg, weight_tile[i_row, cols], dtype=nl.float32, mask=inside)
        # The Scalar Engine adds up: the Vector Engine is the busiest.
        nisa.activation_reduce(
            op=nl.copy,
            data=xgw,
            reduce_op=nl.add,
            reduce_res=dots[i_row, chunk + i_one],
            dtype=nl.float32,
            mask=inside,
        )

        first_block = chunk * blocks_in_chunk
        for part in nl.affine_range(min(blocks_in_chunk, n_blocks - first_block)):
            in_chunk = part * block + i_block
            number = first_block + part
            in_block = number * block + i_block < n_cols
            tile_sums[i_lane, number + i_one] = nisa.nc_matmul(
                xg[i_row, in_chunk], r, mask=in_rows & in_block
            )
    return tile_sums, dots


def store_gradient(grad_x, x, grad_tile, weight_tile, r, dots):
    """Store 128 rows of grad_x: grad_y * r * weight - x * sum(dots) * r**3 / N."""
    _, _, rows, in_rows = x
    n_cols = grad_tile.shape[1]
    width = min(BACKWARD_CHUNK, n_cols)
    i_row = nl.arange(TILE_ROWS)[:, None]
    i_chunk = nl.arange(width)[None, :]

    dot = nl.sum(dots, axis=1, keepdims=True, mask=in_rows)
    r_squared = nl.multiply(r, r, mask=in_rows)
    factor = nisa.scalar_tensor_tensor(
        data=dot,
        op0=nl.multiply,
        operand0=-1 / n_cols,
        op1=nl.multiply,
        operand1=nl.multiply(r_squared, r, mask=in_rows),
        mask=in_rows,
    )
    for chunk in nl.affine_range(ceil_div(n_cols, width)):
        cols = chunk * width + i_chunk
        inside = in_rows & (cols < n_cols)
        x_chunk = part_of_x(x, cols, inside)
        direct = nisa.scalar_tensor_tensor(
            data=grad_tile[i_row, cols],
            op0=nl.multiply,
            operand0=r,
            op1=nl.multiply,
            operand1=weight_tile[i_row, cols],
            dtype=nl.float32,
            mask=inside,
        )
        both = nisa.scalar_tensor_tensor(
            data=x_chunk,
            op0=nl.multiply,
            operand0=factor,
            op1=nl.add,
            operand1=direct,
            dtype=grad_x.dtype,
            mask=inside,
        )
        nl.store(grad_x[rows, cols], value=both, mask=inside)
