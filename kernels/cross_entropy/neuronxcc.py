"""Softmax cross-entropy as NKI kernels, forward and backward.

Both kernels read each logit once, in pieces of a row, however long it is: the probabilities, as
many as the logits, are never in HBM. The forward kernel keeps a running maximum and a running sum;
it leaves one number a row, from which the backward kernel computes the probabilities again.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

from kernels.cross_entropy.arguments import CHUNK, TILE_ROWS
from kernels.tiles import pieces


@nki.jit
def nki_cross_entropy_kernel(logits, targets):
    """``-log(softmax(logits)[target])`` of each row of a matrix.

    Dimensions:
        M: rows. V: classes, up to 2**24. At least 1; they need not be multiples of anything.

    Args:
        logits: (M, V) in HBM; float32, bfloat16 or float16.
        targets: (M, 1) int32 in HBM, from 0 to V - 1.

    Returns:
        loss: (M, 1) float32 in HBM.
        lse: (M, 1) float32 in HBM: ``log(sum(exp(logits)))``, what the backward pass needs.

    Notes:
        Launch without a grid. The largest logit of a row is subtracted first, so that no
        exponential overflows. Everything is float32.

    Pseudocode:
        for 128 rows at a time:
            for 2048 classes at a time:
                larger = max(largest, max(logits))
                total = total * exp(largest - larger) + sum(exp(logits - larger))
                largest = larger
            lse = log(total) + largest
            loss = lse - logits[target]
    """
    n_rows = logits.shape[0]
    loss = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    lse = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    for first, height in pieces(n_rows, TILE_ROWS):
        rows = nl.ds(first, height)
        least, total = running_sum(logits, rows)
        logarithm = nisa.activation(op=nl.log, data=total)
        result = nl.subtract(logarithm, least)
        nl.store(lse[rows, :], value=result)
        picked = logits_of(targets, logits, first, height)
        nl.store(loss[rows, :], value=nl.subtract(result, picked, dtype=nl.float32))
    return loss, lse


def running_sum(logits, rows):
    """Of each row the largest logit, negative, and the sum of the exponentials relative to it."""
    least, total = None, None
    for start, width in pieces(logits.shape[1], CHUNK):
        tile = nl.load(logits[rows, nl.ds(start, width)])
        now = nisa.tensor_reduce(
            nl.max, tile, axis=(1,), negate=True, keepdims=True, dtype=nl.float32
        )
        if least is not None:
            now = nl.minimum(now, least)
        more = nl.ndarray(now.shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.activation_reduce(
            op=nl.exp, data=tile, bias=now, reduce_op=nl.add, reduce_res=more, dtype=nl.float32
        )
        if least is not None:  # rescale what is summed up by exp(old largest - new largest)
            factor = nisa.activation(op=nl.exp, data=least, bias=now, scale=-1.0)
            more = nisa.scalar_tensor_tensor(
                data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
            )
        least, total = now, more
    return least, total


def logits_of(targets, logits, first, height):
    """The logit of each row's target: a gather, by DMA. Nothing else touches all classes for it."""
    n_rows, n_cols = logits.shape
    i_row, i_one = nl.arange(height)[:, None], nl.arange(1)[None, :]
    starts = nisa.iota((first + i_row) * n_cols, dtype=nl.int32)
    places = nl.add(starts, nl.load(targets[nl.ds(first, height), :]), dtype=nl.int32)
    return nl.load(logits.reshape((n_rows * n_cols, 1))[places[i_row, i_one], i_one])


@nki.jit
def nki_cross_entropy_backward_kernel(grad_loss, logits, targets, lse):
    """The gradient of :func:`nki_cross_entropy_kernel` for the logits.

    Dimensions:
        M: rows. V: classes, up to 2**24. At least 1; they need not be multiples of anything.

    Args:
        grad_loss: (M, 1) float32 in HBM, gradient of the total loss for ``loss``.
        logits: (M, V) in HBM; float32, bfloat16 or float16.
        targets: (M, 1) int32 in HBM, from 0 to V - 1.
        lse: (M, 1) float32 in HBM, what the forward kernel returned.

    Returns:
        (M, V) in HBM, dtype of ``logits``.

    Notes:
        Launch without a grid. Everything is float32, and the result is rounded once. The Vector
        Engine passes over the classes once, and the Scalar Engine twice.

    Pseudocode:
        for 128 rows, and 2048 classes, at a time:
            grad_logits = ((class == target) - exp(logits - lse)) * -grad_loss
    """
    n_rows, n_cols = logits.shape
    grad_logits = nl.ndarray(logits.shape, dtype=logits.dtype, buffer=nl.shared_hbm)
    longest = min(CHUNK, n_cols)
    i_row, i_col = nl.arange(min(TILE_ROWS, n_rows))[:, None], nl.arange(longest)[None, :]
    classes = nisa.iota(0 * i_row + i_col, dtype=nl.float32)
    for first, height in pieces(n_rows, TILE_ROWS):
        rows = nl.ds(first, height)
        negative_grad = nl.multiply(nl.load(grad_loss[rows, :]), -1.0)
        target = nl.copy(nl.load(targets[rows, :]), dtype=nl.float32)
        negative = nl.multiply(nl.load(lse[rows, :]), -1.0)
        for start, width in pieces(n_cols, CHUNK):
            place = rows, nl.ds(start, width)
            weights = nisa.activation(
                op=nl.exp, data=nl.load(logits[place]), bias=negative, dtype=nl.float32
            )
            difference = nisa.scalar_tensor_tensor(
                data=classes[nl.ds(0, height), nl.ds(0, width)],
                op0=nl.equal,
                operand0=nl.subtract(target, start),
                op1=nl.subtract,
                operand1=weights,
            )
            result = nisa.activation(
                op=nl.copy, data=difference, scale=negative_grad, dtype=logits.dtype
            )
            nl.store(grad_logits[place], value=result)
    return grad_logits
