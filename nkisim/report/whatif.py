"""What a change would give: the same tasks, changed, scheduled again.

Only the schedule knows what else would then set the pace. Of work too long to be scheduled once
more for each question, a stretch is, and its gain is taken in proportion.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost
from nkisim.cost.tasks import Kind, ScheduledTask, Work
from nkisim.ir.instruction import Engine
from nkisim.report.groups import sort_of
from nkisim.schedule.dependences import Dependences
from nkisim.schedule.engines import ENGINES
from nkisim.schedule.scheduler import schedule

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from nkisim.machine.timing import Timing
    from nkisim.report.times import Core, Times

WINDOW = 5_000  # tasks that are scheduled for one question

# From a task, and the nanoseconds at stake: what it is once it is changed.
Change = Callable[[ScheduledTask, float], Kind]


class Stretch:
    """Tasks of a core in a row, with what all questions about them have in common. They are
    scheduled by themselves, with nothing to wait for on other cores.

    Args:
        core: the core.
        first, last: which of its tasks: from `first` to before `last`.
        machine, timing: the tables that it was scheduled by.
    """

    def __init__(self, core: Core, first: int, last: int, machine: Machine, timing: Timing) -> None:
        self._core = core
        self._first, self._last = first, last
        self._machine, self._timing = machine, timing
        self._whole = last - first == len(core.work.tasks)
        work = core.work if self._whole else self._part(core.work.tasks[first:last])
        self.dependences = Dependences.of(work, timing.dma)

    def __contains__(self, at: int) -> bool:
        return self._first <= at < self._last

    @cached_property
    def span(self) -> float:
        """The latency of the tasks as they are, in nanoseconds."""
        if self._whole and not self._core.waits:
            return self._core.schedule.span
        return self.changed({}, None, self._machine, self._timing)

    def changed(
        self,
        stakes: Mapping[int, float],
        change: Change | None,
        machine: Machine,
        timing: Timing,
        renamed: bool = False,
    ) -> float:
        """The latency with some tasks changed, or with other timing tables, in nanoseconds. See
        `gain_us`."""
        known = rings_of(timing) == rings_of(self._timing)
        tasks = self._core.work.tasks[self._first : self._last]
        if change is not None:
            kinds: dict[tuple, Kind] = {}  # those that do the same are changed alike
            for at, ns in stakes.items():
                if at in self:
                    before = tasks[at - self._first]
                    sort = ns, sort_of(before)
                    kind = kinds.get(sort)
                    if kind is None:
                        kind = kinds[sort] = change(before, ns)
                        known = known and (kind.transfer is None) == (before.transfer is None)
                    tasks[at - self._first] = ScheduledTask(
                        before.instr, kind, before.reads, before.writes
                    )
        dependences = self.dependences if known else None
        if renamed:
            dependences = self.dependences.renamed(self._part(tasks))
        return schedule(self._part(tasks), machine, timing, dependences).span

    def _part(self, tasks: list[ScheduledTask]) -> Work:
        # The scheduler adds to the choices, and these are not the kernel's.
        work = self._core.work
        return Work(tasks, work.memory, defaultdict(int), ordered=work.ordered, orders=work.orders)


def gain_us(
    timeline: Times,
    stakes: Mapping[int, float],
    *,
    change: Change | None = None,
    machine: Machine | None = None,
    timing: Timing | None = None,
    renamed: bool = False,
) -> float:
    """The gain of a change: the latency that the slowest core saves, in microseconds, at least 0.

    Args:
        timeline: the kernel as it is.
        stakes: where the change acts: position in the list of tasks -> nanoseconds at stake.
        change: from a task at one of these positions, and its stake, makes the kind of the one in
            its place, which touches the same memory. Tasks that do the same have one change.
        machine, timing: tables to use instead of the timeline's.
        renamed: whether what is written on chip has memory of its own, where no one reads any more.

    Of more than `WINDOW` tasks, those around the middle of the stakes are scheduled, and the gain
    is scaled by the part of all stakes that lies among them; but no resource that the change leaves
    alone gets any quicker by it.
    """
    stretch = stretch_of(timeline, stakes)
    after = stretch.changed(
        stakes, change, machine or timeline.machine, timing or timeline.timing, renamed
    )
    share = sum(ns for at, ns in stakes.items() if at in stretch) / sum(stakes.values())
    gain = (stretch.span - after) / share
    if share < 1:
        others = _others_ns(timeline, stakes, change, timing)
        gain = min(gain, timeline._core.schedule.span - others)
    return max(0.0, gain) / 1e3


def stretch_of(timeline: Times, stakes: Mapping[int, float]) -> Stretch:
    """The tasks to look at: all, or as many as allowed around the middle of what is at stake."""
    n = len(timeline._core.work.tasks)
    first, last = 0, n
    if n > WINDOW:
        places = sorted(stakes)
        sums = list(accumulate(stakes[at] for at in places))
        middle = places[bisect_left(sums, sums[-1] / 2)]
        # Not exactly, so that questions about the same loop have one stretch.
        step = max(1, WINDOW // 4)
        first = min(max(0, (middle - WINDOW // 2) // step * step), n - WINDOW)
        last = first + WINDOW
    return _stretch(timeline, first, last)


def rings_of(timing: Timing) -> tuple[int, ...]:
    """The key of the timing values from which transfers' dependences on earlier ones follow."""
    dma = timing.dma
    return dma.in_flight, dma.ordered_in_flight, dma.single_in_flight


