"""When each task runs: in-order engines, DMA queues, semaphores, ports and finite memory.

The model compiler orders each engine's instructions well: of those that are ready, an engine
takes the first in program order. Loads are started in program order, whether they are ready or not,
since what is started first moves first. An instruction is ready when its inputs are, when what it
overwrites has been read, when there is room on chip for what it makes, and when what the kernel
asks to run before it (`nl.no_reorder`, `depends_on`) has. Everything is deterministic, and takes
O(n log n) steps for n tasks.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

from nkisim.cost.dma import Transfer
from nkisim.cost.tasks import Work
from nkisim.ir.instruction import Engine
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.schedule.allocation import Pool, Residence, capacities
from nkisim.schedule.cores import Wait
from nkisim.schedule.dependences import ASKED, STARTED, Dependences
from nkisim.schedule.engines import ENGINES, MEMORIES, EngineJob, assign_engines
from nkisim.schedule.regions import ORDER, READ
from nkisim.schedule.touches import Touches

# Engines that may have to wait for a memory port. While one waits, it looks for another instruction
# only when it was to be woken anyway, so none of its wakes is left out.
_WITH_PORTS = tuple(map(ENGINES.index, (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)))
_OPEN = (0.0, -1)
_NEVER = float("inf")

# A choice: how often tiles were taken to fit that do not.
MORE_THAN_THERE_IS = "more {} used than there is"


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
        why: in one word: "data", "read", "engine", "port", "memory", "ring", "order" (the kernel
            asks for it), "core" (a task of another core, or one that cores wait for each other at)
            or "start".
        span: nanoseconds to the last result.
        elsewhere: of tasks that a task of a launch's cores let start, which one: core, position.
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
    elsewhere: dict[int, tuple[int, int]] = field(default_factory=dict)


def schedule(
    work: Work,
    machine: Machine,
    timing: Timing,
    dependences: Dependences | None = None,
    touches: Touches | None = None,
) -> Schedule:
    """Run the tasks of one core on its engines.

    Args:
        work: the tasks.
        machine, timing: the tables to run them by.
        dependences: of these tasks, if they are known.
        touches: the memory that the tasks touch, if it is known and the dependences are not.
    """
    if dependences is None:
        touches = touches or Touches.of(work)
        if work.residence is None:
            work.residence = Residence.of(work, touches)
        dependences = Dependences.of(work, timing.dma, touches)
    return _Run(work, assign_engines(work), machine, timing, dependences).run()


def schedule_cores(
    works: Sequence[Work],
    machine: Machine,
    timing: Timing,
    touches: Sequence[Touches],
    across: Sequence[dict[int, list[Wait]]],
) -> list[Schedule]:
    """Run the tasks of several cores, each on its own engines, in one time.

    Args:
        works: the tasks of each core.
        machine, timing: the tables to run them by.
        touches: the memory that they touch.
        across: who waits for tasks of other cores, as of `nkisim.schedule.cores.waits_across`.
    """
    runs = []
    for work, touched in zip(works, touches, strict=True):
        if work.residence is None:
            work.residence = Residence.of(work, touched)
        dependences = Dependences.of(work, timing.dma, touched)
        runs.append(_Run(work, assign_engines(work), machine, timing, dependences))
    for core, waits in enumerate(across):
        runs[core].join(runs, core, waits)
    for run in runs:
        run.begin()
    while True:
        # Always the core whose next event is the first.
        awake = sorted([run for run in runs if run.wakes], key=lambda run: run.wakes[0][0])
        if awake:
            awake[0].limit = awake[1].wakes[0][0] if awake[1:] else _NEVER
            awake[0].drain()
        elif not any(run.overcommit() for run in runs if not run.is_done):
            return [run.end() for run in runs]


class _Run:
    def __init__(
        self,
        work: Work,
        jobs: list[EngineJob],
        machine: Machine,
        timing: Timing,
        dependences: Dependences,
    ) -> None:
        self.work = work
        self.timing = timing
        n = len(work.tasks)
        self.jobs = jobs
        self.engine = [job.engine for job in self.jobs]
        self.tiles = dependences.tiles
        self.users, self.others = dependences.users, dependences.others
        self.waits = list(dependences.waits)  # counted down
        self.ready_at = [0.0] * n
        # What came last of all that a task waits for; the scheduler corrects it if the engine did.
        self.cause = [-1] * n
        self.why = ["start"] * n
        queues = timing.dma.engines
        self.out = Schedule(
            [0.0] * n, [0.0] * n, [0.0] * n, self.engine, [0.0] * n, [0.0] * n,
            [0.0] * queues, self.cause, self.why, queues_of=[()] * n,
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
        self.next_wake = [_NEVER] * len(ENGINES)
        self.port = [_OPEN, _OPEN]  # of each memory: until when it is held, and by which task
        self.table = ""
        self.issued = 0
        # With other cores: how far this one may go on, until another one does; and who waits there.
        self.limit = _NEVER
        self.core = 0
        self.across: dict[int, list[tuple[_Run, Wait]]] = {}
        self._set_up_memory(machine)

    def _set_up_memory(self, machine: Machine) -> None:
        """Pools, and the order in which tiles get their memory."""
        tiles, room = self.tiles, capacities(machine)
        limits = [room[space] for space in MEMORIES]
        wanted: list[list] = [[] for _ in MEMORIES]
        taken = []
        for memory, nbytes in zip(tiles.memory, tiles.nbytes, strict=True):
            limit = limits[memory]
            nbytes = nbytes if nbytes < limit else limit
            taken.append(nbytes)
            wanted[memory].append((nbytes, len(taken) - 1))
        self.pools = [Pool(*memory) for memory in zip(limits, wanted, strict=True)]
        # Who touches a tile: parts of it may be filled by tasks that wait for nothing else.
        self.touching: list[list[int]] = [[] for _ in taken]
        for at, touched in enumerate(tiles.touched):
            for tile in touched:
                self.touching[tile].append(at)
                self.waits[at] += 1
        # Of each tile: its pool and its bytes, the tasks left that touch it, and when the others
        # are done.
        self.homes = [(self.pools[m], n) for m, n in zip(tiles.memory, taken, strict=True)]
        self.left = list(tiles.uses)
        self.released = [0.0] * len(taken)

    def run(self) -> Schedule:
        """Run all tasks, of one core alone."""
        self.begin()
        self.drain()
        while not self.is_done and self.overcommit():
            self.drain()
        return self.end()

    def join(self, runs: Sequence[_Run], core: int, waits: dict[int, list[Wait]]) -> None:
        """Have tasks of all cores wait for tasks of this one. Before any of them begins."""
        self.core = core
        for at, found in waits.items():
            self.across[at] = [(runs[wait.core], wait) for wait in found]
            for run, wait in self.across[at]:
                run.waits[wait.task] += 1

    @property
    def is_done(self) -> bool:
        return self.issued == len(self.out.start)

    def begin(self) -> None:
        """Give memory to the first tiles, and let engines look at what waits for nothing."""
        for at, count in enumerate(self.waits):
            if count == 0:
                self._enqueue(at)
        for pool in self.pools:
            self._give_back(pool, 0.0, 0, -1)

    def end(self) -> Schedule:
        """The schedule, once all tasks have run."""
        if not self.is_done:
            raise RuntimeError(
                f"the scheduler ran {self.issued} of {len(self.out.start)} tasks: "
                "this is a fault of the cost model; please report the kernel"
            )
        self.out.span = max(self.out.done, default=0.0)
        self.out.queue_busy = [busy + self.level_busy for busy in self.out.queue_busy]
        return self.out

    def drain(self) -> None:
        """Issue tasks until none is ready, or another core is to go on."""
        wakes, next_wake, free = self.wakes, self.next_wake, self.free
        shared = self.timing.shared_port
        pop, push = heapq.heappop, heapq.heappush
        issued = 0
        while wakes and wakes[0][0] <= self.limit:
            now, e = pop(wakes)
            if now != next_wake[e] and e not in _WITH_PORTS:
                continue  # it was woken before, and knows when to look again
            if now < free[e]:
                self._wake(e, now)
                continue
            next_wake[e] = _NEVER
            waiting, ready = self.waiting[e], self.ready[e]
            while waiting and waiting[0][0] <= now:
                push(ready, pop(waiting)[1])
            if not ready:
                if waiting:
                    self._wake(e, waiting[0][0])
                continue
            at = ready[0]
            if shared and self.jobs[at].ports:
                opens, holder = self._port(e, at)
                if opens > now:
                    self.ready_at[at], self.cause[at], self.why[at] = opens, holder, "port"
                    self._wake(e, opens)
                    continue
            pop(ready)
            self._issue(at, e, now)
            issued += 1
            if ready or (waiting and e in _WITH_PORTS):
                self._wake(e, free[e])
            elif waiting:  # else what comes next wakes the engine
                self._wake(e, waiting[0][0])
        self.issued += issued

    def overcommit(self) -> bool:
        """Give memory that is not there, where one point of the program needs more than there is.

        SBUF is spilled before scheduling, but for what one instruction needs; and results leave
        PSUM, but for those that are not complete.
        """
        pending = [
            (pool.waiting[1], memory)
            for memory, pool in enumerate(self.pools)
            if pool.waiting is not None
        ]
        if not pending:
            return False
        _, memory = min(pending)
        pool = self.pools[memory]
        self.work.choices[MORE_THAN_THERE_IS.format(MEMORIES[memory].label)] += 1
        self._give_back(pool, 0.0, pool.waiting[0], -1)
        return True

    def _wake(self, e: int, time: float) -> None:
        """Let an engine look for something to do at `time`, or when it is free."""
        free = self.free[e]
        if time < free:
            time = free
        if time < self.next_wake[e]:
            self.next_wake[e] = time
            heapq.heappush(self.wakes, (time, e))

    def _enqueue(self, at: int) -> None:
        """Queue a task on its engine: all of its dependences are met."""
        e, time = self.engine[at], self.ready_at[at]
        heapq.heappush(self.waiting[e], (time, at))
        if self.free[e] < self.next_wake[e] > time:
            self._wake(e, time)

    def _port(self, e: int, at: int) -> tuple[float, int]:
        """When the memory ports that a task needs are free, and who holds them until then."""
        opens = _OPEN
        for memory in self.jobs[at].ports:
            held = self.port[memory]
            if held > opens and self.engine[held[1]] != e:
                opens = held
        return opens

    def _issue(self, at: int, e: int, now: float) -> None:
        out = self.out
        job = self.jobs[at]
        out.start[at] = now
        if now > self.ready_at[at] and self.last[e] >= 0:
            self.cause[at], self.why[at] = self.last[e], "engine"
        extra = 0.0
        if job.table and job.table != self.table:
            # An instruction of its own, which waits for no data: it can run while the engine does.
            self.table = job.table
            extra = max(0.0, self.free[e] + self.timing.table_load_ns - now)
        end = read = now + job.busy + extra
        if job.transfer is None:
            done = now + job.done + extra
            near, far = 0.0, self.timing.semaphore_ns
            for memory in job.ports:
                held = (now + extra + job.data, at)
                if held > self.port[memory]:
                    self.port[memory] = held
        else:
            read, done = self._transfer(at, end, job.transfer)
            near = far = self.timing.dma.wake_ns
        out.end[at] = self.free[e] = end
        out.done[at] = done
        self.last[e] = at
        near_done, far_done = done + near, done + far
        engine, waits, ready_at = self.engine, self.waits, self.ready_at
        for user in self.users[at]:
            # As `_arrive`, of which there are two for each task.
            time = near_done if engine[user] == e else far_done
            if time > ready_at[user]:
                ready_at[user] = time
                self.cause[user] = at
                self.why[user] = "data"
            left = waits[user] = waits[user] - 1
            if not left:
                self._enqueue(user)
        if at in self.others:
            self._tell_others(at, end, (read + near, read + far), done, far_done)
        if at in self.across:
            self._tell_cores(at, read + far, far_done)
        self._release(at, read if read > done else done)

    def _tell_cores(self, at: int, read: float, done: float) -> None:
        """Signal the tasks of other cores that wait for a task's result, or for the end of its
        reads."""
        for run, wait in self.across[at]:
            run.hear(wait.task, read if wait.kind == READ else done, (self.core, at))
            if run is not self and run.wakes and run.wakes[0][0] < self.limit:
                self.limit = run.wakes[0][0]

    def hear(self, at: int, time: float, by: tuple[int, int]) -> None:
        """Receive the signal of a task `by` of another core, at `time`, for the task `at`."""
        if time > self.ready_at[at]:
            self.out.elsewhere[at] = by
        self._arrive(at, time, -1, "core")

    def _tell_others(
        self, at: int, end: float, read: tuple[float, float], done: float, far_done: float
    ) -> None:
        """Signal the tasks that wait for a task for another reason than its result.

        Args:
            at: the task.
            end, done: when its engine is free, and when its result is there.
            read: when its operands have been read, for those on its engine and for others.
            far_done: when its result is there for those on other engines.
        """
        e = self.engine[at]
        for follower, kind in self.others[at]:
            same = self.engine[follower] == e
            if kind == READ:
                self._arrive(follower, read[0] if same else read[1], at, "read")
            elif kind == ASKED:  # an engine runs in order, and signals others when it is done
                self._arrive(follower, end if same else far_done, at, "order")
            elif kind == ORDER:
                self._arrive(follower, end, at, "data")
            elif kind == STARTED:
                self._arrive(follower, end, at, "engine")
            else:
                self._arrive(follower, done, at, "ring")

    def _arrive(self, at: int, time: float, by: int, why: str) -> None:
        """One of the things that a task waits for comes at `time`."""
        if time > self.ready_at[at]:
            self.ready_at[at] = time
            self.cause[at] = by
            self.why[at] = why
        left = self.waits[at] = self.waits[at] - 1
        if not left:
            self._enqueue(at)

    def _transfer(self, at: int, triggered: float, moved: Transfer) -> tuple[float, float]:
        """Occupy DMA engines; returns when the source has been read, and when all is done."""
        dma, out = self.timing.dma, self.out
        begin = triggered + dma.start_ns + moved.later_ns
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
                chosen = (free.index(min(free)),)
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

    def _release(self, at: int, time: float) -> None:
        """Give back the memory of tiles that nothing touches any more."""
        left, released = self.left, self.released
        for tile in self.tiles.touched[at]:
            uses = left[tile] = left[tile] - 1
            if time > released[tile]:
                released[tile] = time
            if not uses:
                pool, nbytes = self.homes[tile]
                self._give_back(pool, released[tile], nbytes, at)

    def _give_back(self, pool: Pool, time: float, nbytes: int, by: int) -> None:
        """Give memory to the next tiles in program order, as far as there is any."""
        for tile in pool.give_back(time, nbytes, by):
            for at in self.touching[tile]:
                self._arrive(at, pool.since, pool.by, "memory")
