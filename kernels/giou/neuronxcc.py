"""Generalized IoU (GIOU) as NKI kernels, forward and backward.

The strict kernels take boxes in whole tiles, as the article does whose kernel the book starts
from; the general kernels take any number of boxes. A GIOU depends on one pair of boxes only, so
the general kernels see a flat list of pairs and cut it where it suits the machine.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from kernels.giou.arguments import (
    FIRST_BOXES,
)
from kernels.giou.backward import GRADIENT_BOXES, gradient_tile
from kernels.giou.forward import TILE_BOXES, giou_tile
from kernels.tiles import PARTITIONS

STRICT_BOXES = 128
"""Boxes a partition in a tile of the strict kernels: 512 coordinates, as in the article."""


# -- whole tiles


@nki.jit
def nki_giou_kernel_strict(preds, targets):
    """GIOU of boxes that are whole numbers of tiles; the output is returned.

    Dimensions:
        B: batch, a multiple of 128. N: boxes in each, a multiple of 128.

    Args:
        preds: (B, 4 N) float32 in HBM: x1, y1, x2, y2 of box after box.
        targets: (B, 4 N) float32 in HBM.

    Returns:
        (B, N) float32 in HBM.

    Notes:
        Launch without a grid. The structure, and where epsilon stands, follow the kernel of
        C. Rand, "On the Programmability of AWS Trainium and Inferentia" (2024): widths and heights
        are held at 0, denominators at 1e-5, the enclosing area only where it divides.

    Pseudocode:
        for 128 samples and 128 boxes at a time:
            giou = I / max(U, 1e-5) - (C - U) / max(C, 1e-5)
    """
    batch, coordinates = preds.shape
    scores = nl.ndarray((batch, coordinates // 4), dtype=preds.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(batch // PARTITIONS):
        for n in nl.affine_range(coordinates // (4 * STRICT_BOXES)):
            _strict_tile(preds, targets, scores, m, n)
    return scores


def nki_giou_strict_into(preds, targets, scores):
    """The strict kernel in the older spelling: the output is an argument, written in place.

    A plain function, to be decorated with ``nki.trace`` (for ``nki.simulate_kernel``) or
    ``torch_neuronx.nki_jit`` (for PyTorch).

    Args:
        preds, targets: as for :func:`nki_giou_kernel_strict`.
        scores: (B, N) float32 in HBM, overwritten.
    """
    batch, coordinates = preds.shape
    for m in nl.affine_range(batch // PARTITIONS):
        for n in nl.affine_range(coordinates // (4 * STRICT_BOXES)):
            _strict_tile(preds, targets, scores, m, n)


def _strict_tile(preds, targets, scores, m, n):
    """128 samples from m * 128 on, 128 boxes from n * 128 on."""
    eps = 1e-5
    i_p = nl.arange(PARTITIONS)[:, None]
    i_c = nl.arange(4 * STRICT_BOXES)[None, :]
    i_f = nl.arange(STRICT_BOXES)[None, :]
    rows = m * PARTITIONS + i_p

    p = nl.load(preds[rows, n * 4 * STRICT_BOXES + i_c])
    t = nl.load(targets[rows, n * 4 * STRICT_BOXES + i_c])
    # Every fourth element, from 0, 1, 2 and 3 on.
    px1, py1 = p[i_p, 4 * i_f], p[i_p, 4 * i_f + 1]
    px2, py2 = p[i_p, 4 * i_f + 2], p[i_p, 4 * i_f + 3]
    tx1, ty1 = t[i_p, 4 * i_f], t[i_p, 4 * i_f + 1]
    tx2, ty2 = t[i_p, 4 * i_f + 2], t[i_p, 4 * i_f + 3]

    overlap_w = nl.maximum(nl.minimum(px2, tx2) - nl.maximum(px1, tx1), 0)
    overlap_h = nl.maximum(nl.minimum(py2, ty2) - nl.maximum(py1, ty1), 0)
    intersection = overlap_w * overlap_h
    union = (px2 - px1) * (py2 - py1) + (tx2 - tx1) * (ty2 - ty1) - intersection

    hull_w = nl.maximum(nl.maximum(px2, tx2) - nl.minimum(px1, tx1), 0)
    hull_h = nl.maximum(nl.maximum(py2, ty2) - nl.minimum(py1, ty1), 0)
    hull = hull_w * hull_h

    giou = intersection / nl.maximum(union, eps) - (hull - union) / nl.maximum(hull, eps)
    nl.store(scores[rows, n * STRICT_BOXES + i_f], value=giou)


# -- any number of boxes


@nki.jit
def nki_giou_kernel(boxes1, boxes2, eps, clamp):
    """GIOU of any number of pairs of boxes.

    Dimensions:
        N: pairs of boxes, at least 1; it need not be a multiple of anything.

    Args:
        boxes1: (N, 4) in HBM: x1, y1, x2, y2; float32, bfloat16 or float16.
        boxes2: (N, 4) in HBM, any of these dtypes.
        eps: a number, known while compiling.
        clamp: a bool, known while compiling: see :func:`nki_giou`.

    Returns:
        (N,) float32 in HBM.

    Notes:
        Launch without a grid. One instance loops over the tiles, since their number and shape
        follow from N: a tile of 128 partitions x 256 boxes, tiles of 128 x 512, one of 128 x what
        remains, and at most 127 boxes that are left over, one in each partition. The first is
        small so that computing starts early. Each partition of a tile holds neighbouring boxes,
        one contiguous piece of HBM. No tile needs a mask.

    Pseudocode:
        for each tile of pairs:
            I, U, C = areas of intersection, union and enclosing box
            giou = I / (U + eps) + (U + eps) / (C + eps) - 1
    """
    n_boxes = boxes1.shape[0]
    scores = nl.ndarray((n_boxes,), dtype=nl.float32, buffer=nl.shared_hbm)

    def tile(first, rows, cols):
        p = load_boxes(boxes1, first, rows, cols)
        q = load_boxes(boxes2, first, rows, cols)
        giou = giou_tile(p, q, eps, clamp)
        i_p, i_f = nl.mgrid[0:rows, 0:cols]
        nl.store(scores[first + i_p * cols + i_f], value=giou)

    columns, left = n_boxes // PARTITIONS, n_boxes % PARTITIONS
    small = min(columns, FIRST_BOXES)
    full, fewer = (columns - small) // TILE_BOXES, (columns - small) % TILE_BOXES
    if small:
        tile(0, PARTITIONS, small)
    for i in nl.affine_range(full):
        tile(PARTITIONS * (small + i * TILE_BOXES), PARTITIONS, TILE_BOXES)
    if fewer:
        tile(PARTITIONS * (small + full * TILE_BOXES), PARTITIONS, fewer)
    if left:
        tile(n_boxes - left, left, 1)
    return scores


@nki.jit
def nki_giou_backward_kernel(grad, boxes1, boxes2, eps, clamp, both):
    """Gradients of GIOU with respect to the boxes.

    Dimensions:
        N: pairs of boxes, at least 1.

    Args:
        grad: (N,) float32 in HBM, the gradient of the loss with respect to each GIOU.
        boxes1: (N, 4) in HBM; float32, bfloat16 or float16.
        boxes2: (N, 4) in HBM, any of these dtypes.
        eps, clamp: as for :func:`nki_giou_kernel`.
        both: a bool, known while compiling: whether ``boxes2`` needs a gradient as well.

    Returns:
        (N, 4) in HBM, dtype of ``boxes1``; with ``both`` a second one, dtype of ``boxes2``.

    Notes:
        Launch without a grid; tiles of 128 partitions x 256 boxes, one narrower, and at most 127
        boxes that are left over, one in each partition. Nothing is kept from the forward pass:
        computing the areas again costs less than storing and loading them would.

    Pseudocode:
        for each tile of pairs:
            dU = grad * (1 / (C + eps) - I / (U + eps)**2)
            dI = grad / (U + eps) - dU
            dC = -grad * (U + eps) / (C + eps)**2
            each corner: sum over the three areas that it bounds
    """
    n_boxes = boxes1.shape[0]
    grad1 = nl.ndarray(boxes1.shape, dtype=boxes1.dtype, buffer=nl.shared_hbm)
    grads = (grad1,)
    if both:
        grads = (grad1, nl.ndarray(boxes2.shape, dtype=boxes2.dtype, buffer=nl.shared_hbm))

    def tile(first, rows, cols):
        i_p, i_f = nl.mgrid[0:rows, 0:cols]
        g = nl.load(grad[first + i_p * cols + i_f])
        p, q = (load_boxes(boxes, first, rows, cols) for boxes in (boxes1, boxes2))
        tiles = [nl.ndarray((rows, cols, 4), dtype=x.dtype, buffer=nl.sbuf) for x in grads]
        gradient_tile(g, p, q, tiles, eps, clamp)
        i_p, i_f, i_c = nl.mgrid[0:rows, 0:cols, 0:4]
        for whole, part in zip(grads, tiles, strict=True):
            nl.store(whole[first + i_p * cols + i_f, i_c], value=part)

    columns, left = n_boxes // PARTITIONS, n_boxes % PARTITIONS
    full, fewer = columns // GRADIENT_BOXES, columns % GRADIENT_BOXES
    for i in nl.affine_range(full):
        tile(PARTITIONS * i * GRADIENT_BOXES, PARTITIONS, GRADIENT_BOXES)
    if fewer:
        tile(PARTITIONS * full * GRADIENT_BOXES, PARTITIONS, fewer)
    if left:
        tile(n_boxes - left, left, 1)
    return grads


def load_boxes(boxes, first, rows, cols):
    """A float32 tile (rows, cols, 4) of the boxes from `first` on, `cols` in each partition."""
    i_p, i_f, i_c = nl.mgrid[0:rows, 0:cols, 0:4]
    return nl.load(boxes[first + i_p * cols + i_f, i_c], dtype=nl.float32)
