"""Modelled times of a kernel: what each engine and each line takes, and what bounds them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from nkisim.cost.tasks import ScheduledTask, Work
from nkisim.errors import Location
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.report.groups import TaskGroup, group_tasks
from nkisim.schedule.engines import ENGINES
from nkisim.schedule.scheduler import Schedule

MODELLED = "modelled by nkisim, not measured"


class Interval(NamedTuple):
    """Something that happens, in microseconds from the start of the kernel's body.

    Attributes:
        track: "Vector", ...; "DMA" for all queues at once, "DMA 3" for one of them.
        label: the instruction.
        start_us, end_us: when.
        location: the kernel line.
        instructions: how many of them follow each other; 1 but for a row that is broadcast in
            pieces.
    """

    track: str
    label: str
    start_us: float
    end_us: float
    location: Location | None
    instructions: int = 1


class Use(NamedTuple):
    """The utilisation of one resource.

    Attributes:
        name: an engine, "DMA queues" for all of them, or "DMA 3" for one.
        busy_us: time it is occupied; for the DMA queues, of the busiest one.
        data_us: the part that elements or bytes take, without what each instruction adds.
        utilisation: busy_us over the time of the kernel's body, 0 to 1.
        instructions: how many; of a DMA queue, the transfers that have a share of it.
    """

    name: str
    busy_us: float
    data_us: float
    utilisation: float
    instructions: int


class Line(NamedTuple):
    """The cost of one kernel line on one resource, in microseconds."""

    location: Location | None
    resource: str
    label: str
    count: int  # type: ignore[assignment]  # a tuple has a method of this name
    busy_us: float


class PathEntry(NamedTuple):
    """A stretch of the critical path.

    Attributes:
        label: the instruction; "start of load" where the next one waits for the engine that starts
            a transfer, and not for the bytes.
        resource: what it runs on.
        why: what it waited for before: "data", "read" (what it overwrites was still being read),
            "engine", "port", "memory", "ring" (an earlier transfer of the same instruction),
            "order" (the kernel asks for it), "core" (a task of another core, or a point where cores
            wait for each other) or "start".
        start_us, end_us: when.
        location: the kernel line.
        core: which core of the launch it is on.
    """

    label: str
    resource: str
    why: str
    start_us: float
    end_us: float
    location: Location | None
    core: int = 0


@dataclass(frozen=True)
class Core:
    """One NeuronCore's share: its tasks, when they run, and whether they wait for other cores."""

    work: Work
    schedule: Schedule
    spilled_bytes: int
    waits: bool = False


