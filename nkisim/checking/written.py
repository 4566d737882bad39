"""The written elements of each buffer, as far as the trace has come."""

from __future__ import annotations

import itertools
from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.boxes import Bounds, Part, covered, covers, is_box, joined, overlap
from nkisim.ir.memory import Buffer
from nkisim.ir.views import view_of

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
    at: dict[tuple[int, ...], list[Bounds]]

    def near(self, bounds: Bounds) -> list[Bounds]:
        """The noted boxes at the coordinates of a box on the fixed axes; none if it spans
        several."""
        here = [bounds[axis] for axis in self.fixed]
        if any([low < high for low, high in here]):
            return []
        return self.at.get(tuple([low for low, _ in here]), [])


class _Notes:
    """The written parts of one buffer, as views of it.

    Attributes:
        views: by the part that each of them is.
    """

    __slots__ = ("_boxes", "_included", "views")

    def __init__(self) -> None:
        self.views: dict[Part, AccessPattern] = {}
        self._included: set[Part] = set()  # others that they were found to have: it stays so
        self._boxes: dict[tuple[int, ...], _Boxes] = {}  # of those that are boxes; by wide axes

    def add(self, tensor: AccessPattern) -> None:
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
        here = boxes.at.setdefault(at, [])
        if here and (both := joined(here[-1], inside)) is not None:
            here[-1] = both
        else:
            here.append(inside)

    def include(self, tensor: AccessPattern) -> bool:
        """Whether the noted views surely cover another view. False where that is costly to tell."""
        key = tensor.form, tensor.offsets
        if key in self.views or key in self._included:
            return True
        if tensor.base_shape != tensor.buffer.shape or not tensor.size:
            return False
        bounds, blocks = tensor.bounds(), tensor.buffer.par_axis
        found = self._covers(bounds, blocks)
        if not found and blocks:
            tiles = [range(low, high + 1) for low, high in bounds[:blocks]]
            found = 1 < prod(map(len, tiles)) <= _FEW and all(
                self._covers([*[(at, at) for at in tile], *bounds[blocks:]], blocks)
                for tile in itertools.product(*tiles)
            )
        if found:
            self._included.add(key)
        return found

    def meet(self, tensor: AccessPattern) -> bool:
        """Whether the noted views surely overlap another view. False where that is costly to
        tell."""
        if (tensor.form, tensor.offsets) in self.views:
            return True
        if tensor.base_shape != tensor.buffer.shape or not (tensor.size and is_box(tensor.form)):
            return False
        bounds, blocks = tensor.bounds(), tensor.buffer.par_axis
        return any(
            overlap(box, [*[bounds[axis] for axis in boxes.wide], *bounds[blocks:]])
            for boxes in self._boxes.values()
            for box in boxes.near(bounds)[:_FEW]
        )

    def _covers(self, bounds: Bounds, blocks: int) -> bool:
        return any(
            covers(near[:_FEW], [*[bounds[axis] for axis in boxes.wide], *bounds[blocks:]])
            for boxes in self._boxes.values()
            if (near := boxes.near(bounds))
        )


class _Flags:
    """A flag for each element of a buffer.

    Args:
        size: elements.
        written: what a flag that is set tells: that something wrote the element, or that nothing
            did. None is set at first: zeroes cost nothing until they are looked at.
    """

    __slots__ = ("missing", "set_", "written")

    def __init__(self, size: int, written: bool) -> None:
        self.set_ = np.zeros(size, bool)
        self.written = written
        self.missing = size if written else 0  # elements that nothing wrote

    def part(self, tensor: AccessPattern) -> np.ndarray:
        """For each element of a view, whether it was written."""
        view = view_of(_as_read(self.set_, tensor, of_several=self.written), tensor)
        return view if self.written else ~view

    def mark(
        self, tensor: AccessPattern, fresh: np.ndarray | bool, where: np.ndarray | None
    ) -> None:
        """As WrittenElements.add."""
        flags = _as_read(self.set_, tensor, of_several=self.written)
        view = view_of(flags, tensor)
        before = np.count_nonzero(view)
        value = fresh if self.written else np.logical_not(fresh)
        if where is None:
            view[...] = value
        else:
            np.copyto(view, value, where=where)
        if flags is not self.set_:
            # An element is taken as written when a part of it is: its bytes may be written one
            # after the other.
            self.set_ = _as_stored(flags, tensor, of_several=not self.written)
        elif _each_once(tensor):
            more = np.count_nonzero(view) - before
            self.missing -= more if self.written else -more
            return
        count = np.count_nonzero(self.set_)
        self.missing = self.set_.size - count if self.written else count


def _each_once(tensor: AccessPattern) -> bool:
    """Whether a view has each of its elements once, as is easily told."""
    rows = tensor.coefs
    return all([row.count(0) >= len(row) - 1 for row in rows]) and all(
        [n < 2 or any([row[d] for row in rows]) for d, n in enumerate(tensor.shape)]
    )


