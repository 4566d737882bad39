"""What a timeline says, in words: what holds the kernel up, where, and what could be gained.

A gain is an estimate: what the change takes off the busy time of its resource, as far as that
resource, and no other, sets the pace.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from nkisim.cost.scheduler import ENGINES
from nkisim.dtypes import F32
from nkisim.errors import Location
from nkisim.instruction import Engine
from nkisim.memory import Space

if TYPE_CHECKING:
    from nkisim.cost.compute import Cost
    from nkisim.cost.tasks import Task
    from nkisim.cost.timeline import Timeline, Use

_LEAST = 0.02  # of the latency: smaller gains are not worth a reader's time


class Finding(NamedTuple):
    """One finding.

    Attributes:
        text: what was found and what to do.
        gain_us: estimated gain in microseconds; 0 when it only states what is.
        location: the kernel line it is about, or None.
    """

    text: str
    gain_us: float
    location: Location | None

    def __str__(self) -> str:
        from nkisim.cost.timeline import short

        where = f" [{short(self.location)}]" if self.location else ""
        gain = f" (up to {self.gain_us:.1f} us, modelled)" if self.gain_us else ""
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


def _room(t: Timeline, resource: str) -> float:
    """What shortening `resource` can take off the latency: its lead over the next busiest."""
    uses = t.engines
    others = max((u.busy_us for n, u in uses.items() if n != resource), default=0.0)
    return max(0.0, uses[resource].busy_us - others)


def _costs(t: Timeline) -> Iterator[tuple[Task, tuple[Engine, Cost]]]:
    """Each task with the engine it runs on and its cost there."""
    work, s = t._core.work, t._core.schedule
    for task, at in zip(work.tasks, s.engine, strict=True):
        engine = ENGINES[at]
        yield task, (engine, dict(task.costs)[engine])


def _two_inputs(t: Timeline) -> list[Finding]:
    """Vector instructions that take two cycles an element for their two SBUF operands."""
    saved: dict[Location | None, float] = defaultdict(float)
    count = 0
    for task, (engine, c) in _costs(t):
        if engine is Engine.VECTOR and c.cycles == 2 and task.instr.opcode == "tensor_tensor":
            saved[task.instr.location] += c.data / 2e3
            count += 1
    if not saved:
        return []
    worst = max(saved, key=saved.__getitem__)
    return [
        Finding(
            f"{count} two-input Vector instructions read both operands from SBUF at 2 cycles an "
            "element; one operand in PSUM, or bf16 for all three, would halve them",
            min(sum(saved.values()), _room(t, "Vector")),
            worst,
        )
    ]


def _wide_strides(t: Timeline) -> list[Finding]:
    saved: dict[tuple, float] = defaultdict(float)
    for task, (engine, c) in _costs(t):
        if c.strided:
            rate = {Engine.VECTOR: t.timing.vector, Engine.SCALAR: t.timing.scalar}.get(
                engine, t.timing.gpsimd
            )
            n = c.data * t.timing.interface_ghz / 2
            saved[engine.value, task.instr.location] += (c.data - n * c.cycles / rate.ghz) / 1e3
    found = []
    for (resource, where), gain in saved.items():
        found.append(
            Finding(
                f"{resource} reads or writes with an innermost stride of "
                f"{t.timing.wide_stride_bytes} bytes or more, at half the rate of the memory "
                "interface: lay the elements side by side",
                min(gain, _room(t, resource)),
                where,
            )
        )
    return found


def _fp32_matmul(t: Timeline) -> list[Finding]:
    saved, where = 0.0, None
    for task, (engine, c) in _costs(t):
        if engine is Engine.TENSOR and any(x.dtype == F32 for x in task.instr.tiles_in):
            saved += c.busy * (1 - 1 / t.timing.tensor.fp32_passes) / 1e3
            where = where or task.instr.location
    if not saved:
        return []
    return [
        Finding(
            f"matmuls of fp32 operands take {t.timing.tensor.fp32_passes} passes; bf16 takes one",
            min(saved, _room(t, "Tensor")),
            where,
        )
    ]


def _fixed_costs(t: Timeline) -> list[Finding]:
    """Engines whose time goes into starting instructions, not into elements."""
    found = []
    for name in ("Vector", "Scalar", "GpSimd"):
        use = t.engines[name]
        fixed = use.busy_us - use.data_us
        if use.instructions and fixed > use.data_us:
            lines = [r for r in t.lines if r.resource == name]
            found.append(
                Finding(
                    f"{use.instructions} {name} instructions spend {fixed:.1f} of "
                    f"{use.busy_us:.1f} us on starting: use longer free axes, or fuse",
                    min(fixed / 2, _room(t, name)),
                    lines[0].location if lines else None,
                )
            )
    return found


def _short_runs(t: Timeline) -> list[Finding]:
    """Transfers cut in runs too short for the rate of a DMA engine."""
    dma = t.timing.dma
    saved: dict[Location | None, float] = defaultdict(float)
    runs: dict[Location | None, int] = {}
    for task in t._core.work.tasks:
        moved = task.transfer
        if moved is None or moved.run_bytes >= 2048:
            continue
        ideal = moved.nbytes / dma.load_rate / moved.engines
        share = moved.engines / dma.engines
        saved[task.instr.location] += (moved.engine_ns - ideal) * share / 1e3
        runs[task.instr.location] = moved.run_bytes
    found = []
    for where, gain in saved.items():
        found.append(
            Finding(
                f"DMA in contiguous runs of {runs[where]} bytes; at 2 KiB and more the queues "
                "reach their rate",
                min(gain, _room(t, "DMA queues")),
                where,
            )
        )
    return found


def _few_queues(t: Timeline) -> list[Finding]:
    dma = t.timing.dma
    worst: dict[Location | None, tuple[float, int]] = {}
    for task in t._core.work.tasks:
        moved = task.transfer
        if moved is None or moved.engines >= dma.engines or moved.engine_ns < 1000:
            continue
        gain = moved.engine_ns * (1 - moved.engines / dma.engines) / 1e3
        total = worst.get(task.instr.location, (0.0, 0))[0]
        worst[task.instr.location] = (total + gain, moved.engines)
    on_path = {s.location for s in t.critical_path if s.resource == "DMA queues"}
    return [
        Finding(
            f"a transfer of {engines} partition{'s' if engines > 1 else ''} uses {engines} of "
            f"{dma.engines} DMA engines: spread it over more partitions",
            min(gain, _waiting(t)),
            where,
        )
        for where, (gain, engines) in worst.items()
        if where in on_path
    ]


def _waiting(t: Timeline) -> float:
    """Time of the body in which the busiest resource is idle, in microseconds."""
    return max(0.0, t.body_us - t.bound.busy_us)


def _exposed(t: Timeline) -> list[Finding]:
    """Waiting for memory, or for latency, on the critical path."""
    held: dict[str, float] = defaultdict(float)
    where: dict[str, Location | None] = {}
    before = None
    for step in t.critical_path:
        if step.why in ("memory", "ring", "port"):
            length = (before.end_us - before.start_us) if before is not None else 0.0
            held[step.why] += length
            where.setdefault(step.why, step.location)
        before = step
    waiting = _waiting(t)
    texts = {
        "memory": "tiles wait for room on chip: smaller or fewer tiles would let transfers run "
        "ahead of the computation",
        "ring": "transfers wait for earlier ones of the same line: larger transfers, or more of "
        "them, would hide their latency",
        "port": "engines wait for the memory port that they share (Vector and GpSimd: SBUF; "
        "Vector and Scalar: PSUM)",
    }
    return [
        Finding(texts[why], min(gain, waiting), where[why])
        for why, gain in held.items()
        if gain > 0
    ]


def _spills(t: Timeline) -> list[Finding]:
    if not t.spilled_bytes:
        return []
    work, s = t._core.work, t._core.schedule
    lost, where = 0.0, None
    for at, task in enumerate(work.tasks):
        if task.label in ("spill", "reload"):
            lost += (s.queue_end[at] - s.queue_start[at]) / 1e3
            where = where or task.instr.location
    most = max(
        (work.sizes[n] for n, space in work.spaces.items() if space is Space.SBUF), default=0
    )
    return [
        Finding(
            f"SBUF overflows: {t.spilled_bytes / 1e6:.1f} MB are stored to HBM and loaded again; "
            f"the largest tile takes {most:,} bytes a partition",
            min(lost, _waiting(t)),
            where,
        )
    ]