class Times:
    """When everything in a kernel happens, by nkisim's cost model. No number here is measured.

    Attributes:
        kernel: name of the kernel.
        machine: NeuronCore generation.
        target: what chose it, e.g. "NEURON_PLATFORM_TARGET_OVERRIDE=trn2"; "" for the default.
        cores: one entry a NeuronCore that the launch grid names, in their order; figures are of
            the slowest one, unless `shown` is the number of another.
        instructions: instructions traced, over all cores.
        guessed: what the kernel calls of which no latency is published.
        once: bytes (read, written) of the kernel's inputs and outputs, over all cores, each byte
            once; of tensors in HBM that the kernel makes, those that it does not read are outputs.
        kind: what the times are, for everything that prints them.
    """

    kind = MODELLED

    def __init__(
        self,
        kernel: str,
        machine: Machine,
        timing: Timing,
        cores: list[Core],
        instructions: int,
        target: str = "",
        shown: int | None = None,
        guessed: Sequence[str] = (),
        once: tuple[int, int] = (0, 0),
    ) -> None:
        self.kernel = kernel
        self.machine = machine
        self.target = target
        self.guessed = guessed
        self.once = once
        self.timing = timing
        self.cores = cores
        self.instructions = instructions
        self._core = self.slowest if shown is None else cores[shown]
        self._stretches: dict[int, Any] = {}  # of its tasks, by the first one

    @property
    def slowest(self) -> Core:
        """The core that takes longest."""
        return max(self.cores, key=lambda c: c.schedule.span)

    # -- figures --------------------------------------------------------------------------------

    @property
    def body_us(self) -> float:
        """From the first instruction to the last result, in microseconds."""
        return self._core.schedule.span / 1e3

    @property
    def overhead_us(self) -> float:
        """Launch overhead before and after the body, in microseconds."""
        return (self.timing.before_ns + self.timing.after_ns) / 1e3

    @property
    def latency_us(self) -> float:
        """Modelled latency of a launch in microseconds: what `nc_latency` would report."""
        return self.body_us + self.overhead_us

    @cached_property
    def engines(self) -> dict[str, Use]:
        """Use of each engine and of the DMA queues, by name."""
        s = self._core.schedule
        span = max(s.span, 1e-9)
        found = {}
        for e in ENGINES:
            mine = [g for g in self.groups if g.engine is e]
            busy = sum(map(self._busy_ns, mine))
            data = sum(g.cost.data * len(g.positions) for g in mine)
            count = sum(g.instructions for g in mine)
            found[e.value] = Use(e.value, busy / 1e3, data / 1e3, busy / span, count)
        transfers = sum(len(g.positions) for g in self._transfers)
        most = max(s.queue_busy)
        ideal = self._transfer_floor_ns()
        found[_DMA] = Use(_DMA, most / 1e3, ideal / 1e3, most / span, transfers)
        return found

    @cached_property
    def groups(self) -> list[TaskGroup]:
        """The tasks of the slowest core, those that do the same together."""
        return group_tasks(self._core.work, self._core.schedule)

    @property
    def _transfers(self) -> Iterator[TaskGroup]:
        return (g for g in self.groups if g.task.transfer is not None)

    def _busy_ns(self, group: TaskGroup) -> float:
        """The time that tasks occupy their engine, in nanoseconds."""
        s = self._core.schedule
        start, end = s.start, s.end
        return sum([end[at] - start[at] for at in group.positions])

    def _transfer_floor_ns(self) -> float:
        """Time of the transfers if their bytes were spread evenly over all queues at full rate."""
        each = (self._bytes_ns(g.task) * len(g.positions) for g in self._transfers)
        return sum(each) / self.timing.dma.engines

    def _bytes_ns(self, task: ScheduledTask) -> float:
        """The time of a transfer's bytes on one DMA engine at its full rate, in nanoseconds."""
        assert task.transfer is not None  # of a transfer
        return task.transfer.nbytes * self.ns_a_byte(task)

    def ns_a_byte(self, task: ScheduledTask, run_bytes: int | None = None) -> float:
        """The time of a byte of a transfer on a DMA engine, in nanoseconds, if contiguous runs have
        `run_bytes` bytes; None for endless runs."""
        dma = self.timing.dma
        reads_hbm = any(not self._core.work.memory[n].space.on_chip for n, _ in task.reads)
        if reads_hbm or task.label == "reload":
            fixed, rate = dma.load_descriptor_ns, dma.load_rate
        else:
            fixed, rate = dma.store_descriptor_ns, dma.store_rate
        return 1 / rate + (fixed / run_bytes if run_bytes else 0.0)

    @cached_property
    def queues(self) -> list[Use]:
        """Use of each DMA queue, by its number."""
        s = self._core.schedule
        data = [0.0] * len(s.queue_busy)
        count = [0] * len(s.queue_busy)
        for g in self._transfers:
            nbytes_ns = self._bytes_ns(g.task)
            for used, n in Counter(map(s.queues_of.__getitem__, g.positions)).items():
                for q in used:
                    data[q] += n * nbytes_ns / len(used)
                    count[q] += n
        span = max(s.span, 1e-9)
        return [
            Use(f"DMA {q}", b / 1e3, d / 1e3, b / span, n)
            for q, (b, d, n) in enumerate(zip(s.queue_busy, data, count, strict=True))
        ]

    @cached_property
    def hbm_bytes(self) -> int:
        """Bytes read from and written to HBM, spills included. Of a launch on several cores, those
        of the slowest one."""
        moved = ((g.task.transfer, len(g.positions)) for g in self._transfers)
        return sum(transfer.hbm_bytes * n for transfer, n in moved if transfer is not None)

    @property
    def bandwidth_gb_per_s(self) -> float:
        """HBM bytes over the time of the body, in 10^9 bytes a second."""
        return self.hbm_bytes / max(self._core.schedule.span, 1e-9)

    @property
    def peak_bandwidth_gb_per_s(self) -> float:
        """HBM bytes a second, in 10^9, if the transfers took only what their bytes take.

        Loads and stores have different rates, so this depends on how many bytes go which way.
        """
        floor = self._transfer_floor_ns()
        if not floor:
            return self.timing.dma.engines * self.timing.dma.load_rate
        return self.hbm_bytes / floor

    @cached_property
    def flops(self) -> int:
        """Operations: two for each multiply-add of a matmul, one an element elsewhere."""
        return sum(g.task.flops * len(g.positions) for g in self.groups)

    @property
    def spilled_bytes(self) -> int:
        """Bytes that the model compiler moved to HBM and back because SBUF was full."""
        return self._core.spilled_bytes

    @property
    def bound(self) -> Use:
        """The busiest resource. The kernel cannot take less than its busy time as it is written."""
        return max(self.engines.values(), key=lambda u: u.busy_us)

    @property
    def bound_fraction(self) -> float:
        """Busy time of the busiest resource over the latency, 0 to 1."""
        return self.bound.busy_us / self.latency_us

    @property
    def roofline(self) -> tuple[str, float]:
        """(resource, microseconds) of the least time that the kernel's elements and bytes need.

        Fixed costs of instructions and transfers are left out, and all resources overlap. Tiles
        have the partitions that they have: elements in few lanes need as long as in all.
        """
        best = max(self.engines.values(), key=lambda u: u.data_us)
        return best.name, best.data_us

    @property
    def roofline_fraction(self) -> float:
        """The roofline's time over the latency, 0 to 1."""
        return self.roofline[1] / self.latency_us

    @property
    def once_us(self) -> float:
        """The least time in which the DMA engines of all cores move the kernel's inputs and
        outputs, each byte once, in microseconds. A kernel that reads its input three times is far
        from this, and may reach its roofline all the same."""
        dma, (read, written) = self.timing.dma, self.once
        ns = read / dma.load_rate + written / dma.store_rate
        return ns / dma.engines / len(self.cores) / 1e3

    @property
    def choices(self) -> dict[str, int]:
        """What the compiler was assumed to do, and how often."""
        return dict(sorted(self._core.work.choices.items()))

    # -- details --------------------------------------------------------------------------------

    @cached_property
    def intervals(self) -> list[Interval]:
        """What happens when, on each engine and DMA queue, in order of start."""
        work, s = self._core.work, self._core.schedule
        every = self.timing.dma.engines
        found = []
        for at, task in enumerate(work.tasks):
            where = task.instr.location
            track = ENGINES[s.engine[at]].value
            start, end = s.start[at] / 1e3, s.end[at] / 1e3
            count = task.kind.instructions
            found.append(Interval(track, _on_engine(task), start, end, where, count))
            if task.transfer is None:
                continue
            queues = s.queues_of[at]
            for track in ("DMA",) if len(queues) == every else [f"DMA {q}" for q in queues]:
                start, end = s.queue_start[at] / 1e3, s.queue_end[at] / 1e3
                found.append(Interval(track, task.label, start, end, where))
        found.sort(key=lambda i: (i.start_us, i.track))
        return found

    @cached_property
    def lines(self) -> list[Line]:
        """Cost of each kernel line on each resource, the dearest first."""
        busy: dict[tuple, float] = defaultdict(float)
        count: dict[tuple, int] = defaultdict(int)
        for g in self.groups:
            key = (g.location, g.engine.value, _on_engine(g.task))
            busy[key] += self._busy_ns(g) / 1e3
            count[key] += g.instructions
            moved = g.task.transfer
            if moved is not None:
                key = (g.location, _DMA, g.task.label)
                share = moved.engines / self.timing.dma.engines
                busy[key] += moved.engine_ns * share / 1e3 * len(g.positions)
                count[key] += len(g.positions)
        rows = [Line(k[0], k[1], k[2], count[k], v) for k, v in busy.items()]
        return sorted(rows, key=lambda r: (-r.busy_us, str(r.location), r.label))

    @cached_property
    def chain(self) -> list[int]:
        """The critical path as positions in the list of tasks, as far as it is on this core."""
        s = self._core.schedule
        return _chain(s, max(range(len(s.done)), key=s.done.__getitem__, default=-1))

    @cached_property
    def critical_path(self) -> list[PathEntry]:
        """The chain of instructions that sets the latency, each held up by the one before, on
        whichever core."""
        steps: list[PathEntry] = []
        core, chain, until = self.cores.index(self._core), self.chain, None
        while True:
            steps = [*self._steps(core, chain, until), *steps]
            s = self.cores[core].schedule
            if not chain or s.why[chain[0]] != "core":
                return steps
            until = s.start[chain[0]]
            core, at = s.elsewhere[chain[0]]
            chain = _chain(self.cores[core].schedule, at)

    def _steps(self, number: int, chain: list[int], until_ns: float | None) -> Iterator[PathEntry]:
        """The entries of the critical path on one core; the last one ends at `until_ns`, or with
        its task if that is None."""
        work, s = self.cores[number].work, self.cores[number].schedule
        afters: list[int | None] = [*chain[1:], None]
        for at, after in zip(chain, afters, strict=True):
            task = work.tasks[at]
            label, name = task.label, ENGINES[s.engine[at]].value
            if task.transfer is not None:
                if after is not None and s.why[after] == "engine":  # which only starts it
                    label = _on_engine(task)
                else:
                    name = _DMA
            until = s.done[at] if after is None else s.start[after]
            if after is None and until_ns is not None:
                until = until_ns
            start, where = s.start[at] / 1e3, task.instr.location
            yield PathEntry(label, name, s.why[at], start, until / 1e3, where, number)


def _chain(s: Schedule, at: int) -> list[int]:
    """The chain of tasks on one core that ends with a task, each held up by the one before it."""
    found = []
    while at >= 0:
        found.append(at)
        at = s.cause[at]
    return found[::-1]


def _on_engine(task: ScheduledTask) -> str:
    """The label of a task on its engine: of a transfer, an engine does the start only."""
    return task.label if task.transfer is None else f"start of {task.label}"


_DMA = "DMA queues"
ENGINE_NAMES = tuple(e.value for e in ENGINES)
