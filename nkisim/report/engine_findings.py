"""Findings on engines: time that compute engines, and those that start transfers, could save."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost
from nkisim.cost.dma import swaps_axes
from nkisim.errors import Location
from nkisim.ir.dtypes import bfloat16
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.cycles import tile_operand
from nkisim.report.gains import LEAST, Finding, Tasks, chains
from nkisim.report.report import counted
from nkisim.report.whatif import Change, moved_in, recosted, shorter

if TYPE_CHECKING:
    from nkisim.cost.tasks import Kind, ScheduledTask
    from nkisim.report.groups import TaskGroup
    from nkisim.report.times import Times

_MORE = 2  # times the gain of one engine: worth to tell of all at once


def two_inputs(t: Times) -> Iterator[Finding]:
    """Vector instructions that take two cycles an element for their two SBUF operands."""
    found, vector = Tasks(), t.timing.vector
    second = (t.timing.two_input_cycles - 1) * vector.issue_cycles / vector.ghz  # its access
    shortest = t.timing.least_cycles / vector.ghz
    is_bf16 = True
    for tasks in t.groups:
        c, opcode = tasks.cost, tasks.task.instr.opcode
        if tasks.engine is Engine.VECTOR and c.cycles == 2 and opcode == "tensor_tensor":
            least = c.data / 2
            if _wide(tasks.task, t):  # the memory interface is the next limit
                least = max(least, c.data * vector.ghz / t.timing.interface_ghz)
            found.add(tasks, min(second + c.data - least, c.busy - shortest))
            tiles = (*tasks.task.instr.tiles_in, *tasks.task.instr.outs)
            is_bf16 = is_bf16 and all(x.dtype == bfloat16 for x in tiles)
    bf16 = "bf16 elements that lie side by side" if is_bf16 else "bf16 for all three"
    yield from found.finding(
        t,
        f"{counted(len(found.saved), 'two-input Vector instruction')} with both operands in SBUF, "
        f"at 2 cycles an element; one operand in PSUM would halve that, and so would {bf16} in "
        "sums, differences and products",
        shorter(Engine.VECTOR, second),
    )


def _wide(task: ScheduledTask, t: Times) -> bool:
    """Whether an operand of an instruction has a wide innermost stride."""
    tiles = (*task.instr.tiles_in, *task.instr.outs)
    return any(tile_operand(x, x.space).stride >= t.timing.wide_stride_bytes for x in tiles)


def wide_strides(t: Times) -> Iterator[Finding]:
    found: dict[Engine, Tasks] = defaultdict(Tasks)
    rates = {Engine.VECTOR: t.timing.vector, Engine.SCALAR: t.timing.scalar}
    for tasks in t.groups:
        c = tasks.cost
        if c.strided:
            rate = rates.get(tasks.engine, t.timing.gpsimd)
            n = c.data * t.timing.interface_ghz / 2
            found[tasks.engine].add(tasks, c.data - n * c.cycles / rate.ghz)
    for engine, those in found.items():
        yield from those.finding(
            t,
            f"{counted(len(those.saved), f'{engine.value} instruction')} with an innermost "
            f"stride of {t.timing.wide_stride_bytes} bytes or more, at half the rate of the "
            "memory interface: lay the elements side by side",
            shorter(engine),
        )


def few_lanes(t: Times) -> Iterator[Finding]:
    """Instructions on tiles of few partitions, and the transfers of these tiles."""
    found, all_lanes, every = Tasks(), t.machine.partitions, t.timing.dma.engines
    few = [(g, part) for g in t.groups if (part := _used_part(g.task, all_lanes)) < 1]
    if sum([g.cost.busy * len(g.positions) for g, _ in few]) / 1e3 < LEAST * t.latency_us:
        return
    times: Counter[tuple] = Counter()
    for tasks, _ in few:
        times[tasks.location, tasks.task.label] += len(tasks.positions)
    here = {at for tasks, _ in few for at in tasks.positions}

    def in_a_row(at: int, task: ScheduledTask, before: Mapping) -> tuple | None:
        line = task.instr.location, task.label
        return (line, before.get(line, 0) + 1) if at in here else None

    chained = chains(t, in_a_row)
    lanes: dict[Location | None, str] = {}
    count = 0
    for tasks, part in few:
        task, c, moved = tasks.task, tasks.cost, tasks.task.transfer
        if moved is not None:
            ns = moved.engine_ns * (1 - moved.engines / every)
            found.saved.update(dict.fromkeys(tasks.positions, ns))
            continue
        # Those that wait for each other would be as many, only shorter.
        line = tasks.location, task.label
        fewer = times[line] * part >= chained[line]
        found.add(tasks, (c.busy if fewer else c.data) * (1 - part))
        count += tasks.instructions
        tile = task.instr.tiles_in[0] if task.instr.tiles_in else task.instr.outs[0]
        rows = tile.shape[0]
        lanes[tasks.location] = (
            f"{rows} x {tile.size // rows} of the {all_lanes} x {all_lanes} array"
            if tasks.engine is Engine.TENSOR and rows < tile.size
            else f"{rows} of {all_lanes} lanes"
        )
    if not lanes:
        return
    worst = max(found.lines, key=found.lines.__getitem__)
    use = "uses" if count == 1 else "use"
    yield from found.finding(
        t,
        f"{counted(count, 'instruction')} {use} part of the engine, such as {lanes[worst]}: larger "
        "tiles, of more partitions, would take fewer instructions and transfers, or shorter ones",
        lambda task, ns: _fuller(task.kind, ns, _used_part(task, all_lanes), every),
        tiles=1,
    )


def _used_part(task: ScheduledTask, lanes: int) -> float:
    """The part of its engine's lanes, or of the array, that a task uses."""
    i = task.instr
    if task.label == "nc_matmul":
        stationary = i.tiles_in[0]
        rows = stationary.shape[0]
        columns = stationary.size // rows // i.settings.rows
        # One column sums over the partitions: no more are wanted.
        return rows / lanes if columns == 1 else rows * columns / lanes**2
    if i.engine is Engine.TENSOR:
        return 1.0
    on_chip = [x.shape[0] for x in (*i.outs, *i.tiles_in) if x.space.on_chip]
    return max(on_chip, default=lanes) / lanes


