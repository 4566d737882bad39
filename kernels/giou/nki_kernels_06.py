"""Generalized IoU in ``import nki`` (NKI 0.6), forward and backward, and the callers.

The kernels compute what ``forward`` and ``backward`` do, which say why, with one exception: this
dialect has no division on the device, so the second fraction of the score is a product with a
reciprocal. What differs besides: each instruction writes to a tile that names its memory, SBUF or
PSUM; boxes are read with ``.ap``, an access pattern in elements of the array; tiles are shared by
the cores of a logical core.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.giou.arguments import (
    FIRST_BOXES,
    check_arguments,
    check_gradient,
    no_scores,
)
from kernels.logical_core import cores
from kernels.tiles import PARTITIONS

TILE_BOXES = 512
"""Most boxes a partition in a forward tile: one coordinate of each fills a PSUM bank."""

PAIRS = 256
"""Boxes whose x and y together fill a PSUM bank; the most in a backward tile."""


@nki.jit
def nki_giou_kernel(boxes1, boxes2, eps, clamp):
    """GIOU of any number of pairs of boxes.

    Dimensions:
        N: pairs of boxes, at least 1, no multiple of anything.

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

    tiles = _tiles(n_boxes, FIRST_BOXES, TILE_BOXES)
    for number in range(nl.program_id(0), len(tiles), nl.num_programs(0)):
        first, rows, cols = tiles[number]
        p = load_boxes(boxes1, first, rows, cols)
        q = load_boxes(boxes2, first, rows, cols)
        giou = giou_tile(p, q, eps, clamp)
        nisa.dma_copy(dst=scores.ap([[cols, rows], [1, cols]], offset=first), src=giou)
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

    tiles = _tiles(n_boxes, PAIRS, PAIRS)
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


def _tiles(n_boxes, first_cols, most_cols):
    """How the pairs are cut, as (first pair, partitions, pairs in each): a tile of 128 partitions
    x `first_cols`, tiles of 128 x `most_cols`, one of 128 x what remains, and at most 127 boxes
    that are left over, one in each partition."""
    tiles = []
    columns, left = n_boxes // PARTITIONS, n_boxes % PARTITIONS
    done = 0
    while done < columns:
        cols = min(columns - done, first_cols if done == 0 else most_cols)
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


# -- instructions with a new float32 tile as their destination


def _sbuf(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)


def _psum(shape):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)


def _two(dst, op, a, b):
    """op(a, b), by the Vector Engine."""
    nisa.tensor_tensor(dst=dst, data1=a, data2=b, op=op)
    return dst


def _with_number(op, a, number):
    """op(a, number), by the Vector Engine, in SBUF."""
    dst = _sbuf(a.shape)
    nisa.tensor_scalar(dst=dst, data=a, op0=op, operand0=number)
    return dst


def _one(dst, op, a, bias=None, scale=1.0):
    """op(a * scale + bias), with two numbers, by the Scalar Engine."""
    nisa.activation(dst=dst, op=op, data=a, bias=bias, scale=scale)
    return dst


# -- one tile


