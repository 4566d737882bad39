"""Which engine runs each task.

What only one engine can do runs there. A free choice goes to the engine with less to do in all, but
a loop does the same in the same places: of each sort of task, every eighth one stays on the engine
of the one eight before, as long as that engine is ahead of the others by little.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Kind, Work
from nkisim.instruction import Engine
from nkisim.memory import Space

ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC)
_TENSOR, _VECTOR, _SCALAR, _GPSIMD, _SYNC = range(5)
MEMORIES = (Space.SBUF, Space.PSUM)
_SBUF, _PSUM = range(2)  # positions in it

# Turns after which a sort of task is on the same engine again. Loops mostly have powers of two of
# iterations, and then these repeat as a whole, which `nkisim.cost.steady` makes use of.
_TURNS = 8
_AHEAD = 0.01  # of what all engines have to do: how far one may get ahead of another by that
_NEVER = float("inf")


@dataclass(slots=True, frozen=True, eq=False)
class Job:
    """What the scheduler needs to know of a task on the engine that it runs on.

    Attributes:
        engine: position in ENGINES.
        busy, done, data: as in `nkisim.cost.compute.Cost`.
        transfer: for DMA, what moves.
        table: for Scalar, the activation function whose table must be loaded.
        ports: memory ports that only one engine uses at a time, by position in MEMORIES.
    """

    engine: int
    busy: float
    done: float
    data: float
    transfer: Transfer | None
    table: str
    ports: tuple[int, ...]


def assign_engines(work: Work) -> list[Job]:
    """Each task on its engine. Notes in `work.choices` what was chosen.

    Args:
        work: the tasks, in program order.
    """
    kinds = [task.kind for task in work.tasks]
    options = {kind: _options(kind) for kind in dict.fromkeys(kinds)}
    only = {kind: jobs[0] for kind, jobs in options.items() if len(jobs) == 1}
    if len(only) == len(options):
        return list(map(only.__getitem__, kinds))
    shortest = {kind: min(job.busy for job in jobs) for kind, jobs in options.items()}
    ahead = _AHEAD * sum(map(shortest.__getitem__, kinds))
    load = [0.0] * len(ENGINES)
    for kind in kinds:
        job = only.get(kind)
        if job is not None:
            load[job.engine] += job.busy
    turns: dict[Kind, list[Job]] = {kind: [] for kind in options}  # the last ones, oldest first
    counts: dict[Job, int] = defaultdict(int)
    chosen = []
    for kind in kinds:
        best = only.get(kind)
        if best is None:
            least = _NEVER
            for job in options[kind]:
                total = load[job.engine] + job.busy
                if total < least:
                    best, least = job, total
            last = turns[kind]
            if len(last) == _TURNS:
                before = last.pop(0)
                if before is not best:
                    total = load[before.engine] + before.busy
                    if total <= least + ahead:
                        best, least = before, total
            last.append(best)
            load[best.engine] = least
            counts[best] += 1
        chosen.append(best)
    for kind, jobs in options.items():
        for job in jobs:
            if job in counts:
                work.choices[f"{kind.label} on {ENGINES[job.engine].value}"] += counts[job]
    return chosen


def _options(kind: Kind) -> list[Job]:
    """A task of this kind on each engine that may run it."""
    found = []
    for engine, cost in kind.costs:
        e = ENGINES.index(engine)
        ports: tuple[int, ...] = ()
        if e in (_VECTOR, _GPSIMD):
            ports += (_SBUF,)
        if e in (_VECTOR, _SCALAR) and kind.psum:
            ports += (_PSUM,)
        found.append(Job(e, cost.busy, cost.done, cost.data, kind.transfer, kind.table, ports))
    return found
