"""Answers to the exercises on GIOU in PyTorch."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def corners(tile):
    """x1, y1, x2 and y2 of the boxes of a tile: four strided views."""
    rows, columns = tile.shape
    i_p, i_f = nl.mgrid[0:rows, 0 : columns // 4]
    return [tile[i_p, 4 * i_f + corner] for corner in nl.static_range(4)]


@nki.jit
def to_corners(boxes):
    rows, columns = boxes.shape
    out = nl.ndarray(boxes.shape, boxes.dtype, buffer=nl.shared_hbm)
    cx, cy, w, h = corners(nl.load(boxes))
    half_w, half_h = w * 0.5, h * 0.5
    values = [cx - half_w, cy - half_h, cx + half_w, cy + half_h]
    result = nl.ndarray((rows, columns // 4, 4), boxes.dtype, buffer=nl.sbuf)
    for corner, value in enumerate(values):
        result[:, :, corner] = value
    i_p, i_f, i_c = nl.mgrid[0:rows, 0 : columns // 4, 0:4]
    nl.store(out[i_p, 4 * i_f + i_c], value=result)
    return out


@nki.jit
def center_distance(p, t):
    rows, columns = p.shape
    out = nl.ndarray((rows, columns // 4), p.dtype, buffer=nl.shared_hbm)
    px1, py1, px2, py2 = corners(nl.load(p))
    tx1, ty1, tx2, ty2 = corners(nl.load(t))
    hull_w = nl.maximum(px2, tx2) - nl.minimum(px1, tx1)
    hull_h = nl.maximum(py2, ty2) - nl.minimum(py1, ty1)
    dx = 0.5 * ((px1 + px2) - (tx1 + tx2))
    dy = 0.5 * ((py1 + py2) - (ty1 + ty2))
    diagonal = nl.square(hull_w) + nl.square(hull_h)
    nl.store(out, value=(nl.square(dx) + nl.square(dy)) / diagonal)
    return out
