"""The dependences between tasks, whatever the tasks cost."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np

from nkisim.cost.tasks import Kind, ScheduledTask, Work
from nkisim.ir.instruction import Engine, OpKind
from nkisim.ir.parts import Patterns
from nkisim.machine.timing import DmaTiming
from nkisim.schedule.allocation import Residence
from nkisim.schedule.regions import ORDER, READ, RESULT, Regions
from nkisim.schedule.touches import Touches

RING = 3  # a dependence on an earlier transfer of the same DMA instruction
ASKED = 4  # the kernel asks for this order
STARTED = 5  # an engine starts loads in the order of the program

_WHY = (RESULT, READ, RING, ASKED, STARTED)  # what tells most first

_ENGINES = {engine: at for at, engine in enumerate(Engine)}

# Tasks, those that wait for them, one by one, and the kind of dependence.
_Waits = tuple[np.ndarray, np.ndarray, int]


@dataclass(slots=True)
class Dependences:
    """The dependences among the tasks of one core.

    It follows from the memory that tasks touch, and from which of them are transfers; not from what
    they cost. All lists are over the tasks.

    Attributes:
        tiles: which of them are on chip when.
        users: those that wait for a task's result.
        others: of some tasks, what else waits for them, with the kind of dependence.
        waits: for how many each one waits.
    """

    tiles: Residence
    users: list[list[int]]
    others: dict[int, list[tuple[int, int]]]
    waits: list[int]

    @classmethod
    def of(cls, work: Work, dma: DmaTiming, touches: Touches | None = None) -> Dependences:
        """Find them.

        Args:
            work: the tasks.
            dma: how many transfers of one DMA instruction are under way at a time.
            touches: the memory that the tasks touch, if it is known.
        """
        touches = touches or Touches.of(work)
        tiles = work.residence or Residence.of(work, touches)
        patterns, n = Patterns(), len(work.tasks)
        kinds = [task.kind for task in work.tasks]
        found = [
            _on_results(touches, patterns),
            *_on_changes(touches, patterns),
            _on_rings(work, kinds, touches, dma),
            _as_asked(work),
            *_in_order(work, kinds, touches),
        ]
        # Each pair of tasks once, for the first of these reasons.
        keys = np.concatenate([
            (before * n + at) * len(_WHY) + _WHY.index(why) for before, at, why in found
        ])  # fmt: skip
        keys.sort()
        pairs, why = np.divmod(keys, len(_WHY))
        once = np.ones(len(pairs), bool)
        once[1:] = pairs[1:] != pairs[:-1]
        before, at = np.divmod(pairs[once], n or 1)
        why = np.array(_WHY)[why[once]]
        _order_sums(work, kinds, before, at, why)
        results = why == RESULT
        ends = np.cumsum(np.bincount(before[results], minlength=n)).tolist()
        flat = at[results].tolist()
        others: dict[int, list[tuple[int, int]]] = defaultdict(list)
        columns = before[~results].tolist(), at[~results].tolist(), why[~results].tolist()
        for earlier, later, kind in zip(*columns, strict=True):
            others[earlier].append((later, kind))
        return cls(
            tiles,
            users=[flat[a:b] for a, b in zip([0, *ends], ends, strict=False)],
            others=others,
            waits=np.bincount(at, minlength=n).tolist(),
        )

    def renamed(self, work: Work) -> Dependences:
        """The dependences if every write on chip had memory of its own: only who reads a result
        waits for it.

        Args:
            work: the tasks that these are the dependences of.
        """
        tasks = work.tasks
        hbm = {n for n, memory in work.memory.items() if not memory.space.on_chip}
        read = [{n for n, _ in task.reads} for task in tasks]
        stores = {at for at, task in enumerate(tasks) if any(n in hbm for n, _ in task.writes)}
        waits = list(self.waits)

        def overwrites(before: int, at: int, why: int) -> bool:
            if at in stores:
                return False
            return why == READ or read[at].isdisjoint([n for n, _ in tasks[before].writes])

        users: list[list[int]] = []
        for before, found in enumerate(self.users):
            users.append([at for at in found if not overwrites(before, at, RESULT)])
            for at in set(found).difference(users[before]):
                waits[at] -= 1
        others: dict[int, list[tuple[int, int]]] = {}
        for before, followers in self.others.items():
            others[before] = [
                (at, why)
                for at, why in followers
                if why in (RING, ASKED, STARTED) or not overwrites(before, at, why)
            ]
            for at, _ in set(followers).difference(others[before]):
                waits[at] -= 1
        return Dependences(self.tiles, users, others, waits)


def _on_results(touches: Touches, patterns: Patterns) -> _Waits:
    """Read-after-write dependences on memory that is written once, before all reads."""
    single = touches.writes[touches.first] & ~touches.changing
    reads = np.flatnonzero(single[touches.memory] & ~touches.writes)
    written = touches.first[touches.memory[reads]]
    others = np.flatnonzero(touches.part[reads] != touches.part[written])
    if len(others):
        parts, meet = touches.parts, patterns.meet
        pairs = zip(reads[others].tolist(), written[others].tolist(), strict=True)
        apart = others[[not meet(parts[a], parts[b]) for a, b in pairs]]
        reads, written = np.delete(reads, apart), np.delete(written, apart)
    return touches.task[written], touches.task[reads], RESULT


def _on_changes(touches: Touches, patterns: Patterns) -> list[_Waits]:
    """Dependences on memory that is written more than once, or read before it is written:
    readers for writers, and writers for earlier readers and writers."""
    changing = touches.changing
    some = np.flatnonzero(changing[touches.memory])
    memory, writes, parts = touches.memory[some], touches.writes[some], touches.parts
    last = np.full(len(changing), -1)
    last[memory[writes]] = some[writes]
    regions = {m: Regions(patterns) for m in np.flatnonzero(changing).tolist()}
    befores: list[int] = []
    whys: list[int] = []
    ats: list[int] = []
    columns = touches.task[some], some, memory, writes, some > last[memory]
    rows = zip(*[column.tolist() for column in columns], strict=True)
    for task, touched in groupby(rows, itemgetter(0)):
        waits: dict[int, int] = {}
        for _, k, m, write, is_last in touched:
            if write:
                regions[m].write(parts[k], task, waits)
            else:
                regions[m].read(parts[k], task, waits, is_last)
        waits.pop(task, None)  # one that writes two tiles in the same place
        befores += waits
        whys += waits.values()
        ats += [task] * len(waits)
    before, at, why = (np.array(column, np.int64) for column in (befores, ats, whys))
    return [(before[why == kind], at[why == kind], kind) for kind in (RESULT, READ)]


def in_flight(transfer: ScheduledTask, work: Work, dma: DmaTiming) -> int:
    """The number of transfers that a kernel line has under way at a time."""
    loops, most = transfer.instr.loops, dma.in_flight
    if loops and loops[-1][0] in work.ordered:
        most = min(most, dma.ordered_in_flight)
    if transfer.kind.transfer.engines == 1:
        most = min(most, dma.single_in_flight)
    return most


def _on_rings(work: Work, kinds: list[Kind], touches: Touches, dma: DmaTiming) -> _Waits:
    """Dependences of transfers on earlier ones of the same DMA instruction: of those at one line of
    the kernel, from or to the same tensor in HBM, so many are under way at a time."""
    tasks = work.tasks
    labels = {kind: kind.label for kind in dict.fromkeys(kinds) if kind.transfer is not None}
    moves = np.flatnonzero(np.fromiter(map(labels.__contains__, kinds), bool, len(kinds)))
    if not len(moves):
        return moves, moves, RING
    numbers = {label: n for n, label in enumerate(dict.fromkeys(labels.values()))}
    at = moves.tolist()
    line = np.array([id(tasks[k].instr.location) for k in at])
    label = np.array([numbers[labels[kinds[k]]] for k in at])
    # The tensor that it reads, if that is in HBM, or else the one that it writes.
    memory, in_hbm = np.append(touches.memory, -1), np.append(~touches.on_chip, False)
    begins, ends = touches.starts[moves], touches.starts[moves + 1]
    writes = begins + touches.reads[moves]
    source = memory[np.where(begins < writes, begins, -1)]
    target = memory[np.where(writes < ends, writes, -1)]
    far = np.where(in_hbm[source], source, np.where(in_hbm[target], target, -1))
    most = np.array([in_flight(tasks[k], work, dma) for k in at])
    order = np.lexsort((far, label, line))
    found = []
    for apart in sorted(set(most.tolist())):
        same = most[order[apart:]] == apart
        for column in (line, label, far):
            column = column[order]
            same &= column[apart:] == column[:-apart]
        found.append((moves[order[:-apart][same]], moves[order[apart:][same]]))
    before, after = (np.concatenate(columns) for columns in zip(*found, strict=True))
    return before, after, RING


def _in_order(work: Work, kinds: list[Kind], touches: Touches) -> list[_Waits]:
    """Dependences of loads on the load that the same engine starts before: a load that has to wait
    holds up those behind it. Stores are started by another engine, and reloads by the compiler have
    a queue of their own."""
    starts = {
        kind: _ENGINES[kind.costs[0][0]]
        for kind in dict.fromkeys(kinds)
        if kind.transfer is not None and not kind.again
    }
    moves = np.flatnonzero(np.fromiter(map(starts.__contains__, kinds), bool, len(kinds)))
    written = touches.starts[moves] + touches.reads[moves]
    there = written < touches.starts[moves + 1]
    moves, written = moves[there], written[there]
    loads = moves[touches.on_chip[touches.memory[written]]]
    by = np.array([starts[kinds[at]] for at in loads.tolist()], np.int64)
    each = [loads[by == engine] for engine in np.unique(by)]
    return [(at[:-1], at[1:], STARTED) for at in each]


def _as_asked(work: Work) -> _Waits:
    """The dependences that the kernel asks for. An instruction that the compiler leaves out has no
    task: tasks that wait for it wait for its own dependences."""
    last: dict[int, int] = {}  # by the identity of an instruction, its newest task
    befores: list[int] = []
    ats: list[int] = []
    for at, task in enumerate(work.tasks if work.orders else ()):
        asked = list(work.orders.get(id(task.instr), ()))
        while asked:
            earlier = id(asked.pop())
            if earlier in last:
                befores.append(last[earlier])
                ats.append(at)
            else:
                asked += work.orders.get(earlier, ())
        last[id(task.instr)] = at
    return np.array(befores, np.int64), np.array(ats, np.int64), ASKED


def _order_sums(
    work: Work, kinds: list[Kind], before: np.ndarray, at: np.ndarray, why: np.ndarray
) -> None:
    """Relax the dependences of accumulating matmuls: they wait for the order of issue only."""
    tasks = work.tasks
    sums = {kind for kind in dict.fromkeys(kinds) if kind.accumulates}
    if not sums:
        return
    accumulates = np.fromiter(map(sums.__contains__, kinds), bool, len(kinds))
    some = np.flatnonzero(accumulates[at] & (why == RESULT))
    matmuls = [tasks[k].instr.spec.kind is OpKind.PRODUCT for k in before[some].tolist()]
    why[some[matmuls]] = ORDER
