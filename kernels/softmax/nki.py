"""Softmax of rows in ``import nki``, forward and backward.

The instructions are those of ``neuronxcc``, whose text says why each is there. What differs: a
slice ends where the matrix ends; each instruction names its destination, which the kernel has
declared; the tiles of rows are shared by the cores of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.softmax.arguments import (
    CHUNK,
    KEPT_COLS,
    TILE_ROWS,
)
from kernels.tiles import pieces


@nki.jit
def nki_softmax_kernel(x):
    """Divide the exponentials ``exp(x)`` of each row of a matrix by their sum.

    Dimensions:
        M: rows. N: elements of a row. At least 1; they need not be multiples of anything.

    Args:
        x: (M, N) in HBM; float32, bfloat16 or float16.

    Returns:
        (M, N) in HBM, dtype of ``x``.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles of 128 rows in turn. The
        largest element of a row is subtracted first, so that no power overflows. Powers and sums
        are float32, and the result is rounded once. The result is the one of the kernel in
        ``neuronxcc.nki``, to the last bit.

    Pseudocode:
        for 128 rows at a time:
            largest = max(x)
            exponentials = exp(x - largest)
            y = exponentials * (1 / sum(exponentials))
    """
    n_rows, n_cols = x.shape
    y = nl.ndarray((n_rows, n_cols), dtype=x.dtype, buffer=nl.shared_hbm)
    tiles = pieces(n_rows, TILE_ROWS)
    for tile in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, height = tiles[tile]
        rows = y[first : first + height, 0:n_cols], x[first : first + height, 0:n_cols]
        if n_cols > KEPT_COLS:
            softmax_long(*rows)
        # The Vector Engine finds the maximum. The Scalar Engine computes the exponentials, has some
        # time left and makes three of four results.
        else:
            softmax_kept(*rows, tile // nl.num_programs(0) % 4 != 3)
    return y


def softmax_kept(y, x, on_scalar):
    """The softmax of 128 rows that are loaded once; the last product on Scalar or Vector Engine."""
    lanes = x.shape[0]
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    least = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    total = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    share = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    exponentials = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf)
    result = nl.ndarray(x.shape, dtype=y.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    nisa.tensor_reduce(dst=least, op=nl.maximum, data=tile, axis=1, negate=True, keepdims=True)
    nisa.activation_reduce(
        dst=exponentials, op=nl.exp, data=tile, bias=least, reduce_op=nl.add, reduce_res=total
    )
    nisa.reciprocal(dst=share, data=total)
    if on_scalar:
        nisa.activation(dst=result, op=nl.copy, data=exponentials, scale=share)
    else:
        nisa.tensor_scalar(dst=result, data=exponentials, op0=nl.multiply, operand0=share)
    nisa.dma_copy(dst=y, src=result)


def softmax_long(y, x):
    """The softmax of 128 rows that are loaded twice, in pieces.

    When the running maximum grows, the running sum is rescaled by the ratio of the exponentials,
    exp(old - new).
    """
    lanes, n_cols = x.shape
    chunks = pieces(n_cols, CHUNK)
    least, total = None, None
    for start, width in chunks:
        tile = nl.ndarray((lanes, width), dtype=x.dtype, buffer=nl.sbuf)
        exponentials = nl.ndarray((lanes, width), dtype=nl.float32, buffer=nl.sbuf)
        now = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
        more = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:lanes, start : start + width])
        nisa.tensor_reduce(dst=now, op=nl.maximum, data=tile, axis=1, negate=True, keepdims=True)
        if least != None:
            nisa.tensor_tensor(dst=now, data1=now, data2=least, op=nl.minimum)
        nisa.activation_reduce(
            dst=exponentials, op=nl.exp, data=tile, bias=now, reduce_op=nl.add, reduce_res=more
        )
        if least != None:
            factor = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.activation(dst=factor, op=nl.exp, data=least, bias=now, scale=-1.0)
            nisa.scalar_tensor_tensor(
                dst=more, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
            )
        least, total = now, more
    share = nl.ndarray((lanes, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.reciprocal(dst=share, data=total)
    for start, width in chunks:
        tile = nl.ndarray((lanes, width), dtype=x.dtype, buffer=nl.sbuf)
        exponentials = nl.ndarray((lanes, width), dtype=nl.float32, buffer=nl.sbuf)
        result = nl.ndarray((lanes, width), dtype=y.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[0:lanes, start : start + width])
        nisa.activation(dst=exponentials, op=nl.exp, data=tile, bias=least)
        nisa.tensor_scalar(dst=result, data=exponentials, op0=nl.multiply, operand0=share)
        nisa.dma_copy(dst=y[0:lanes, start : start + width], src=result)


@nki.jit
def nki_softmax_backward_kernel(grad_y, y):
    """The gradient of :func:`nki_softmax_kernel` for ``x``.

    Dimensions:
        M: rows. N: elements of a row. At least 1; they need not be multiples of anything.

    Args:
        grad_y: (M, N) in HBM, gradient of the loss for ``y``; dtype of ``y``.
        y: (M, N) in HBM, the result of the forward pass; float32, bfloat16 or float16.

    Returns:
        (M, N) in HBM, dtype of ``y``.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``, as the forward kernel. Products and sums are
        float32, and the result is rounded once.

    Pseudocode:
        for 128 rows at a time:
            dot = sum(grad_y * y)
            grad_x = (grad_y - dot) * y
    """
    n_rows, n_cols = y.shape
    grad_x = nl.ndarray((n_rows, n_cols), dtype=y.dtype, buffer=nl.shared_hbm)
    chunks = pieces(n_cols, CHUNK)
    keep = n_cols <= KEPT_COLS
    tiles = pieces(n_rows, TILE_ROWS)
    for tile in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, height = tiles[tile]
        last = first + height
        dots = nl.ndarray((height, len(chunks)), dtype=nl.float32, buffer=nl.sbuf)
        kept = []
        for number in range(len(chunks)):
            start, width = chunks[number]
            pair = _loaded(
                grad_y[first:last, start : start + width], y[first:last, start : start + width]
            )
            if keep:
                kept.append(pair)
            products = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
            copied = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_tensor(dst=products, data1=pair[0], data2=pair[1], op=nl.multiply)
            # The Scalar Engine adds up: the Vector Engine has two passes besides.
            nisa.activation_reduce(
                dst=copied,
                op=nl.copy,
                data=products,
                reduce_op=nl.add,
                reduce_res=dots[0:height, number : number + 1],
            )
        dot = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=dot, op=nl.add, data=dots, axis=1, keepdims=True)
        for number in range(len(chunks)):
            start, width = chunks[number]
            stop = start + width
            if keep:
                grads, weights = kept[number]
            else:
                grads, weights = _loaded(grad_y[first:last, start:stop], y[first:last, start:stop])
            result = nl.ndarray((height, width), dtype=grad_x.dtype, buffer=nl.sbuf)
            nisa.scalar_tensor_tensor(
                dst=result,
                data=grads,
                op0=nl.subtract,
                operand0=dot,
                op1=nl.multiply,
                operand1=weights,
            )
            nisa.dma_copy(dst=grad_x[first:last, start:stop], src=result)
    return grad_x


def _loaded(grad_y, y):
    """Parts of grad_y and y in SBUF."""
    pair = []
    for part in (grad_y, y):
        tile = nl.ndarray(part.shape, dtype=part.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=part)
        pair.append(tile)
    return pair
