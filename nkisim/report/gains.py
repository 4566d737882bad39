"""A finding, and the tasks that it is about: what each of them could save."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import Location
from nkisim.report.report import short
from nkisim.report.whatif import Change, dependences_of, gain_us

if TYPE_CHECKING:
    from nkisim.cost.tasks import ScheduledTask
    from nkisim.machine import Machine
    from nkisim.machine.timing import Timing
    from nkisim.report.groups import TaskGroup
    from nkisim.report.times import Times

LEAST = 0.02  # of the latency: smaller gains are not worth a reader's time


class Finding(NamedTuple):
    """One finding.

    Attributes:
        text: what was found and what to do.
        gain_us: modelled gain in microseconds; 0 when it only states what is.
        location: the kernel line it is about, or None.
        tiles: 1 if it advises larger tiles, -1 if smaller ones, else 0.
    """

    text: str
    gain_us: float
    location: Location | None
    tiles: int = 0

    def __str__(self) -> str:
        where = f" [{short(self.location)}]" if self.location else ""
        gain = f" (would gain {self.gain_us:.1f} µs, modelled)" if self.gain_us else ""
        return f"{self.text}{where}{gain}"


class Tasks:
    """Tasks that could be shorter, and by how many nanoseconds each."""

    def __init__(self) -> None:
        self.saved: dict[int, float] = {}
        self.lines: dict[Location | None, float] = defaultdict(float)

    def add(self, tasks: TaskGroup, ns: float) -> None:
        """Each of these tasks could be `ns` shorter."""
        self.saved.update(dict.fromkeys(tasks.positions, ns))
        self.lines[tasks.location] += ns * len(tasks.positions)

    def add_one(self, at: int, task: ScheduledTask, ns: float) -> None:
        """`task`, which is at position `at`, could be `ns` shorter."""
        self.saved[at] = ns
        self.lines[task.instr.location] += ns

    def finding(
        self,
        t: Times,
        text: str,
        change: Change | None,
        machine: Machine | None = None,
        timing: Timing | None = None,
        tiles: int = 0,
    ) -> Iterator[Finding]:
        """The finding, if there is enough at stake for the schedule to be tried.

        Args:
            t: the kernel.
            text: what was found.
            change: makes the shorter kind from a task and what it could save.
            machine, timing: tables to try it with, when not the kernel's.
            tiles: as in Finding.
        """
        if sum(self.saved.values()) / 1e3 < LEAST * t.latency_us:
            return
        worst = max(self.lines, key=self.lines.__getitem__)
        gain = gain_us(t, self.saved, change=change, machine=machine, timing=timing)
        yield Finding(text, gain, worst, tiles)


def chains(
    t: Times,
    count: Callable[[int, ScheduledTask, dict[Hashable, int]], tuple[Hashable, int] | None],
) -> dict[Hashable, int]:
    """The most that can be counted along a chain of tasks that use each other's results.

    Args:
        t: the kernel.
        count: from a task, its position, and what was counted at most in front of it, by what it
            was counted for: what this task counts for, and up to what now. None: for nothing.

    Returns:
        The most, by what it was counted for.
    """
    work = t._core.work
    users = dependences_of(t).users
    before: list[dict[Hashable, int]] = [{} for _ in work.tasks]
    most: dict[Hashable, int] = {}
    for at, task in enumerate(work.tasks):
        found = before[at]
        entry = count(at, task, found)
        if entry is not None:
            what, n = entry
            found = {**found, what: n}
            most[what] = max(n, most.get(what, 0))
        for user in users[at]:
            there = before[user]
            for what, n in found.items():
                if n > there.get(what, 0):
                    there[what] = n
        before[at] = {}  # nothing looks at it again
    return most
