"""SBUF and PSUM as the compiler fills them: spilling what does not fit, and lifetimes.

Tiles are placed in program order. When the tiles that are alive at one
point do not fit, the one needed again last is stored to HBM and loaded back before its next use.
Placement is by size only: fragmentation is not modelled.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np

from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Kind, Memory, ScheduledTask, Work
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.schedule.touches import Touches

# Tiles of fewer bytes a partition are worth no trip to HBM while larger ones can go.
_SMALL = 256


@dataclass
class Residence:
    """The live ranges of tiles on chip, from task to task, in positions of the list of tasks.

    Tiles go by the order in which they are first needed; all lists but `touched` are over them.

    Attributes:
        touched: for each task, the tiles that it touches.
        numbers: which memory it is, in the numbers of `Work`.
        first, last: the first and last task that touches it.
        uses: how many tasks do.
        nbytes: bytes a partition that it takes.
        memory: 0 for SBUF, 1 for PSUM.
    """

    touched: list[list[int]]
    numbers: list[int]
    first: list[int]
    last: list[int]
    uses: list[int]
    nbytes: list[int]
    memory: list[int]

    @classmethod
    def of(cls, work: Work, touches: Touches | None = None) -> Residence:
        """The tiles that the tasks of one core touch.

        Args:
            work: the tasks.
            touches: what they touch, if it is known.
        """
        touches = touches or Touches.of(work)
        tiles, tile, task = touches.tiles
        tasks = len(touches.starts) - 1
        ends = np.cumsum(np.bincount(task, minlength=tasks)).tolist()
        flat = tile.tolist()
        numbers = touches.numbers[tiles].tolist()
        kinds = [work.memory[n] for n in numbers]
        return cls(
            touched=[flat[a:b] for a, b in zip([0, *ends], ends, strict=False)],
            numbers=numbers,
            first=touches.task[touches.first[tiles]].tolist(),
            last=touches.task[touches.last[tiles]].tolist(),
            uses=np.bincount(tile, minlength=len(tiles)).tolist(),
            nbytes=[kind.nbytes for kind in kinds],
            memory=[1 if kind.space is Space.PSUM else 0 for kind in kinds],
        )


def capacities(machine: Machine) -> dict[Space, int]:
    """Bytes a partition that tiles may take."""
    return {Space.SBUF: machine.sbuf_usable_bytes, Space.PSUM: machine.psum_bytes}


def spill(work: Work, touches: Touches, machine: Machine, timing: Timing) -> tuple[int, Touches]:
    """Insert the stores and loads without which the kernel does not fit SBUF.

    Args:
        work: the tasks, which are changed if they do not fit.
        touches: what they touch before that.
        machine, timing: the tables.

    Returns:
        Bytes moved by what was inserted; and what the tasks touch after that.
    """
    capacity = machine.sbuf_usable_bytes
    if touches.peak(Space.SBUF) <= capacity:
        return 0, touches
    spiller = _Spiller(work, touches, timing, capacity - _on_their_way(machine, timing))
    spiller.run()
    if not spiller.moves:  # one task needs more than there is
        return 0, touches
    return spiller.moved, touches.after(work, spiller.moves, spiller.renames)


def _on_their_way(machine: Machine, timing: Timing) -> int:
    """Bytes a partition that loads bring in while one of them takes place.

    With less room than that, a tile is loaded back only once another one has gone, and what needs
    it waits for all of the load.
    """
    dma = timing.dma
    ns = dma.spill_trigger_ns + dma.start_ns + dma.load_latency_ns + dma.semaphore_ns + dma.wake_ns
    return int(ns * dma.load_rate * dma.engines / machine.partitions)


class _Spiller:
    """One walk over the tasks with the tiles that are on chip.

    Args:
        work: the tasks.
        touches: what they touch.
        timing: the table.
        capacity: bytes a partition that they may take.
    """

    def __init__(self, work: Work, touches: Touches, timing: Timing, capacity: int) -> None:
        self.work = work
        self.timing = timing
        self.capacity = capacity
        # Which tiles are on chip when, if all fit. They go by their positions in it.
        self.before = tiles = Residence.of(work, touches)
        self.tasks: list[ScheduledTask] = []  # with the stores and loads among them
        self.here = [memory == 1 for memory in tiles.memory]  # PSUM is not looked at
        self.moved = 0  # bytes
        # As for `Touches.after`.
        self.moves: list[tuple[int, int, bool]] = []
        self.renames: list[tuple[int, int, int]] = []
        self.level = 0
        self.away: set[int] = set()
        self.renamed: dict[int, int] = {}  # number -> the one since it was last loaded back
        self.back: set[int] = set()  # the tiles with these numbers
        self.computed = _computed(work, touches)  # numbers
        self.stored: set[int] = set()  # numbers
        self.next_number = min(min(work.memory, default=0), 0) - 1
        # (small, -(next use), number, tile); some outdated
        self.heap: list[tuple[bool, int, int, int]] = []
        self.seen = 0  # tasks; what tiles are used for after these is not in the heap yet
        self.kinds: dict[tuple[int, int, bool], Kind] = {}
        # The tasks that touch each tile, one tile after the other, and where the next one's begin.
        _, tile, task = touches.tiles
        self.uses: list[int] = task[np.argsort(tile, kind="stable")].tolist()
        self.ends: list[int] = np.cumsum(tiles.uses).tolist()

    def run(self) -> None:
        """Put stores and loads in."""
        tiles, tasks, here, away = self.before, self.tasks, self.here, self.away
        renamed, back, stored, capacity = self.renamed, self.back, self.stored, self.capacity
        nbytes = tiles.nbytes
        freed = np.zeros(len(tiles.touched), np.int64)  # behind each task
        in_sbuf = np.array(tiles.memory) == 0
        np.add.at(freed, np.array(tiles.last)[in_sbuf], np.array(nbytes)[in_sbuf])
        walk = zip(self.work.tasks, tiles.touched, freed.tolist(), strict=True)
        for at, (task, touched, gone) in enumerate(walk):
            for tile in touched:
                if not here[tile]:
                    # Have room for it, with all that the task touches.
                    level = self.level + nbytes[tile]
                    if level > capacity:
                        self._make_room(nbytes[tile], at)
                        level = self.level + nbytes[tile]
                    self.level = level
                    here[tile] = True
                    if tile in away:
                        self._load_back(tile, at)
            self.level -= gone
            if stored:
                for number, _ in task.writes:
                    stored.discard(number)
            if back and not back.isdisjoint(touched):
                task.reads = [(renamed.get(n, n), part) for n, part in task.reads]
                task.writes = [(renamed.get(n, n), part) for n, part in task.writes]
            tasks.append(task)
        self.work.tasks = tasks

    def _make_room(self, need: int, at: int) -> None:
        """Send tiles away, those needed last first, small ones only when nothing else is left."""
        tiles, here, ends, uses = self.before, self.here, self.ends, self.uses
        numbers, nbytes, memory, last = tiles.numbers, tiles.nbytes, tiles.memory, tiles.last
        touched = tiles.touched
        for tile in set().union(*touched[self.seen : at]):
            if here[tile] and last[tile] >= at and memory[tile] == 0:
                end = ends[tile]
                use = uses[bisect_left(uses, at, end - tiles.uses[tile], end)]
                heapq.heappush(self.heap, (nbytes[tile] < _SMALL, -use, numbers[tile], tile))
        self.seen = at
        kept = []
        while self.level + need > self.capacity and self.heap:
            entry = heapq.heappop(self.heap)
            _, use, number, victim = entry
            if not here[victim] or -use < at:
                continue
            if victim in touched[at]:
                kept.append(entry)
                continue
            self.level -= nbytes[victim]
            self.away.add(victim)
            if number in self.computed and number not in self.stored:
                self.stored.add(number)
                self._move(at, self.renamed.get(number, number), stores=True)
            here[victim] = False
        for entry in kept:  # when these alone do not fit, the checker reports it
            heapq.heappush(self.heap, entry)

    def _load_back(self, tile: int, at: int) -> None:
        self.away.discard(tile)
        self.back.add(tile)
        number = self.before.numbers[tile]
        self.work.reloaded.add(number)
        new = self.renamed[number] = self.next_number
        self.next_number -= 1
        self.work.memory[new] = self.work.memory[number]
        self.renames.append((at, number, new))
        self._move(at, new, stores=False)

    def _move(self, at: int, number: int, stores: bool) -> None:
        """Store or load a tile in front of the task at a position."""
        memory = self.work.memory[number]
        key = (memory.nbytes, memory.rows, stores)
        kind = self.kinds.get(key)
        if kind is None:
            kind = self.kinds[key] = _move(memory, stores, self.timing)
        tile = [(number, None)]
        reads, writes = (tile, []) if stores else ([], tile)
        self.tasks.append(ScheduledTask(self.work.tasks[at].instr, kind, reads, writes))
        self.moves.append((at, number, stores))
        self.moved += kind.transfer.nbytes


def _computed(work: Work, touches: Touches) -> set[int]:
    """Memory that tasks other than loads write. Other tiles hold what HBM holds too: no store is
    needed before they go."""
    computes = np.array([task.kind.transfer is None for task in work.tasks], bool)
    found = np.zeros(len(touches.numbers), bool)
    found[touches.memory[touches.writes & computes[touches.task]]] = True
    return set(touches.numbers[found].tolist())


def _move(tile: Memory, stores: bool, timing: Timing) -> Kind:
    """The DMA that takes a whole tile out of SBUF, or back."""
    dma = timing.dma
    column, rows = tile.nbytes, tile.rows
    engines = min(rows, dma.engines)
    rate = dma.store_rate if stores else dma.load_rate
    each = (dma.store_descriptor_ns if stores else dma.load_descriptor_ns) + column / rate
    latency = (dma.store_latency_ns if stores else dma.load_latency_ns) + dma.semaphore_ns
    nbytes = column * rows
    moved = Transfer(each * -(-rows // engines), engines, latency, nbytes, nbytes, column, rows,
                     False)  # fmt: skip
    trigger = Cost(dma.spill_trigger_ns, dma.spill_trigger_ns, dma.spill_trigger_ns)
    return Kind("spill" if stores else "reload", ((Engine.SYNC, trigger),), moved, again=True)


class Pool:
    """Free bytes of a memory, and who gets some next.

    Args:
        capacity: bytes a partition.
        wanted: for each of its tiles, in program order, the bytes that it takes and its number.
    """

    __slots__ = ("_free", "_next", "_wanted", "by", "since")

    def __init__(self, capacity: int, wanted: list[tuple[int, int]]) -> None:
        self._free = capacity
        self._wanted = [*wanted, (1 << 60, -1)]  # a last tile, that never gets any
        self._next = 0
        self.since, self.by = 0.0, -1  # when the newest of its free bytes were given back; by whom

    @property
    def waiting(self) -> tuple[int, int] | None:
        """The next tile to get memory, if there is one."""
        return self._wanted[self._next] if self._next < len(self._wanted) - 1 else None

    def give_back(self, time: float, nbytes: int, task: int) -> list[int]:
        """Bytes are free from `time` on, when `task` ends.

        Returns:
            The tiles that get memory now.
        """
        if time > self.since:
            self.since, self.by = time, task
        free = self._free + nbytes
        need, tile = self._wanted[self._next]
        granted = []
        while free >= need:
            free -= need
            granted.append(tile)
            self._next += 1
            need, tile = self._wanted[self._next]
        self._free = free
        return granted
