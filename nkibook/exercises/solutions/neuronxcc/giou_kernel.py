"""Answers to the exercises on the GIOU kernel."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def corners(tile):
    """x1, y1, x2 and y2 of the boxes of a tile: four strided views."""
    rows, columns = tile.shape
    i_p, i_f = nl.mgrid[0:rows, 0 : columns // 4]
    return [tile[i_p, 4 * i_f + corner] for corner in nl.static_range(4)]


@nki.jit
def widths(boxes):
    rows, columns = boxes.shape
    out = nl.ndarray((rows, columns // 4), boxes.dtype, buffer=nl.shared_hbm)
    tile = nl.load(boxes)
    i_p, i_f = nl.mgrid[0:rows, 0 : columns // 4]
    x1, x2 = tile[i_p, 4 * i_f], tile[i_p, 4 * i_f + 2]
    nl.store(out, value=nl.subtract(x2, x1))
    return out


@nki.jit
def ratio(a, b):
    out = nl.ndarray(a.shape, a.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(a), nl.load(b)
    right = nisa.activation(nl.reciprocal, right)
    nl.store(out, value=nl.multiply(left, right))
    return out


@nki.jit
def iou(p, t):
    rows, columns = p.shape
    out = nl.ndarray((rows, columns // 4), p.dtype, buffer=nl.shared_hbm)
    px1, py1, px2, py2 = corners(nl.load(p))
    tx1, ty1, tx2, ty2 = corners(nl.load(t))
    w = nl.maximum(nl.minimum(px2, tx2) - nl.maximum(px1, tx1), 0)
    h = nl.maximum(nl.minimum(py2, ty2) - nl.maximum(py1, ty1), 0)
    areas = (px2 - px1) * (py2 - py1) + (tx2 - tx1) * (ty2 - ty1)
    union = areas - w * h
    nl.store(out, value=w * h / union)
    return out


@nki.jit
def overlap(p, t):
    rows, columns = p.shape
    out = nl.ndarray((rows, columns // 4), p.dtype, buffer=nl.shared_hbm)
    px1, py1, px2, py2 = corners(nl.load(p))
    tx1, ty1, tx2, ty2 = corners(nl.load(t))
    w = nl.minimum(px2, tx2) - nl.maximum(px1, tx1)
    h = nl.minimum(py2, ty2) - nl.maximum(py1, ty1)
    nl.store(out, value=nl.maximum(w, 0) * nl.maximum(h, 0))
    return out