def _fuller(kind: Kind, ns: float, part: float, queues: int) -> Kind:
    """The cost of a task as a share of a task on all lanes: `ns` shorter, but no less than the
    fraction `part` of its present time."""
    moved = kind.transfer
    if moved is not None:
        started = recosted(kind, lambda _, c: Cost(c.busy * part, c.done * part, 0.0))
        moved = moved._replace(latency_ns=moved.latency_ns * part)
        return moved_in(dataclasses.replace(started, transfer=moved), ns, queues)
    return recosted(
        kind,
        lambda _, c: Cost(
            max(c.busy - ns, c.busy * part), max(c.done - ns, c.done * part), c.data * part
        ),
    )


def small_tiles(t: Times) -> Iterator[Finding]:
    """Engines whose time goes into starting instructions or transfers: each by itself or, if that
    tells too little, all at once."""
    apart = [*_fixed_costs(t), *_triggers(t)]
    found, count = Tasks(), {False: 0, True: 0}
    for tasks in t.groups:
        task, c, moved = tasks.task, tasks.cost, tasks.task.transfer
        if moved is not None and (task.label in ("spill", "reload") or swaps_axes(task.instr)):
            continue  # the compiler's, and in pieces of their own
        elements = c.data if moved is None else moved.nbytes * t.ns_a_byte(task) / moved.engines
        if c.busy > 2 * elements:
            found.add(tasks, (c.busy - c.data) / 2)
            count[moved is not None] += tasks.instructions
    small = [
        text
        for text, n in (
            (counted(count[False], "instruction"), count[False]),
            (f"the start of {counted(count[True], 'transfer')}", count[True]),
        )
        if n
    ]
    together = list(
        found.finding(
            t,
            f"tiles are small: {' and '.join(small)} take longer than their elements; tiles of "
            "twice the size would need half as many",
            lambda task, _: _one_of_two(task.kind),
            tiles=1,
        )
    )
    most = max([f.gain_us for f in apart], default=0.0)
    yield from together if together and together[0].gain_us > _MORE * most else apart


def _fixed_costs(t: Times) -> Iterator[Finding]:
    """Engines whose time goes into starting instructions, not into elements."""
    found: dict[Engine, tuple[Tasks, list[TaskGroup]]] = {
        e: (Tasks(), []) for e in (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)
    }
    for tasks in t.groups:
        if tasks.engine in found and tasks.task.transfer is None:
            fewer, groups = found[tasks.engine]
            fewer.add(tasks, (tasks.cost.busy - tasks.cost.data) / 2)
            groups.append(tasks)
    for engine, (fewer, groups) in found.items():
        busy = sum(g.cost.busy * len(g.positions) for g in groups)
        starting = busy - sum(g.cost.data * len(g.positions) for g in groups)
        if not groups or starting < busy / 2:
            continue
        count = sum(g.instructions for g in groups)
        instructions = counted(count, f"{engine.value} instruction")
        whose = "its" if count == 1 else "their"
        loads = t.engines[engine.value].busy_us * 1e3 > 1.01 * busy  # tables, beside them
        yield from fewer.finding(
            t,
            f"starting {instructions}{' (loads of tables aside)' * loads} takes "
            f"{starting / 1e3:.1f} of {whose} {busy / 1e3:.1f} µs: use longer free axes, or fuse "
            "instructions, so that there are half as many",
            _half_as_many(engine),
            tiles=1,
        )


