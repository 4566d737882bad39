"""SBUF and PSUM as the compiler fills them: spilling what does not fit, and lifetimes.

Tiles are placed in program order, whole buffers at a time. When the tiles that are alive at one
point do not fit, the one needed again last is stored to HBM and loaded back before its next use.
Placement is by size only: fragmentation is not modelled.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from typing import NamedTuple

from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Task, Work
from nkisim.instruction import Engine
from nkisim.machine import Machine
from nkisim.memory import Space
from nkisim.timing import Timing


class Lifetime(NamedTuple):
    """A buffer's stay on chip, in positions of the list of tasks."""

    first: int
    last: int
    number: int
    nbytes: int


def capacities(machine: Machine) -> dict[Space, int]:
    """Bytes a partition that tiles may take."""
    return {Space.SBUF: machine.sbuf_usable_bytes, Space.PSUM: machine.psum_bytes}


def spill(work: Work, machine: Machine, timing: Timing) -> int:
    """Insert the stores and loads without which the kernel does not fit SBUF.

    Returns:
        Bytes moved by them.
    """
    capacity = machine.sbuf_usable_bytes
    uses: dict[int, list[int]] = defaultdict(list)
    spaces = work.spaces
    for at, touched in enumerate(touches(work)):
        for number in touched:
            if spaces[number] is Space.SBUF:
                uses[number].append(at)
    if _peak(uses, work) <= capacity:
        return 0
    tasks: list[Task] = []
    moved = 0
    alive: dict[int, int] = {}  # buffer -> bytes a partition
    away: set[int] = set()
    renamed: dict[int, int] = {}
    clean = _written_by_loads_only(work)
    stored: set[int] = set()
    level = 0

    def make_room(need: int, at: int, keep: set[int], because: Task) -> None:
        nonlocal level, moved
        while level + need > capacity:
            victims = [(_next_use(uses[n], at), n) for n in alive if n not in keep]
            if not victims:
                return  # one instruction's tiles alone do not fit; the checker reports it
            _, victim = max(victims)
            level -= alive.pop(victim)
            away.add(victim)
            if victim not in clean and victim not in stored:
                stored.add(victim)
                name = renamed.get(victim, victim)
                tasks.append(_move(because, work, timing, name, None))
                moved += tasks[-1].transfer.nbytes

    for at, task in enumerate(work.tasks):
        touched = _touched(task, work, Space.SBUF)
        for number in touched:
            if number in alive:
                continue
            make_room(work.sizes[number], at, touched, task)
            alive[number] = work.sizes[number]
            level += work.sizes[number]
            if number in away:
                away.discard(number)
                new = min(work.sizes, default=0)
                new = min(new, 0) - 1
                work.sizes[new] = work.sizes[number]
                work.spaces[new] = Space.SBUF
                if number in work.buffers:
                    work.buffers[new] = work.buffers[number]
                renamed[number] = new
                tasks.append(_move(task, work, timing, None, new))
                moved += tasks[-1].transfer.nbytes
        written = [n for n, _ in task.writes]
        if renamed:
            task.reads = [(renamed.get(n, n), t) for n, t in task.reads]
            task.writes = [(renamed.get(n, n), t) for n, t in task.writes]
        for n in written:
            stored.discard(n)
        tasks.append(task)
        for number in touched:
            if uses[number][-1] == at:
                level -= alive.pop(number, 0)
    work.tasks = tasks
    return moved


def touches(work: Work) -> list[tuple[int, ...]]:
    """The on-chip buffers that each task touches."""
    sizes = work.sizes  # of on-chip buffers only
    found = []
    for task in work.tasks:
        numbers = [n for n, _ in task.reads if n in sizes]
        for n, _ in task.writes:
            if n in sizes and n not in numbers:
                numbers.append(n)
        found.append(tuple(dict.fromkeys(numbers)))
    return found


def _peak(uses: dict[int, list[int]], work: Work) -> int:
    changes: list[tuple[int, int, int]] = []
    for number, at in uses.items():
        changes.append((at[0], 0, work.sizes[number]))
        changes.append((at[-1], 1, -work.sizes[number]))
    changes.sort()
    level = peak = 0
    for _, _, change in changes:
        level += change
        peak = max(peak, level)
    return peak


def _next_use(positions: list[int], at: int) -> int:
    after = bisect_right(positions, at)
    return positions[after] if after < len(positions) else 1 << 60


def _touched(task: Task, work: Work, space: Space) -> set[int]:
    return {n for n, _ in (*task.reads, *task.writes) if work.spaces.get(n) is space}


def _written_by_loads_only(work: Work) -> set[int]:
    """Buffers that hold what HBM holds too: no store is needed before they go."""
    loaded: set[int] = set()
    other: set[int] = set()
    for task in work.tasks:
        for n, _ in task.writes:
            (loaded if task.transfer is not None else other).add(n)
    return loaded - other


def _move(
    because: Task, work: Work, timing: Timing, source: int | None, target: int | None
) -> Task:
    """The DMA that takes a whole buffer out of SBUF, or back."""
    dma = timing.dma
    number = source if source is not None else target
    column = work.sizes[number]
    buffer = work.buffers.get(number)
    rows = buffer.shape[buffer.par_axis] if buffer is not None else 128
    engines = min(rows, dma.engines)
    out = source is not None
    rate = dma.store_rate if out else dma.load_rate
    each = (dma.store_descriptor_ns if out else dma.load_descriptor_ns) + column / rate
    latency = (dma.store_latency_ns if out else dma.load_latency_ns) + dma.semaphore_ns
    nbytes = column * rows
    moved = Transfer(each * -(-rows // engines), engines, latency, nbytes, nbytes, column, rows,
                     False)  # fmt: skip
    trigger = Cost(dma.trigger_ns, dma.trigger_ns, dma.trigger_ns)
    return Task(
        because.instr,
        "spill" if out else "reload",
        ((Engine.SYNC, trigger),),
        [(source, None)] if out else [],
        [] if out else [(target, None)],
        transfer=moved,
    )


def lifetimes(work: Work, touched: list[tuple[int, ...]]) -> dict[Space, list[Lifetime]]:
    """The buffers of each on-chip memory, in the order in which they are first needed."""
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    for at, numbers in enumerate(touched):
        for number in numbers:
            if number not in first:
                first[number] = at
            last[number] = at
    found: dict[Space, list[Lifetime]] = {Space.SBUF: [], Space.PSUM: []}
    for number, at in first.items():
        life = Lifetime(at, last[number], number, work.sizes[number])
        found[work.spaces[number]].append(life)
    return found


class Pool:
    """Free bytes of a memory, and when they become free.

    Tiles get memory in program order. One that has to wait gets the bytes that are given back
    first.
    """

    def __init__(self, capacity: int) -> None:
        self.free = capacity
        self.capacity = capacity
        self._returns: list[tuple[float, int, int]] = []
        self._since = (0.0, -1)  # when the newest of the free bytes were given back, by which task

    def give_back(self, time: float, nbytes: int, task: int) -> None:
        """Bytes are free from `time` on, when `task` ends."""
        heapq.heappush(self._returns, (time, task, nbytes))

    def take(self, nbytes: int) -> tuple[float, int] | None:
        """Take bytes: (time from which they are free, task that freed the last), or None."""
        nbytes = min(nbytes, self.capacity)
        while self.free < nbytes and self._returns:
            time, task, more = heapq.heappop(self._returns)
            self.free += more
            if time > self._since[0]:
                self._since = (time, task)
        if self.free < nbytes:
            return None
        self.free -= nbytes
        return self._since