def giou_tile(p, q, eps, clamp):
    """GIOU (R, B) of the pairs in two tiles (R, B, 4): see ``kernels.giou.forward.giou_tile``."""
    rows, boxes = p.shape[0], p.shape[1]
    plane = (rows, boxes)

    # Inputs come from DMA, which fills SBUF: these three read both operands there.
    end = _two(_sbuf((rows, boxes, 2)), nl.minimum, p[:, :, 2:4], q[:, :, 2:4])
    p_w = _two(_psum(plane), nl.subtract, p[:, :, 2], p[:, :, 0])
    p_h = _two(_sbuf(plane), nl.subtract, p[:, :, 3], p[:, :, 1])

    # A copy of q's low corners in PSUM serves two more.
    gap_w, gap_h = _sbuf(plane), _psum(plane)
    q_size = _sbuf((rows, boxes, 2))
    for first in range(0, boxes, PAIRS):
        last = min(first + PAIRS, boxes)
        shape = (rows, last - first, 2)
        low = _one(_psum(shape), nl.copy, q[:, first:last, 0:2])
        begin = _two(_psum(shape), nl.maximum, p[:, first:last, 0:2], low)
        _two(q_size[:, first:last, :], nl.subtract, q[:, first:last, 2:4], low)
        _two(gap_w[:, first:last], nl.subtract, end[:, first:last, 0], begin[:, :, 0])
        _two(gap_h[:, first:last], nl.subtract, end[:, first:last, 1], begin[:, :, 1])

    # relu(relu(w) * h) is relu(w) * relu(h).
    overlap_w = _one(_sbuf(plane), nl.relu, gap_w)
    overlap = _two(_sbuf(plane), nl.multiply, overlap_w, gap_h)
    overlap = _one(_sbuf(plane), nl.relu, overlap)

    rest_w = _two(_psum(plane), nl.subtract, p_w, gap_w)
    rest_h = _two(_psum(plane), nl.subtract, p_h, gap_h)
    hull_w = _two(_sbuf(plane), nl.add, rest_w, q_size[:, :, 0])
    hull_h = _two(_psum(plane), nl.add, rest_h, q_size[:, :, 1])
    if clamp:
        hull_w = _one(_sbuf(plane), nl.relu, hull_w)
    hull = _two(_sbuf(plane), nl.multiply, hull_w, hull_h)

    area_p = _two(_sbuf(plane), nl.multiply, p_w, p_h)
    if not clamp:
        area_p = _one(_sbuf(plane), nl.copy, area_p, bias=eps)
    q_w = _one(_psum(plane), nl.copy, q_size[:, :, 0])
    area_q = _two(_psum(plane), nl.multiply, q_w, q_size[:, :, 1])
    areas = _two(_psum(plane), nl.add, area_p, area_q)
    union = _two(_psum(plane), nl.subtract, areas, overlap)

    if clamp:
        hull = _with_number(nl.maximum, hull, eps)
        union_under = _with_number(nl.maximum, union, eps)
    else:
        hull = _one(_sbuf(plane), nl.copy, hull, bias=eps)
        union_under = union
    per_union = _one(_psum(plane), nl.reciprocal, union_under)
    per_hull = _one(_sbuf(plane), nl.reciprocal, hull)
    filled = _two(_sbuf(plane), nl.multiply, union, per_hull)
    iou = _two(_psum(plane), nl.multiply, overlap, per_union)
    total = _two(_sbuf(plane), nl.add, iou, filled)
    return _one(_sbuf(plane), nl.copy, total, bias=-1.0)


