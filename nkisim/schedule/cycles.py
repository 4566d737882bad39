"""Where the tasks of a core go round in a cycle: the same engines do the same to memory of the same
kind, again and again.

How a kernel is written does not matter, only what its tasks touch: those that a loop over a launch
grid, an `nl.affine_range` or a `range` of Python makes look alike here. Each task gets a number for
all that the scheduler can see of it, relative to where it is: the engine and its cost, the line of
a transfer, and of each memory that it touches what that is, which part it is, and how many tasks
ago it was touched before and will be again. Where these numbers repeat, so does the work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nkisim.machine import Machine
from nkisim.schedule.allocation import capacities
from nkisim.schedule.engines import Job
from nkisim.schedule.tasks import Work
from nkisim.schedule.touches import Touches

# What of a cycle is scheduled in any case, in periods and in tasks.
_LEAST = 5
_TASKS = 512
_MOST = 16  # periods that are tried, of each sort
_DEPTH = 3  # loops in each other whose periods are looked for
_WORTH = 1 / 3  # of all tasks: what the best period has to spare

# Odd numbers to mix others with, modulo 2**64.
_ODD = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)


class Cycle(NamedTuple):
    """Tasks in a row that repeat.

    Attributes:
        first: position of the first one.
        period: tasks until the next one that is the same.
        count: how many whole periods there are.
        far: the most tasks between two that touch the same memory.
        ahead: how many periods further on, at most, a tile gets memory when another one is done.
    """

    first: int
    period: int
    count: int
    far: int
    ahead: int

    @property
    def end(self) -> int:
        """The position behind the last one."""
        return self.first + self.period * self.count


def cycles_of(work: Work, touches: Touches, jobs: list[Job], machine: Machine) -> list[Cycle]:
    """The cycles among the tasks of one core, in program order. They do not overlap.

    Args:
        work: the tasks.
        touches: the memory that they touch.
        jobs: each of them on its engine.
        machine: with the memories that tiles take.
    """
    codes = _codes(work, touches, jobs)
    if not _ranked(codes):
        return []
    relations = _Relations(touches)
    codes = _mixed(codes, relations.codes())
    found: list[Cycle] = []
    free = np.ones(len(codes), bool)
    for period, runs in _ranked(codes):
        for first, last in runs:
            taken = np.flatnonzero(~free[first : first + period])
            if len(taken):  # by the cycle before, which has the first period as its last
                first += int(taken[-1]) + 1
            if last - first < _LEAST * period or not free[first:last].all():
                continue
            free[first:last] = False
            far, ahead = relations.reach(first + period, period, machine)
            found.append(Cycle(first, period, (last - first) // period, far, ahead))
    return sorted(found)


def _ranked(codes: np.ndarray) -> list[tuple[int, list[tuple[int, int]]]]:
    """Periods, and the stretches that have them: those first that leave the least to do. No period
    if that is most of it all the same."""
    ranked = []
    for period in _periods(codes):
        runs = _runs(codes, period)
        spared = sum(last - first - _LEAST * period - _TASKS for first, last in runs)
        if spared > 0:
            ranked.append((-spared, period, runs))
    ranked.sort()
    if not ranked or -ranked[0][0] < _WORTH * len(codes):
        return []
    return [(period, runs) for _, period, runs in ranked]


def _periods(codes: np.ndarray) -> list[int]:
    """How far apart equal tasks are: the distances that come up most, and those that span most.

    What an inner loop does comes again within it. So tasks are then told apart by how far back the
    last equal one is, too, once for each loop around: only where a loop begins anew is that far.
    """
    found = []
    for _ in range(_DEPTH):
        order = np.argsort(codes, kind="stable")
        gaps = np.where(np.diff(codes[order]) == 0, np.diff(order), 0)
        near = gaps[(gaps > 0) & (gaps * _LEAST <= len(codes))]
        distances, times = np.unique(near, return_counts=True)
        found.append(distances[np.argsort(-times, kind="stable")[:_MOST]])
        found.append(distances[np.argsort(-times * distances, kind="stable")[:_MOST]])
        back = np.zeros(len(codes), np.int64)
        back[order[1:]] = gaps
        codes = _mixed(codes, back)
    return sorted(set(np.concatenate(found).tolist()))


def _runs(codes: np.ndarray, period: int) -> list[tuple[int, int]]:
    """Long stretches of tasks each of which is as the one a period before, with that."""
    same = np.concatenate(([False], codes[period:] == codes[:-period], [False]))
    edges = np.flatnonzero(same[1:] != same[:-1])
    first, last = edges[::2], edges[1::2] + period
    long = last - first >= max(_LEAST * period, _TASKS)
    return list(zip(first[long].tolist(), last[long].tolist(), strict=True))


def _codes(work: Work, touches: Touches, jobs: list[Job]) -> np.ndarray:
    """A number for what each task is, whatever it touches."""
    tasks, n = work.tasks, len(jobs)
    job = np.fromiter(map(id, jobs), np.int64, n)
    line = np.fromiter([id(task.instr.location) for task in tasks], np.int64, n)
    return _mixed(job, line, touches.reads)


class _Relations:
    """What tasks touch, relative to where they are.

    Attributes:
        touches: all that they touch.
        before, after: tasks since the last touch of the same memory, and to the next one; -1 where
            there is none, and for HBM that nobody waits for.
        kind: what sort of memory each touch is of.
    """

    def __init__(self, touches: Touches) -> None:
        self.touches = touches
        ignored = ~(touches.on_chip | touches.changing)[touches.memory]
        self.before, self.after = touches.gaps()
        self.before[ignored] = self.after[ignored] = -1
        self.kind = touches.kind[touches.memory]
        # Transfers queue up by the tensor in HBM; which part of it does not matter.
        numbers = touches.numbers[touches.memory]
        self._part = np.where(ignored, numbers, touches.part)

    def codes(self) -> np.ndarray:
        """A number for what each task touches, relative to where it is."""
        starts = self.touches.starts
        one = _mixed(self.before, self.after, self._part, self.kind)
        one = _mixed(one, np.arange(len(one)) - starts[self.touches.task])
        sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(one, dtype=np.uint64)))
        return sums[starts[1:]] - sums[starts[:-1]]

    def reach(self, first: int, period: int, machine: Machine) -> tuple[int, int]:
        """`far` and `ahead` of a cycle, by its tasks from `first` on."""
        starts = self.touches.starts
        own = slice(starts[first], starts[first + period])
        made = self.kind[own][self.before[own] < 0]
        taken: dict = {}
        for at, times in zip(*np.unique(made, return_counts=True), strict=True):
            kind = self.touches.kinds[at]
            taken[kind.space] = taken.get(kind.space, 0) + kind.nbytes * int(times)
        ahead = [
            -(-room // taken[space])
            for space, room in capacities(machine).items()
            if taken.get(space)
        ]
        # Where none is made, nothing holds the others up.
        return int(self.after[own].max(initial=0)), max(ahead, default=len(starts) // period)


def _mixed(*columns: np.ndarray) -> np.ndarray:
    """One number for each row of some columns, the same for equal rows."""
    mixed = np.zeros(len(columns[0]), np.uint64)
    for column, odd in zip(columns, _ODD, strict=False):
        mixed = (mixed + column.astype(np.uint64)) * odd
        mixed ^= mixed >> np.uint64(29)
    return mixed
