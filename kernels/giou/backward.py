"""The gradient of GIOU of one tile of pairs, by the rules that `kernels.giou.forward` found.

x and y take the same way, side by side in one instruction. Of the two inputs of an instruction one
is in SBUF and one in PSUM, where they can be: then the Vector Engine takes one cycle an element and
not two. What has one input runs on the Scalar Engine.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

GRADIENT_BOXES = 256
"""Most boxes a partition in a tile: x and y of each fill a PSUM bank."""


def gradient_tile(g, p, q, grads, eps, clamp):
    """Gradients of GIOU with respect to the boxes of a tile, into `grads`.

    Dimensions:
        R: rows, 1 to 128. B: boxes a partition, 1 to 256.

    Args:
        g: (R, B) float32 in SBUF, the gradient of the loss with respect to each GIOU.
        p, q: (R, B, 4) float32 in SBUF: x1, y1, x2, y2.
        grads: one tile (R, B, 4) in SBUF for p, or two, for p and q.
        eps, clamp: as for :func:`kernels.giou.nki_giou`.

    Pseudocode:
        gap, hull, I, U, C as in kernels.giou.forward.giou_tile, which says why
        dU = g / (C + eps) - g I / (U + eps)**2
        dI = g / (U + eps) - dU where the boxes overlap, else 0
        dC = -g (U + eps) / (C + eps)**2
        of gap = high - low and hull = size p - gap + size q:
            d gap = dI (overlap of the other axis) - dC (hull of the other axis)
            d low, d high: to the box that bounds the gap, half to each when they are equal
            d size = dU (size on the other axis) + dC (hull of the other axis)
    """
    low_p, high_p = p[:, :, 0:2], p[:, :, 2:4]
    low_q, high_q = _copy(q[:, :, 0:2]), _copy(q[:, :, 2:4])

    # The forward pass again.
    end = nisa.tensor_tensor(high_p, high_q, op=nl.minimum)
    gap = _psum(nl.subtract, end, _psum(nl.maximum, low_p, low_q))
    size_p = nisa.tensor_tensor(high_p, low_p, op=nl.subtract)
    size_q = nisa.tensor_tensor(q[:, :, 2:4], low_q, op=nl.subtract)
    hull = nisa.tensor_tensor(_psum(nl.subtract, size_p, gap), size_q, op=nl.add)
    overlap = nisa.activation(nl.relu, gap)
    held = nisa.activation(nl.relu, hull) if clamp else hull

    intersection, hull_area = _area(overlap, nl.sbuf), _area(held, nl.sbuf)
    area_p = _area(size_p, nl.sbuf)
    if not clamp:
        area_p = nl.add(area_p, eps)
    areas = _psum(nl.add, area_p, _area(size_q, nl.psum))
    union = nisa.tensor_tensor(areas, intersection, op=nl.subtract)

    # From the score to the three areas. A larger hull lowers the score:
    # `to_hull` is minus the gradient of the hull's area.
    if clamp:
        union_under = nl.maximum(union, eps)
        hull_under = nl.maximum(hull_area, eps)
    else:
        union_under = union
        hull_under = nl.add(hull_area, eps)
    one_over_union = _reciprocal(union_under)
    one_over_hull = _reciprocal(hull_under)
    per_union = nisa.tensor_tensor(g, one_over_union, op=nl.multiply)
    per_hull = nisa.tensor_tensor(g, one_over_hull, op=nl.multiply)
    iou = _psum(nl.multiply, intersection, one_over_union)
    filled = _psum(nl.multiply, union, one_over_hull)
    from_iou = _psum(nl.multiply, per_union, iou)
    to_hull = _psum(nl.multiply, per_hull, filled)
    if clamp:
        above = nl.greater_equal(union, eps, dtype=nl.float32)
        from_iou = _psum(nl.multiply, above, from_iou)
        above = nl.greater_equal(hull_area, eps, dtype=nl.float32)
        to_hull = _psum(nl.multiply, above, to_hull)
    to_union = _psum(nl.subtract, per_hull, from_iou)
    to_overlap = _psum(nl.subtract, per_union, to_union)

    # Boxes that are apart have no overlap to change. Those that touch have
    # one with clamp only: at the limit itself torch.clamp passes the
    # gradient. torchvision's overlap does not.
    if clamp:
        narrow = nl.minimum(gap[:, :, 0], nl.copy(gap[:, :, 1]))
        meets = nl.greater_equal(narrow, 0, dtype=nl.float32)
    else:
        meets = nisa.activation(nl.sign, intersection)
    to_overlap = _psum(nl.multiply, meets, to_overlap)

    # From the areas to their sides.
    from_overlap = _sides(to_overlap, overlap, nl.psum)
    from_hull = _sides(to_hull, held, nl.sbuf)
    if clamp:
        above = nl.greater_equal(hull, 0, dtype=nl.float32)
        from_hull = nl.multiply(from_hull, above)
    from_p = _sides(to_union, size_p, nl.psum)

    # From the sides to the corners. The gradient of the gap goes to the box
    # that bounds the gap: `low` and `high` are p's shares. `less_p` is minus
    # the gradient of p's size.
    to_gap = _psum(nl.add, from_hull, from_overlap)
    low = _psum(nl.multiply, _larger(low_p, low_q), to_gap)
    high = _psum(nl.multiply, _larger(high_q, high_p), to_gap)
    less_p = nisa.tensor_tensor(from_hull, from_p, op=nl.subtract)
    grads[0][:, :, 0:2] = nisa.tensor_tensor(less_p, low, op=nl.subtract)
    grads[0][:, :, 2:4] = nisa.tensor_tensor(high, less_p, op=nl.subtract)
    if len(grads) == 2:
        # The gradient of q's size is from_q - from_hull. q's share of the
        # gap's gradient is to_gap less p's share, so from_hull cancels.
        from_q = _sides(to_union, size_q, nl.sbuf)
        more_q = nisa.tensor_tensor(from_q, from_overlap, op=nl.add)
        grads[1][:, :, 0:2] = nisa.tensor_tensor(low, more_q, op=nl.subtract)
        grads[1][:, :, 2:4] = nisa.tensor_tensor(more_q, high, op=nl.subtract)


def _psum(op, a, b):
    """An instruction with two inputs whose result goes to PSUM."""
    result = nl.ndarray(b.shape, dtype=nl.float32, buffer=nl.psum)
    result[...] = nisa.tensor_tensor(a, b, op=op)
    return result


def _copy(tile):
    """A copy in PSUM, by the Scalar Engine."""
    result = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.psum)
    result[...] = nisa.tensor_copy(tile, engine=nisa.scalar_engine)
    return result


def _reciprocal(tile):
    result = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.psum)
    result[...] = nl.reciprocal(tile)
    return result


def _area(size, memory):
    """Width times height, (R, B), of a tile (R, B, 2) in SBUF."""
    height = _copy(size[:, :, 1])
    result = nl.ndarray(height.shape, dtype=nl.float32, buffer=memory)
    result[...] = nisa.tensor_tensor(size[:, :, 0], height, op=nl.multiply)
    return result


def _sides(to_area, size, memory):
    """From the gradient of an area to that of its (width, height): times (height, width)."""
    result = nl.ndarray(size.shape, dtype=nl.float32, buffer=memory)
    for axis in range(2):
        result[:, :, axis] = nisa.tensor_tensor(to_area, size[:, :, 1 - axis], op=nl.multiply)
    return result


def _larger(a, b):
    """1 where a is the larger, 0 where b is, and a half where they are equal."""
    sign = nisa.activation(nl.sign, nisa.tensor_tensor(a, b, op=nl.subtract))
    return nisa.tensor_scalar(sign, nl.multiply, 0.5, op1=nl.add, operand1=0.5)
