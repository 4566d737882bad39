"""Boxes of one tensor: whether they overlap, and whether they cover it or one another.

Many boxes are looked at as blocks of few cells instead of many elements: the tensor is cut wherever
one of them starts or ends. Elements of a cell are in the same boxes, so one of them stands for all.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Iterator
from math import prod

import numpy as np

from nkisim.ir.access import Form

_MOST = 1 << 22  # cells, of all views together: whole arrays are quicker beyond
_MARKED = 1 << 24  # elements of a tensor that are marked one by one rather than views be cut
_BOXES = 4096  # that a view is cut into
_MANY = 64  # views among which tiles of a grid are looked for

# A view of the tensor: its form, and the offsets where it starts.
Part = tuple[Form, tuple[int, ...]]

# For each axis of a tensor, the lowest and the highest coordinate of a box.
Bounds = list[tuple[int, int]]

# (how many cells, the cells of each view)
Cells = tuple[int, list[list[int]]]


def in_cells(shape: tuple[int, ...], views: Iterable[Part], whole: bool = False) -> Cells | None:
    """The cells of views of a tensor of `shape`; None when one of them is no plain box, or there
    would be very many.

    Args:
        shape: of the tensor.
        views: what to cut it by.
        whole: whether the cells are to cover all of the tensor, or the views only.
    """
    keys = list(views)
    if len(keys) >= _MANY and (tiled := _tiles(shape, keys, whole)) is not None:
        return tiled
    boxes: dict[Part, tuple[tuple[int, int], ...]] = {}
    for key in keys:
        if key not in boxes:
            form, offsets = key
            if form.base_shape != shape or not form.size or not is_box(form):
                return None
            boxes[key] = tuple([(low, high + 1) for low, high in form.bounds(offsets)])
    if not boxes or not shape:
        return None
    # For each axis, from the last one on, the numbers of the cells along it, times those behind it.
    spans: list[list[range]] = []
    count = 1
    for axis, ranges in reversed(list(enumerate(zip(*boxes.values(), strict=True)))):
        cuts = {cut for r in ranges for cut in r}
        if whole:
            cuts |= {0, shape[axis]}
        at = {cut: n * count for n, cut in enumerate(sorted(cuts))}
        spans.append([range(at[low], at[high], count) for low, high in ranges])
        count *= len(cuts) - 1
    places = dict(zip(boxes, zip(*reversed(spans), strict=True), strict=True))
    sizes = {key: prod(map(len, place)) for key, place in places.items()}
    if max(count, sum([sizes[key] for key in keys])) > _MOST:
        return None
    of = {key: list(map(sum, itertools.product(*place))) for key, place in places.items()}
    return count, [of[key] for key in keys]


def _tiles(shape: tuple[int, ...], views: list[Part], whole: bool) -> Cells | None:
    """The cells of boxes of one form, any two of which are equal or apart, as the tiles of a grid
    are: each box is a cell. None for other boxes."""
    if not shape or len({id(form) for form, _ in views}) > 1:
        return None
    form = views[0][0]
    if form.base_shape != shape or not form.size or not is_box(form):
        return None
    numbers = {offsets: n for n, offsets in enumerate(dict.fromkeys([at for _, at in views]))}
    low, high = np.array(form.bounds((0,) * len(shape))).T
    first, size = np.array(list(numbers)) + low, high - low + 1
    if ((first - first[0]) % size).any():
        return None
    count = len(numbers)
    if whole:
        if (first < 0).any() or (first + size > shape).any() or (first[0] % size).any():
            return None
        if (np.array(shape) % size).any():
            return None
        count = prod((np.array(shape) // size).tolist())
    return count, [[numbers[at]] for _, at in views]


@functools.lru_cache(maxsize=4096)
def is_box(form: Form) -> bool:
    """Whether a view is a box of its base: on each axis a range in steps of one, which may be made
    up of several axes of the view."""
    used: set[int] = set()
    for row in form.coefs:
        reach = 1
        for c, n, d in sorted(
            (c, n, d) for d, (c, n) in enumerate(zip(row, form.shape, strict=True)) if c and n > 1
        ):
            if c != reach or d in used:
                return False
            reach *= n
            used.add(d)
    return True


def in_boxes(view: Part) -> list[Part] | None:
    """A view as boxes, cut along its first axes as often as it takes; None for very many."""
    form, offsets = view
    if is_box(form):
        return [view]
    starts = np.array([offsets])
    while not is_box(form):  # the parts have one form
        if not form.shape or len(starts) * form.shape[0] > _BOXES:
            return None
        steps = np.arange(form.shape[0])[:, None] * [row[0] for row in form.coefs]
        starts = (starts[:, None] + steps).reshape(-1, len(offsets))
        rest = tuple([row[1:] for row in form.coefs])
        form = Form.of(form.shape[1:], form.base_shape, rest)
    return [(form, start) for start in map(tuple, starts.tolist())]


def covered(shape: tuple[int, ...], views: Iterable[Part]) -> bool | None:
    """Whether views are all of a tensor of `shape`; None if that is hard to tell."""
    views, size = list(views), prod(shape)
    if sum([form.size for form, _ in views]) < size:
        return False
    if size <= _MARKED and not all([is_box(form) for form, _ in views]):
        return _all_marked(shape, views)  # quicker than to cut them
    boxes: list[Part] = []
    for view in views:
        parts = in_boxes(view)
        if parts is None:
            return None
        boxes += parts
    found = in_cells(shape, boxes, whole=True)
    if found is None:
        return None
    cells, places = found
    return len(set().union(*places)) == cells


def _all_marked(shape: tuple[int, ...], views: list[Part]) -> bool | None:
    """As `covered`, by a flag an element."""
    marks = np.zeros(prod(shape), bool)
    for form, offsets in views:
        if form.base_shape != shape or not form.holds(offsets):
            return None
        start = sum([o * s for o, s in zip(offsets, form.base_strides, strict=True)])
        np.ndarray(form.shape, bool, marks, start, form.strides)[...] = True
    return bool(marks.all())


def joined(box: Bounds, other: Bounds) -> Bounds | None:
    """Two boxes as one, where the other one follows along an axis; else None."""
    apart = [axis for axis, (a, b) in enumerate(zip(box, other, strict=True)) if a != b]
    if len(apart) != 1 or box[apart[0]][1] + 1 != other[apart[0]][0]:
        return None
    both = list(box)
    both[apart[0]] = box[apart[0]][0], other[apart[0]][1]
    return both


def covers(boxes: list[Bounds], inside: Bounds) -> bool:
    """Whether boxes, given by their bounds, cover the box `inside`."""
    for at, box in enumerate(boxes):
        if overlap(box, inside):
            return all(covers(boxes[at + 1 :], rest) for rest in _difference(box, inside))
    return False


def overlap(box: Bounds, other: Bounds) -> bool:
    """Whether two boxes, given by their bounds, overlap."""
    return all([a <= high and low <= b for (low, high), (a, b) in zip(box, other, strict=True)])


def _difference(box: Bounds, other: Bounds) -> Iterator[Bounds]:
    """The difference of two boxes that overlap, `other` without `box`, as boxes."""
    left = list(other)
    for axis, ((low, high), (a, b)) in enumerate(zip(box, other, strict=True)):
        if a < low:
            yield [*left[:axis], (a, low - 1), *left[axis + 1 :]]
        if high < b:
            yield [*left[:axis], (high + 1, b), *left[axis + 1 :]]
        left[axis] = max(a, low), min(b, high)