def dependences_of(timeline: Times) -> Dependences:
    """The dependences among all tasks of the slowest core."""
    work = timeline._core.work
    if len(work.tasks) <= WINDOW:
        return _stretch(timeline, 0, len(work.tasks)).dependences
    return Dependences.of(work, timeline.timing.dma)


def _stretch(timeline: Times, first: int, last: int) -> Stretch:
    known = timeline._stretches
    if first not in known:
        known[first] = Stretch(timeline._core, first, last, timeline.machine, timeline.timing)
    return known[first]


def _others_ns(
    timeline: Times, stakes: Mapping[int, float], change: Change | None, timing: Timing | None
) -> float:
    """Busy time of the busiest resource that a change leaves alone."""
    work, engine = timeline._core.work, timeline._core.schedule.engine
    changed = set()
    if timing is not None and timing.table_load_ns < timeline.timing.table_load_ns:
        changed.add(Engine.SCALAR.value)
    if change is not None:
        changed = {ENGINES[engine[at]].value for at in stakes}
        if any(work.tasks[at].transfer is not None for at in stakes):
            changed.add("DMA queues")
    busy = [1e3 * use.busy_us for name, use in timeline.engines.items() if name not in changed]
    return max(busy, default=0.0)


def recosted(kind: Kind, change: Callable[[Engine, Cost], Cost]) -> Kind:
    """A kind of task with another cost on each engine that may run it."""
    return replace(kind, costs=tuple([(e, change(e, c)) for e, c in kind.costs]))


def done_along(kind: Kind) -> Kind:
    """The remaining cost of a task that was fused into another one."""
    return recosted(kind, lambda *_: Cost(0.0, 0.0, 0.0))


def shorter(engine: Engine, fixed: float = 0.0) -> Change:
    """Makes a task shorter on `engine`: up to `fixed` at its start, the rest by its elements.

    What is done before its engine is free (see `nkisim.cost.compute.feeding`) is so in
    proportion.
    """

    def change(task: ScheduledTask, ns: float) -> Kind:
        def shorter(e: Engine, c: Cost) -> Cost:
            if e is not engine:
                return c
            done = max(c.done - ns, c.done * (1 - ns / c.busy))
            return Cost(c.busy - ns, done, c.data - max(0.0, ns - fixed))

        return recosted(task.kind, shorter)

    return change


def moved_in(kind: Kind, ns: float, engines: int | None = None) -> Kind:
    """A transfer that is `ns` shorter, by so many DMA engines; by its own when None."""
    now = kind.transfer
    assert now is not None  # of a transfer
    moved = now._replace(engine_ns=now.engine_ns - ns, engines=engines or now.engines)
    return replace(kind, transfer=moved)
