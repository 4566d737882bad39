"""Exercises of the page on the GIOU kernel. Boxes lie in rows: x1, y1, x2, y2, x1, y1, ..."""

import numpy as np

from kernels.giou import reference
from nkibook.exercises import exercise


def _pairs(rng, rows, count):
    """Two matrices of `count` boxes a row."""
    boxes = (reference.random_boxes(rng, (rows, count)) for _ in range(2))
    return tuple(b.reshape(rows, 4 * count) for b in boxes)


def _positive(rng, *shape):
    return tuple(rng.uniform(1, 2, (2, *shape)).astype(np.float32))


@exercise((4, 6), (3, 5), lines=1, data=lambda rng, *size: _pairs(rng, *size)[:1])
def widths(boxes):
    return boxes[:, 2::4] - boxes[:, 0::4]


@exercise((5, 3), (128, 40), lines=1, data=_positive, rtol=1e-4, atol=1e-5)
def ratio(a, b):
    return a / b


@exercise((4, 6), (3, 5), lines=2, data=_pairs, rtol=1e-4, atol=1e-5)
def iou(p, t):
    p, t = (x.reshape(len(x), -1, 4) for x in (p, t))
    sides = np.minimum(p, t)[..., 2:] - np.maximum(p, t)[..., :2]
    overlap = np.maximum(sides, 0).prod(axis=-1)
    areas = sum((x[..., 2:] - x[..., :2]).prod(axis=-1) for x in (p, t))
    return overlap / (areas - overlap)


@exercise((4, 6), (3, 5), lines=1, data=_pairs)
def overlap(p, t):
    p, t = (x.reshape(len(x), -1, 4) for x in (p, t))
    sides = np.minimum(p, t)[..., 2:] - np.maximum(p, t)[..., :2]
    return np.maximum(sides, 0).prod(axis=-1)