def _triggers(t: Times) -> Iterator[Finding]:
    """Engines whose time goes into starting transfers, of those that could move more."""
    found: dict[tuple[Engine, bool], Tasks] = {}
    dma = t.timing.dma
    for tasks in t.groups:
        moved, ns = tasks.task.transfer, tasks.cost.busy
        # What the compiler puts in has queues of its own.
        if moved is None or _moves_all(tasks.task):
            continue
        if ns >= min(dma.trigger_ns, dma.software_ns, dma.indirect_ns):
            found.setdefault((tasks.engine, moved.indirect), Tasks()).add(tasks, ns / 2)
    for (engine, indirect), those in found.items():
        each = max(those.saved.values()) * 2
        if indirect:
            how = "indirect transfers have their descriptors written by GpSimd"
        elif engine is Engine.GPSIMD:
            how = "transfers have their descriptors written by GpSimd"
        else:
            how = f"transfers are started by the {engine.value} Engine, one after the other"
        yield from those.finding(
            t,
            f"{len(those.saved)} {how}, {each:.0f} ns each: move more in each, so that there are "
            "half as many",
            _half_as_many(engine),
            tiles=1,
        )


def _moves_all(task: ScheduledTask) -> bool:
    """Whether a transfer moves all of an HBM tensor: there is no more to move with it."""
    return any(
        x.size == prod(x.buffer.shape)
        for x in (*task.instr.outs, *task.instr.tiles_in)
        if not x.space.on_chip
    )


def _half_as_many(engine: Engine) -> Change:
    """A change that halves the fixed cost of tasks: half as many of them do the same work."""

    return lambda task, _: recosted(task.kind, lambda e, c: _half(c) if e is engine else c)


def _one_of_two(kind: Kind) -> Kind:
    """The cost of a task if half as many tasks did the same work: its fixed cost is halved, on
    every engine that may run it and in the latency of its transfer."""
    changed, moved = recosted(kind, lambda _, c: _half(c)), kind.transfer
    if moved is None:
        return changed
    return dataclasses.replace(changed, transfer=moved._replace(latency_ns=moved.latency_ns / 2))


def _half(c: Cost) -> Cost:
    return Cost((c.busy + c.data) / 2, (c.done + c.data) / 2, c.data)


def tables(t: Times) -> Iterator[Finding]:
    """Times that the Scalar Engine loads the table of another function while data wait for it."""
    found, s, functions = Tasks(), t._core.schedule, set()
    for tasks in t.groups:
        for at in tasks.positions if tasks.engine is Engine.SCALAR else ():
            # The schedule adds what is left of it when the data are there.
            waits = s.end[at] - s.start[at] - tasks.cost.busy
            if waits > t.timing.table_load_ns / 2:
                found.add_one(at, tasks.task, waits)
                functions.add(tasks.task.table)
    if len(found.saved) <= len(functions):  # each once
        return
    fewest = max(chains(t, _changes_of_tables).values(), default=0)
    if len(found.saved) <= max(fewest, len(functions)):
        return
    least = max(fewest, len(functions)) / len(found.saved)
    timing = dataclasses.replace(t.timing, table_load_ns=t.timing.table_load_ns * least)
    yield from found.finding(
        t,
        f"data wait for the Scalar Engine to load the table of another function {len(found.saved)} "
        f"times ({', '.join(sorted(functions))}), up to {t.timing.table_load_ns:.0f} ns each: do "
        "all of one function before the next, as far as SBUF has room, or take functions of one "
        "table",
        None,
        timing=timing,
    )


def _changes_of_tables(at: int, task: ScheduledTask, before: Mapping) -> tuple | None:
    """The table of a task, and the most changes of tables on a chain of tasks that ends with it;
    None for a task without a table."""
    if not task.table:
        return None
    return task.table, max([n + (table != task.table) for table, n in before.items()], default=1)
