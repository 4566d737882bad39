"""Generalized IoU in ``import nki``, forward and backward.

The kernels compute what ``forward`` and ``backward`` do, which say why, with two exceptions. This
dialect has no division on the device, so the second fraction of the score is a product with a
reciprocal. And all tiles are in SBUF: on NeuronCore-v3 an instruction with two float32 inputs takes
one cycle an element wherever they are, so an operand in PSUM gains nothing. What differs besides:
each instruction writes to a tile that names its memory; boxes are read with ``.ap``, an access
pattern in elements of the array; tiles are shared by the cores of a logical core.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.giou.arguments import (
    FIRST_BOXES,
)
from kernels.tiles import PARTITIONS

TILE_BOXES = 512
"""Most boxes a partition in a tile: longer instructions gain little, and start later."""


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
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn.

    Pseudocode:
        for each tile of pairs:
            I, U, C = areas of intersection, union and enclosing box
            giou = I / (U + eps) + (U + eps) / (C + eps) - 1
    """
    n_boxes = boxes1.shape[0]
    scores = nl.ndarray((n_boxes,), dtype=nl.float32, buffer=nl.shared_hbm)

    tiles = _tiles(n_boxes)
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, rows, cols = tiles[number]
        p = load_boxes(boxes1, first, rows, cols)
        q = load_boxes(boxes2, first, rows, cols)
        giou = giou_tile(p, q, eps, clamp)
        pattern = [[cols, rows], [1, cols]]
        nisa.dma_copy(dst=scores.ap(pattern, offset=first), src=giou)
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
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn.

    Pseudocode:
        for each tile of pairs:
            dU = grad * (1 / (C + eps) - I / (U + eps)**2)
            dI = grad / (U + eps) - dU
            dC = -grad * (U + eps) / (C + eps)**2
            each corner: sum over the three areas that it bounds
    """
    n_boxes = boxes1.shape[0]
    grad1 = nl.ndarray((n_boxes, 4), dtype=boxes1.dtype, buffer=nl.shared_hbm)
    grads = [grad1]
    if both:
        grads.append(nl.ndarray((n_boxes, 4), dtype=boxes2.dtype, buffer=nl.shared_hbm))

    tiles = _tiles(n_boxes)
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, rows, cols = tiles[number]
        g = nl.ndarray((rows, cols), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=g, src=grad.ap([[cols, rows], [1, cols]], offset=first))
        p = load_boxes(boxes1, first, rows, cols)
        q = load_boxes(boxes2, first, rows, cols)
        parts = []
        for whole in grads:
            parts.append(nl.ndarray((rows, cols, 4), dtype=whole.dtype, buffer=nl.sbuf))
        gradient_tile(g, p, q, parts, eps, clamp)
        for which in range(len(grads)):
            nisa.dma_copy(dst=boxes_at(grads[which], first, rows, cols), src=parts[which])
    if both:
        return grads[0], grads[1]
    return grads[0]


def _tiles(n_boxes):
    """How the pairs are cut, as (first pair, partitions, pairs in each): a tile of 128 partitions
    x FIRST_BOXES, tiles of 128 x TILE_BOXES, one of 128 x what remains, and at most 127 boxes
    that are left over, one in each partition."""
    tiles = []
    columns, left = n_boxes // PARTITIONS, n_boxes % PARTITIONS
    done = 0
    while done < columns:
        cols = min(columns - done, FIRST_BOXES if done == 0 else TILE_BOXES)
        tiles.append((PARTITIONS * done, PARTITIONS, cols))
        done += cols
    if left:
        tiles.append((n_boxes - left, left, 1))
    return tiles


def boxes_at(boxes, first, rows, cols):
    """The boxes from `first` on as (rows, cols, 4), `cols` neighbours in each partition."""
    return boxes.ap([[4 * cols, rows], [4, cols], [1, 4]], offset=4 * first)


def load_boxes(boxes, first, rows, cols):
    tile = nl.ndarray((rows, cols, 4), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=boxes_at(boxes, first, rows, cols))
    return tile


# -- instructions: each returns its destination, a new float32 tile in SBUF unless `dst` is given


def _sbuf(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def _two(op, a, b, dst=None):
    """op(a, b), by the Vector Engine."""
    if dst == None:
        dst = _sbuf(a.shape)
    nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=op)
    return dst


def _with_number(op, a, number):
    """op(a, number), by the Vector Engine."""
    dst = _sbuf(a.shape)
    nisa.tensor_scalar(dst=dst, data=a, op0=op, operand0=number)
    return dst


def _one(op, a, bias=None, scale=1.0):
    """op(a * scale + bias), with two numbers, by the Scalar Engine."""
    dst = _sbuf(a.shape)
    nisa.activation(dst=dst, op=op, data=a, bias=bias, scale=scale)
    return dst


# -- one tile


def giou_tile(p, q, eps, clamp):
    """GIOU (R, B) of the pairs in two tiles (R, B, 4).

    See ``kernels.giou.forward.giou_tile``.
    """
    low_p, high_p = p[:, :, 0:2], p[:, :, 2:4]
    low_q, high_q = q[:, :, 0:2], q[:, :, 2:4]
    begin = _two(nl.maximum, low_p, low_q)
    end = _two(nl.minimum, high_p, high_q)
    gap = _two(nl.subtract, end, begin)
    size_p = _two(nl.subtract, high_p, low_p)
    size_q = _two(nl.subtract, high_q, low_q)
    hull_size = _two(nl.add, _two(nl.subtract, size_p, gap), size_q)
    if clamp:
        hull_size = _one(nl.relu, hull_size)
    overlap, hull = _area(_one(nl.relu, gap)), _area(hull_size)
    area_p, area_q = _area(size_p), _area(size_q)
    if not clamp:
        area_p = _one(nl.copy, area_p, bias=eps)
    union = _two(nl.subtract, _two(nl.add, area_p, area_q), overlap)
    if clamp:
        hull = _with_number(nl.maximum, hull, eps)
        union_under = _with_number(nl.maximum, union, eps)
    else:
        hull = _one(nl.copy, hull, bias=eps)
        union_under = union
    filled = _two(nl.multiply, union, _one(nl.reciprocal, hull))
    iou = _two(nl.multiply, overlap, _one(nl.reciprocal, union_under))
    return _one(nl.copy, _two(nl.add, iou, filled), bias=-1.0)


def gradient_tile(g, p, q, grads, eps, clamp):
    """Gradients for the boxes of a tile, into `grads`.

    `grads` has one tile (R, B, 4), for p, or two, for p and q. See
    ``kernels.giou.backward.gradient_tile``.
    """
    low_p, high_p = p[:, :, 0:2], p[:, :, 2:4]
    low_q, high_q = q[:, :, 0:2], q[:, :, 2:4]

    # The forward pass again.
    begin = _two(nl.maximum, low_p, low_q)
    end = _two(nl.minimum, high_p, high_q)
    gap = _two(nl.subtract, end, begin)
    size_p = _two(nl.subtract, high_p, low_p)
    size_q = _two(nl.subtract, high_q, low_q)
    hull = _two(nl.add, _two(nl.subtract, size_p, gap), size_q)
    overlap = _one(nl.relu, gap)
    held = _one(nl.relu, hull) if clamp else hull

    intersection, hull_area = _area(overlap), _area(held)
    area_p = _area(size_p)
    if not clamp:
        area_p = _one(nl.copy, area_p, bias=eps)
    areas = _two(nl.add, area_p, _area(size_q))
    union = _two(nl.subtract, areas, intersection)

    # From the score to the three areas. A larger hull lowers the score:
    # `to_hull` is minus the gradient of the hull's area.
    if clamp:
        union_under = _with_number(nl.maximum, union, eps)
        hull_under = _with_number(nl.maximum, hull_area, eps)
    else:
        union_under = union
        hull_under = _one(nl.copy, hull_area, bias=eps)
    one_over_union = _one(nl.reciprocal, union_under)
    one_over_hull = _one(nl.reciprocal, hull_under)
    per_union = _two(nl.multiply, g, one_over_union)
    per_hull = _two(nl.multiply, g, one_over_hull)
    iou = _two(nl.multiply, intersection, one_over_union)
    filled = _two(nl.multiply, union, one_over_hull)
    from_iou = _two(nl.multiply, per_union, iou)
    to_hull = _two(nl.multiply, per_hull, filled)
    if clamp:
        above = _with_number(nl.greater_equal, union, eps)
        from_iou = _two(nl.multiply, above, from_iou)
        above = _with_number(nl.greater_equal, hull_area, eps)
        to_hull = _two(nl.multiply, above, to_hull)
    to_union = _two(nl.subtract, per_hull, from_iou)
    to_overlap = _two(nl.subtract, per_union, to_union)

    # Boxes that are apart have no overlap to change. Those that touch have
    # one with clamp only.
    if clamp:
        narrow = _two(nl.minimum, gap[:, :, 0], gap[:, :, 1])
        meets = _with_number(nl.greater_equal, narrow, 0.0)
    else:
        meets = _one(nl.sign, intersection)
    to_overlap = _two(nl.multiply, meets, to_overlap)

    # From the areas to their sides.
    from_overlap = _sides(to_overlap, overlap)
    from_hull = _sides(to_hull, held)
    if clamp:
        above = _with_number(nl.greater_equal, hull, 0.0)
        from_hull = _two(nl.multiply, from_hull, above)
    from_p = _sides(to_union, size_p)

    # From the sides to the corners. The gradient of the gap goes to the box
    # that bounds the gap: `low` and `high` are p's shares. `less_p` is minus
    # the gradient of p's size.
    to_gap = _two(nl.add, from_hull, from_overlap)
    low = _two(nl.multiply, _larger(low_p, low_q), to_gap)
    high = _two(nl.multiply, _larger(high_q, high_p), to_gap)
    less_p = _two(nl.subtract, from_hull, from_p)
    _two(nl.subtract, less_p, low, dst=grads[0][:, :, 0:2])
    _two(nl.subtract, high, less_p, dst=grads[0][:, :, 2:4])
    if len(grads) == 2:
        # The gradient of q's size is from_q - from_hull. q's share of the
        # gap's gradient is to_gap less p's share, so from_hull cancels.
        more_q = _two(nl.add, _sides(to_union, size_q), from_overlap)
        _two(nl.subtract, low, more_q, dst=grads[1][:, :, 0:2])
        _two(nl.subtract, more_q, high, dst=grads[1][:, :, 2:4])


def _area(size):
    """Width times height, (R, B), of a tile (R, B, 2)."""
    return _two(nl.multiply, size[:, :, 0], size[:, :, 1])


def _sides(to_area, size):
    """From the gradient of an area to that of its (width, height): times (height, width)."""
    sides = _sbuf(size.shape)
    for axis in range(2):
        _two(nl.multiply, to_area, size[:, :, 1 - axis], dst=sides[:, :, axis])
    return sides


def _larger(a, b):
    """1 where a is the larger, 0 where b is, and a half where they are equal."""
    sign = _one(nl.sign, _two(nl.subtract, a, b))
    return _one(nl.copy, sign, bias=0.5, scale=0.5)
