"""The memory that tasks touch, in arrays: for questions about all of a core's tasks at once."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from operator import itemgetter

import numpy as np

from nkisim.cost.tasks import Memory, Work
from nkisim.ir.access import AccessPattern
from nkisim.ir.memory import Space


class Touches:
    """The memory accesses ("touches") of one core's tasks in program order, a task's reads first.

    Args:
        memory: what the numbers of memory are.
        counts: of each task, how many touches it has.
        reads: of each task, how many of these are of what it reads.
        numbers, parts: of each touch, the memory's number and the part.

    Attributes:
        starts: where the touches of each task begin, and the end of the last one's.
        reads: of each task, how many of its touches are of what it reads.
        task: of each touch, the position of its task.
        memory: of each touch, which of `numbers` it is.
        writes: of each touch, whether it is one of what the task writes.
        parts: of each touch, which part of the memory it is, as a view; None for all of it.
        numbers: the memory that is touched, in the numbers of `Work`, in ascending order.
        first, last: of each of these, its first and its last touch.
        kind: of each of these, which of `kinds` it is.
        kinds: what memory is, each sort once.
    """

    def __init__(
        self,
        memory: dict[int, Memory],
        counts: np.ndarray,
        reads: np.ndarray,
        numbers: np.ndarray,
        parts: list[AccessPattern | None],
    ) -> None:
        self.reads, self.parts = reads, parts
        self.starts = np.concatenate(([0], np.cumsum(counts)))
        self.task = np.repeat(np.arange(len(counts)), counts)
        self.writes = np.arange(len(numbers)) >= (self.starts[:-1] + self.reads)[self.task]
        # All touches of the first number, in their order, then those of the next one.
        self._order = order = np.argsort(numbers, kind="stable")
        ordered = numbers[order]
        new = np.ones(len(order), bool)
        new[1:] = ordered[1:] != ordered[:-1]
        self.memory = np.empty(len(order), np.int64)
        self.memory[order] = np.cumsum(new) - 1
        self.numbers = ordered[new]
        self.first, self.last = order[new], order[np.roll(new, -1)]
        memories = list(map(memory.__getitem__, self.numbers.tolist()))
        # Most memory of a sort is one object, and these are quicker to tell apart.
        objects = {id(memory): memory for memory in memories}
        self.kinds = list(dict.fromkeys(objects.values()))
        places = {key: self.kinds.index(memory) for key, memory in objects.items()}
        self.kind = np.fromiter(map(places.__getitem__, map(id, memories)), np.int64, len(memories))

    @classmethod
    def of(cls, work: Work) -> Touches:
        """The touches of one core's tasks at present: later changes of tasks are not seen."""
        tasks = work.tasks
        reads, writes = [task.reads for task in tasks], [task.writes for task in tasks]
        read = np.fromiter(map(len, reads), np.int64, len(tasks))
        counts = read + np.fromiter(map(len, writes), np.int64, len(tasks))
        accesses = chain.from_iterable(chain.from_iterable(zip(reads, writes, strict=True)))
        flat = list(accesses)
        numbers = np.fromiter(map(itemgetter(0), flat), np.int64, len(flat))
        parts = list(map(itemgetter(1), flat))
        return cls(work.memory, counts, read, numbers, parts)

    def after(
        self, work: Work, moves: list[tuple[int, int, bool]], renamed: list[tuple[int, int, int]]
    ) -> Touches:
        """The touches after spills: transfers were inserted, each of which touches one whole tile,
        and later tasks touch the reloaded copies.

        Args:
            work: the tasks after that.
            moves: of each new one, in front of which of the others it is, the tile's number, and
                whether it reads that.
            renamed: from a task on, what is touched in place of a memory, in the order of tasks:
                (position of the task, number, new number).
        """
        numbers = self.numbers[self.memory]
        memory = self.memory[self._order]
        for at, number, new in renamed:
            m = np.searchsorted(self.numbers, number)
            own = self._order[slice(*np.searchsorted(memory, [m, m + 1]))]
            numbers[own[np.searchsorted(self.task[own], at) :]] = new
        before, moved, reads = (np.array(column, np.int64) for column in zip(*moves, strict=True))
        touches = self.starts[before]
        parts: list[AccessPattern | None] = []
        begin = 0
        for end in touches.tolist():
            parts += self.parts[begin:end]
            parts.append(None)
            begin = end
        parts += self.parts[begin:]
        return Touches(
            work.memory,
            np.insert(np.diff(self.starts), before, 1),
            np.insert(self.reads, before, reads),
            np.insert(numbers, touches, moved),
            parts,
        )

    @cached_property
    def part(self) -> np.ndarray:
        """For each touch, the identity of the view that says which part of the memory it is."""
        return np.fromiter(map(id, self.parts), np.int64, len(self.parts))

    @cached_property
    def on_chip(self) -> np.ndarray:
        """For each of `numbers`, whether it is a tile in SBUF or PSUM."""
        return np.array([kind.space.on_chip for kind in self.kinds], bool)[self.kind]

    @cached_property
    def changing(self) -> np.ndarray:
        """For each memory in `numbers`, whether it is written again after its first touch; in HBM,
        whether it is both read and written."""
        found = np.zeros(len(self.numbers), bool)
        again = self.writes.copy()
        again[self.first] = False
        found[self.memory[again]] = True
        both = np.zeros((2, len(self.numbers)), bool)
        both[self.writes.astype(np.int64), self.memory] = True
        return np.where(self.on_chip, found, both.all(axis=0))

    @cached_property
    def tiles(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The on-chip tiles in order of first use, as positions in `numbers`; and all pairs of a
        tile and a task that touches it, each once: the tile's position in that order, and the
        task."""
        tiles = np.flatnonzero(self.on_chip)
        tiles = tiles[np.argsort(self.first[tiles])]
        position = np.full(len(self.numbers), -1)
        position[tiles] = np.arange(len(tiles))
        tile = position[self.memory]
        at = np.flatnonzero((tile >= 0) & ~self.again())
        return tiles, tile[at], self.task[at]

    def gaps(self) -> tuple[np.ndarray, np.ndarray]:
        """The reuse distances of each touch, in tasks: back to the previous touch of the same
        memory, and on to the next one; -1 where there is none."""
        order = self._order
        gaps = np.diff(self.task[order])
        gaps[self.memory[order][1:] != self.memory[order][:-1]] = -1
        before, after = np.full((2, len(order)), -1)
        before[order[1:]] = gaps
        after[order[:-1]] = gaps
        return before, after

    def again(self) -> np.ndarray:
        """For each touch, whether it is a repeated touch of a memory by the same task."""
        order = self._order
        memory, task = self.memory[order], self.task[order]
        found = np.zeros(len(order), bool)
        found[order[1:]] = (memory[1:] == memory[:-1]) & (task[1:] == task[:-1])
        return found

    def peak(self, space: Space) -> int:
        """The most bytes a partition that the tiles of a memory take at one time."""
        sizes = [kind.nbytes if kind.space is space else 0 for kind in self.kinds]
        nbytes = np.array(sizes, np.int64)[self.kind]
        change = np.zeros(len(self.starts) + 1, np.int64)
        np.add.at(change, self.task[self.first], nbytes)
        np.subtract.at(change, self.task[self.last] + 1, nbytes)
        return int(np.cumsum(change).max())
