"""SBUF and PSUM as the compiler fills them: spilling what does not fit, and lifetimes.

Tiles are placed in program order. When the tiles that are alive at one
point do not fit, the one needed again last is stored to HBM and loaded back before its next use.
Placement is by size only: fragmentation is not modelled.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import accumulate

from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Kind, Task, Work
from nkisim.instruction import Engine
from nkisim.machine import Machine
from nkisim.memory import Space
from nkisim.timing import Timing

# Tiles of fewer bytes a partition are worth no trip to HBM while larger ones can go.
_SMALL = 256


@dataclass
class Residence:
    """Which tiles are on chip, and from which task to which, in positions of the list of tasks.

    Tiles go by the order in which they are first needed; all lists but `touched` are over them.

    Attributes:
        touched: for each task, the tiles that it touches.
        numbers: which memory it is, in the numbers of `Work`.
        first, last: the first and last task that touches it.
        uses: how many tasks do.
        nbytes: bytes a partition that it takes.
        memory: 0 for SBUF, 1 for PSUM.
    """

    touched: list[tuple[int, ...]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    first: list[int] = field(default_factory=list)
    last: list[int] = field(default_factory=list)
    uses: list[int] = field(default_factory=list)
    nbytes: list[int] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, work: Work) -> Residence:
        """The tiles that the tasks of one core touch."""
        found = cls()
        touched, first, last, uses = found.touched, found.first, found.last, found.uses
        position: dict[int, int] = {}
        sizes = work.sizes  # of on-chip buffers only
        for at, task in enumerate(work.tasks):
            tiles = []
            for n, _ in task.reads + task.writes:
                tile = position.get(n)
                if tile is None:
                    if n not in sizes:
                        continue
                    tile = position[n] = len(first)
                    first.append(at)
                    last.append(at)
                    uses.append(1)
                elif last[tile] != at:
                    last[tile] = at
                    uses[tile] += 1
                else:
                    continue
                tiles.append(tile)
            touched.append(tuple(tiles))
        found.numbers = list(position)
        found.nbytes = [sizes[n] for n in position]
        found.memory = [int(work.spaces[n] is Space.PSUM) for n in position]
        return found

    def peak(self, memory: int) -> int:
        """The most bytes a partition that the tiles of a memory take at one time."""
        change = [0] * (len(self.touched) + 1)
        for tile, nbytes in enumerate(self.nbytes):
            if self.memory[tile] == memory:
                change[self.first[tile]] += nbytes
                change[self.last[tile] + 1] -= nbytes
        return max(accumulate(change))


def capacities(machine: Machine) -> dict[Space, int]:
    """Bytes a partition that tiles may take."""
    return {Space.SBUF: machine.sbuf_usable_bytes, Space.PSUM: machine.psum_bytes}


def spill(work: Work, machine: Machine, timing: Timing) -> int:
    """Insert the stores and loads without which the kernel does not fit SBUF, and note which tiles
    are on chip when.

    Returns:
        Bytes moved by them.
    """
    work.residence = Residence.of(work)
    capacity = machine.sbuf_usable_bytes
    if work.residence.peak(0) <= capacity:
        return 0
    uses: dict[int, list[int]] = defaultdict(list)
    numbers, memory = work.residence.numbers, work.residence.memory
    for at, touched in enumerate(work.residence.touched):
        for tile in touched:
            if memory[tile] == 0:
                uses[numbers[tile]].append(at)
    moved = _Spiller(work, uses, timing, capacity).run()
    work.residence = Residence.of(work)
    return moved


class _Spiller:
    """One walk over the tasks with the tiles that are on chip."""

    def __init__(
        self, work: Work, uses: dict[int, list[int]], timing: Timing, capacity: int
    ) -> None:
        self.work = work
        self.uses = uses
        self.timing = timing
        self.capacity = capacity
        self.tasks: list[Task] = []
        self.moved = 0
        self.level = 0
        self.alive: set[int] = set()
        self.away: set[int] = set()
        self.renamed: dict[int, int] = {}  # tile -> its number since it was last loaded back
        self.clean = _written_by_loads_only(work)
        self.stored: set[int] = set()
        self.next_number = min(min(work.sizes, default=0), 0) - 1
        self.heap: list[tuple[bool, int, int]] = []  # (small, -(next use), tile); some outdated
        self.next_use: dict[int, int] = {}

    def run(self) -> int:
        work, uses, sizes = self.work, self.uses, self.work.sizes
        for at, task in enumerate(work.tasks):
            touched = _touched(task, work, Space.SBUF)
            for number in touched:
                if number not in self.alive:
                    self._make_room(sizes[number], touched, task)
                    self.alive.add(number)
                    self.level += sizes[number]
                    if number in self.away:
                        self._load_back(number, task)
            if self.renamed:
                task.reads = [(self.renamed.get(n, n), t) for n, t in task.reads]
                writes = [n for n, _ in task.writes]
                task.writes = [(self.renamed.get(n, n), t) for n, t in task.writes]
                self.stored.difference_update(writes)
            else:
                self.stored.difference_update(n for n, _ in task.writes)
            self.tasks.append(task)
            for number in touched:
                if uses[number][-1] == at:
                    if number in self.alive:
                        self.alive.discard(number)
                        self.level -= sizes[number]
                else:
                    self._push(number, _next_use(uses[number], at))
        work.tasks = self.tasks
        return self.moved

    def _push(self, number: int, use: int) -> None:
        self.next_use[number] = use
        small = self.work.sizes[number] < _SMALL
        heapq.heappush(self.heap, (small, -use, number))

    def _make_room(self, need: int, keep: set[int], because: Task) -> None:
        """Send tiles away, those needed last first, small ones only when nothing else is left."""
        kept = []
        while self.level + need > self.capacity and self.heap:
            entry = heapq.heappop(self.heap)
            _, use, victim = entry
            if victim not in self.alive or self.next_use[victim] != -use:
                continue
            if victim in keep:
                kept.append(entry)
                continue
            self.alive.discard(victim)
            self.level -= self.work.sizes[victim]
            self.away.add(victim)
            if victim not in self.clean and victim not in self.stored:
                self.stored.add(victim)
                name = self.renamed.get(victim, victim)
                self._move(because, name, None)
        for entry in kept:  # when these alone do not fit, the checker reports it
            heapq.heappush(self.heap, entry)

    def _load_back(self, number: int, because: Task) -> None:
        work = self.work
        self.away.discard(number)
        new = self.next_number
        self.next_number -= 1
        work.sizes[new] = work.sizes[number]
        work.spaces[new] = Space.SBUF
        if number in work.buffers:
            work.buffers[new] = work.buffers[number]
        self.renamed[number] = new
        self._move(because, None, new)

    def _move(self, because: Task, source: int | None, target: int | None) -> None:
        self.tasks.append(_move(because, self.work, self.timing, source, target))
        self.moved += self.tasks[-1].transfer.nbytes


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
        Kind("spill" if out else "reload", ((Engine.SYNC, trigger),), moved),
        [(source, None)] if out else [],
        [] if out else [(target, None)],
    )


class Pool:
    """Free bytes of a memory, and the tiles that get some, in program order.

    Attributes:
        free: bytes a partition.
        since: when the newest of them were given back, and by which task.
        next: position in `tiles` of the next tile to get memory.
        tiles: all tiles of this memory.
    """

    __slots__ = ("_nbytes", "capacity", "free", "next", "since", "tiles")

    def __init__(self, capacity: int, tiles: list[int], nbytes: list[int]) -> None:
        self._nbytes = [min(nbytes[tile], capacity) for tile in tiles]
        self._nbytes.append(1 << 60)  # a last one, that never gets any
        self.free = self.capacity = capacity
        self.since = (0.0, -1)
        self.next = 0
        self.tiles = tiles

    def give_back(self, time: float, nbytes: int, task: int) -> bool:
        """Bytes are free from `time` on, when `task` ends. Returns whether the next tile fits."""
        self.free += min(nbytes, self.capacity)
        if time > self.since[0]:
            self.since = (time, task)
        return self.free >= self._nbytes[self.next]

    def grant(self) -> list[int]:
        """Give memory to the next tiles, as far as there is any. Returns which."""
        first = self.next
        while self.free >= self._nbytes[self.next]:
            self.free -= self._nbytes[self.next]
            self.next += 1
        return self.tiles[first : self.next]
