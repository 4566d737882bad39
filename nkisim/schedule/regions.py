"""Dependences through memory: read after write, write after read, write after write.

Each memory keeps the parts of it that were touched. Two parts conflict when their bounding boxes
meet, unless both step through memory so that they never hit the same element.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from math import prod
from typing import NamedTuple

from nkisim.ir.access import AccessPattern
from nkisim.ir.parts import Box, Patterns

# Kinds of dependence: on a result, on having been read, on the order of accumulation.
RESULT, READ, ORDER = 2, 1, 0

# The position of a region, and whether the one that meets it covers it.
_Meeting = tuple[int, bool]


class _Step(NamedTuple):
    """The overlaps of one more part with the sequence of parts before it.

    Attributes:
        history: the number of the longer sequence.
        meets: the parts in the shorter one that the new one meets.
        met_by: for each of these its position, and how it meets the new one.
    """

    history: int
    meets: list[_Meeting]
    met_by: list[tuple[int, _Meeting]]


class _Region:
    """One part of a memory, and who touched it last.

    Args:
        part: the part.
        meets: the regions that it meets, by position: references to each other would keep the
            regions until the next collection of garbage.
    """

    __slots__ = ("meets", "part", "readers", "waited", "writer")

    def __init__(self, part: AccessPattern | None, meets: list[_Meeting]) -> None:
        self.part = part
        self.writer = -1
        self.readers: list[int] = []
        self.meets = meets
        # Of the readers of other regions, by their position: those that a writer of this one has
        # waited for, as the list and how many. The next writer waits for that one.
        self.waited: dict[int, tuple[list[int], int]] | None = None


_NONE: tuple[list[int], int] = ([], 0)

_WIDE = 64  # bins; a part that meets more is compared with every other one
_FEW = 4  # parts near another one; with more of them, finer bins are tried


class Regions:
    """Accesses of one memory, in program order.

    Parts are found by the bins that they lie in: a grid of the size of the smaller of the first
    two, and finer where that puts many in one bin, so that the tiles of a large tensor are compared
    with their neighbours only.
    """

    __slots__ = (
        "_binned", "_bins", "_crowded", "_grid", "_history", "_known", "_last", "_order",
        "_patterns", "_wide",
    )  # fmt: skip

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._history = 0
        self._known: dict[AccessPattern | None, _Region] = {}
        self._order: list[_Region] = []
        self._grid: tuple[int, ...] | None = None
        self._binned = 0  # how many of them are in bins
        self._bins: dict[tuple[int, ...], list[int]] = {}
        self._wide: list[int] = []
        self._crowded = _FEW
        self._last: tuple[AccessPattern | None, list | None] = None, None  # a part, and its bins

    def read(
        self, part: AccessPattern | None, task: int, waits: dict[int, int], is_last: bool = False
    ) -> None:
        """`task` reads a part. Adds what it must wait for.

        Args:
            part: the part.
            task: who reads it.
            waits: for whom it waits.
            is_last: whether nothing writes this memory any more: nobody waits for the reader.
        """
        order, region = self._order, self._known.get(part)
        if region is None and is_last:
            meets = self._next(part).meets
        else:
            region = region or self._add(part)
            meets = region.meets
            region.readers.append(task)
            if region.writer >= 0:
                waits[region.writer] = RESULT
        for at, _ in meets:
            writer = order[at].writer
            if writer >= 0:
                waits[writer] = RESULT

    def write(self, part: AccessPattern | None, task: int, waits: dict[int, int]) -> None:
        """`task` writes a part. Adds what it must wait for."""
        region = self._known.get(part) or self._add(part)
        if region.writer >= 0 or region.readers:
            _overwrite(region, task, waits)
        for at, covered in region.meets:
            other = self._order[at]
            if covered:
                _overwrite(other, task, waits)
                continue
            if other.writer >= 0:
                waits[other.writer] = RESULT
            readers = other.readers
            if readers:
                if region.waited is None:
                    region.waited = {}
                known, count = region.waited.get(at, _NONE)
                for reader in readers[count:] if known is readers else readers:
                    if reader != task:
                        waits.setdefault(reader, READ)
                region.waited[at] = readers, len(readers)
        region.writer = task
        region.readers = []

    def _add(self, part: AccessPattern | None) -> _Region:
        """The region of a part that is touched for the first time."""
        self._history, meets, met_by = self._next(part)
        region = self._known[part] = _Region(part, meets.copy())
        order = self._order
        for at, meeting in met_by:
            order[at].meets.append(meeting)
        order.append(region)
        return region

    def _next(self, part: AccessPattern | None) -> _Step:
        """The overlaps of a part that is new to this memory's history, from the memo if they are
        known."""
        return self._patterns.steps.get((self._history, part)) or self._step(part)

    def _step(self, part: AccessPattern | None) -> _Step:
        """The overlaps of a part, computed: no other memory with this history had that part."""
        patterns, order = self._patterns, self._order
        meets, met_by = [], []
        for at in self._near(part):
            found = patterns.overlap(part, order[at].part)
            if found is not None:
                covers, covered = found
                meets.append((at, covers))
                met_by.append((at, (len(order), covered)))
        patterns.history += 1
        step = patterns.steps[self._history, part] = _Step(patterns.history, meets, met_by)
        return step

    def _near(self, part: AccessPattern | None) -> Iterable[int]:
        """The positions of the regions that a new part may meet."""
        order = self._order
        if len(order) < 2:
            return range(len(order))
        if not self._binned and self._grid is None:
            self._set_grid()
        for at in range(self._binned, len(order)):
            other = order[at].part
            bins = self._last[1] if self._last[0] is other else self._bins_of(other)
            if bins is None:
                self._wide.append(at)
            else:
                for b in bins:
                    self._bins.setdefault(b, []).append(at)
        self._binned = len(order)
        bins = self._bins_of(part)
        self._last = part, bins
        if bins is None:
            return range(len(order))
        found = {*self._wide, *(at for b in bins for at in self._bins.get(b, ()))}
        if len(found) > self._crowded:
            self._refine_grid(part)
        return sorted(found)

    def _set_grid(self) -> None:
        """Bins of the size of the smaller of two parts."""
        boxes = [self._patterns.box(r.part) for r in self._order[:2] if r.part is not None]
        if boxes and all(len(b) == len(boxes[0]) for b in boxes):
            self._grid = tuple(
                min(h - w + 1 for w, h, _ in axis) for axis in zip(*boxes, strict=True)
            )

    def _refine_grid(self, part: AccessPattern) -> None:
        """Bins of the size of a part that finds too many in its own, unless several others would
        reach over too many bins then."""
        box = self._patterns.box
        grid = tuple(
            min(size, high - low + 1)
            for size, (low, high, _) in zip(self._grid, box(part), strict=True)
        )
        others = (box(r.part) for r in self._order if r.part is not None)
        wide = (b for b in others if _count(_spans(b, grid)) > _WIDE)
        if grid == self._grid or any(itertools.islice(wide, _FEW, None)):
            self._crowded *= 2
            return
        self._grid, self._binned, self._bins, self._wide = grid, 0, {}, []
        self._last = None, None

    def _bins_of(self, part: AccessPattern | None) -> list[tuple[int, ...]] | None:
        """The grid cells that a part's box meets; None when it is not to be binned."""
        if part is None or self._grid is None:
            return None
        box = self._patterns.box(part)
        if len(box) != len(self._grid):
            return None
        spans = _spans(box, self._grid)
        return list(itertools.product(*spans)) if _count(spans) <= _WIDE else None


def _spans(box: Box, grid: tuple[int, ...]) -> list[range]:
    """On each axis, the cells of a grid that a box meets."""
    return [
        range(low // size, high // size + 1) for (low, high, _), size in zip(box, grid, strict=True)
    ]


def _count(spans: list[range]) -> int:
    return prod(map(len, spans))


def _overwrite(region: _Region, task: int, waits: dict[int, int]) -> None:
    if region.writer >= 0:
        waits[region.writer] = RESULT
    for reader in region.readers:
        if reader != task:
            waits.setdefault(reader, READ)
    region.writer = task
    region.readers = []
