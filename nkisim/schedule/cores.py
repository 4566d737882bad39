"""Dependences of tasks of one core on tasks of another one.

Cores share HBM. A task that reads or overwrites a part of a tensor waits for whoever wrote or read
that part, on whichever core. A fence (see `nkisim.ir.barriers`) is a task of each of its parties,
which waits for all that any of them did in shared memory before; all that they do there afterwards
waits for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nkisim.cost.tasks import Access, ScheduledTask, Work
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.schedule.regions import Patterns, Regions


class Wait(NamedTuple):
    """A task that waits for another one.

    Attributes:
        core, task: the one that waits: its core, and its position among that core's tasks.
        kind: for its result or its reading, as in `nkisim.schedule.regions`.
    """

    core: int
    task: int
    kind: int


class _Use(NamedTuple):
    """An access of a task to shared memory, in the order of the trace."""

    place: int
    core: int
    at: int
    reads: list[Access]
    writes: list[Access]
    fence: bool


def waits_across(
    works: Sequence[Work], instructions: Sequence[Instruction]
) -> list[dict[int, list[Wait]]]:
    """The dependences of tasks on tasks of other cores.

    Args:
        works: the tasks of each core.
        instructions: the trace, in an order in which it can run.

    Returns:
        For each core, by the position of a task: who waits for it, on other cores; of a fence and
        for a fence, on its own core as well.
    """
    found: list[dict[int, list[Wait]]] = [{} for _ in works]
    uses = _uses(works, instructions)
    patterns = Patterns()
    regions: dict[int, Regions] = {}
    for number in {n for use in uses for n, _ in (*use.reads, *use.writes)}:
        regions[number] = Regions(patterns)
    for k, use in enumerate(uses):
        waits: dict[int, int] = {}
        if use.fence:
            for region in regions.values():
                region.write(None, k, waits)
        for number, part in use.reads:
            regions[number].read(part, k, waits)
        for number, part in use.writes:
            regions[number].write(part, k, waits)
        for before, kind in waits.items():
            other = uses[before]
            if other.core != use.core or other.fence or use.fence:
                wait = Wait(use.core, use.at, kind)
                found[other.core].setdefault(other.at, []).append(wait)
    return found


def _uses(works: Sequence[Work], instructions: Sequence[Instruction]) -> list[_Use]:
    """The accesses to memory that several cores use and some of them write; and the fences."""
    in_hbm = [
        {n for n, memory in work.memory.items() if not memory.space.on_chip} for work in works
    ]
    written = {n for work in works for task in work.tasks for n, _ in task.writes}
    shared = {
        n for n in set().union(*in_hbm) if n in written and sum(n in found for found in in_hbm) > 1
    }
    places = {id(instr): place for place, instr in enumerate(instructions)}
    uses = []
    for core, work in enumerate(works):
        place = 0
        for at, task in enumerate(work.tasks):
            place = max(place, places.get(id(task.instr), 0))
            fence = _is_fence(task)
            reads = [access for access in task.reads if access[0] in shared]
            writes = [access for access in task.writes if access[0] in shared]
            if reads or writes or fence:
                uses.append(_Use(place, core, at, reads, writes, fence))
    uses.sort(key=lambda use: use[:3])
    return uses


def _is_fence(task: ScheduledTask) -> bool:
    return task.instr.spec.kind is OpKind.BARRIER and task.instr.settings.fence
