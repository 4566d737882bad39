"""What transfers could do in less time, and what waits for them or for memory."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost
from nkisim.cost.stakes import LEAST, Finding, Tasks, moved_in
from nkisim.cost.whatif import gain_us, replaced
from nkisim.errors import Location
from nkisim.instruction import Engine
from nkisim.memory import Space

if TYPE_CHECKING:
    from nkisim.cost.timeline import Timeline

_LINES = 4  # most lines that a finding about single lines is made for
_LONG_RUN = 4096  # bytes of a descriptor from which on its fixed cost matters little
_NOTHING = ((Engine.SYNC, Cost(0.0, 0.0, 0.0)),)  # what a task costs that is not there


def short_runs(t: Timeline) -> Iterator[Finding]:
    """Transfers cut in runs too short for the rate of a DMA engine."""
    found: dict[Location | None, tuple[Tasks, int]] = {}
    for at, task in enumerate(t._core.work.tasks):
        moved = task.transfer
        if moved is None or moved.run_bytes >= _LONG_RUN:
            continue
        ns = moved.engine_ns - moved.nbytes * t.ns_a_byte(task, _LONG_RUN) / moved.engines
        if ns > 0:
            tasks, _ = found.setdefault(task.instr.location, (Tasks(), moved.run_bytes))
            tasks.add(at, task, ns)
    for tasks, run in _dearest(found):
        yield from tasks.finding(
            t,
            f"DMA in contiguous runs of {run} bytes; from {_LONG_RUN // 1024} KiB on the queues "
            "come near their rate",
            lambda task, ns: moved_in(task, ns, task.transfer.engines),
        )


def few_queues(t: Timeline) -> Iterator[Finding]:
    every = t.timing.dma.engines
    found: dict[Location | None, tuple[Tasks, int]] = {}
    for at, task in enumerate(t._core.work.tasks):
        moved = task.transfer
        if moved is None or moved.engines >= every or moved.engine_ns < 1000:
            continue
        tasks, _ = found.setdefault(task.instr.location, (Tasks(), moved.engines))
        tasks.add(at, task, moved.engine_ns * (1 - moved.engines / every))
    for tasks, engines in _dearest(found):
        yield from tasks.finding(
            t,
            f"a transfer of {engines} partition{'s' if engines > 1 else ''} uses {engines} of "
            f"{every} DMA engines: spread it over more partitions",
            lambda task, ns: moved_in(task, ns, every),
        )


def _dearest(found: dict[Location | None, tuple[Tasks, int]]) -> list[tuple[Tasks, int]]:
    """The few lines at which most is at stake: each costs a schedule to look into."""
    ordered = sorted(found.values(), key=lambda entry: -sum(entry[0].saved.values()))
    return ordered[:_LINES]


def exposed(t: Timeline) -> Iterator[Finding]:
    """Waiting for memory, or for latency, on the critical path."""
    tasks, s = t._core.work.tasks, t._core.schedule
    memory = t._core.work.memory
    held: dict[str, dict[int, float]] = defaultdict(dict)
    for before, at in pairwise(t.chain):
        why = s.why[at]
        if why == "memory":
            in_psum = any(memory[number].space is Space.PSUM for number, _ in tasks[at].writes)
            why = "psum" if in_psum else "sbuf"
        held[why][at] = s.start[at] - s.start[before]
    timing = t.timing
    more = dataclasses.replace(timing.dma, in_flight=2 * timing.dma.in_flight)
    changes = [
        (
            "sbuf",
            "tiles wait for room in SBUF: tiles of half the bytes, or half as many, would let "
            "transfers run ahead of the computation",
            {"machine": dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes)},
        ),
        (
            "psum",
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
        del changes[0]  # `spills` says it
    for why, text, change in changes:
        stakes = held[why]
        if sum(stakes.values()) / 1e3 >= LEAST * t.latency_us:
            worst = tasks[max(stakes, key=stakes.__getitem__)].instr.location
            yield Finding(text, gain_us(t, stakes, **change), worst)


def spills(t: Timeline) -> Iterator[Finding]:
    if not t.spilled_bytes:
        return
    work, s = t._core.work, t._core.schedule
    found, moved = Tasks(), {"spill": 0, "reload": 0}
    for at, task in enumerate(work.tasks):
        if task.label in moved:
            found.add(at, task, s.queue_end[at] - s.queue_start[at])
            moved[task.label] += task.transfer.hbm_bytes
    sizes = (m.nbytes for m in work.memory.values() if m.space is Space.SBUF)
    most = max(sizes, default=0)
    yield from found.finding(
        t,
        f"SBUF overflows: {moved['spill'] / 1e6:.1f} MB are stored to HBM to make room, "
        f"{moved['reload'] / 1e6:.1f} MB loaded again; the largest tile takes {most:,} bytes a "
        "partition",
        lambda task, _: replaced(task, transfer=None, costs=_NOTHING),
        dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes),
    )
