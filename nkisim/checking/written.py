"""Which elements of each buffer were written, as far as the trace has come."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.checking.cells import Part, covered, is_box
from nkisim.memory import Buffer
from nkisim.tensor import Tensor
from nkisim.views import view_of

# What is known of a buffer: None when every element was written, False when none was, else a flag
# for each element.
Flags = np.ndarray | bool | None

# For each axis of a buffer, the lowest and the highest coordinate of a view.
_Bounds = list[tuple[int, int]]

_FEW = 16  # boxes, or tiles, that are looked at to tell whether views have elements of another


class _Boxes(NamedTuple):
    """Boxes of a tensor that go over some of its block axes, and have one coordinate on the others.

    Attributes:
        wide: the former axes.
        fixed: the latter.
        at: by the coordinates on these, the bounds on all other axes.
    """

    wide: tuple[int, ...]
    fixed: tuple[int, ...]
    at: dict[tuple[int, ...], list[_Bounds]]

    def near(self, bounds: _Bounds) -> list[_Bounds]:
        """Those that have the coordinates of a box on the fixed axes, if that is in one place."""
        here = [bounds[axis] for axis in self.fixed]
        if any([low < high for low, high in here]):
            return []
        return self.at.get(tuple([low for low, _ in here]), [])


class _Notes:
    """What was written of one buffer, as views of it.

    Attributes:
        views: by the part that each of them is.
    """

    __slots__ = ("_boxes", "views")

    def __init__(self) -> None:
        self.views: dict[Part, Tensor] = {}
        self._boxes: dict[tuple[int, ...], _Boxes] = {}  # of those that are boxes; by wide axes

    def add(self, tensor: Tensor) -> None:
        key = tensor.form, tensor.offsets
        if key in self.views:
            return
        self.views[key] = tensor
        if not is_box(tensor.form) or tensor.base_shape != tensor.buffer.shape:
            return
        bounds, blocks = tensor.bounds(), range(tensor.buffer.par_axis)
        wide = tuple([axis for axis in blocks if bounds[axis][0] < bounds[axis][1]])
        boxes = self._boxes.get(wide)
        if boxes is None:
            fixed = tuple([axis for axis in blocks if axis not in wide])
            boxes = self._boxes[wide] = _Boxes(wide, fixed, {})
        at = tuple([bounds[axis][0] for axis in boxes.fixed])
        inside = [*[bounds[axis] for axis in wide], *bounds[len(blocks) :]]
        boxes.at.setdefault(at, []).append(inside)

    def include(self, tensor: Tensor) -> bool:
        """Whether it is easily told that they have all elements of another view."""
        if (tensor.form, tensor.offsets) in self.views:
            return True
        if tensor.base_shape != tensor.buffer.shape or not tensor.size:
            return False
        bounds, blocks = tensor.bounds(), tensor.buffer.par_axis
        if self._hold(bounds, blocks):
            return True
        tiles = [range(low, high + 1) for low, high in bounds[:blocks]]
        return 1 < prod(map(len, tiles)) <= _FEW and all(
            self._hold([*[(at, at) for at in tile], *bounds[blocks:]], blocks)
            for tile in itertools.product(*tiles)
        )

    def meet(self, tensor: Tensor) -> bool:
        """Whether it is easily told that they have an element of another view."""
        if (tensor.form, tensor.offsets) in self.views:
            return True
        if tensor.base_shape != tensor.buffer.shape or not (tensor.size and is_box(tensor.form)):
            return False
        bounds, blocks = tensor.bounds(), tensor.buffer.par_axis
        return any(
            _meet(box, [*[bounds[axis] for axis in boxes.wide], *bounds[blocks:]])
            for boxes in self._boxes.values()
            for box in boxes.near(bounds)[:_FEW]
        )

    def _hold(self, bounds: _Bounds, blocks: int) -> bool:
        return any(
            _hold(near[:_FEW], [*[bounds[axis] for axis in boxes.wide], *bounds[blocks:]])
            for boxes in self._boxes.values()
            if (near := boxes.near(bounds))
        )


class WrittenElements:
    """A flag an element, where it comes to that.

    Most tensors in HBM are written tile by tile and never read again by the kernel: what is written
    of them is only noted, and looked at when something depends on it.
    """

    def __init__(self) -> None:
        self._flags: dict[int, np.ndarray | None] = {}
        self._missing: dict[int, int] = {}  # elements without a flag, of the arrays above
        self._noted: dict[int, _Notes] = {}
        # By shape and parts: tiles are written in the same ones again and again.
        self._covered: dict[tuple, bool | None] = {}

    @property
    def leaves_gaps(self) -> bool:
        """Whether a buffer may hold elements that nothing wrote beside others, where that is known
        by now."""
        return bool(self._missing)

    def of(self, buffer: Buffer) -> Flags:
        """What is known of a buffer."""
        if buffer.number in self._noted:
            self._look_at(buffer)
        return self._flags.get(buffer.number, False)

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether every element of a buffer was written."""
        return self._is_covered(buffer) is not False and self.of(buffer) is None

    def _is_covered(self, buffer: Buffer) -> bool | None:
        """Whether what was noted of a buffer is all of it; None if that is hard to tell, if it
        reaches past the buffer, or if more is known of it."""
        noted = self._noted.get(buffer.number)
        if noted is None or self._flags.get(buffer.number, False) is not False:
            return None
        parts = (buffer.shape, *noted.views)
        if parts not in self._covered:
            inside = all(t.escape() is None for t in noted.views.values())
            self._covered[parts] = covered(buffer.shape, noted.views) if inside else None
        return self._covered[parts]

    def touches(self, tensor: Tensor) -> bool:
        """Whether any of the elements of a part of a buffer was written."""
        noted = self._noted.get(tensor.buffer.number)
        if noted is not None and noted.meet(tensor):
            return True
        known = self.of(tensor.buffer)
        if known is None or known is False:
            return known is None
        return bool(view_of(as_read(known, tensor), tensor).any())

    def touched(self, buffer: Buffer) -> bool:
        """Whether anything was written of a buffer."""
        return buffer.number in self._flags or buffer.number in self._noted

    def missing(self, buffer: Buffer) -> int:
        """How many elements of a buffer nothing wrote."""
        known = self.of(buffer)
        if known is None:
            return 0
        return self._missing[buffer.number] if known is not False else buffer.size

    def add_all(self, buffer: Buffer) -> None:
        """Every element of a buffer is written."""
        self._noted.pop(buffer.number, None)
        self._flags[buffer.number] = None

    def note(self, tensor: Tensor) -> None:
        """All that `tensor` names is written."""
        if tensor.itemsize != tensor.buffer.dtype.itemsize:
            self.add(tensor)
        elif self._flags.get(tensor.buffer.number, False) is not None:
            notes = self._noted.get(tensor.buffer.number)
            if notes is None:
                notes = self._noted[tensor.buffer.number] = _Notes()
            notes.add(tensor)

    def knows(self, tensor: Tensor) -> bool:
        """Whether it is known without a look that all of these elements were written: their whole
        buffer was, or boxes around them."""
        number = tensor.buffer.number
        noted = self._noted.get(number)
        if noted is None:
            return self._flags.get(number, False) is None
        return noted.include(tensor)

    def add(
        self,
        tensor: Tensor,
        fresh: np.ndarray | bool = True,
        where: np.ndarray | None = None,
    ) -> None:
        """What `tensor` names is written.

        Args:
            tensor: a part of a buffer.
            fresh: for each of its elements, whether it is known from now on.
            where: which of its elements are touched; None for all.
        """
        buffer = tensor.buffer
        number = buffer.number
        known = self.of(buffer)
        if known is False or known is None:
            # Zeroes cost nothing until they are looked at.
            make = np.zeros if known is False else np.ones
            self._flags[number] = state = make(buffer.size, bool)
            self._missing[number] = 0 if known is None else buffer.size
            known = state
        flags = as_read(known, tensor)
        view = view_of(flags, tensor)
        before = np.count_nonzero(view)
        if where is None:
            view[...] = fresh
        else:
            np.copyto(view, fresh, where=where)
        if flags is known:
            self._missing[number] -= np.count_nonzero(view) - before
        else:
            self._flags[number] = known = _as_stored(flags, tensor)
            self._missing[number] = known.size - np.count_nonzero(known)
        if self._missing[number] == 0:
            self._flags[number] = None

    def _look_at(self, buffer: Buffer) -> None:
        """Give flags to what was noted of a buffer."""
        is_covered = self._is_covered(buffer)
        noted = self._noted.pop(buffer.number)
        if is_covered:
            self._flags[buffer.number] = None
            return
        for tensor in noted.views.values():
            self.add(tensor)


