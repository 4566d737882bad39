"""The choice of an engine for each task.

What only one engine can do runs there. A free choice goes to the engine with less to do in all.
Loads are compared in steps, sixteen for one of the tasks that there is most of: so a loop comes to
make the same choices again and again. Where by then one engine is really ahead of another, that is
put right.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from math import inf

from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Kind, Work
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space

ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC)
_TENSOR, _VECTOR, _SCALAR, _GPSIMD, _SYNC = range(5)
MEMORIES = (Space.SBUF, Space.PSUM)
_SBUF, _PSUM = range(2)  # positions in it

# Of one task, on all engines that may run it. A power of two, as loops mostly have such a number of
# iterations: after sixteen of these tasks, choices are the same again.
_STEPS = 16
_AHEAD = 0.01  # of what all engines have to do: how far one may get ahead of another by steps


@dataclass(slots=True, frozen=True, eq=False)
class EngineJob:
    """A task on its engine, as the scheduler sees it.

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


def assign_engines(work: Work) -> list[EngineJob]:
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
    free: dict[Kind, float] = defaultdict(float)  # what there is to do of each sort, on all engines
    for kind in kinds:
        job = only.get(kind)
        if job is None:
            free[kind] += sum(job.busy for job in options[kind])
        else:
            load[job.engine] += job.busy
    most = max(free, key=free.__getitem__)
    step = sum(job.busy for job in options[most]) / _STEPS or 1.0  # if all of them take no time
    steps = {kind: [(job, round(job.busy / step)) for job in options[kind]] for kind in free}
    level = [round(ns / step) for ns in load]  # the loads in steps
    counts: dict[EngineJob, int] = defaultdict(int)
    chosen = []
    for kind in kinds:
        best = only.get(kind)
        if best is None:
            least = lowest = inf
            for job, height in steps[kind]:
                total, top = load[job.engine] + job.busy, level[job.engine] + height
                if total < least:
                    best, least = job, total
                if top < lowest:
                    usual, lowest = job, top
            total = load[usual.engine] + usual.busy
            if total <= least + ahead:
                best = usual
                load[best.engine], level[best.engine] = total, lowest
            else:
                load[best.engine] = least
                level = [round(ns / step) for ns in load]
            counts[best] += 1
        chosen.append(best)
    for kind, jobs in options.items():
        for job in jobs:
            if job in counts:
                work.choices[f"{kind.label} on {ENGINES[job.engine].value}"] += counts[job]
    return chosen


def _options(kind: Kind) -> list[EngineJob]:
    """A task of this kind on each engine that may run it."""
    found = []
    for engine, cost in kind.costs:
        e = ENGINES.index(engine)
        ports: tuple[int, ...] = ()
        if e in (_VECTOR, _GPSIMD):
            ports += (_SBUF,)
        if e in (_VECTOR, _SCALAR) and kind.psum:
            ports += (_PSUM,)
        found.append(
            EngineJob(e, cost.busy, cost.done, cost.data, kind.transfer, kind.table, ports)
        )
    return found
