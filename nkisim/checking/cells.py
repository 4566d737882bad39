"""Views of one tensor as blocks of few cells instead of many elements.

The tensor is cut wherever one of the views starts or ends. Elements of a cell are in the same
views, so one of them stands for all.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

import numpy as np

from nkisim.tensor import Tensor

_MOST = 1 << 22  # cells, of all views together: whole arrays are quicker beyond

# (how many cells, the cells of each view)
Cells = tuple[int, list[list[int]]]


def in_cells(shape: tuple[int, ...], views: Iterable[Tensor], whole: bool = False) -> Cells | None:
    """The cells of views of a tensor of `shape`; None when one of them is no plain box, or there
    would be very many.

    Args:
        shape: of the tensor.
        views: what to cut it by.
        whole: whether the cells are to cover all of the tensor, or the views only.
    """
    boxes: dict[tuple, tuple[tuple[int, int], ...]] = {}
    plain: set[tuple] = set()
    keys = []
    for t in views:
        key = (t.offsets, t.shape, id(t.coefs), t.base_shape)
        keys.append(key)
        if key not in boxes:
            if key[1:] not in plain:
                if t.base_shape != shape or 0 in t.shape or not is_box(t):
                    return None
                plain.add(key[1:])
            boxes[key] = tuple((low, high + 1) for low, high in t.bounds())
    if not boxes or not shape:
        return None
    cells, slices = [], []
    for axis, ranges in enumerate(zip(*boxes.values(), strict=True)):
        cuts = {cut for r in ranges for cut in r}
        if whole:
            cuts |= {0, shape[axis]}
        at = {cut: n for n, cut in enumerate(sorted(cuts))}
        cells.append(len(cuts) - 1)
        slices.append([slice(at[low], at[high]) for low, high in ranges])
    places = dict(zip(boxes, zip(*slices, strict=True), strict=True))
    sizes = {key: prod(s.stop - s.start for s in place) for key, place in places.items()}
    if max(prod(cells), sum(sizes[key] for key in keys)) > _MOST:
        return None
    numbers = np.arange(prod(cells)).reshape(cells)
    of = {key: numbers[place].ravel().tolist() for key, place in places.items()}
    return numbers.size, [of[key] for key in keys]


def is_box(t: Tensor) -> bool:
    """Whether a view is a box of its base: on each axis a range in steps of one, which may be made
    up of several axes of the view."""
    used: set[int] = set()
    for row in t.coefs:
        reach = 1
        for c, n, d in sorted(
            (c, n, d) for d, (c, n) in enumerate(zip(row, t.shape, strict=True)) if c and n > 1
        ):
            if c != reach or d in used:
                return False
            reach *= n
            used.add(d)
    return True


def in_boxes(t: Tensor, most: int = 4096) -> list[Tensor] | None:
    """A view as boxes, cut along its first axes as often as it takes; None for more than `most`."""
    parts = [t]
    while not is_box(parts[0]):  # the parts have one shape
        first = parts[0]
        if first.ndim == 0 or len(parts) * first.shape[0] > most:
            return None
        rest = tuple([row[1:] for row in first.coefs])
        parts = [
            part.view_as(
                first.shape[1:],
                tuple([o + k * row[0] for o, row in zip(part.offsets, first.coefs, strict=True)]),
                rest,
            )
            for part in parts
            for k in range(first.shape[0])
        ]
    return parts
