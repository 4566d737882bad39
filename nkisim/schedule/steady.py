"""A schedule of many tasks that go round in cycles, from that of a few rounds of each.

What the scheduler does with a task follows from the tasks before it that are still under way. So
where each of these runs as the one a round earlier did, so much later, all further rounds go the
same way. Of a long cycle some rounds are scheduled: those at the start, until the schedule repeats,
and behind these as many as can be under way at a time. The others are put in between.

Nothing is taken for granted: the rounds must be equal in all that the scheduler sees (see
`nkisim.schedule.cycles`), and their times must have come to repeat. Where they do not, all tasks
are
scheduled. The times are those of the whole schedule, but for rounding; where a task waits for two
things that come at once, either may be told as its cause.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np

from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.schedule.allocation import Residence
from nkisim.schedule.cycles import Cycle, cycles_of
from nkisim.schedule.dependences import Dependences
from nkisim.schedule.engines import Job, assign_engines
from nkisim.schedule.scheduler import Schedule, simulate
from nkisim.schedule.tasks import Task, Work
from nkisim.schedule.touches import Touches

_log = logging.getLogger("nkisim")

_FEWEST = 2_000  # tasks from which it pays to look for cycles
# How many rounds are kept, relative to what mostly does. Half of that often does for long periods
# of which no more than the next one is under way at a time.
_TRIES = (0.5, 1, 2, 4)
_LONG = 1024  # tasks of such a period
_PAYS = 0.65  # of the tasks, in all tries: with more of them, all may as well be scheduled
_TASKS = 512  # of short periods, so many tasks are taken together
# Periods after which times may repeat, e.g. where transfers take turns on 16 queues. Of a cycle, a
# multiple of all in a row is left out, unless that leaves far more to schedule.
_LAGS = (1, 2, 3, 4, 8, 12, 16, 48), (1, 2, 3, 4, 12), (1,)
_REST = 0.1  # of what could be left out: what may be scheduled all the same
# Of how late it is: times less apart are equal, but for the rounding of some thousand sums.
_SAME = 1e-12

_TIMES = ("start", "end", "done", "queue_start", "queue_end")


def schedule(
    work: Work, machine: Machine, timing: Timing, touches: Touches | None = None
) -> Schedule:
    """Run the tasks of one core on its engines.

    Args:
        work: the tasks.
        machine, timing: the tables to run them by.
        touches: the memory that they touch, if it is known.
    """
    jobs = assign_engines(work)
    touches = touches or Touches.of(work)
    cycles = cycles_of(work, touches, jobs, machine) if len(jobs) >= _FEWEST else []
    most = _PAYS * len(jobs)
    tries = [times for times in _TRIES if times >= 1 or any(map(_is_long, cycles))]
    for times in tries if cycles else ():
        cuts = [_Cut(cycle, times) for cycle in cycles]
        cuts = [cut for cut in cuts if cut.left_out > 0]
        kept = len(jobs) - sum(cut.left_out for cut in cuts)
        if kept > most:
            break
        try:
            found = _from_a_part(work, jobs, cuts, machine, timing)
        except _Unsettled as error:
            if times >= 1 and not error.yet:
                break
            most -= kept
            continue
        _log.info("%d of %d tasks are scheduled: the others repeat them", kept, len(jobs))
        return found
    if work.residence is None:
        work.residence = Residence.of(work, touches)
    known = Dependences.of(work, timing.dma.in_flight, touches)
    return simulate(work, jobs, machine, timing, known)


def _is_long(cycle: Cycle) -> bool:
    return cycle.period >= _LONG and cycle.ahead <= 1


class _Unsettled(Exception):
    """A part of a schedule from which the rest does not follow.

    Attributes:
        yet: whether it may with more rounds: in the last ones times do repeat.
    """

    def __init__(self, yet: bool = False) -> None:
        super().__init__()
        self.yet = yet


class _Cut:
    """A cycle, of which only the first so many periods are scheduled.

    Attributes:
        cycle: the cycle.
        behind: how many periods may be under way while one of them is. Where memory would let more
            be, the schedule must show that no more are.
        kept: how many periods are scheduled.
        left_out: how many tasks are not.
        lags: the periods after which times may repeat.
    """

    def __init__(self, cycle: Cycle, times: float) -> None:
        """
        Args:
            cycle: the cycle.
            times: how many periods are kept, relative to what mostly does.
        """
        self.cycle = cycle
        self._far = far = -(-cycle.far // cycle.period)
        short = max(1, _TASKS // cycle.period)
        # As many as there is memory for, or as may well be if that is most of the cycle.
        for under_way in (cycle.ahead, min(cycle.ahead, short)):
            self.behind = max(under_way, far, 1)
            settled = 5 * self.behind // 2 + far + short + 1
            kept = ceil(settled * (times if _is_long(cycle) else max(times, 1))) + self.behind
            if kept <= _PAYS * cycle.count:
                break
        periods = cycle.count - kept
        # A single one divides all numbers.
        self.lags = next(lags for lags in _LAGS if periods % lags[-1] <= _REST * abs(periods))
        periods -= periods % self.lags[-1]
        self.kept = cycle.count - periods
        self.left_out = periods * cycle.period

    def holds(self, round_ns: float, under_way_ns: float) -> bool:
        """Whether no more periods are under way than was thought.

        Args:
            round_ns: from a period to the next one.
            under_way_ns: from the first start to the last end in a period.
        """
        return self.fills_memory or self._far + under_way_ns / round_ns + 1 < self.behind

    @property
    def fills_memory(self) -> bool:
        """Whether there is no memory for more periods than may be under way."""
        return self.behind >= self.cycle.ahead

    def stand_ins(self, tasks: list[Task], renamed: dict[int, int]) -> dict[int, int]:
        """For the memory that the last tasks of the cycle touch: that which the last ones before
        the cut do.

        Args:
            tasks: all tasks.
            renamed: the same of the cycles before.
        """
        end, far = self.cycle.end, self.cycle.far
        found = {}
        for gone in range(end - far, end):
            a, b = tasks[gone], tasks[gone - self.left_out]
            for (n, _), (m, _) in zip(a.reads + a.writes, b.reads + b.writes, strict=True):
                if n != m:
                    found[n] = renamed.get(m, m)
        return found


def _renamed(tasks: list[Task], names: dict[int, int]) -> list[Task]:
    """Tasks that touch other memory in place of some."""
    if not names:
        return tasks
    found, gone = [], names.keys()
    for task in tasks:
        if not gone.isdisjoint([n for n, _ in task.reads + task.writes]):
            reads = [(names.get(n, n), part) for n, part in task.reads]
            writes = [(names.get(n, n), part) for n, part in task.writes]
            task = Task(task.instr, task.kind, reads, writes)
        found.append(task)
    return found


def _from_a_part(
    work: Work, jobs: list[Job], cuts: Sequence[_Cut], machine: Machine, timing: Timing
) -> Schedule:
    """The schedule, from that without what is cut. Raises _Unsettled if that does not repeat."""
    tasks, some, firsts = [], [], []
    renamed: dict[int, int] = {}
    at = 0
    for cut in cuts:
        last = cut.cycle.end - cut.left_out
        firsts.append(len(tasks) + cut.cycle.first - at)
        tasks += _renamed(work.tasks[at:last], renamed)
        some += jobs[at:last]
        renamed |= cut.stand_ins(work.tasks, renamed)
        at = cut.cycle.end
    tasks += _renamed(work.tasks[at:], renamed)
    some += jobs[at:]
    part = Work(tasks, work.memory)
    known = Dependences.of(part, timing.dma.in_flight)
    times = _Times(simulate(part, some, machine, timing, known), some)
    if part.choices:  # more memory was used than there is
        raise _Unsettled
    for cut, first in zip(reversed(cuts), reversed(firsts), strict=True):
        times.extend(cut, first)
    return times.schedule([job.engine for job in jobs])


@dataclass
class _Round:
    """The tasks from one to another, behind which the next ones are so much later.

    Attributes:
        first, last: these tasks.
        begin: from where on tasks are so much later than those before.
        ns: how much.
    """

    first: int
    last: int
    begin: int
    ns: float


class _Times:
    """A schedule that is made longer.

    Args:
        of: the schedule.
        jobs: of its tasks.
    """

    def __init__(self, of: Schedule, jobs: list[Job]) -> None:
        self._jobs = jobs
        self._moves = np.array([job.transfer is not None for job in jobs])
        self._times = {name: np.array(getattr(of, name)) for name in _TIMES}
        self._cause = np.array(of.cause)
        self._why, self._whys = _numbered(of.why)
        self._queues, self._sets = _numbered(of.queues_of)
        self._queue_busy = np.array(of.queue_busy)

    def schedule(self, engines: list[int]) -> Schedule:
        """What it has become.

        Args:
            engines: of all tasks.
        """
        times = {name: column.tolist() for name, column in self._times.items()}
        return Schedule(
            **times,
            engine=engines,
            queue_busy=self._queue_busy.tolist(),
            cause=self._cause.tolist(),
            why=[self._whys[n] for n in self._why.tolist()],
            span=float(self._times["done"].max()),
            queues_of=[self._sets[n] for n in self._queues.tolist()],
        )

    def extend(self, cut: _Cut, first: int) -> None:
        """Put in what was cut from a cycle that begins at `first`. Raises _Unsettled."""
        period = cut.cycle.period
        last = first + (cut.kept - cut.behind) * period
        end = first + cut.kept * period
        yet = False
        for lag in cut.lags:
            try:
                found = self._round(first, last, lag * period, cut.cycle.far)
            except _Unsettled as error:
                yet = yet or error.yet
                continue
            if not cut.holds(found.ns / lag, self._under_way(found)):
                raise _Unsettled
            self._repeat(found, first, end, cut)
            return
        raise _Unsettled(yet)

    def _round(self, first: int, last: int, lag: int, far: int) -> _Round:
        """The `lag` tasks before `last`, if times repeat behind them. Raises _Unsettled.

        Args:
            first: of the cycle.
            last: behind the tasks that are looked at.
            lag: tasks in a round.
            far: the most tasks between two that touch the same memory.
        """
        if last - first < 2 * lag:
            raise _Unsettled
        start = self._times["start"][first:last]
        ns = start[-1] - start[-1 - lag]
        equal_ns = _SAME * start[-1]
        same = np.ones(last - first - lag, bool)
        stays = ~self._moves[first + lag : last]  # and has no times on queues
        for name, column in self._times.items():
            mine = column[first:last]
            later = np.abs(mine[lag:] - mine[:-lag] - ns) <= equal_ns
            same &= later | stays if name.startswith("queue") else later
        cause = self._cause[first:last]
        same &= cause[lag:] - cause[:-lag] == lag
        for column in (self._why, self._queues):
            same &= column[first + lag : last] == column[first : last - lag]
        wrong = np.flatnonzero(~same)
        begin = first + lag + (int(wrong[-1]) + 1 if len(wrong) else 0)
        if begin >= last:
            raise _Unsettled
        # All that the next tasks can see must have repeated: what they wait for, and what runs
        # beside that.
        order = np.argsort(self._times["start"][begin:last], kind="stable")
        beside = int(np.abs(order - np.arange(last - begin)).max())
        waits = int((np.arange(begin, last) - self._cause[begin:last]).max())
        if last - begin < max(lag, beside + max(far, waits)):
            raise _Unsettled(yet=last - begin >= lag)
        rounds = (last - begin) // lag  # over all of them, rounding counts less
        ns = (start[-1] - start[-1 - rounds * lag]) / rounds
        return _Round(last - lag, last, begin - lag, float(ns))

    def _under_way(self, of: _Round) -> float:
        """Nanoseconds from the first start of a round to its last end."""
        own = slice(of.first, of.last)
        return float(self._times["done"][own].max() - self._times["start"][own].min())

    def _repeat(self, of: _Round, first: int, end: int, cut: _Cut) -> None:
        """Put a round in again behind itself, until all are there that were left out. Raises
        _Unsettled if others run in between.

        Args:
            of: the round.
            first, end: of the cycle.
            cut: what was left out.
        """
        more = cut.left_out
        start, done = self._times["start"], self._times["done"]
        lag = of.last - of.first
        begins, ends = start[of.first : of.last].min(), start[of.first : of.last].max()
        behind = start[end:]
        early = behind < begins  # they wait for nothing of the cycle
        if first and done[:first].max() > begins:
            raise _Unsettled
        if (~early & (behind <= ends)).any():
            raise _Unsettled
        if early.any() and not cut.fills_memory:  # there may be no memory for them that early
            raise _Unsettled
        rounds = more // lag
        nth = np.repeat(np.arange(1, rounds + 1), lag)
        late = np.concatenate((np.ones(end - of.last, bool), ~early))
        shift = rounds * of.ns
        for name, column in self._times.items():
            mine = column[of.first : of.last]
            rest = column[of.last :]
            by, again = np.full(len(rest), shift), np.tile(mine, rounds) + nth * of.ns
            if name.startswith("queue"):
                by[~self._moves[of.last :]] = 0.0
                again[~np.tile(self._moves[of.first : of.last], rounds)] = 0.0
            rest = np.where(late, rest + by, rest)
            self._times[name] = np.concatenate((column[: of.last], again, rest))
        cause = self._cause
        rest = cause[of.last :]
        rest = np.where(rest >= of.begin, rest + more, rest)
        again = np.tile(cause[of.first : of.last], rounds) + nth * lag
        self._cause = np.concatenate((cause[: of.last], again, rest))
        for at in range(of.first, of.last):
            moved = self._jobs[at].transfer
            if moved is not None:
                queues = self._sets[self._queues[at]]
                self._queue_busy[list(queues)] += rounds * moved.engine_ns
        for name in ("_moves", "_why", "_queues"):
            column = getattr(self, name)
            again = np.tile(column[of.first : of.last], rounds)
            setattr(self, name, np.concatenate((column[: of.last], again, column[of.last :])))
        self._jobs[of.last : of.last] = self._jobs[of.first : of.last] * rounds


def _numbered(values: list) -> tuple[np.ndarray, list]:
    """Values as numbers, and what each number stands for."""
    numbers = {value: n for n, value in enumerate(dict.fromkeys(values))}
    return np.fromiter(map(numbers.__getitem__, values), np.int64, len(values)), list(numbers)
