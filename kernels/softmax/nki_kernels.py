"""Softmax of rows as NKI kernels, forward and backward, and the callers that launch them.

Both kernels see a matrix: 128 rows are a tile, one a partition. A row that fits SBUF is loaded
once. Of a longer one the maximum and the sum are found in one pass over HBM, piece by piece, and
the result is made in a second one.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.arguments import dtype_name, require_array

TILE_ROWS = 128
"""Rows of a tile: the partition axis of SBUF has 128 partitions (``nl.tile_size.pmax``)."""

CHUNK = 2048
"""Elements of a row that one instruction takes."""

KEPT_COLS = 8192
"""Longest row that is loaded once. In float32 its powers then take 32 KiB a partition, and so does
the row, of which the next one is loaded meanwhile."""

DTYPES = ("float32", "bfloat16", "float16")
"""Element types that the softmax kernels take."""


@nki.jit
def nki_softmax_kernel(x):
    """Divide the powers ``exp(x)`` of each row of a matrix by their sum.

    Dimensions:
        M: rows. N: elements of a row. At least 1; no multiple of anything.

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
            powers = exp(x - largest)
            y = powers * (1 / sum(powers))
    """
    n_rows, n_cols = x.shape
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for first, height in _cut(n_rows, TILE_ROWS):
        rows = nl.ds(first, height)
        if n_cols <= KEPT_COLS:
            _softmax_kept(y, x, rows)
        else:
            _softmax_long(y, x, rows)
    return y


def _softmax_kept(y, x, rows):
    """The softmax of 128 rows that are loaded once."""
    tile = nl.load(x[rows, :])
    least = nisa.tensor_reduce(
        nl.max, tile, axis=(1,), negate=True, keepdims=True, dtype=nl.float32
    )
    total = nl.ndarray(least.shape, dtype=nl.float32, buffer=nl.sbuf)
    powers = nisa.activation_reduce(
        op=nl.exp, data=tile, bias=least, reduce_op=nl.add, reduce_res=total, dtype=nl.float32
    )
    share = nisa.reciprocal(total)
    nl.store(y[rows, :], value=nisa.tensor_scalar(powers, nl.multiply, share, dtype=y.dtype))


def _softmax_long(y, x, rows):
    """The softmax of 128 rows that are loaded twice, in pieces.

    When a larger element turns up, what has been summed up so far is made smaller by the ratio of
    the powers, exp(old - new).
    """
    chunks = _cut(x.shape[1], CHUNK)
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
            fade = nisa.activation(op=nl.exp, data=least, bias=now, scale=-1.0)
            more = nisa.scalar_tensor_tensor(
                data=total, op0=nl.multiply, operand0=fade, op1=nl.add, operand1=more
            )
        least, total = now, more
    share = nisa.reciprocal(total)
    for start, width in chunks:
        place = nl.ds(start, width)
        powers = nisa.activation(
            op=nl.exp, data=nl.load(x[rows, place]), bias=least, dtype=nl.float32
        )
        nl.store(
            y[rows, place], value=nisa.tensor_scalar(powers, nl.multiply, share, dtype=y.dtype)
        )


@nki.jit
def nki_softmax_backward_kernel(grad_y, y):
    """The gradient of :func:`nki_softmax_kernel` for ``x``.

    Dimensions:
        M: rows. N: elements of a row. At least 1; no multiple of anything.

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
    chunks = _cut(n_cols, CHUNK)
    keep = n_cols <= KEPT_COLS
    for first, height in _cut(n_rows, TILE_ROWS):
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


def _cut(size: int, piece: int) -> list[tuple[int, int]]:
    """Start and length of each piece of an axis; the last one may be shorter."""
    return [(at, min(piece, size - at)) for at in range(0, size, piece)]


def nki_softmax(x: Any) -> Any:
    """The softmax over the last axis of an array, with :func:`nki_softmax_kernel`.

    Args:
        x: (..., N), float32, bfloat16 or float16. A NumPy array, a PyTorch tensor or a JAX array.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis, or no elements.
    """
    _check_filled("x", x)
    return nki_softmax_kernel(x.reshape((-1, x.shape[-1]))).reshape(tuple(x.shape))


def nki_softmax_backward(grad_y: Any, y: Any) -> Any:
    """The gradient of :func:`nki_softmax`, with :func:`nki_softmax_backward_kernel`.

    Args:
        grad_y: gradient of the loss for y; shape and dtype of ``y``.
        y: (..., N), what the forward pass returned.

    Returns:
        The gradient of x: shape and dtype of ``y``.

    Raises:
        TypeError, ValueError: as :func:`nki_softmax`; also when ``grad_y`` does not fit ``y``.
    """
    _check_filled("y", y)
    check(grad_y, "grad_y")
    if tuple(grad_y.shape) != tuple(y.shape) or dtype_name(grad_y) != dtype_name(y):
        raise ValueError(
            f"grad_y is {dtype_name(grad_y)} of shape {tuple(grad_y.shape)}, and should be "
            f"{dtype_name(y)} of shape {tuple(y.shape)}, as y."
        )
    rows = (-1, y.shape[-1])
    return nki_softmax_backward_kernel(grad_y.reshape(rows), y.reshape(rows)).reshape(
        tuple(y.shape)
    )


def check(x: Any, name: str = "x") -> None:
    """Refuse what the kernels do not take; arrays of no elements pass.

    Args:
        x: the operand.
        name: of the operand, for messages.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis.
    """
    require_array(name, x)
    if dtype_name(x) not in DTYPES:
        raise TypeError(
            f"{name} is {dtype_name(x)}. The softmax kernels take {', '.join(DTYPES)}. Cast it "
            "first."
        )
    if not tuple(x.shape):
        raise ValueError(f"{name} has shape (): no axis to normalise. Its last axis is a row.")


def _check_filled(name: str, x: Any) -> None:
    check(x, name)
    if 0 in tuple(x.shape):
        raise ValueError(
            f"{name} has shape {tuple(x.shape)}: no elements. A launch has at least one. Skip the "
            "call for empty arrays."
        )
