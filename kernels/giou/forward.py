"""The GIOU of one tile of pairs, with as little work for the Vector Engine as we found.

Three ideas carry it; the optimisation chapter measures each:

* fewer operations: the enclosing box follows from the two boxes and their overlap, and the second
  fraction of GIOU from ``(C - U) / C == 1 - U / C``;
* what has one input runs on the Scalar Engine. Sums with a number are ``nl.add``, whose engine the
  compiler chooses: a copy there adds a number, but on NeuronCore-v2 no tile (NCC_IBVF043);
* a Vector instruction with two float32 inputs takes two cycles an element when both are in SBUF and
  one when one of them is in PSUM (``nki.isa.tensor_tensor``, SDK 2.26). So the two inputs of every
  later instruction are in different memories. Neither engine may read two PSUM tiles at once, and a
  PSUM tile has at most 512 elements a partition.
"""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl

TILE_BOXES = 512
"""Most boxes a partition in a tile: one coordinate of each fills a PSUM bank."""

_PAIRS = 256  # boxes whose x and y together fill a PSUM bank


def giou_tile(p, q, eps, clamp):
    """GIOU of the pairs in two tiles.

    Dimensions:
        R: rows, 1 to 128. B: boxes a partition, 1 to 512.

    Args:
        p, q: (R, B, 4) float32 in SBUF: x1, y1, x2, y2.
        eps, clamp: as for :func:`kernels.giou.nki_giou`.

    Returns:
        (R, B) float32 in SBUF.

    Pseudocode:
        gap  = min(high p, high q) - max(low p, low q)      # of x and y, negative when apart
        hull = size p - gap + size q
        I, C = relu(gap x) * relu(gap y), hull x * hull y
        U    = area p + area q - I
        giou = I / (U + eps) + (U + eps) / (C + eps) - 1
    """
    rows, boxes = p.shape[:2]
    sbuf = {"dtype": nl.float32, "buffer": nl.sbuf}
    psum = {"dtype": nl.float32, "buffer": nl.psum}
    plane = rows, boxes

    # DMA loads the boxes into SBUF, so these three read two inputs in SBUF.
    end = nisa.tensor_tensor(p[:, :, 2:4], q[:, :, 2:4], op=nl.minimum)
    p_w, p_h = nl.ndarray(plane, **psum), nl.ndarray(plane, **sbuf)
    p_w[...] = nisa.tensor_tensor(p[:, :, 2], p[:, :, 0], op=nl.subtract)
    p_h[...] = nisa.tensor_tensor(p[:, :, 3], p[:, :, 1], op=nl.subtract)

    # Two more read a copy of q's low corners in PSUM. x and y lie side by
    # side, so a read of both has no wide stride.
    gap_w, gap_h = nl.ndarray(plane, **sbuf), nl.ndarray(plane, **psum)
    q_size = nl.ndarray((rows, boxes, 2), **sbuf)
    for first in nl.static_range(0, boxes, _PAIRS):
        some = slice(first, min(first + _PAIRS, boxes))
        both = rows, some.stop - some.start, 2
        low, begin = nl.ndarray(both, **psum), nl.ndarray(both, **psum)
        low[...] = nisa.tensor_copy(q[:, some, 0:2], engine=nisa.scalar_engine)
        begin[...] = nisa.tensor_tensor(p[:, some, 0:2], low, op=nl.maximum)
        high, begin_w, begin_h = q[:, some, 2:4], begin[:, :, 0], begin[:, :, 1]
        end_w, end_h = end[:, some, 0], end[:, some, 1]
        q_size[:, some] = nisa.tensor_tensor(high, low, op=nl.subtract)
        gap_w[:, some] = nisa.tensor_tensor(end_w, begin_w, op=nl.subtract)
        gap_h[:, some] = nisa.tensor_tensor(end_h, begin_h, op=nl.subtract)

    # relu(relu(w) * h) is relu(w) * relu(h).
    overlap_w = nisa.activation(nl.relu, gap_w)
    overlap = nisa.tensor_tensor(overlap_w, gap_h, op=nl.multiply)
    overlap = nisa.activation(nl.relu, overlap)

    rest_w, rest_h = nl.ndarray(plane, **psum), nl.ndarray(plane, **psum)
    hull_h, q_w = nl.ndarray(plane, **psum), nl.ndarray(plane, **psum)
    rest_w[...] = nisa.tensor_tensor(p_w, gap_w, op=nl.subtract)
    rest_h[...] = nisa.tensor_tensor(p_h, gap_h, op=nl.subtract)
    hull_w = nisa.tensor_tensor(rest_w, q_size[:, :, 0], op=nl.add)
    hull_h[...] = nisa.tensor_tensor(rest_h, q_size[:, :, 1], op=nl.add)
    if clamp:
        hull_w = nisa.activation(nl.relu, hull_w)
    hull = nisa.tensor_tensor(hull_w, hull_h, op=nl.multiply)

    area_p = nisa.tensor_tensor(p_w, p_h, op=nl.multiply)
    if not clamp:
        area_p = nl.add(area_p, eps)
    q_w[...] = nisa.tensor_copy(q_size[:, :, 0], engine=nisa.scalar_engine)
    area_q, areas, union = (nl.ndarray(plane, **psum) for _ in range(3))
    area_q[...] = nisa.tensor_tensor(q_w, q_size[:, :, 1], op=nl.multiply)
    areas[...] = nisa.tensor_tensor(area_p, area_q, op=nl.add)
    union[...] = nisa.tensor_tensor(areas, overlap, op=nl.subtract)

    per_union, iou = nl.ndarray(plane, **psum), nl.ndarray(plane, **psum)
    if clamp:
        hull = nl.maximum(hull, eps)
        per_union[...] = nl.reciprocal(nl.maximum(union, eps))
    else:
        hull = nl.add(hull, eps)
        per_union[...] = nl.reciprocal(union)
    filled = nl.divide(union, hull)
    iou[...] = nisa.tensor_tensor(overlap, per_union, op=nl.multiply)
    total = nisa.tensor_tensor(iou, filled, op=nl.add)
    return nl.add(total, -1)
