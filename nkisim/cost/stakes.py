"""A finding, and the tasks that it is about: what each of them could save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from nkisim.cost.compute import Cost
from nkisim.cost.report import short
from nkisim.cost.scheduler import ENGINES
from nkisim.cost.whatif import gain_us, replaced
from nkisim.errors import Location
from nkisim.instruction import Engine

if TYPE_CHECKING:
    from nkisim.cost.tasks import Task
    from nkisim.cost.timeline import Timeline
    from nkisim.machine import Machine
    from nkisim.timing import Timing

LEAST = 0.02  # of the latency: smaller gains are not worth a reader's time


class Finding(NamedTuple):
    """One finding.

    Attributes:
        text: what was found and what to do.
        gain_us: modelled gain in microseconds; 0 when it only states what is.
        location: the kernel line it is about, or None.
    """

    text: str
    gain_us: float
    location: Location | None

    def __str__(self) -> str:
        where = f" [{short(self.location)}]" if self.location else ""
        gain = f" (would gain {self.gain_us:.1f} us, modelled)" if self.gain_us else ""
        return f"{self.text}{where}{gain}"


class Tasks:
    """Tasks that could be shorter, and by how many nanoseconds each."""

    def __init__(self) -> None:
        self.saved: dict[int, float] = {}
        self.lines: dict[Location | None, float] = defaultdict(float)

    def add(self, at: int, task: Task, ns: float) -> None:
        """`task`, which is at position `at`, could be `ns` shorter."""
        self.saved[at] = ns
        self.lines[task.instr.location] += ns

    def finding(
        self,
        t: Timeline,
        text: str,
        change: Callable[[Task, float], Task] | None,
        machine: Machine | None = None,
        timing: Timing | None = None,
    ) -> Iterator[Finding]:
        """The finding, if there is enough at stake for the schedule to be tried.

        Args:
            t: the kernel.
            text: what was found.
            change: makes the shorter task from a task and what it could save.
            machine, timing: tables to try it with, when not the kernel's.
        """
        if sum(self.saved.values()) / 1e3 < LEAST * t.latency_us:
            return
        worst = max(self.lines, key=self.lines.__getitem__)
        gain = gain_us(t, self.saved, change=change, machine=machine, timing=timing)
        yield Finding(text, gain, worst)


def costs_of(t: Timeline) -> Iterator[tuple[int, Task, Engine, Cost]]:
    """Each task with its position, the engine that it runs on and its cost there."""
    work, s = t._core.work, t._core.schedule
    for at, (task, chosen) in enumerate(zip(work.tasks, s.engine, strict=True)):
        engine = ENGINES[chosen]
        for e, c in task.costs:
            if e is engine:
                yield at, task, engine, c
                break


def moved_in(task: Task, ns: float, engines: int) -> Task:
    """A transfer that is `ns` shorter, by so many DMA engines."""
    moved = task.transfer._replace(engine_ns=task.transfer.engine_ns - ns, engines=engines)
    return replaced(task, transfer=moved)
