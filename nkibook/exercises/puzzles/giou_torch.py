"""Exercises of the page on GIOU in PyTorch. Boxes lie in rows: x1, y1, x2, y2, x1, y1, ..."""

import numpy as np

from kernels.giou import reference
from nkibook.exercises import exercise


def _pairs(rng, rows, count):
    """Two matrices of `count` boxes a row."""
    boxes = (reference.random_boxes(rng, (rows, count)) for _ in range(2))
    return tuple(b.reshape(rows, 4 * count) for b in boxes)


@exercise((4, 6), (3, 5), lines=3, data=lambda rng, *size: _pairs(rng, *size)[:1])
def to_corners(boxes):
    # From center and size (cx, cy, w, h) to corners (x1, y1, x2, y2).
    center, size = np.split(boxes.reshape(len(boxes), -1, 4), 2, axis=-1)
    ends = np.concatenate([center - size / 2, center + size / 2], axis=-1)
    return ends.reshape(boxes.shape)


@exercise((4, 6), (3, 5), lines=4, data=_pairs, rtol=1e-4, atol=1e-5)
def center_distance(p, t):
    # The penalty of DIoU: (distance between the centers / diagonal)^2, where
    # the diagonal is that of the smallest box around both boxes.
    p, t = (x.reshape(len(x), -1, 4) for x in (p, t))
    between = ((p[..., :2] + p[..., 2:]) - (t[..., :2] + t[..., 2:])) / 2
    hull = np.maximum(p, t)[..., 2:] - np.minimum(p, t)[..., :2]
    return (between**2).sum(axis=-1) / (hull**2).sum(axis=-1)