class WrittenElements:
    """A flag an element, where it comes to that.

    Most tensors in HBM are written tile by tile and never read again by the kernel: what is written
    of them is only noted, and looked at when something depends on it.

    Attributes:
        whole: numbers of buffers of which every element was written. There may be more of them.
    """

    def __init__(self) -> None:
        self.whole: set[int] = set()
        self._flags: dict[int, _Flags] = {}  # of others
        self._noted: dict[int, _Notes] = {}
        # By shape and parts: tiles are written in the same ones again and again.
        self._covered: dict[tuple, bool | None] = {}

    def part(self, tensor: AccessPattern) -> np.ndarray | bool:
        """Whether the elements of a part of a buffer were written: True or False where that is the
        same for the whole buffer, else for each element of the part."""
        known = self._of(tensor.buffer)
        return known.part(tensor) if known else known is None

    def is_whole(self, buffer: Buffer) -> bool:
        """Whether every element of a buffer was written."""
        number = buffer.number
        if number in self.whole or number not in self._noted:
            return number in self.whole
        return self._is_covered(buffer) is not False and self._of(buffer) is None

    def _of(self, buffer: Buffer) -> _Flags | bool | None:
        """The written flags of a buffer: None when every element was written, False when none
        was."""
        number = buffer.number
        if number not in self.whole and number in self._noted:
            self._set_flags(buffer)
        return None if number in self.whole else self._flags.get(number, False)

    def _is_covered(self, buffer: Buffer) -> bool | None:
        """Whether the noted views cover a whole buffer; None if that is hard to tell, if a view
        reaches past the buffer, or if the buffer has flags as well."""
        noted = self._noted.get(buffer.number)
        if noted is None or buffer.number in self._flags:
            return None
        parts = (buffer.shape, *noted.views)
        if parts not in self._covered:
            inside = all(t.escape() is None for t in noted.views.values())
            self._covered[parts] = covered(buffer.shape, noted.views) if inside else None
        return self._covered[parts]

    def touches(self, tensor: AccessPattern) -> bool:
        """Whether any of the elements of a part of a buffer was written."""
        number = tensor.buffer.number
        if number in self.whole:
            return True
        noted = self._noted.get(number)
        if noted is not None and noted.meet(tensor):
            return True
        part = self.part(tensor)
        return part if isinstance(part, bool) else bool(part.any())

    def touched(self, buffer: Buffer) -> bool:
        """Whether anything was written of a buffer."""
        number = buffer.number
        return number in self.whole or number in self._flags or number in self._noted

    def missing(self, buffer: Buffer) -> int:
        """The number of elements of a buffer that were never written."""
        known = self._of(buffer)
        if known is None:
            return 0
        return known.missing if known else buffer.size

    def add_all(self, buffer: Buffer) -> None:
        """Every element of a buffer is written."""
        number = buffer.number
        self.whole.add(number)
        self._noted.pop(number, None)
        self._flags.pop(number, None)

    def forget(self, buffer: Buffer) -> None:
        """Nothing of a buffer is written any more."""
        number = buffer.number
        self.whole.discard(number)
        self._noted.pop(number, None)
        self._flags.pop(number, None)

    def note(self, tensor: AccessPattern) -> None:
        """Note that all elements of `tensor` are written; flags are set when they are asked for."""
        if tensor.itemsize != tensor.buffer.dtype.itemsize:
            self.add(tensor)
        elif tensor.buffer.number not in self.whole:
            notes = self._noted.get(tensor.buffer.number)
            if notes is None:
                notes = self._noted[tensor.buffer.number] = _Notes()
            notes.add(tensor)

    def knows(self, tensor: AccessPattern) -> bool:
        """Whether a view was surely written: its whole buffer was, or noted boxes cover it. False
        where only a look at flags would tell."""
        number = tensor.buffer.number
        if number in self.whole:
            return True
        noted = self._noted.get(number)
        return noted is not None and noted.include(tensor)

    def add(
        self,
        tensor: AccessPattern,
        fresh: np.ndarray | bool = True,
        where: np.ndarray | None = None,
    ) -> None:
        """Record that the elements of `tensor` are written.

        Args:
            tensor: a part of a buffer.
            fresh: for each of its elements, whether it is known from now on.
            where: which of its elements are touched; None for all.
        """
        buffer = tensor.buffer
        known = self._of(buffer)
        if not known:
            known = self._flags[buffer.number] = _Flags(buffer.size, written=known is False)
            self.whole.discard(buffer.number)
        known.mark(tensor, fresh, where)
        if known.missing == 0:
            self.add_all(buffer)

    def _set_flags(self, buffer: Buffer) -> None:
        """Give flags to what was noted of a buffer."""
        is_covered = self._is_covered(buffer)
        noted = self._noted.pop(buffer.number)
        if is_covered:
            self.whole.add(buffer.number)
            return
        for tensor in noted.views.values():
            self.add(tensor)


def _as_read(flags: np.ndarray, tensor: AccessPattern, of_several: bool) -> np.ndarray:
    """`flags`, one an element of the buffer, as one an element of the type that `tensor` sees it
    under: the same array unless `AccessPattern.view` changed the element size.

    Args:
        flags: of the buffer.
        tensor: a view of it.
        of_several: whether an element that is several of the buffer's has a flag when each of
            them has, or when one has.
    """
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored == seen:
        return flags  # itself, which is written in place
    if stored > seen:
        return flags.repeat(stored // seen)
    return _together(flags, seen // stored, of_several)


def _as_stored(flags: np.ndarray, tensor: AccessPattern, of_several: bool) -> np.ndarray:
    """The inverse of `_as_read`: one flag an element of the buffer."""
    stored, seen = tensor.buffer.dtype.itemsize, tensor.itemsize
    if stored > seen:
        return _together(flags, stored // seen, of_several)
    return flags.repeat(seen // stored)


def _together(flags: np.ndarray, several: int, all_: bool) -> np.ndarray:
    """A flag for several that follow each other: when all are set, or any is."""
    groups = flags.reshape(-1, several)
    return groups.all(axis=1) if all_ else groups.any(axis=1)
