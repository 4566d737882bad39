"""Findings on the Tensor Engine: time that it could save, and work that it could take over."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost, passes_cost
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Engine, OpKind
from nkisim.report.gains import Finding, Tasks, chains
from nkisim.report.report import counted
from nkisim.report.whatif import done_along, recosted, shorter

if TYPE_CHECKING:
    from nkisim.cost.tasks import Kind, ScheduledTask
    from nkisim.report.times import Times


def fp32_matmul(t: Times) -> Iterator[Finding]:
    """Matmuls and transposes of fp32, and rows of fp32 that the compiler broadcasts by a matmul."""
    pe = t.timing.tensor
    matmuls, transposes, rows = Tasks(), Tasks(), Tasks()
    for tasks in t.groups:
        task, passes = tasks.task, tasks.cost.cycles
        if tasks.engine is Engine.TENSOR and passes > 1:
            found = matmuls
            if task.label == "partition_broadcast":
                found = rows
            elif task.label != "nc_matmul" or task.instr.settings.transpose:
                found = transposes
            found.add(tasks, tasks.cost.busy * (1 - 1 / passes))
    each = "{} of fp32 operands take {} passes; bf16 takes one"
    what = {
        each.format("matmuls", pe.fp32_passes): matmuls,
        each.format("transposes", pe.transpose_passes): transposes,
        f"the Tensor Engine broadcasts rows of fp32 over partitions in {pe.fp32_passes} passes; "
        "bf16 takes one": rows,
    }
    for text, found in what.items():
        yield from found.finding(t, text, shorter(Engine.TENSOR))


def sums_over_partitions(t: Times) -> Iterator[Finding]:
    """Sums over partitions that GpSimd makes, one partition after the other."""
    found = Tasks()
    for tasks in t.groups:
        i = tasks.task.instr
        if i.opcode == "tensor_partition_reduce" and i.settings.op == "add":
            found.add(tasks, tasks.cost.busy)
    passes = t.timing.tensor.fp32_passes

    def matmul(task: ScheduledTask, _: float) -> Kind:
        x = task.instr.tiles_in[0]
        cost = passes_cost(x.size // x.shape[0], passes if x.dtype == F32 else 1, t.timing)
        return replace(task.kind, costs=((Engine.TENSOR, cost),))

    yield from found.finding(
        t,
        f"{counted(len(found.saved), 'sum')} over partitions on GpSimd, which adds them one after "
        "the other: nisa.nc_matmul with a tile of ones sums them on the Tensor Engine",
        matmul,
    )


def short_matmuls(t: Times) -> Iterator[Finding]:
    """Matmuls of one stationary tile with several moving ones that fit into one."""
    most = t.machine.gemm_moving_fmax
    keys: dict[int, tuple] = {}  # of each matmul: its line, its stationary tile and its columns
    found, tasks = Tasks(), t._core.work.tasks
    for alike in t.groups:
        i = alike.task.instr
        moving = _moving(alike.task) if alike.task.label == "nc_matmul" else most
        if 2 * moving <= most and i.where is None and i.settings.rows == 1:
            for at in alike.positions:
                number, part = tasks[at].reads[0]
                keys[at] = alike.location, number, id(part), moving
    if not keys:
        return
    tiles = {number for _, number, *_ in keys.values()}
    version: Counter[int] = Counter()
    with_tile: dict[tuple, list[int]] = defaultdict(list)
    for at, task in enumerate(tasks):
        if at in keys:
            keys[at] += (version[keys[at][1]],)
            with_tile[keys[at]].append(at)
        version.update([number for number, _ in task.writes if number in tiles])
    together = {key for key, same in with_tile.items() if len(same) > 1}
    if not together:
        return

    def in_a_row(at: int, _: ScheduledTask, before: Mapping) -> tuple | None:
        key = keys.get(at)
        return (key, before.get(key, 0) + 1) if key in together else None

    chained = chains(t, in_a_row)
    columns = 0
    for key in with_tile:
        same, moving = with_tile[key], key[3]
        # Those that wait for each other cannot be one.
        fewer = min(len(same) // chained.get(key, 1), most // max(moving, 1))
        if fewer < 2:
            continue
        columns = max(columns, moving)
        for at in same:
            ((_, c),) = tasks[at].costs
            found.add_one(at, tasks[at], (c.busy - c.data) * (1 - 1 / fewer))
    yield from found.finding(
        t,
        f"{counted(len(found.saved), 'matmul')} of up to {columns} moving columns, several of them "
        f"with the same stationary tile: up to {most} columns fit into one, so fewer are started",
        _longer,
    )


def sums_outside(t: Times) -> Iterator[Finding]:
    """Products that are added up in SBUF, one after the other, which PSUM would do on the way."""
    adds = [g for g in t.groups if _adds(g.task)]
    if not adds:
        return
    tasks = t._core.work.tasks
    products: dict[int, bool] = {}  # memory that matmuls write -> whether one does, and no one else
    readers: Counter[int] = Counter()
    changes: Counter[int] = Counter()  # of memory, by all that writes it but fills
    for task in tasks:
        for number, _ in task.writes:
            products[number] = number not in products and task.label == "nc_matmul"
            changes[number] += task.instr.spec.kind is not OpKind.FILL
        readers.update([number for number, _ in task.reads])
    sums: dict[int, list[tuple[int, float]]] = defaultdict(list)
    for alike in adds:
        for at in alike.positions:
            task = tasks[at]
            ((target, _),) = task.writes
            others = [number for number, _ in task.reads if number != target]
            # One operand is the sum up to here, the other a product that nothing else reads.
            if len(others) == 1 and products.get(others[0]) and readers[others[0]] == 1:
                sums[target].append((at, alike.cost.busy))
    found = Tasks()
    for target, added in sums.items():
        if 1 < len(added) == changes[target]:  # else it is more than a sum of products
            for at, ns in added:
                found.add_one(at, tasks[at], ns)
    yield from found.finding(
        t,
        f"{counted(len(found.saved), 'product')} of matmuls are added up in SBUF by an instruction "
        "each: `+=` on a tile of nl.zeros(..., buffer=nl.psum) adds them on the way, and one copy "
        "takes the sum to SBUF",
        lambda task, _: done_along(task.kind),
    )


def _adds(task: ScheduledTask) -> bool:
    """Whether a task adds two tiles, one of them in PSUM, to one of them in SBUF."""
    i = task.instr
    if task.label != i.label or i.opcode != "tensor_tensor" or i.where is not None:
        return False
    spaces = sorted(x.space.label for x in i.tiles_in)
    return i.settings.op == "add" and spaces == ["PSUM", "SBUF"]


def _moving(task: ScheduledTask) -> int:
    """Moving columns of a matmul."""
    tile = task.instr.tiles_in[1]
    return tile.size // tile.shape[0]


def _longer(task: ScheduledTask, ns: float) -> Kind:
    """The cost of a matmul as a part of one of more columns: without `ns` of fixed cost."""
    return recosted(task.kind, lambda _, c: Cost(c.busy - ns, c.done - ns, c.data))
