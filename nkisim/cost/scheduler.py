"""When each task runs: in-order engines, DMA queues, semaphores, ports and finite memory.

The model compiler orders each engine's instructions well: of those that are ready, an engine
takes the first in program order. An instruction is ready when its inputs are, when what it
overwrites has been read, and when there is room on chip for what it makes. Everything is
deterministic, and takes O(n log n) steps for n tasks.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from nkisim.cost.allocation import Pool, Residence, capacities
from nkisim.cost.regions import ORDER, READ, RESULT, Patterns, Regions
from nkisim.cost.tasks import Work
from nkisim.instruction import Engine
from nkisim.machine import Machine
from nkisim.memory import Space
from nkisim.tensor import Tensor
from nkisim.timing import Timing

ENGINES = (Engine.TENSOR, Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD, Engine.SYNC)
_TENSOR, _VECTOR, _SCALAR, _GPSIMD, _SYNC = range(5)
_ELEMENTWISE = (_VECTOR, _SCALAR, _GPSIMD)
_OPEN = (0.0, -1)
_MEMORIES = (Space.SBUF, Space.PSUM)
_RING = 3  # a dependence on an earlier transfer of the same DMA instruction


@dataclass
class Schedule:
    """Times of the tasks of one core, in nanoseconds from the start of its first instruction.

    Attributes:
        start, end, done: a task occupies its engine from start to end; others see its result
            at done.
        engine: position in ENGINES.
        queue_start, queue_end: when a transfer occupies its DMA engines; equal otherwise.
        queue_busy: nanoseconds that each DMA engine is busy.
        queues_of: the DMA engines of each transfer.
        cause: the task whose end let this one start; -1 for none.
        why: in one word: "data", "read", "engine", "port", "memory", "ring" or "start".
        span: nanoseconds to the last result.
    """

    start: list[float]
    end: list[float]
    done: list[float]
    engine: list[int]
    queue_start: list[float]
    queue_end: list[float]
    queue_busy: list[float]
    cause: list[int]
    why: list[str]
    span: float = 0.0
    queues_of: list[tuple[int, ...]] = field(default_factory=list)


def assign_engines(work: Work) -> list[int]:
    """The engine of each task: a free choice goes to the engine with less to do in all."""
    index = {e: at for at, e in enumerate(ENGINES)}
    known: dict[int, list[tuple[int, float]]] = {}  # id of a task's costs -> the same by position
    load = [0.0] * len(ENGINES)
    options = []
    for task in work.tasks:
        costs = task.costs
        found = known.get(id(costs))
        if found is None:
            found = known[id(costs)] = [(index[e], c.busy) for e, c in costs]
        if len(found) == 1:
            engine, busy = found[0]
            load[engine] += busy
        options.append(found)
    chosen = []
    for task, found in zip(work.tasks, options, strict=True):
        engine = found[0][0]
        if len(found) > 1:
            total, _, engine = min((load[e] + busy, at, e) for at, (e, busy) in enumerate(found))
            load[engine] = total
            work.choices[f"{task.label} on {ENGINES[engine].value}"] += 1
        chosen.append(engine)
    return chosen


def dependences(work: Work, in_flight: int) -> tuple[list[list[tuple[int, int]]], list[int]]:
    """(followers of each task with the kind of dependence, number of tasks each waits for)."""
    tasks = work.tasks
    tracked, parts = _memory_to_watch(work)
    patterns = Patterns()
    regions = {n: Regions(patterns) for n in parts & tracked}
    hbm = work.spaces.keys() - work.sizes.keys()
    # Memory that is only ever touched as one needs no regions: its last writer, and who has read
    # it since.
    whole: dict[int, tuple[list[int], list[int]]] = {n: ([], []) for n in tracked - parts}
    followers: list[list[tuple[int, int]]] = [[] for _ in tasks]
    waits_for = [0] * len(tasks)
    rings: dict[tuple, list[int]] = defaultdict(list)
    for at, task in enumerate(tasks):
        waits: dict[int, int] = {}
        for number, t in task.reads:
            touched = whole.get(number)
            if touched is not None:
                if touched[0]:
                    waits[touched[0][0]] = RESULT
                touched[1].append(at)
            elif number in regions:
                regions[number].read(t, at, waits)
        for number, t in task.writes:
            touched = whole.get(number)
            if touched is not None:
                writer, readers = touched
                if writer:
                    waits[writer[0]] = RESULT
                for reader in readers:
                    if reader != at:
                        waits.setdefault(reader, READ)
                readers.clear()
                writer[:] = (at,)
            elif number in regions:
                regions[number].write(t, at, waits)
        if task.accumulates:
            for before, kind in waits.items():
                if kind == RESULT and tasks[before].instr.opcode == "nc_matmul":
                    waits[before] = ORDER
        if task.transfer is not None:
            source = task.reads[0][0] if task.reads else -1
            far = source if source in hbm else task.writes[0][0] if task.writes else -1
            ring = rings[id(task.instr.location), task.label, far if far in hbm else None]
            if len(ring) >= in_flight:
                waits.setdefault(ring[-in_flight], _RING)
            ring.append(at)
        waits_for[at] = len(waits)
        for before, kind in waits.items():
            followers[before].append((at, kind))
    return followers, waits_for


def _memory_to_watch(work: Work) -> tuple[set[int], set[int]]:
    """(memory in which tasks may have to wait for each other, memory touched in several parts)."""
    read: set[int] = set()
    written: set[int] = set()
    first: dict[int, Tensor | None] = {}
    parts: set[int] = set()
    for task in work.tasks:
        for numbers, accesses in ((read, task.reads), (written, task.writes)):
            for number, t in accesses:
                numbers.add(number)
                if number not in first:
                    first[number] = t
                    continue
                f = first[number]
                if f is not t and (
                    f is None
                    or t is None
                    or f.shape is not t.shape
                    or f.coefs is not t.coefs
                    or f.offsets != t.offsets
                    or f.base_shape != t.base_shape
                ):
                    parts.add(number)
    hbm = work.spaces.keys() - work.sizes.keys()
    return (read & written) | (written - hbm), parts


def schedule(work: Work, machine: Machine, timing: Timing) -> Schedule:
    """Run the tasks of one core on its engines."""
    return _Run(work, machine, timing).run()


class _Run:
    def __init__(self, work: Work, machine: Machine, timing: Timing) -> None:
        self.work = work
        self.timing = timing
        n = len(work.tasks)
        self.engine = assign_engines(work)
        self.costs = [
            task.costs[0][1]
            if len(task.costs) == 1
            else next(c for e, c in task.costs if e is ENGINES[chosen])
            for task, chosen in zip(work.tasks, self.engine, strict=True)
        ]
        self.followers, self.waits = dependences(work, timing.dma.in_flight)
        self.ready_at = [0.0] * n
        self.ready_by = [-1] * n
        self.ready_why = ["start"] * n
        queues = timing.dma.engines
        self.out = Schedule(
            [0.0] * n, [0.0] * n, [0.0] * n, self.engine, [0.0] * n, [0.0] * n,
            [0.0] * queues, [-1] * n, ["start"] * n, queues_of=[()] * n,
        )  # fmt: skip
        self.queue_free = [0.0] * queues
        # Mostly all queues are used at once. While they are level, one number stands for all.
        self.level: float | None = 0.0
        self.latest = self.level_busy = 0.0
        self.all_queues = tuple(range(queues))
        self.waiting: list[list] = [[] for _ in ENGINES]
        self.ready: list[list] = [[] for _ in ENGINES]
        self.free = [0.0] * len(ENGINES)
        self.last = [-1] * len(ENGINES)
        self.wakes: list[tuple[float, int]] = []
        self.next_wake = [float("inf")] * len(ENGINES)
        self.port = {"sbuf": (0.0, -1), "psum": (0.0, -1)}
        self.table = ""
        self._set_up_memory(machine)

    def _set_up_memory(self, machine: Machine) -> None:
        """Pools, and the order in which buffers get their memory."""
        self.tiles = tiles = self.work.residence or Residence.of(self.work)
        self.pools = [Pool(capacities(machine)[space]) for space in _MEMORIES]
        self.queue: list[list[int]] = [[], []]
        for tile, memory in enumerate(tiles.memory):
            self.queue[memory].append(tile)
        self.front = [0] * len(_MEMORIES)
        self.left = list(tiles.uses)
        self.released = [0.0] * len(self.left)
        for first in tiles.first:
            self.waits[first] += 1

    def run(self) -> Schedule:
        for at, count in enumerate(self.waits):
            if count == 0:
                self._enqueue(at)
        for memory in range(len(_MEMORIES)):
            self._allocate(memory)
        issued = self._drain()
        while issued < len(self.out.start) and self._overcommit():
            issued += self._drain()
        if issued != len(self.out.start):
            raise RuntimeError(
                f"the scheduler ran {issued} of {len(self.out.start)} tasks: "
                "this is a fault of the cost model; please report the kernel"
            )
        self.out.span = max(self.out.done, default=0.0)
        self.out.queue_busy = [busy + self.level_busy for busy in self.out.queue_busy]
        return self.out

    def _drain(self) -> int:
        """Issue tasks until none is ready. Returns how many."""
        wakes, next_wake, shared = self.wakes, self.next_wake, self.timing.shared_port
        pop, push = heapq.heappop, heapq.heappush
        issued = 0
        while wakes:
            now, e = pop(wakes)
            if now < self.free[e]:
                self._wake(e, now)
                continue
            next_wake[e] = float("inf")
            waiting, ready = self.waiting[e], self.ready[e]
            while waiting and waiting[0][0] <= now:
                push(ready, pop(waiting)[1])
            if not ready:
                if waiting:
                    self._wake(e, waiting[0][0])
                continue
            at = ready[0]
            if shared and e in _ELEMENTWISE:
                opens, holder = self._port(e, at)
                if opens > now:
                    self.ready_at[at], self.ready_by[at] = opens, holder
                    self.ready_why[at] = "port"
                    self._wake(e, opens)
                    continue
            pop(ready)
            self._issue(at, e, now)
            issued += 1
            if ready or waiting:  # else what comes next wakes the engine
                self._wake(e, self.free[e])
        return issued

    def _overcommit(self) -> bool:
        """Give memory that is not there, where one point of the program needs more than there is.

        SBUF is spilled before scheduling; this is for PSUM, whose spills are not modelled.
        """
        tiles = self.tiles
        pending = [
            (tiles.first[queue[front]], memory)
            for memory, (queue, front) in enumerate(zip(self.queue, self.front, strict=True))
            if front < len(queue)
        ]
        if not pending:
            return False
        _, memory = min(pending)
        self.pools[memory].free += tiles.nbytes[self.queue[memory][self.front[memory]]]
        self.work.choices[f"more {_MEMORIES[memory].label} used than there is"] += 1
        self._allocate(memory)
        return True

    def _wake(self, e: int, time: float) -> None:
        free = self.free[e]
        if time < free:
            time = free
        if time < self.next_wake[e]:
            self.next_wake[e] = time
            heapq.heappush(self.wakes, (time, e))

    def _enqueue(self, at: int) -> None:
        """A task has all that it waits for."""
        e, time = self.engine[at], self.ready_at[at]
        heapq.heappush(self.waiting[e], (time, at))
        if time < self.next_wake[e]:
            self._wake(e, time)

    def _arrive(self, at: int, time: float, by: int, why: str) -> None:
        """One of the things that a task waits for comes at `time`."""
        if time > self.ready_at[at]:
            self.ready_at[at] = time
            self.ready_by[at] = by
            self.ready_why[at] = why
        left = self.waits[at] = self.waits[at] - 1
        if left == 0:
            self._enqueue(at)

    def _port(self, e: int, at: int) -> tuple[float, int]:
        """When the memory ports that a task needs are free, and who holds them until then."""
        opens = _OPEN
        if e != _SCALAR:
            opens = max(opens, self._held("sbuf", e))
        if e != _GPSIMD and self.work.tasks[at].psum:
            opens = max(opens, self._held("psum", e))
        return opens

    def _held(self, port: str, e: int) -> tuple[float, int]:
        until, holder = self.port[port]
        return _OPEN if holder < 0 or self.engine[holder] == e else (until, holder)

    def _issue(self, at: int, e: int, now: float) -> None:
        out, task, found = self.out, self.work.tasks[at], self.costs[at]
        out.start[at] = now
        if now <= self.ready_at[at] or self.last[e] < 0:
            out.cause[at], out.why[at] = self.ready_by[at], self.ready_why[at]
        else:
            out.cause[at], out.why[at] = self.last[e], "engine"
        extra = 0.0
        if task.table and task.table != self.table:
            self.table = task.table
            extra = self.timing.table_load_ns
        end = now + found.busy + extra
        if task.transfer is None:
            done = now + found.done + extra
            if e in _ELEMENTWISE:
                held = now + extra + found.data
                if e != _SCALAR:
                    self.port["sbuf"] = max(self.port["sbuf"], (held, at))
                if task.psum and e != _GPSIMD:
                    self.port["psum"] = max(self.port["psum"], (held, at))
            read = end
        else:
            read, done = self._transfer(at, end)
        out.end[at] = self.free[e] = end
        out.done[at] = done
        self.last[e] = at
        self._tell(at, e, end, read, done, task.transfer is not None)
        self._release(at, max(read, done))

    def _transfer(self, at: int, triggered: float) -> tuple[float, float]:
        """Occupy DMA engines; returns when the source has been read, and when all is done."""
        moved, dma, out = self.work.tasks[at].transfer, self.timing.dma, self.out
        begin = triggered + dma.start_ns
        free = self.queue_free
        count, busy = moved.engines, moved.engine_ns
        chosen = self.all_queues
        if count == len(free) and (self.level is not None or begin >= self.latest):
            first = begin if self.level is None or begin > self.level else self.level
            last = self.level = self.latest = first + busy
            self.level_busy += busy
        else:
            if self.level is not None:
                free[:] = [self.level] * len(free)
                self.level = None
            if count == 1:
                chosen = (min(range(len(free)), key=free.__getitem__),)
            elif count < len(free):
                chosen = tuple(sorted(range(len(free)), key=free.__getitem__)[:count])
            first, last = float("inf"), 0.0
            for q in chosen:
                start = free[q] if free[q] > begin else begin
                free[q] = start + busy
                out.queue_busy[q] += busy
                if start < first:
                    first = start
                if free[q] > last:
                    last = free[q]
            self.latest = max(self.latest, last)
        out.queue_start[at], out.queue_end[at] = first, last
        out.queues_of[at] = chosen
        return last, last + moved.latency_ns

    def _tell(self, at: int, e: int, end: float, read: float, done: float, dma: bool) -> None:
        """Pass on what followers wait for."""
        near, far = 0.0, self.timing.semaphore_ns
        if dma:
            near = far = self.timing.dma.wake_ns
        engine, waits, ready_at = self.engine, self.waits, self.ready_at
        for follower, kind in self.followers[at]:
            hop = near if engine[follower] == e else far
            if kind == RESULT:
                time, why = done + hop, "data"
            elif kind == READ:
                time, why = read + hop, "read"
            elif kind == ORDER:
                time, why = end, "data"
            else:
                time, why = done, "ring"
            # As `_arrive`, of which there are two for each task.
            if time > ready_at[follower]:
                ready_at[follower] = time
                self.ready_by[follower] = at
                self.ready_why[follower] = why
            waits[follower] -= 1
            if not waits[follower]:
                self._enqueue(follower)

    def _release(self, at: int, time: float) -> None:
        """Give back the memory of tiles that nothing touches any more."""
        left, released, tiles = self.left, self.released, self.tiles
        for tile in tiles.touched[at]:
            left[tile] -= 1
            if time > released[tile]:
                released[tile] = time
            if not left[tile]:
                memory = tiles.memory[tile]
                pool = self.pools[memory]
                pool.give_back(released[tile], min(tiles.nbytes[tile], pool.capacity), at)
                if self.front[memory] < len(self.queue[memory]):
                    self._allocate(memory)

    def _allocate(self, memory: int) -> None:
        """Give memory to the next tiles in program order, as far as there is any."""
        queue, pool, tiles = self.queue[memory], self.pools[memory], self.tiles
        front = self.front[memory]
        while front < len(queue):
            tile = queue[front]
            granted = pool.take(tiles.nbytes[tile])
            if granted is None:
                break
            self._arrive(tiles.first[tile], granted[0], granted[1], "memory")
            front += 1
        self.front[memory] = front
