"""What a change would give: the same tasks, changed, scheduled again.

Only the schedule knows what else would then set the pace. Of work too long to be scheduled once
more for each question, a stretch is, and its gain is taken in proportion.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING

from nkisim.cost.scheduler import ENGINES, schedule
from nkisim.cost.tasks import Task, Work

if TYPE_CHECKING:
    from nkisim.cost.compute import Cost
    from nkisim.cost.timeline import Timeline
    from nkisim.instruction import Engine
    from nkisim.machine import Machine
    from nkisim.timing import Timing

WINDOW = 5_000  # tasks that are scheduled for one question


def gain_us(
    timeline: Timeline,
    stakes: Mapping[int, float],
    *,
    change: Callable[[Task, float], Task] | None = None,
    machine: Machine | None = None,
    timing: Timing | None = None,
) -> float:
    """What a change takes off the latency of the slowest core, in microseconds, at least 0.

    Args:
        timeline: the kernel as it is.
        stakes: where the change acts: position in the list of tasks -> nanoseconds at stake.
        change: from a task at one of these positions, and its stake, makes the task in its place.
        machine, timing: tables to use instead of the timeline's.

    Of more than `WINDOW` tasks, those around the middle of the stakes are scheduled, and the gain
    is scaled by the part of all stakes that lies among them; but no resource that the change leaves
    alone gets any quicker by it.
    """
    work = timeline._core.work
    machine, timing = machine or timeline.machine, timing or timeline.timing
    first, last = _stretch(stakes, len(work.tasks))
    share = 1.0
    if last - first < len(work.tasks):
        before = schedule(_part(work, first, last), timeline.machine, timeline.timing).span
        inside = sum(ns for at, ns in stakes.items() if first <= at < last)
        share = inside / sum(stakes.values())
    else:
        before = timeline._core.schedule.span
    changed = _part(work, first, last)
    if change is not None:
        for at, ns in stakes.items():
            if first <= at < last:
                changed.tasks[at - first] = change(work.tasks[at], ns)
    after = schedule(changed, machine, timing).span
    gain = (before - after) / share
    if share < 1:
        gain = min(gain, timeline._core.schedule.span - _others_ns(timeline, stakes, change))
    return max(0.0, gain) / 1e3


def _others_ns(timeline: Timeline, stakes: Mapping[int, float], change: Callable | None) -> float:
    """Busy time of the busiest resource that a change leaves alone."""
    work, engine = timeline._core.work, timeline._core.schedule.engine
    changed = set()
    if change is not None:
        changed = {ENGINES[engine[at]].value for at in stakes}
        if any(work.tasks[at].transfer is not None for at in stakes):
            changed.add("DMA queues")
    busy = [1e3 * use.busy_us for name, use in timeline.engines.items() if name not in changed]
    return max(busy, default=0.0)


def _stretch(stakes: Mapping[int, float], n: int) -> tuple[int, int]:
    """The tasks to look at: all, or as many as allowed around the middle of what is at stake."""
    if n <= WINDOW:
        return 0, n
    places = sorted(stakes)
    sums = list(accumulate(stakes[at] for at in places))
    middle = places[bisect_left(sums, sums[-1] / 2)]
    first = min(max(0, middle - WINDOW // 2), n - WINDOW)
    return first, first + WINDOW


def _part(work: Work, first: int, last: int) -> Work:
    # The scheduler adds to the choices, and these are not the kernel's.
    return Work(work.tasks[first:last], work.memory, defaultdict(int))


def replaced(task: Task, **attributes: object) -> Task:
    """A copy of a task whose kind has other attributes."""
    return Task(task.instr, dataclasses.replace(task.kind, **attributes), task.reads, task.writes)


def recosted(task: Task, change: Callable[[Engine, Cost], Cost]) -> Task:
    """A copy of a task with another cost on each engine that may run it."""
    return replaced(task, costs=tuple([(e, change(e, c)) for e, c in task.costs]))
