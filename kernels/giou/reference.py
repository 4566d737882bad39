"""Generalized IoU and its gradient in NumPy: what the NKI kernels are checked against.

Nothing here imports NKI. Read it first: the kernels compute the same, tile by tile.

Both definitions that the book compares are here. torchvision adds ``eps`` to the denominators;
the article whose kernel the book starts from holds denominators, widths and heights at a lower
limit instead (``clamp=True``).
"""

from __future__ import annotations

import numpy as np


def giou(
    boxes1: np.ndarray, boxes2: np.ndarray, eps: float = 1e-7, *, clamp: bool = False
) -> np.ndarray:
    """Generalized IoU of each box with its partner.

    Dimensions:
        Any leading axes. The last axis is x1, y1, x2, y2.

    Args:
        boxes1: (..., 4), float32 or float64; float16 and bfloat16 are taken to float32.
        boxes2: (..., 4), same shape.
        eps: keeps denominators from zero.
        clamp: False: add ``eps`` to both denominators, as torchvision does. True: hold both
            denominators at ``eps`` or more, and widths and heights at 0 or more.

    Returns:
        (...), float32, or float64 where an input is. Between -1 and 1 for boxes with x1 <= x2
        and y1 <= y2.

    Notes:
        H. Rezatofighi et al., Generalized Intersection over Union, CVPR 2019.
        ``clamp=False`` is one minus torchvision's ``ops.generalized_box_iou_loss``.
    """
    boxes1, boxes2 = _at_least_float32(boxes1), _at_least_float32(boxes2)
    x1, y1, x2, y2 = (boxes1[..., corner] for corner in range(4))
    u1, v1, u2, v2 = (boxes2[..., corner] for corner in range(4))

    overlap_width = np.maximum(np.minimum(x2, u2) - np.maximum(x1, u1), 0)
    overlap_height = np.maximum(np.minimum(y2, v2) - np.maximum(y1, v1), 0)
    intersection = overlap_width * overlap_height
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - intersection

    hull_width = np.maximum(x2, u2) - np.minimum(x1, u1)
    hull_height = np.maximum(y2, v2) - np.minimum(y1, v1)
    if clamp:
        hull = np.maximum(hull_width, 0) * np.maximum(hull_height, 0)
        hull = np.maximum(hull, eps)
        return intersection / np.maximum(union, eps) - (hull - union) / hull
    hull = hull_width * hull_height
    return intersection / (union + eps) - (hull - union) / (hull + eps)


def giou_backward(
    grad: np.ndarray,
    boxes1: np.ndarray,
    boxes2: np.ndarray,
    eps: float = 1e-7,
    *,
    clamp: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of ``(grad * giou(boxes1, boxes2)).sum()``.

    Args:
        grad: (...), gradient of the loss with respect to each GIOU.
        boxes1, boxes2, eps, clamp: as for :func:`giou`.

    Returns:
        Two arrays (..., 4), for ``boxes1`` and ``boxes2``; float32, or float64 where an input is.

    Notes:
        Where two coordinates are equal, max and min pass half of the gradient to each, as
        ``torch.maximum`` and ``jax.numpy.maximum`` do. A clamp passes the gradient at its limit,
        as ``torch.clamp`` does. Without clamps, boxes that only touch do not overlap, as in
        torchvision's code.
    """
    boxes1, boxes2 = _at_least_float32(boxes1), _at_least_float32(boxes2)
    low1, high1, low2, high2 = boxes1[..., :2], boxes1[..., 2:], boxes2[..., :2], boxes2[..., 2:]
    size1, size2 = high1 - low1, high2 - low2
    overlap = np.minimum(high1, high2) - np.maximum(low1, low2)
    hull = np.maximum(high1, high2) - np.minimum(low1, low2)
    overlap_slope = overlap >= 0 if clamp else overlap > 0
    overlap = np.maximum(overlap, 0)
    hull_slope = hull >= 0 if clamp else np.ones_like(hull, bool)
    if clamp:
        hull = np.maximum(hull, 0)
    intersection, hull_area = overlap.prod(-1), hull.prod(-1)
    union = size1.prod(-1) + size2.prod(-1) - intersection

    union_under = np.maximum(union, eps) if clamp else union + eps
    hull_under = np.maximum(hull_area, eps) if clamp else hull_area + eps
    union_slope = union >= eps if clamp else True
    area_slope = hull_area >= eps if clamp else True
    inside = union if clamp else union_under

    to_union = grad * (1 / hull_under - union_slope * intersection / union_under**2)
    to_intersection = grad / union_under - to_union
    to_hull = -grad * area_slope * inside / hull_under**2

    # d(width * height) / d(width, height) is (height, width): the axes change places.
    to_overlap = to_intersection[..., None] * overlap[..., ::-1] * overlap_slope
    to_hull_size = to_hull[..., None] * hull[..., ::-1] * hull_slope
    to_size1 = to_union[..., None] * size1[..., ::-1]
    to_size2 = to_union[..., None] * size2[..., ::-1]

    low_share, high_share = _share(low1, low2), _share(high1, high2)
    grad1 = np.concatenate(
        [
            -(to_size1 + low_share * to_overlap + (1 - low_share) * to_hull_size),
            to_size1 + (1 - high_share) * to_overlap + high_share * to_hull_size,
        ],
        -1,
    )
    grad2 = np.concatenate(
        [
            -(to_size2 + (1 - low_share) * to_overlap + low_share * to_hull_size),
            to_size2 + high_share * to_overlap + (1 - high_share) * to_hull_size,
        ],
        -1,
    )
    return grad1, grad2


def random_boxes(
    rng: np.random.Generator, shape: tuple[int, ...], image: float = 256.0
) -> np.ndarray:
    """Boxes with random corners in an image, sides at least 1 pixel: (*shape, 4) float32."""
    corners = rng.uniform(0, image - 1, (*shape, 2, 2))
    low, high = corners.min(-2), corners.max(-2) + 1
    return np.concatenate([low, high], -1).astype(np.float32)


def _share(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """How much of the gradient of max(a, b) goes to a: 0, 1, or a half where they are equal."""
    return ((a > b) + 0.5 * (a == b)).astype(a.dtype)


def _at_least_float32(boxes: np.ndarray) -> np.ndarray:
    boxes = np.asarray(boxes)
    return boxes if boxes.dtype == np.float64 else boxes.astype(np.float32, copy=False)
