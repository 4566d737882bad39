"""Softmax cross-entropy in ``import nki``, forward and backward.

The instructions are those of ``neuronxcc``, whose text says why each is there. What differs: each
instruction names its destination, which the kernel has declared; the tiles of rows are shared by
the cores of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

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
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles of 128 rows in turn. The
        largest logit of a row is subtracted first, so that no exponential overflows. Everything is
        float32.

    Pseudocode:
        for 128 rows at a time:
            for 2048 classes at a time:
                larger = max(largest, max(logits))
                total = total * exp(largest - larger) + sum(exp(logits - larger))
                largest = larger
            lse = log(total) + largest
            loss = lse - logits[target]
    """
    n_rows, n_cols = logits.shape
    loss = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    lse = nl.ndarray((n_rows, 1), dtype=nl.float32, buffer=nl.shared_hbm)
    tiles = pieces(n_rows, TILE_ROWS)
    for tile in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, height = tiles[tile]
        last = first + height
        least, total = running_sum(logits[first:last, 0:n_cols])
        logarithm, result, difference = _number(height), _number(height), _number(height)
        nisa.activation(dst=logarithm, op=nl.log, data=total)
        nisa.tensor_tensor(dst=result, data1=logarithm, data2=least, op=nl.subtract)
        nisa.dma_copy(dst=lse[first:last, 0:1], src=result)
        picked = logits_of(targets, logits, first, height)
        nisa.tensor_tensor(dst=difference, data1=result, data2=picked, op=nl.subtract)
        nisa.dma_copy(dst=loss[first:last, 0:1], src=difference)
    return loss, lse


def running_sum(rows):
    """Of each row the largest logit, negative, and the sum of the exponentials relative to it."""
    height, n_cols = rows.shape
    least, total = None, None
    for start, width in pieces(n_cols, CHUNK):
        tile = nl.ndarray((height, width), dtype=rows.dtype, buffer=nl.sbuf)
        exponentials = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
        now, more = _number(height), _number(height)
        nisa.dma_copy(dst=tile, src=rows[0:height, start : start + width])
        nisa.tensor_reduce(dst=now, op=nl.maximum, data=tile, axis=1, negate=True, keepdims=True)
        if least != None:
            nisa.tensor_tensor(dst=now, data1=now, data2=least, op=nl.minimum)
        nisa.activation_reduce(
            dst=exponentials, op=nl.exp, data=tile, bias=now, reduce_op=nl.add, reduce_res=more
        )
        if least != None:  # rescale what is summed up by exp(old largest - new largest)
            factor = _number(height)
            nisa.activation(dst=factor, op=nl.exp, data=least, bias=now, scale=-1.0)
            nisa.scalar_tensor_tensor(
                dst=more, data=total, op0=nl.multiply, operand0=factor, op1=nl.add, operand1=more
            )
        least, total = now, more
    return least, total


def logits_of(targets, logits, first, height):
    """The logit of each row's target: a gather, by DMA. Nothing else touches all classes for it."""
    n_rows, n_cols = logits.shape
    starts = nl.ndarray((height, 1), dtype=nl.int32, buffer=nl.sbuf)
    target = nl.ndarray((height, 1), dtype=nl.int32, buffer=nl.sbuf)
    places = nl.ndarray((height, 1), dtype=nl.int32, buffer=nl.sbuf)
    picked = nl.ndarray((height, 1), dtype=logits.dtype, buffer=nl.sbuf)
    nisa.iota(dst=starts, pattern=[[0, 1]], offset=first * n_cols, channel_multiplier=n_cols)
    nisa.dma_copy(dst=target, src=targets[first : first + height, 0:1])
    nisa.tensor_tensor(dst=places, data1=starts, data2=target, op=nl.add)
    flat = logits.reshape((n_rows * n_cols, 1))
    nisa.dma_copy(dst=picked, src=flat.ap([[1, height], [1, 1]], vector_offset=places))
    return picked


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
        Launch as ``kernel[1]`` or ``kernel[2]``, as the forward kernel. Everything is float32, and
        the result is rounded once. The Vector Engine passes over the classes once, and the Scalar
        Engine twice.

    Pseudocode:
        for 128 rows, and 2048 classes, at a time:
            grad_logits = ((class == target) - exp(logits - lse)) * -grad_loss
    """
    n_rows, n_cols = logits.shape
    grad_logits = nl.ndarray((n_rows, n_cols), dtype=logits.dtype, buffer=nl.shared_hbm)
    longest = min(CHUNK, n_cols)
    classes = nl.ndarray((min(TILE_ROWS, n_rows), longest), dtype=nl.float32, buffer=nl.sbuf)
    nisa.iota(dst=classes, pattern=[[1, longest]], offset=0, channel_multiplier=0)
    tiles = pieces(n_rows, TILE_ROWS)
    for tile in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, height = tiles[tile]
        last = first + height
        grad, negative_grad, sums = _number(height), _number(height), _number(height)
        negative, target = _number(height), _number(height)
        whole = nl.ndarray((height, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(dst=grad, src=grad_loss[first:last, 0:1])
        nisa.dma_copy(dst=whole, src=targets[first:last, 0:1])
        nisa.dma_copy(dst=sums, src=lse[first:last, 0:1])
        nisa.tensor_copy(dst=target, src=whole)
        nisa.tensor_scalar(dst=negative, data=sums, op0=nl.multiply, operand0=-1.0)
        nisa.tensor_scalar(dst=negative_grad, data=grad, op0=nl.multiply, operand0=-1.0)
        for start, width in pieces(n_cols, CHUNK):
            stop = start + width
            logits_tile = nl.ndarray((height, width), dtype=logits.dtype, buffer=nl.sbuf)
            weights = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
            difference = nl.ndarray((height, width), dtype=nl.float32, buffer=nl.sbuf)
            result = nl.ndarray((height, width), dtype=logits.dtype, buffer=nl.sbuf)
            here = _number(height)
            nisa.dma_copy(dst=logits_tile, src=logits[first:last, start:stop])
            nisa.activation(dst=weights, op=nl.exp, data=logits_tile, bias=negative)
            nisa.tensor_scalar(dst=here, data=target, op0=nl.subtract, operand0=float(start))
            nisa.scalar_tensor_tensor(
                dst=difference,
                data=classes[0:height, 0:width],
                op0=nl.equal,
                operand0=here,
                op1=nl.subtract,
                operand1=weights,
            )
            nisa.activation(dst=result, op=nl.copy, data=difference, scale=negative_grad)
            nisa.dma_copy(dst=grad_logits[first:last, start:stop], src=result)
    return grad_logits


def _number(height):
    """A float32 number for each row of a tile."""
    return nl.ndarray((height, 1), dtype=nl.float32, buffer=nl.sbuf)
