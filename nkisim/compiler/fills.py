"""Fills that the compiler moves, or leaves out.

A fill is done where its tile is first used. It is not done at all when nothing uses the tile; when
a matmul accumulates into a zeroed PSUM tile, where the first one overwrites; and when all of the
tile is written before any of it is read.
"""

from __future__ import annotations

from math import prod

import numpy as np

from nkisim.cost.storage import Operation, Storage
from nkisim.cost.tasks import Work
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.memory import Space
from nkisim.ir.parts import Patterns


def sink_fills(steps: list[Operation], storage: Storage, work: Work) -> list[Operation]:
    """Move fills of whole tiles to the first use of the tile; drop those that nothing needs.

    Args:
        steps: in program order.
        storage: of what they touch.
        work: takes notes of what was dropped.
    """
    fills = False
    for form in storage.forms.values():
        i = form.instr
        if i.spec.kind is OpKind.FILL and not i.outs[0].buffer.placed:
            form.fills = storage.whole_tile(i.outs[0])
            fills = fills or form.fills
    if not fills:
        return steps
    return _Fills(work).moved(steps)


class _Fills:
    """One walk over the steps."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._waiting: dict[
            int, Operation
        ] = {}  # by number of the tile: fills that are not placed yet
        # Fills whose tiles are being written: where they are among those kept, and what is written.
        self._open: dict[int, tuple[int, _Written]] = {}
        self._kept: list[Operation | None] = []
        self._patterns = Patterns()
        self._tiles: dict[AccessPattern, _Written] = {}  # nothing written of a kind of tile

    def moved(self, steps: list[Operation]) -> list[Operation]:
        """The steps with fills where they are needed."""
        waiting, kept, choices = self._waiting, self._kept, self._work.choices
        still = self._open
        for step in steps:
            if step.form.fills:
                number = step.writes[0][0]
                # A second fill of a tile of which nothing was read in between replaces the first.
                waiting.pop(number, None)
                if number in still:
                    self._drop(number)
                waiting[number] = step
                continue
            if waiting:
                for number, _ in step.writes:
                    if number in waiting:
                        self._place(number, step)
                for number, _ in step.reads:
                    if number in waiting:
                        self._place(number)
            if still:
                for number, _ in step.reads:
                    still.pop(number, None)
                for number, part in step.writes:
                    if number in still:
                        self._note(number, part, step.instr)
            kept.append(step)
        if waiting:
            choices["fill of a tile that nothing uses left out"] += len(waiting)
        return [step for step in kept if step is not None]

    def _place(self, number: int, by: Operation | None = None) -> None:
        """Put the fill of a tile in front of the first step that touches it.

        Args:
            number: of the tile.
            by: that step, if it writes the tile.
        """
        fill = self._waiting.pop(number)
        filled = fill.instr
        zeroed = filled.settings.value == 0 and filled.outs[0].space is Space.PSUM
        if zeroed and by is not None and by.instr.spec.kind is OpKind.PRODUCT:
            self._work.choices["zeroing of a PSUM tile left to the first matmul"] += 1
        else:
            self._open[number] = len(self._kept), self._nothing(fill.writes[0][1])
            self._kept.append(fill)

    def _nothing(self, tile: AccessPattern) -> _Written:
        found = self._tiles.get(tile)
        if found is None:
            found = self._tiles[tile] = _Written(self._patterns, tile)
        return found

    def _drop(self, number: int) -> None:
        """Leave a fill out, of which nothing was read."""
        where, _ = self._open.pop(number)
        self._kept[where] = None
        self._work.choices["fill of a tile that is all written over left out"] += 1

    def _note(self, number: int, part: AccessPattern | None, by: Instruction) -> None:
        """An instruction writes a part of a tile that is being written."""
        if by.settings.accumulate:
            del self._open[number]
        elif by.where is None and by.where_out is None and not by.spec.partial:
            where, written = self._open[number]
            written = written.and_then(part)
            self._open[number] = where, written
            if not written.left:
                self._drop(number)


class _Written:
    """The written part of a tile. Tiles of one kind that are written alike share these objects.

    Args:
        patterns: finds the boxes of parts.
        tile: all of the tile.
        before: what was written one part earlier.
        part: what that part has; None for nothing.
    """

    __slots__ = ("_before", "_mask", "_next", "_part", "_patterns", "_tile", "left")

    def __init__(
        self,
        patterns: Patterns,
        tile: AccessPattern,
        before: _Written | None = None,
        part: tuple[slice, ...] = (),
    ) -> None:
        self._patterns, self._tile, self._before, self._part = patterns, tile, before, part
        self._next: dict[AccessPattern, _Written] = {}
        self._mask: np.ndarray | None = None  # elements written; the newest of a line has it
        self.left = tile.size  # elements that are not written

    def and_then(self, part: AccessPattern | None) -> _Written:
        """The written part of the tile after `part` is written, too; memoised."""
        if part is None:
            return self
        found = self._next.get(part)
        if found is None:
            found = self._next[part] = self._with(part)
        return found

    def _with(self, part: AccessPattern) -> _Written:
        inside = self._inside(part)
        if inside is None:
            return self
        found = _Written(self._patterns, self._tile, self, inside)
        found._mask, self._mask = self._written(), None
        here = found._mask[inside]
        found.left = self.left - (here.size - np.count_nonzero(here))
        here[...] = True
        return found

    def _inside(self, part: AccessPattern) -> tuple[slice, ...] | None:
        """A part as slices of the tile; None for a part that is no box: it counts as not
        written."""
        tile = self._tile
        if part.base_shape != tile.base_shape:
            return None
        pairs = zip(self._patterns.box(part), self._patterns.box(tile), strict=True)
        found = [
            slice(low - first, high - first + 1, step or 1)
            for (low, high, step), (first, _, _) in pairs
        ]
        return tuple(found) if self._elements(found) == part.size else None

    @staticmethod
    def _elements(slices: list[slice]) -> int:
        return prod(len(range(s.start, s.stop, s.step)) for s in slices)

    def _written(self) -> np.ndarray:
        """The elements written; made again where a later one has taken them."""
        if self._mask is not None:
            return self._mask
        more, at = [], self
        while at._mask is None and at._before is not None:
            more.append(at._part)
            at = at._before
        if at._mask is None:
            ends = [(low, high) for low, high, _ in self._patterns.box(self._tile)]
            mask = np.zeros([high - low + 1 for low, high in ends], bool)
        else:
            mask = at._mask.copy()
        for part in more:
            mask[part] = True
        return mask
