"""What a timeline says, in words: what holds the kernel up, where, and what could be gained.

A gain is what the model gives for the same kernel with that one thing changed, and nothing else:
see `nkisim.cost.whatif`. What it may cost to make the change is not in it.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from nkisim.cost.compute import Cost, operand
from nkisim.cost.scheduler import ENGINES
from nkisim.cost.whatif import gain_us, replaced
from nkisim.dtypes import F32
from nkisim.errors import Location
from nkisim.instruction import Engine
from nkisim.memory import Space

if TYPE_CHECKING:
    from nkisim.cost.tasks import Task
    from nkisim.cost.timeline import Timeline, Use
    from nkisim.machine import Machine

_LEAST = 0.02  # of the latency: smaller gains are not worth a reader's time
_LINES = 4  # most lines that a finding about single lines is made for
_LONG_RUN = 2048  # bytes of a descriptor from which on its fixed cost matters little
_NOTHING = ((Engine.SYNC, Cost(0.0, 0.0, 0.0)),)  # what a task costs that is not there


class Finding(NamedTuple):
    """One finding.

    Attributes:
        text: what was found and what to do.
        gain_us: modelled gain in microseconds; 0 when it only states what is.
        location: the kernel line it is about, or None.
    """

    text: str
    gain_us: float
    location: Location | None

    def __str__(self) -> str:
        from nkisim.cost.timeline import short

        where = f" [{short(self.location)}]" if self.location else ""
        gain = f" (would gain {self.gain_us:.1f} us, modelled)" if self.gain_us else ""
        return f"{self.text}{where}{gain}"


def find(timeline: Timeline) -> list[Finding]:
    """The findings of a timeline: first what bounds it, then gains, the largest first."""
    found = [_bottleneck(timeline)]
    gains = [
        *_two_inputs(timeline),
        *_wide_strides(timeline),
        *_fp32_matmul(timeline),
        *_fixed_costs(timeline),
        *_short_runs(timeline),
        *_few_queues(timeline),
        *_exposed(timeline),
        *_spills(timeline),
    ]
    least = _LEAST * timeline.latency_us
    gains = [g for g in gains if g.gain_us >= least]
    return found + sorted(gains, key=lambda g: (-g.gain_us, g.text))


def _bottleneck(t: Timeline) -> Finding:
    bound = t.bound
    if t.overhead_us > t.body_us:
        return Finding(
            f"launch overhead, {t.overhead_us:.1f} of {t.latency_us:.1f} us, is more than the "
            "kernel's own time: give a launch more to do",
            0.0,
            None,
        )
    lines = [r for r in t.lines if r.resource == bound.name]
    text = f"{_named(bound)} busy {bound.utilisation:.0%} of the body"
    if bound.utilisation < 0.6:
        text += ": no resource is near its limit, waiting sets the pace"
    elif lines:
        text += f"; most of it in {lines[0].label}, {lines[0].count} times"
    return Finding(text, 0.0, lines[0].location if lines else None)


def _named(use: Use) -> str:
    return use.name if "DMA" in use.name else f"{use.name} Engine"


class _Tasks:
    """Tasks that could be shorter, and by how many nanoseconds each."""

    def __init__(self) -> None:
        self.saved: dict[int, float] = {}
        self.lines: dict[Location | None, float] = defaultdict(float)

    def add(self, at: int, task: Task, ns: float) -> None:
        """`task`, which is at position `at`, could be `ns` shorter."""
        self.saved[at] = ns
        self.lines[task.instr.location] += ns

    def finding(
        self,
        t: Timeline,
        text: str,
        change: Callable[[Task, float], Task],
        machine: Machine | None = None,
    ) -> Iterator[Finding]:
        """The finding, if there is enough at stake for the schedule to be tried.

        Args:
            t: the kernel.
            text: what was found.
            change: makes the shorter task from a task and what it could save.
            machine: table to try it with, when not the kernel's.
        """
        if sum(self.saved.values()) / 1e3 < _LEAST * t.latency_us:
            return
        worst = max(self.lines, key=self.lines.__getitem__)
        yield Finding(text, gain_us(t, self.saved, change=change, machine=machine), worst)


def _costs(t: Timeline) -> Iterator[tuple[int, Task, Engine, Cost]]:
    """Each task with its position, the engine that it runs on and its cost there."""
    work, s = t._core.work, t._core.schedule
    for at, (task, chosen) in enumerate(zip(work.tasks, s.engine, strict=True)):
        engine = ENGINES[chosen]
        for e, c in task.costs:
            if e is engine:
                yield at, task, engine, c
                break


def _shorter(engine: Engine, fixed: float = 0.0) -> Callable[[Task, float], Task]:
    """Makes a task shorter on `engine`: up to `fixed` at its start, the rest by its elements.

    What is done before its engine is free (see `nkisim.cost.compute.feeding`) is so in proportion.
    """

    def change(task: Task, ns: float) -> Task:
        costs = []
        for e, c in task.costs:
            if e is engine:
                done = max(c.done - ns, c.done * (1 - ns / c.busy))
                c = Cost(c.busy - ns, done, c.data - max(0.0, ns - fixed))
            costs.append((e, c))
        return replaced(task, costs=tuple(costs))

    return change


def _two_inputs(t: Timeline) -> Iterator[Finding]:
    """Vector instructions that take two cycles an element for their two SBUF operands."""
    found, known, vector = _Tasks(), {}, t.timing.vector
    second = (t.timing.two_input_cycles - 1) * vector.issue_cycles / vector.ghz  # its access
    for at, task, engine, c in _costs(t):
        if engine is Engine.VECTOR and c.cycles == 2 and task.instr.opcode == "tensor_tensor":
            ns = known.get(id(c))  # instructions alike share a cost
            if ns is None:
                least = c.data / 2
                if _wide(task, t):  # the memory interface is the next limit
                    least = max(least, c.data * vector.ghz / t.timing.interface_ghz)
                shortest = t.timing.least_cycles / vector.ghz
                ns = known[id(c)] = min(second + c.data - least, c.busy - shortest)
            found.add(at, task, ns)
    yield from found.finding(
        t,
        f"{len(found.saved)} two-input Vector instructions read both operands from SBUF at 2 "
        "cycles an element; one operand in PSUM would halve them, and so would bf16 for all three "
        "in sums, differences and products",
        _shorter(Engine.VECTOR, second),
    )


def _wide(task: Task, t: Timeline) -> bool:
    """Whether an operand of an instruction has a wide innermost stride."""
    tiles = (*task.instr.tiles_in, *task.instr.outs)
    return any(operand(x, x.space).stride >= t.timing.wide_stride_bytes for x in tiles)


def _wide_strides(t: Timeline) -> Iterator[Finding]:
    found: dict[Engine, _Tasks] = defaultdict(_Tasks)
    for at, task, engine, c in _costs(t):
        if c.strided:
            rate = {Engine.VECTOR: t.timing.vector, Engine.SCALAR: t.timing.scalar}.get(
                engine, t.timing.gpsimd
            )
            n = c.data * t.timing.interface_ghz / 2
            found[engine].add(at, task, c.data - n * c.cycles / rate.ghz)
    for engine, tasks in found.items():
        yield from tasks.finding(
            t,
            f"{len(tasks.saved)} {engine.value} instructions read or write with an innermost "
            f"stride of {t.timing.wide_stride_bytes} bytes or more, at half the rate of the "
            "memory interface: lay the elements side by side",
            _shorter(engine),
        )


def _fp32_matmul(t: Timeline) -> Iterator[Finding]:
    found, passes = _Tasks(), t.timing.tensor.fp32_passes
    for at, task, engine, c in _costs(t):
        if engine is Engine.TENSOR and any(x.dtype == F32 for x in task.instr.tiles_in):
            found.add(at, task, c.busy * (1 - 1 / passes))
    yield from found.finding(
        t,
        f"matmuls of fp32 operands take {passes} passes; bf16 takes one",
        _shorter(Engine.TENSOR),
    )


def _fixed_costs(t: Timeline) -> Iterator[Finding]:
    """Engines whose time goes into starting instructions, not into elements."""
    found: dict[Engine, _Tasks] = {}
    for engine in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD):
        use = t.engines[engine.value]
        if use.instructions and use.busy_us > 2 * use.data_us:
            found[engine] = _Tasks()
    if not found:
        return
    for at, task, engine, c in _costs(t):
        if engine in found:
            found[engine].add(at, task, (c.busy - c.data) / 2)
    for engine, tasks in found.items():
        use = t.engines[engine.value]
        yield from tasks.finding(
            t,
            f"{use.instructions} {use.name} instructions spend {use.busy_us - use.data_us:.1f} of "
            f"{use.busy_us:.1f} us on starting: use longer free axes, or fuse, so that there "
            "are half as many",
            _shorter(engine, inf),
        )


def _short_runs(t: Timeline) -> Iterator[Finding]:
    """Transfers cut in runs too short for the rate of a DMA engine."""
    found: dict[Location | None, tuple[_Tasks, int]] = {}
    for at, task in enumerate(t._core.work.tasks):
        moved = task.transfer
        if moved is None or moved.run_bytes >= _LONG_RUN:
            continue
        ns = moved.engine_ns - moved.nbytes * t.ns_a_byte(task, _LONG_RUN) / moved.engines
        if ns > 0:
            tasks, _ = found.setdefault(task.instr.location, (_Tasks(), moved.run_bytes))
            tasks.add(at, task, ns)
    for tasks, run in _dearest(found):
        yield from tasks.finding(
            t,
            f"DMA in contiguous runs of {run} bytes; at 2 KiB and more the queues reach their rate",
            lambda task, ns: _moved_in(task, ns, task.transfer.engines),
        )


def _few_queues(t: Timeline) -> Iterator[Finding]:
    every = t.timing.dma.engines
    found: dict[Location | None, tuple[_Tasks, int]] = {}
    for at, task in enumerate(t._core.work.tasks):
        moved = task.transfer
        if moved is None or moved.engines >= every or moved.engine_ns < 1000:
            continue
        tasks, _ = found.setdefault(task.instr.location, (_Tasks(), moved.engines))
        tasks.add(at, task, moved.engine_ns * (1 - moved.engines / every))
    for tasks, engines in _dearest(found):
        yield from tasks.finding(
            t,
            f"a transfer of {engines} partition{'s' if engines > 1 else ''} uses {engines} of "
            f"{every} DMA engines: spread it over more partitions",
            lambda task, ns: _moved_in(task, ns, every),
        )


def _moved_in(task: Task, ns: float, engines: int) -> Task:
    """A transfer that is `ns` shorter, by so many DMA engines."""
    moved = task.transfer._replace(engine_ns=task.transfer.engine_ns - ns, engines=engines)
    return replaced(task, transfer=moved)


def _dearest(found: dict[Location | None, tuple[_Tasks, int]]) -> list[tuple[_Tasks, int]]:
    """The few lines at which most is at stake: each costs a schedule to look into."""
    ordered = sorted(found.values(), key=lambda entry: -sum(entry[0].saved.values()))
    return ordered[:_LINES]


def _exposed(t: Timeline) -> Iterator[Finding]:
    """Waiting for memory, or for latency, on the critical path."""
    tasks, s = t._core.work.tasks, t._core.schedule
    held: dict[str, dict[int, float]] = defaultdict(dict)
    for before, at in pairwise(t.chain):
        held[s.why[at]][at] = s.start[at] - s.start[before]
    timing = t.timing
    more = dataclasses.replace(timing.dma, in_flight=2 * timing.dma.in_flight)
    changes = [
        (
            "memory",
            "tiles wait for room in SBUF: tiles of half the bytes, or half as many, would let "
            "transfers run ahead of the computation",
            {"machine": dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes)},
        ),
        (
            "memory",
            "results wait for room in PSUM: smaller ones, or copying them out sooner, would let "
            "the next ones start",
            {"machine": dataclasses.replace(t.machine, psum_bytes=2 * t.machine.psum_bytes)},
        ),
        (
            "ring",
            f"transfers wait for earlier ones of the same line, of which {timing.dma.in_flight} "
            "are under way at a time: transfers of twice the size would hide their latency",
            {"timing": dataclasses.replace(timing, dma=more)},
        ),
        (
            "port",
            "engines wait for the memory port that they share (Vector and GpSimd: SBUF; Vector "
            "and Scalar: PSUM): move work from GpSimd to Scalar, or operands from PSUM to SBUF",
            {"timing": dataclasses.replace(timing, shared_port=False)},
        ),
    ]
    if t.spilled_bytes:
        del changes[0]  # `_spills` says it
    for why, text, change in changes:
        stakes = held[why]
        if sum(stakes.values()) / 1e3 >= _LEAST * t.latency_us:
            worst = tasks[max(stakes, key=stakes.__getitem__)].instr.location
            yield Finding(text, gain_us(t, stakes, **change), worst)


def _spills(t: Timeline) -> Iterator[Finding]:
    if not t.spilled_bytes:
        return
    work, s = t._core.work, t._core.schedule
    found = _Tasks()
    for at, task in enumerate(work.tasks):
        if task.label in ("spill", "reload"):
            found.add(at, task, s.queue_end[at] - s.queue_start[at])
    sizes = (m.nbytes for m in work.memory.values() if m.space is Space.SBUF)
    most = max(sizes, default=0)
    yield from found.finding(
        t,
        f"SBUF overflows: {t.spilled_bytes / 1e6:.1f} MB are stored to HBM and loaded again; "
        f"the largest tile takes {most:,} bytes a partition",
        lambda task, _: replaced(task, transfer=None, costs=_NOTHING),
        dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes),
    )