def gradient_tile(g, p, q, grads, eps, clamp):
    """Gradients for the boxes of a tile, into `grads`, one tile (R, B, 4) for p, or two, for p and
    q: see ``kernels.giou.backward.gradient_tile``."""
    low_p, high_p = p[:, :, 0:2], p[:, :, 2:4]
    plane, both = g.shape, low_p.shape
    low_q, high_q = (
        _one(_psum(both), nl.copy, q[:, :, 0:2]),
        _one(_psum(both), nl.copy, q[:, :, 2:4]),
    )

    # The forward pass again.
    end = _two(_sbuf(both), nl.minimum, high_p, high_q)
    begin = _two(_psum(both), nl.maximum, low_p, low_q)
    gap = _two(_psum(both), nl.subtract, end, begin)
    size_p = _two(_sbuf(both), nl.subtract, high_p, low_p)
    size_q = _two(_sbuf(both), nl.subtract, q[:, :, 2:4], low_q)
    rest = _two(_psum(both), nl.subtract, size_p, gap)
    hull = _two(_sbuf(both), nl.add, rest, size_q)
    overlap = _one(_sbuf(both), nl.relu, gap)
    held = _one(_sbuf(both), nl.relu, hull) if clamp else hull

    intersection, hull_area = _area(_sbuf(plane), overlap), _area(_sbuf(plane), held)
    area_p = _area(_sbuf(plane), size_p)
    if not clamp:
        area_p = _one(_sbuf(plane), nl.copy, area_p, bias=eps)
    areas = _two(_psum(plane), nl.add, area_p, _area(_psum(plane), size_q))
    union = _two(_sbuf(plane), nl.subtract, areas, intersection)

    # From a GIOU to the three areas. A larger hull always lowers it: `to_hull` is what it costs.
    if clamp:
        union_under = _with_number(nl.maximum, union, eps)
        hull_under = _with_number(nl.maximum, hull_area, eps)
    else:
        union_under = union
        hull_under = _one(_sbuf(plane), nl.copy, hull_area, bias=eps)
    one_over_union = _one(_psum(plane), nl.reciprocal, union_under)
    one_over_hull = _one(_psum(plane), nl.reciprocal, hull_under)
    per_union = _two(_sbuf(plane), nl.multiply, g, one_over_union)
    per_hull = _two(_sbuf(plane), nl.multiply, g, one_over_hull)
    iou = _two(_psum(plane), nl.multiply, intersection, one_over_union)
    filled = _two(_psum(plane), nl.multiply, union, one_over_hull)
    from_iou = _two(_psum(plane), nl.multiply, per_union, iou)
    to_hull = _two(_psum(plane), nl.multiply, per_hull, filled)
    if clamp:
        wide = _with_number(nl.greater_equal, union, eps)
        from_iou = _two(_psum(plane), nl.multiply, wide, from_iou)
        wide = _with_number(nl.greater_equal, hull_area, eps)
        to_hull = _two(_psum(plane), nl.multiply, wide, to_hull)
    to_union = _two(_psum(plane), nl.subtract, per_hull, from_iou)
    to_overlap = _two(_psum(plane), nl.subtract, per_union, to_union)

    # Boxes that are apart have no overlap to change. Those that touch have one with clamp only.
    if clamp:
        height = _one(_sbuf(plane), nl.copy, gap[:, :, 1])
        narrow = _two(_sbuf(plane), nl.minimum, gap[:, :, 0], height)
        meets = _with_number(nl.greater_equal, narrow, 0.0)
    else:
        meets = _one(_sbuf(plane), nl.sign, intersection)
    to_overlap = _two(_psum(plane), nl.multiply, meets, to_overlap)

    # From the areas to their sides.
    from_overlap = _sides(_psum(both), to_overlap, overlap)
    from_hull = _sides(_sbuf(both), to_hull, held)
    if clamp:
        from_hull = _two(
            _sbuf(both), nl.multiply, from_hull, _with_number(nl.greater_equal, hull, 0.0)
        )
    from_p = _sides(_psum(both), to_union, size_p)

    # From those to the corners. What the gap gets goes to the box that bounds it: `low` and `high`
    # are the parts of p. `less_p` is minus what the size of p gets.
    to_gap = _two(_psum(both), nl.add, from_hull, from_overlap)
    low = _two(_psum(both), nl.multiply, _larger(low_p, low_q), to_gap)
    high = _two(_psum(both), nl.multiply, _larger(high_q, high_p), to_gap)
    less_p = _two(_sbuf(both), nl.subtract, from_hull, from_p)
    _two(grads[0][:, :, 0:2], nl.subtract, less_p, low)
    _two(grads[0][:, :, 2:4], nl.subtract, high, less_p)
    if len(grads) == 2:
        # The size of q gets from_q - from_hull, and the gap, less what p got of it, from_hull more.
        from_q = _sides(_sbuf(both), to_union, size_q)
        more_q = _two(_sbuf(both), nl.add, from_q, from_overlap)
        _two(grads[1][:, :, 0:2], nl.subtract, low, more_q)
        _two(grads[1][:, :, 2:4], nl.subtract, more_q, high)