def _hold(boxes: list[_Bounds], inside: _Bounds) -> bool:
    """Whether boxes, given by their bounds, have all elements of another one."""
    for at, box in enumerate(boxes):
        if _meet(box, inside):
            return all(_hold(boxes[at + 1 :], rest) for rest in _outside(box, inside))
    return False


def _meet(box: _Bounds, other: _Bounds) -> bool:
    """Whether two boxes, given by their bounds, have an element in common."""
    return all([a <= high and low <= b for (low, high), (a, b) in zip(box, other, strict=True)])


def _outside(box: _Bounds, other: _Bounds) -> Iterator[_Bounds]:
    """What a box leaves of another one that it meets, in boxes."""
    left = list(other)
    for axis, ((low, high), (a, b)) in enumerate(zip(box, other, strict=True)):
        if a < low:
            yield [*left[:axis], (a, low - 1), *left[axis + 1 :]]
        if high < b:
            yield [*left[:axis], (high + 1, b), *left[axis + 1 :]]
        left[axis] = max(a, low), min(b, high)


def as_read(known: np.ndarray, tensor: Tensor) -> np.ndarray:
    """`known`, one flag an element of the buffer, as one flag an element of the type that
    `tensor` sees it under: the same array unless `Tensor.view` changed the element size."""
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored == seen:
        return known  # itself, which is written in place
    if stored > seen:
        return known.repeat(stored // seen)
    return known.reshape(-1, seen // stored).all(axis=1)


def _as_stored(flags: np.ndarray, tensor: Tensor) -> np.ndarray:
    """What `as_read` gave, back as one flag an element of the buffer. An element is taken as
    known when a part of it is: bytes of one element may be written one after the other."""
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored > seen:
        return flags.reshape(-1, stored // seen).any(axis=1)
    return flags.repeat(seen // stored)
