"""Softmax cross-entropy and its gradient as the framework's HLO has it, one operation at a time.

Each operation reads its operands from HBM and writes its result there: what no fusion at all costs.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki.language as neuronxcc_nl
import nki
import nki.isa as nisa
import nki.language as nl
from neuronxcc import nki as neuronxcc_nki

import kernels
from kernels.cross_entropy import nki_cross_entropy_backward_kernel, nki_cross_entropy_kernel
from kernels.tiles import pieces

COLUMNS = 2048

FUSED_PASSES = {
    "JAX with a gather": 8,
    "F.cross_entropy": 7,
    "JAX with a comparison": 5,
    "JAX, gradient by hand": 4,
}
"""Bytes of the loss and its gradient when every element-wise operation is fused, in sizes of the
bfloat16 logits, by how the program is written: `fused` of its graph, counted on the page on a
kernel that saves time."""


def _blocks(shape: tuple[int, ...]) -> list[Any]:
    """128 rows and 2048 columns at a time: the first row, how many, the first column, how many."""
    n_rows, n_cols = shape
    return [
        (row, height, col, width)
        for row, height in pieces(n_rows, 128)
        for col, width in pieces(n_cols, COLUMNS)
    ]


@neuronxcc_nki.jit
def apart_neuronxcc(logits, targets, scale):
    """Cross-entropy and its gradient, one operation after the other, in `neuronxcc.nki`.

    Args:
        logits: (rows, classes) in HBM, float32 or bfloat16.
        targets: (rows, 1) float32, the class of each row.
        scale: (rows, 1) float32, the gradient that comes in for each row.

    Returns:
        The logarithm of the sum of exponentials of each row, (rows, 1) float32, and the gradient
        of the cross-entropy for the logits.
    """
    shape, rows = logits.shape, (logits.shape[0], 1)
    grad = neuronxcc_nl.ndarray(shape, dtype=logits.dtype, buffer=neuronxcc_nl.shared_hbm)
    lse = neuronxcc_nl.ndarray(rows, dtype=neuronxcc_nl.float32, buffer=neuronxcc_nl.shared_hbm)
    wide, shifted, exponentials, spikes, product, total = (
        neuronxcc_nl.ndarray(shape, dtype=neuronxcc_nl.float32, buffer=neuronxcc_nl.private_hbm)
        for _ in range(6)
    )
    top, sums = (
        neuronxcc_nl.ndarray(rows, dtype=neuronxcc_nl.float32, buffer=neuronxcc_nl.private_hbm)
        for _ in range(2)
    )

    def elementwise(to, compute, *sources):
        for row, height, col, width in _blocks(shape):
            at, down = (
                (neuronxcc_nl.ds(row, height), neuronxcc_nl.ds(col, width)),
                neuronxcc_nl.ds(row, height),
            )
            tiles = [neuronxcc_nl.load(s[at] if s.shape[1] > 1 else s[down]) for s in sources]
            neuronxcc_nl.store(to[at], value=compute(*tiles))

    def reduced(to, reduce, combine, source):
        for row, height in pieces(shape[0], 128):
            kept = None
            for col, width in pieces(shape[1], COLUMNS):
                tile = neuronxcc_nl.load(
                    source[neuronxcc_nl.ds(row, height), neuronxcc_nl.ds(col, width)]
                )
                found = reduce(tile, axis=1, keepdims=True)
                kept = found if kept is None else combine(kept, found)
            neuronxcc_nl.store(to[neuronxcc_nl.ds(row, height)], value=kept)

    elementwise(wide, lambda t: neuronxcc_nl.copy(t, dtype=neuronxcc_nl.float32), logits)
    reduced(top, neuronxcc_nl.max, neuronxcc_nl.maximum, wide)
    elementwise(shifted, neuronxcc_nl.subtract, wide, top)
    elementwise(exponentials, neuronxcc_nl.exp, shifted)
    reduced(sums, neuronxcc_nl.sum, neuronxcc_nl.add, exponentials)
    for row, height in pieces(shape[0], 128):
        down = neuronxcc_nl.ds(row, height)
        logs = neuronxcc_nl.log(neuronxcc_nl.load(sums[down]))
        neuronxcc_nl.store(lse[down], value=neuronxcc_nl.add(logs, neuronxcc_nl.load(top[down])))
    for row, height, col, width in _blocks(shape):
        at, down = (
            (neuronxcc_nl.ds(row, height), neuronxcc_nl.ds(col, width)),
            neuronxcc_nl.ds(row, height),
        )
        i_row, i_col = neuronxcc_nl.mgrid[0:height, 0:width]
        numbers = neuronxcc_nki.isa.iota(i_row * 0 + i_col + col, dtype=neuronxcc_nl.float32)
        hit = neuronxcc_nl.equal(
            numbers, neuronxcc_nl.load(targets[down]), dtype=neuronxcc_nl.float32
        )
        value = neuronxcc_nl.multiply(hit, neuronxcc_nl.load(scale[down]))
        neuronxcc_nl.store(spikes[at], value=value)
    for row, height, col, width in _blocks(shape):
        at, down = (
            (neuronxcc_nl.ds(row, height), neuronxcc_nl.ds(col, width)),
            neuronxcc_nl.ds(row, height),
        )
        share = neuronxcc_nl.divide(neuronxcc_nl.load(scale[down]), neuronxcc_nl.load(sums[down]))
        neuronxcc_nl.store(
            product[at], value=neuronxcc_nl.multiply(neuronxcc_nl.load(exponentials[at]), share)
        )
    elementwise(total, neuronxcc_nl.subtract, product, spikes)
    elementwise(grad, lambda t: neuronxcc_nl.copy(t, dtype=logits.dtype), total)
    return lse, grad


@nki.jit
def apart_nki(logits, targets, scale):
    """The same as :func:`apart_neuronxcc`, in `import nki`."""
    n_rows, n_cols = logits.shape
    grad = nl.ndarray((n_rows, n_cols), dtype=logits.dtype, buffer=nl.shared_hbm)
    lse = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    wide = _in_hbm(n_rows, n_cols)
    shifted = _in_hbm(n_rows, n_cols)
    exponentials = _in_hbm(n_rows, n_cols)
    spikes = _in_hbm(n_rows, n_cols)
    product = _in_hbm(n_rows, n_cols)
    total = _in_hbm(n_rows, n_cols)
    top = _in_hbm(n_rows, 1)
    sums = _in_hbm(n_rows, 1)
    blocks = _blocks((n_rows, n_cols))

    for block in blocks:
        tile = _loaded(logits, block)
        _store(wide, block, tile)
    _reduce(top, nl.maximum, wide)
    for block in blocks:
        tile, column = _loaded(wide, block), _loaded_column(top, block)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract, operand0=column)
        _store(shifted, block, tile)
    for block in blocks:
        tile = _loaded(shifted, block)
        nisa.activation(dst=tile, op=nl.exp, data=tile)
        _store(exponentials, block, tile)
    _reduce(sums, nl.add, exponentials)
    for row, height in pieces(n_rows, 128):
        block = (row, height, 0, 1)
        logs, column = _loaded_column(sums, block), _loaded_column(top, block)
        nisa.activation(dst=logs, op=nl.log, data=logs)
        nisa.tensor_tensor(dst=logs, data1=logs, data2=column, op=nl.add)
        _store(lse, block, logs)
    for block in blocks:
        row, height, col, width = block
        tile = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
        nisa.iota(dst=tile, pattern=[[1, width]], offset=col)
        nisa.tensor_scalar(
            dst=tile,
            data=tile,
            op0=nl.equal,
            operand0=_loaded_column(targets, block),
            op1=nl.multiply,
            operand1=_loaded_column(scale, block),
        )
        _store(spikes, block, tile)
    for block in blocks:
        tile = _loaded(exponentials, block)
        share, column = _loaded_column(scale, block), _loaded_column(sums, block)
        nisa.reciprocal(dst=column, data=column)
        nisa.tensor_tensor(dst=share, data1=share, data2=column, op=nl.multiply)
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=share)
        _store(product, block, tile)
    for block in blocks:
        tile, other = _loaded(product, block), _loaded(spikes, block)
        nisa.tensor_tensor(dst=tile, data1=tile, data2=other, op=nl.subtract)
        _store(total, block, tile)
    for block in blocks:
        tile = _loaded(total, block)
        narrow = nl.ndarray(tile.shape, dtype=logits.dtype, buffer=nl.sbuf)
        nisa.tensor_copy(dst=narrow, src=tile)
        _store(grad, block, narrow)
    return lse, grad


def _in_hbm(n_rows, n_cols):
    return nl.ndarray((n_rows, n_cols), dtype=nl.float32, buffer=nl.private_hbm)


def _loaded(source, block):
    """A block of an array, as a float32 tile."""
    row, height, col, width = block
    tile = nl.ndarray((height, width), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[row : row + height, col : col + width])
    if source.dtype == nl.float32:
        return tile
    wide = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=wide, src=tile)
    return wide


def _loaded_column(source, block):
    row, height, _, _ = block
    return _loaded(source, (row, height, 0, 1))


def _store(to, block, tile):
    row, height, col, width = block
    nisa.dma_copy(dst=to[row : row + height, col : col + width], src=tile)


def _reduce(to, op, source):
    """to = the maximum or the sum of each row."""
    n_rows, n_cols = source.shape
    for row, height in pieces(n_rows, 128):
        kept = None
        for col, width in pieces(n_cols, COLUMNS):
            tile = _loaded(source, (row, height, col, width))
            found = nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=found, op=op, data=tile, axis=1, keepdims=True)
            if kept != None:  # noqa: E711
                nisa.tensor_tensor(dst=found, data1=found, data2=kept, op=op)
            kept = found
        _store(to, (row, height, 0, 1), kept)


def loss_and_gradient(logits, targets, grad_loss):
    """The losses of the rows, and the gradient for the logits, in the two kernels of
    `kernels.cross_entropy` one after the other."""
    loss, lse = nki_cross_entropy_kernel(logits, targets)
    return loss, nki_cross_entropy_backward_kernel(grad_loss, logits, targets, lse)


apart = {"neuronxcc": apart_neuronxcc, "nki": apart_nki}[kernels.dialect]
in_two_kernels = {"neuronxcc": neuronxcc_nki, "nki": nki}[kernels.dialect].jit(loss_and_gradient)
