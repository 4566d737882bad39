"""Findings on memory: time that transfers could save, and stalls for transfers or for memory."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

from nkisim.compiler.overflow import TO_SBUF
from nkisim.cost.compute import Cost
from nkisim.errors import Location
from nkisim.ir.instruction import Engine, Instruction, TransferKind
from nkisim.ir.memory import Space
from nkisim.report.gains import LEAST, Finding, Tasks
from nkisim.report.report import counted
from nkisim.report.whatif import gain_us, moved_in
from nkisim.schedule.dependences import in_flight
from nkisim.schedule.engines import ENGINES

if TYPE_CHECKING:
    from nkisim.cost.dma import Transfer
    from nkisim.cost.tasks import Kind, ScheduledTask
    from nkisim.report.groups import TaskGroup
    from nkisim.report.times import Times

_FEW_LOADS = 3  # whose results all else waits for
_GPSIMD = ENGINES.index(Engine.GPSIMD)
_LINES = 4  # most lines that a finding about single lines is made for
_LONG_RUN = 4096  # bytes of a descriptor from which on its fixed cost matters little
_NOT_BY_RUNS = (TransferKind.TRANSPOSE, TransferKind.SUM)  # their time is not that of their runs
_NOTHING = ((Engine.SYNC, Cost(0.0, 0.0, 0.0)),)  # what a task costs that is not there


def short_runs(t: Times) -> Iterator[Finding]:
    """Transfers cut in runs too short for the rate of a DMA engine."""
    found: dict[Location | None, _Line] = defaultdict(_Line)
    for alike in t.groups:
        task, moved = alike.task, alike.task.transfer
        if moved is None or moved.run_bytes >= _LONG_RUN or task.instr.spec.cost in _NOT_BY_RUNS:
            continue
        ns = moved.engine_ns - moved.nbytes * t.ns_a_byte(task, _LONG_RUN) / moved.engines
        if ns > 0:
            found[alike.location].add(alike, ns, moved.run_bytes)
    for tasks, run in _dearest(found):
        yield from tasks.finding(
            t,
            f"DMA in contiguous runs of {run} bytes; from {_LONG_RUN // 1024} KiB on the queues "
            "come near their rate",
            lambda task, ns: moved_in(task.kind, ns),
        )


def loaded_again(t: Times) -> Iterator[Finding]:
    """Loads of what the kernel has loaded before, as far as SBUF could have kept it."""
    work = t._core.work
    written = {number for task in work.tasks for number, _ in task.writes}
    seen: dict[tuple, int] = {}  # what was loaded -> how much of its tensor was before
    loaded: Counter[int] = Counter()  # of a tensor, bytes a partition
    different: Counter[int] = Counter()  # the same, each part once
    reloads: list[tuple[int, Transfer, int, int]] = []  # where, what, of which tensor, after what
    loads = [
        alike.positions
        for alike in t.groups
        if alike.task.label == "load" and alike.task.transfer and not alike.task.transfer.indirect
    ]
    piece = 0
    instr: Instruction | None = None
    for at in sorted(chain.from_iterable(loads)):
        task = work.tasks[at]
        moved = task.transfer
        assert moved is not None  # a load is one
        piece = piece + 1 if task.instr is instr else 0  # of a load that swaps axes
        instr = task.instr
        number, part = task.reads[0]
        if number in written or not work.memory[task.writes[0][0]].space.on_chip:
            continue
        what = number, id(part), piece
        nbytes = moved.nbytes // task.instr.outs[0].shape[0]
        if what in seen:
            reloads.append((at, moved, number, loaded[number] - seen[what]))
        else:
            different[number] += nbytes
        seen[what] = loaded[number]
        loaded[number] += nbytes
    again: dict[Location | None, tuple[Tasks, int, int]] = {}
    for at, moved, number, between in reloads:
        # What has to be kept of a tensor until a load comes again.
        held = min(between, different[number])
        if held <= t.machine.sbuf_bytes // 2:
            task = work.tasks[at]
            tasks, nbytes, most = again.get(task.instr.location, (Tasks(), 0, 0))
            tasks.add_one(at, task, moved.engine_ns)
            nbytes += moved.hbm_bytes
            again[task.instr.location] = tasks, nbytes, max(most, held)
    for tasks, nbytes, held in again.values():
        yield from tasks.finding(
            t,
            f"{counted(len(tasks.saved), 'load')} of {nbytes / 1e6:.1f} MB read data that "
            f"was loaded before; keeping this data in SBUF would take {held:,} bytes a partition",
            _left_out,
        )


def kept_loads(t: Times) -> Iterator[Finding]:
    """Loads that the compiler is assumed not to repeat, where repeating them would take longer than
    the kernel does. Profiles show compilers that do not repeat them, and others that do."""
    spared = t._core.work.spared
    ns = {
        line: sum(times * moved.engine_ns * moved.engines for times, moved in loads)
        / t.timing.dma.engines
        for line, loads in spared.items()
    }
    all_us = (sum(ns.values()) + max(t._core.schedule.queue_busy)) / 1e3
    if all_us - t.body_us < LEAST * t.latency_us:
        return
    loads = [load for line in spared.values() for load in line]
    count = sum(times for times, _ in loads)
    nbytes = sum(times * moved.nbytes for times, moved in loads)
    yield Finding(
        f"{counted(count, 'load')} of {nbytes / 1e6:.1f} MB are modelled "
        "as left out, since the compiler may keep what earlier iterations loaded; with a compiler "
        f"that does not, the kernel takes at least {all_us + t.overhead_us:.0f} µs: load this data "
        "outside of the loop",
        0.0,
        max(ns, key=ns.__getitem__),
    )


def converting(t: Times) -> Iterator[Finding]:
    """Stores of wider elements than they become in HBM."""
    found = Tasks()
    for alike in t.groups:
        i, moved = alike.task.instr, alike.task.transfer
        if alike.task.label == "store" and moved is not None and i.spec.cost is TransferKind.COPY:
            tile, stored = i.tiles_in[0].itemsize, i.outs[0].itemsize
            if stored < tile:
                found.add(alike, moved.engine_ns * (1 - stored / tile))
    yield from found.finding(
        t,
        f"{counted(len(found.saved), 'store')} of wider elements than HBM gets: DMA moves all of "
        "their bytes and converts; results in the type that is stored would be fewer bytes",
        lambda task, ns: moved_in(task.kind, ns),
    )


def few_queues(t: Times) -> Iterator[Finding]:
    every = t.timing.dma.engines
    found: dict[Location | None, _Line] = defaultdict(_Line)
    for alike in t.groups:
        moved = alike.task.transfer
        if moved is None or moved.engines >= every or moved.engine_ns < 1000:
            continue
        ns = moved.engine_ns * (1 - moved.engines / every)
        found[alike.location].add(alike, ns, moved.engines)
    for tasks, engines in _dearest(found):
        yield from tasks.finding(
            t,
            f"a transfer of {counted(engines, 'partition')} uses {engines} of {every} DMA engines: "
            "spread it over more partitions",
            lambda task, ns: moved_in(task.kind, ns, every),
        )


def _left_out(task: ScheduledTask, _: float) -> Kind:
    """A task that takes no time, so that others need not be numbered anew."""
    return dataclasses.replace(task.kind, transfer=None, costs=_NOTHING)


class _Line:
    """The time that could be saved at a kernel line, by the property of transfers that costs it."""

    def __init__(self) -> None:
        self.tasks = Tasks()
        self._what: defaultdict[int, float] = defaultdict(float)  # nanoseconds

    def add(self, tasks: TaskGroup, ns: float, what: int) -> None:
        """Record that each of the tasks, which have the property `what`, could be `ns` shorter."""
        self.tasks.add(tasks, ns)
        self._what[what] += ns * len(tasks.positions)

    @property
    def what(self) -> int:
        """The property of transfers that accounts for most of the time that could be saved."""
        return max(self._what, key=self._what.__getitem__)


def _dearest(found: dict[Location | None, _Line]) -> list[tuple[Tasks, int]]:
    """The few lines at which most time could be saved: each one costs a schedule to examine."""
    ordered = sorted(found.values(), key=lambda line: -sum(line.tasks.saved.values()))
    return [(line.tasks, line.what) for line in ordered[:_LINES]]


def exposed(t: Times, are_small: bool) -> Iterator[Finding]:
    """Waiting for memory, or for latency, on the critical path.

    Args:
        t: the kernel.
        are_small: whether its tiles are said to be small: then no smaller ones are advised.
    """
    tasks, s = t._core.work.tasks, t._core.schedule
    memory = t._core.work.memory
    held: dict[str, dict[int, float]] = defaultdict(dict)
    for before, at in pairwise(t.chain):
        why = s.why[at]
        if why == "memory":
            in_psum = any(memory[number].space is Space.PSUM for number, _ in tasks[at].writes)
            why = "psum" if in_psum else "sbuf"
        if why == "port":
            why = "sbuf port" if _GPSIMD in (s.engine[before], s.engine[at]) else "psum port"
            if why == "psum port" and tasks[at].label == "tensor_copy":
                continue  # what is in PSUM can't be copied from elsewhere
        held[why][at] = s.start[at] - s.start[before]
    timing = t.timing
    dma = timing.dma
    more = dataclasses.replace(
        dma,
        in_flight=2 * dma.in_flight,
        ordered_in_flight=2 * dma.ordered_in_flight,
        single_in_flight=2 * dma.single_in_flight,
    )
    rings = [tasks[at] for at in held["ring"]]
    single = all(task.transfer is not None and task.transfer.engines == 1 for task in rings)
    under_way = min((in_flight(task, t._core.work, dma) for task in rings), default=0)
    changes: list[tuple[str, str, dict[str, Any], int]] = [
        (
            "sbuf",
            f"tiles wait for room in SBUF: {'' if are_small else 'tiles of half the bytes, or '}"
            "half as many at a time, would let transfers run ahead of the computation",
            {"machine": dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes)},
            0 if are_small else -1,
        ),
        (
            "psum",
            "results wait for room in PSUM: smaller results, or an earlier copy to SBUF, "
            "would let the next instructions start",
            {"machine": dataclasses.replace(t.machine, psum_bytes=2 * t.machine.psum_bytes)},
            0,
        ),
        (
            "ring",
            f"transfers {'of one row ' * single}wait for earlier transfers of the same line, since "
            f"at most {under_way} {'is' if under_way == 1 else 'are'} under way at a time: "
            f"transfers of twice the {'rows' if single else 'size'} would hide their latency",
            {"timing": dataclasses.replace(timing, dma=more)},
            1,
        ),
        (
            "read",
            "results wait until what they overwrite has been read: tiles made in the loop, one for "
            "each iteration, would let iterations overlap",
            {"renamed": True},
            0,
        ),
        (
            "sbuf port",
            "Vector and GpSimd wait for each other at the port to SBUF that they share: move what "
            "Scalar can do from them to Scalar",
            {"timing": dataclasses.replace(timing, shared_port=False)},
            0,
        ),
        (
            "psum port",
            "Vector and Scalar wait for each other at the port to PSUM that they share: let one "
            "of the two engines use SBUF instead",
            {"timing": dataclasses.replace(timing, shared_port=False)},
            0,
        ),
    ]
    told = {"sbuf"} if t.spilled_bytes else set()  # by `spills`
    if any(alike.task.label == TO_SBUF for alike in t.groups):
        told.add("psum")  # by `psum_spills`
    for why, text, change, tiles in changes:
        if why in told:
            continue
        stakes = held[why]
        if sum(stakes.values()) / 1e3 >= LEAST * t.latency_us:
            worst = tasks[max(stakes, key=stakes.__getitem__)].instr.location
            yield Finding(text, gain_us(t, stakes, **change), worst, tiles)


def few_loads(t: Times) -> Iterator[Finding]:
    """A few large loads whose results all else waits for: no engine works while they are on their
    way."""
    tasks, s = t._core.work.tasks, t._core.schedule
    found = Tasks()
    for before, at in pairwise(t.chain):
        moved = tasks[before].transfer
        if s.why[at] == "data" and moved is not None and tasks[before].label == "load":
            found.add_one(before, tasks[before], moved.engine_ns / 2)
    count = len(found.saved)
    if count <= _FEW_LOADS:
        yield from found.finding(
            t,
            f"everything else waits for {'one load' if count == 1 else f'{count} loads'}: in "
            "smaller tiles, transfers and engines would work at the same time",
            # The second half comes while engines work on the first.
            lambda task, ns: moved_in(task.kind, ns),
            tiles=-1,
        )


def spills(t: Times) -> Iterator[Finding]:
    if not t.spilled_bytes:
        return
    work, s = t._core.work, t._core.schedule
    found, moved = Tasks(), {"spill": 0, "reload": 0}
    for alike in t.groups:
        task = alike.task
        if task.label in moved and task.transfer is not None:
            for at in alike.positions:
                found.add_one(at, task, s.queue_end[at] - s.queue_start[at])
            moved[task.label] += task.transfer.hbm_bytes * len(alike.positions)
    sizes = (m.nbytes for m in work.memory.values() if m.space is Space.SBUF)
    most = max(sizes, default=0)
    told = [
        f"{nbytes / 1e6:.1f} MB are {what}"
        for nbytes, what in (
            (moved["spill"], "stored to HBM to make room"),
            (moved["reload"], "loaded again"),
        )
        if nbytes
    ]
    yield from found.finding(
        t,
        f"SBUF overflows: {', '.join(told)}; the largest tile takes {most:,} bytes a partition",
        _left_out,
        dataclasses.replace(t.machine, sbuf_bytes=2 * t.machine.sbuf_bytes),
    )


def psum_spills(t: Times) -> Iterator[Finding]:
    """Results that leave PSUM because more are needed than it holds."""
    found, nbytes = Tasks(), 0
    for alike in t.groups:
        task = alike.task
        if task.label == TO_SBUF:
            found.add(alike, alike.cost.busy)
            each = t._core.work.memory[task.writes[0][0]].nbytes
            nbytes += each * len(alike.positions)
    if nbytes:
        yield from found.finding(
            t,
            f"PSUM overflows: {counted(len(found.saved), 'result')} of {nbytes:,} bytes a "
            f"partition in all are copied to SBUF; PSUM holds {t.machine.psum_bytes:,}: use each "
            "result, or copy it in a smaller type, before the next ones are made",
            _left_out,
        )
