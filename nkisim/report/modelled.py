"""The times of a trace: each core's tasks as the compiler would build them, and when each runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nkisim.compiler.build import work_of
from nkisim.cost.tasks import Work
from nkisim.ir.garbage import without_collection
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Role, Space
from nkisim.ir.trace import Trace
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.report.timeline import Timeline
from nkisim.report.times import Core
from nkisim.schedule.allocation import spill
from nkisim.schedule.cores import waits_across
from nkisim.schedule.scheduler import schedule, schedule_cores
from nkisim.schedule.touches import Touches


def timeline(trace: Trace) -> Timeline:
    """The Timeline of a traced kernel."""
    machine = trace.machine
    timing = machine.timing
    cores = [trace.instructions]
    if trace.grid.cores > 1:
        cores = [[] for _ in range(trace.grid.cores)]  # also of those that have nothing to do
        for instr in trace.instructions:
            cores[trace.grid.core(instr.program)].append(instr)
        timing = timing.shared_by(len(cores))
    parallel = {n for n, loop in enumerate(trace.loops) if loop.kind in trace.rules.parallel}
    ordered = {n for n, loop in enumerate(trace.loops) if loop.kind == "sequential_range"}
    orders: dict[int, list[Instruction]] = defaultdict(list)
    for earlier, later in trace.orders:
        orders[id(later)].append(earlier)
    with without_collection():
        planned = [_planned(instructions, machine, timing, parallel) for instructions in cores]
        for work, _, _ in planned:
            work.orders, work.ordered = orders, ordered
        works, spilled, touches = (list(column) for column in zip(*planned, strict=True))
        if len(works) == 1:
            across: list[dict] = [{}]
            schedules = [schedule(works[0], machine, timing, touches=touches[0])]
        else:
            across = waits_across(works, trace.instructions)
            schedules = schedule_cores(works, machine, timing, touches, across)
    waits = any(across)
    found = [Core(*core, waits) for core in zip(works, schedules, spilled, strict=True)]
    count = len(trace.instructions)
    guessed = sorted(trace.guessed)
    once = _moved_once(trace)
    return Timeline(
        trace.name, machine, timing, found, count, trace.target, guessed=guessed, once=once
    )


def _moved_once(trace: Trace) -> tuple[int, int]:
    """See `Times.once`. A part that is moved again and again, in the same way, counts once, and a
    tensor no more than it has."""
    moved: tuple[dict, dict] = ({}, {})  # read, written: a buffer's number -> its parts' elements
    for instr in trace.instructions:
        if not instr.outs:
            continue
        most = max(t.size for t in instr.outs)  # of what a gather may touch, it moves that
        for parts, tensors in zip(moved, (instr.tiles_in, instr.outs), strict=True):
            for t in tensors:
                if not t.space.on_chip:
                    own = parts.setdefault(t.buffer.number, {})
                    own[t.form, t.offsets] = min(t.size, most)
    bytes_of = []
    for parts, others in zip(moved, reversed(moved), strict=True):
        total = 0
        for number, own in parts.items():
            buffer = trace.buffers[number]
            if buffer.role is Role.ARGUMENT or (parts is moved[1] and number not in others):
                total += min(sum(own.values()), buffer.size) * buffer.dtype.itemsize
        bytes_of.append(total)
    return bytes_of[0], bytes_of[1]


def _planned(
    instructions: Sequence[Instruction], machine: Machine, timing: Timing, parallel: set[int]
) -> tuple[Work, int, Touches]:
    """The tasks of one core, the bytes that were spilled to make room for them, and what they
    touch."""
    work = work_of(instructions, machine, timing, parallel)
    touches = Touches.of(work)
    overflows = touches.peak(Space.PSUM) > machine.psum_bytes
    if overflows:
        work = work_of(instructions, machine, timing, parallel, overflows=True)
        touches = Touches.of(work)
    spilled, touches = spill(work, touches, machine, timing)
    if work.kept & work.reloaded:  # there may be no room for what is kept: load it again each time?
        unhoisted = work_of(
            instructions, machine, timing, parallel, hoists=False, overflows=overflows
        )
        spilled_then, touches_then = spill(unhoisted, Touches.of(unhoisted), machine, timing)
        if spilled_then < spilled:
            work, spilled, touches = unhoisted, spilled_then, touches_then
    return work, spilled, touches