def _area(dst, size):
    """Width times height, (R, B), of a tile (R, B, 2) in SBUF."""
    height = _one(_psum(dst.shape), nl.copy, size[:, :, 1])
    return _two(dst, nl.multiply, size[:, :, 0], height)


def _sides(dst, to_area, size):
    """From the gradient of an area to that of its (width, height): times (height, width)."""
    for axis in range(2):
        _two(dst[:, :, axis], nl.multiply, to_area, size[:, :, 1 - axis])
    return dst


def _larger(a, b):
    """1 where a is the larger, 0 where b is, and a half where they are equal."""
    difference = _two(_sbuf(a.shape), nl.subtract, a, b)
    sign = _one(_sbuf(a.shape), nl.sign, difference)
    return _one(_sbuf(a.shape), nl.copy, sign, bias=0.5, scale=0.5)


# -- callers


def nki_giou(
    boxes1: Any, boxes2: Any, eps: float = 1e-7, *, clamp: bool = False, lnc: int | None = None
) -> Any:
    """Generalized IoU of each box with its partner, by :func:`nki_giou_kernel`.

    Dimensions:
        Any leading axes, such as (batch, n). The last axis is x1, y1, x2, y2.

    Args:
        boxes1: (..., 4); float32, bfloat16 or float16. A NumPy array, a PyTorch tensor (CPU or
            XLA) or a JAX array.
        boxes2: (..., 4), same shape, framework and device; any of these dtypes.
        eps: keeps denominators from zero; a number of at least 0. Another value is another kernel.
        clamp: False: add ``eps`` to both denominators, as torchvision's
            ``ops.generalized_box_iou_loss`` does. True: hold both denominators at ``eps`` or
            more, and widths and heights at 0 or more.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (...), float32. Empty when the boxes are.

    Raises:
        TypeError: not arrays, dtypes that the kernel does not take, or ``eps`` is no number.
        ValueError: the last axis is not 4, shapes that differ, or a negative ``eps``.
    """
    eps, clamp = check_arguments(boxes1, boxes2, eps), bool(clamp)
    leading = tuple(boxes1.shape[:-1])
    if 0 in leading:
        return no_scores(boxes1)
    scores = nki_giou_kernel[cores(lnc)](boxes1.reshape(-1, 4), boxes2.reshape(-1, 4), eps, clamp)
    return scores.reshape(leading)


def nki_giou_backward(
    grad: Any,
    boxes1: Any,
    boxes2: Any,
    eps: float = 1e-7,
    *,
    clamp: bool = False,
    both: bool = True,
    lnc: int | None = None,
) -> tuple[Any, ...]:
    """Gradients of ``(grad * nki_giou(boxes1, boxes2)).sum()``.

    Args:
        grad: (...), float32: gradient of the loss with respect to each GIOU.
        boxes1, boxes2, eps, clamp, lnc: as for :func:`nki_giou`.
        both: whether the gradient for ``boxes2`` is wanted as well. Targets rarely need one.

    Returns:
        The gradient for ``boxes1`` in its shape and dtype; with ``both``, that for ``boxes2``
        after it.

    Raises:
        TypeError, ValueError: as :func:`nki_giou`, and for a ``grad`` of another shape or dtype.
    """
    eps, clamp = check_arguments(boxes1, boxes2, eps), bool(clamp)
    check_gradient(grad, boxes1)
    if 0 in tuple(grad.shape):
        return (boxes1 * 1, boxes2 * 1) if both else (boxes1 * 1,)
    grads = nki_giou_backward_kernel[cores(lnc)](
        grad.reshape(-1), boxes1.reshape(-1, 4), boxes2.reshape(-1, 4), eps, clamp, bool(both)
    )
    grads = grads if both else (grads,)
    return tuple(g.reshape(tuple(boxes1.shape)) for g in grads)
