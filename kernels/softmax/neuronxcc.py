"""Softmax of rows as NKI kernels, forward and backward.

Both kernels see a matrix: 128 rows are a tile, one a partition. A row that fits SBUF is loaded
once. Of a longer one the maximum and the sum are found in one pass over HBM, piece by piece, and
the result is made in a second one.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

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
        Launch without a grid. The largest element of a row is subtracted first, so that no power
        overflows. Powers and sums are float32, and the result is rounded once.

    Pseudocode:
        for 128 rows at a time:
            largest = max(x)
            exponentials = exp(x - largest)
            y = exponentials * (1 / sum(exponentials))
    """
    n_rows, n_cols = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first, height in pieces(n_rows, TILE_ROWS):
        rows = nl.ds(first, height)
        if n_cols <= KEPT_COLS:
            softmax_kept(y, x, rows)
        else:
            softmax_long(y, x, rows)
    return y


def softmax_kept(y, x, rows):
    """The softmax of 128 rows that are loaded once."""
    tile = nl.load(x[rows, :])
    least = nisa.tensor_reduce(
        nl.max, tile, axis=(1,), negate=True, keepdims=True, dtype=nl.float32
    )
    total = nl.ndarray(least.shape, dtype=nl.float32, buffer=nl.sbuf)
    exponentials = nisa.activation_reduce(
        op=nl.exp, data=tile, bias=least, reduce_op=nl.add, reduce_res=total, dtype=nl.float32
    )
    share = nisa.reciprocal(total)
    nl.store(y[rows, :], value=nisa.tensor_scalar(exponentials, nl.multiply, share, dtype=y.dtype))


def softmax_long(y, x, rows):
    """The softmax of 128 rows that are loaded twice, in pieces.

    When the running maximum grows, the running sum is rescaled by the ratio of the exponentials,
    exp(old - new).
    """
    chunks = pieces(x.shape[1], CHUNK)
    least, total = None, None
    for start, width in chunks:
        tile = nl.load(x[rows, nl.ds(start, width)])
        now = nisa.tensor_reduce(
            nl.max, tile, axis=(1,), negate=True, keepdims=True, dtype=nl.float32
        )
        if least is not None:
            now = nl.minimum(now, least)
        more = nl.ndarray(now.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            op=nl.exp, data=tile, bias=now, reduce_op=nl.add, reduce_res=more, dtype=nl.float32
        )
        if least is not None:
            factor = nisa.activation(op=nl.exp, data=least, bias=now, scale=-1.0)
            more = nisa.scalar_tensor_tensor(
                data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
            )
        least, total = now, more
    share = nisa.reciprocal(total)
    for start, width in chunks:
        place = nl.ds(start, width)
        exponentials = nisa.activation(
            op=nl.exp, data=nl.load(x[rows, place]), bias=least, dtype=nl.float32
        )
        nl.store(
            y[rows, place],
            value=nisa.tensor_scalar(exponentials, nl.multiply, share, dtype=y.dtype),
        )


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
        Launch without a grid. Products and sums are float32, and the result is rounded once.

    Pseudocode:
        for 128 rows at a time:
            dot = sum(grad_y * y)
            grad_x = (grad_y - dot) * y
    """
    n_rows, n_cols = y.shape
    grad_x = nl.ndarray(y.shape, dtype=y.dtype, buffer=nl.shared_hbm)
    chunks = pieces(n_cols, CHUNK)
    keep = n_cols <= KEPT_COLS
    for first, height in pieces(n_rows, TILE_ROWS):
        rows = nl.ds(first, height)
        dots = nl.ndarray((height, len(chunks)), dtype=nl.float32, buffer=nl.sbuf)
        kept = []
        for number, (start, width) in enumerate(chunks):
            place = nl.ds(start, width)
            tiles = nl.load(grad_y[rows, place]), nl.load(y[rows, place])
            if keep:
                kept.append(tiles)
            # The Scalar Engine adds up: the Vector Engine has two passes besides.
            nisa.activation_reduce(
                op=nl.copy,
                data=nl.multiply(*tiles, dtype=nl.float32),
                reduce_op=nl.add,
                reduce_res=dots[:, nl.ds(number, 1)],
                dtype=nl.float32,
            )
        dot = nisa.tensor_reduce(nl.add, dots, axis=(1,), keepdims=True)
        for number, (start, width) in enumerate(chunks):
            place = nl.ds(start, width)
            grads, weights = (
                kept[number] if keep else (nl.load(grad_y[rows, place]), nl.load(y[rows, place]))
            )
            result = nisa.scalar_tensor_tensor(
                data=grads,
                op0=nl.subtract,
                operand0=dot,
                op1=nl.multiply,
                operand1=weights,
                dtype=grad_x.dtype,
            )
            nl.store(grad_x[rows, place], value=result)
    return grad_x
