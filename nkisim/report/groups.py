"""Tasks that do the same, together: there may be thousands of each."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from nkisim.cost.compute import Cost
from nkisim.cost.storage import Operation
from nkisim.cost.tasks import ScheduledTask, Work
from nkisim.ir.instruction import Engine
from nkisim.schedule.engines import ENGINES
from nkisim.schedule.scheduler import Schedule

if TYPE_CHECKING:
    from nkisim.errors import Location


class TaskGroup(NamedTuple):
    """Tasks of one kernel line that do the same, on one engine, with other operands of the same
    kind.

    Attributes:
        task: the first of them.
        engine: the engine.
        cost: what each of them costs there.
        positions: of all of them in the list of tasks.
    """

    task: ScheduledTask
    engine: Engine
    cost: Cost
    positions: list[int]

    @property
    def location(self) -> Location | None:
        return self.task.instr.location

    @property
    def instructions(self) -> int:
        """The number of instructions of the engine that the tasks stand for."""
        return len(self.positions) * self.task.kind.instructions


def sort_of(task: ScheduledTask) -> tuple:
    """A key of tasks that do the same."""
    return task.kind, task.form if type(task) is Operation else task.instr.opcode


def group_tasks(work: Work, schedule: Schedule) -> list[TaskGroup]:
    """The tasks of a core as they were scheduled, those that are alike together; in the order of
    the first ones."""
    tasks = work.tasks
    found: dict[tuple, list[int]] = defaultdict(list)
    for at, (task, number) in enumerate(zip(tasks, schedule.engine, strict=True)):
        found[number, id(task.instr.location), sort_of(task)].append(at)
    groups = []
    for (e, *_), positions in found.items():
        first, engine = tasks[positions[0]], ENGINES[e]
        cost = next(c for possible, c in first.costs if possible is engine)
        groups.append(TaskGroup(first, engine, cost, positions))
    return groups
