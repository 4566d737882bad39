"""Instructions that another one could do along: engines work in two steps, and reduce on the side,
and a matmul has room for more moving columns.

What each instruction can do is in the `nki.isa` docstrings (SDK 2.26). Only instructions on floats
without a mask are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost
from nkisim.cost.report import counted
from nkisim.cost.stakes import Finding, Tasks
from nkisim.cost.whatif import recosted
from nkisim.dtypes import FLOATS
from nkisim.instruction import Engine, Instruction
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.cost.tasks import Access, Kind, Task
    from nkisim.cost.timeline import Timeline

_SCALED = "scaled"
_HINTS = {
    "tensor_scalar": "nisa.tensor_scalar does two operators one after the other",
    "tensor_tensor": "nisa.scalar_tensor_tensor does an operator with a number, or one a "
    "partition, and then one with a tile",
    _SCALED: "nisa.activation multiplies by its scale and adds its bias first",
    "activation_reduce": "nisa.activation_reduce sums its results on the side",
    "tensor_scalar_reduce": "nisa.tensor_scalar_reduce reduces its results on the side",
}
_REDUCED = {  # what an instruction that reduces on the side can do
    "activation": ("add",),
    "tensor_scalar": ("add", "multiply", "maximum", "minimum"),
    "tensor_tensor": (),
    "tensor_reduce": (),
}
_LOOKED_AT = tuple(_REDUCED)


def fusable(t: Timeline) -> Iterator[Finding]:
    """Pairs of instructions of which one could do both's work."""
    plain = [g for g in t._alike if _is_plain(g.task)]
    opcodes = {g.task.instr.opcode for g in plain}
    if "tensor_reduce" not in opcodes and "tensor_scalar" not in opcodes:
        return  # see `_pair`
    tasks, s = t._core.work.tasks, t._core.schedule
    writers: dict[int, list[int]] = defaultdict(list)  # of each memory
    readers: Counter[int] = Counter()
    for at, task in enumerate(tasks):
        for number, _ in task.writes:
            writers[number].append(at)
        readers.update({number for number, _ in task.reads})
    found: dict[str, Tasks] = defaultdict(Tasks)
    taken: set[int] = set()  # tasks that are half of a pair
    here = {at for g in plain for at in g.positions}
    for at in sorted(here):
        task = tasks[at]
        for read in task.reads if at not in taken else ():
            made = writers.get(read[0], ())
            if len(made) != 1 or made[0] >= at or made[0] not in here or made[0] in taken:
                continue
            before = made[0]
            first = tasks[before]
            what = _pair(first, task, read, readers[read[0]] == 1, t)
            if what is None:
                continue
            gone = at if what.endswith("_reduce") else before
            if gone == before and any(
                bisect_right(others, before) < bisect_left(others, at)
                for others in (writers.get(n, ()) for n, _ in first.reads)
            ):
                continue  # in the second one's place, the operands of the first one are others
            taken |= {before, at}
            found[what].add_one(gone, tasks[gone], s.end[gone] - s.start[gone])
            break
    for what, pairs in found.items():
        reduces = what.endswith("_reduce")
        yield from pairs.finding(
            t,
            f"{counted(len(pairs.saved), 'instruction')} could be part of "
            f"{'the one before' if reduces else 'the next one'}: {_HINTS[what]}",
            lambda task, _, reduces=reduces: _done_along(task, reduces, t),
        )


def short_matmuls(t: Timeline) -> Iterator[Finding]:
    """Matmuls of one stationary tile with several moving ones that fit into one."""
    most = t.machine.gemm_moving_fmax
    with_tile: dict[tuple, list[int]] = defaultdict(list)
    found, tasks = Tasks(), t._core.work.tasks
    for alike in t._alike:
        i = alike.task.instr
        if alike.task.label == "nc_matmul" and i.where is None and not i.attrs.get("rows"):
            moving = _moving(alike.task)
            for at in alike.positions:
                number, part = tasks[at].reads[0]
                with_tile[alike.location, number, id(part), moving].append(at)
    columns = 0
    for (*_, moving), same in with_tile.items():
        fewer = min(len(same), most // max(moving, 1))
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


def _moving(task: Task) -> int:
    """Moving columns of a matmul."""
    tile = task.instr.tiles_in[1]
    return tile.size // tile.shape[0]


def _longer(task: Task, ns: float) -> Kind:
    """Its part of a matmul of more columns."""
    return recosted(task.kind, lambda _, c: Cost(c.busy - ns, c.done - ns, c.data))


def _pair(first: Task, second: Task, read: Access, only: bool, t: Timeline) -> str | None:
    """How two instructions could be one, as a key of `_HINTS`; None if they could not.

    Args:
        first, second: their tasks, both plain.
        read: what the second reads of the first one's result.
        only: whether nothing else reads that.
        t: the kernel.
    """
    a, b = first.instr, second.instr
    if first.writes[0][1] is not read[1]:
        return None
    if a.opcode == "tensor_scalar" and _steps(a) != 1:
        return None
    if b.opcode == "tensor_reduce":
        whole = prod(b.outs[0].shape[1:]) == 1 and not b.attrs.get("negate")
        known = b.attrs["op"] in _REDUCED[a.opcode] and not _swaps(a)
        return f"{a.opcode}_reduce" if whole and known else None
    if a.opcode != "tensor_scalar" or not only:
        return None
    result = a.outs[0].buffer
    if b.opcode == "tensor_tensor":
        twice = second.costs[0][1].cycles == t.timing.two_input_cycles
        other = any(x.buffer is not result for x in b.tiles_in)
        return b.opcode if twice and other and b.outs[0].ndim == 2 else None
    if b.ins[0] is not b.tiles_in[0] or b.tiles_in[0].buffer is not result:
        return None
    if b.opcode == "tensor_scalar":
        return b.opcode if _steps(b) == 1 else None
    return _SCALED if _is_free(b, a.attrs["op"]) else None


def _is_plain(task: Task) -> bool:
    """Whether it is an instruction of those looked at, on floats and without a mask."""
    i = task.instr
    if i.opcode not in _LOOKED_AT or i.where is not None or i.engine is Engine.GPSIMD:
        return False
    # Others are what the compiler has put in front of one.
    return task.label == i.label and all(x.dtype in FLOATS for x in (*i.outs, *i.tiles_in))


def _steps(i: Instruction) -> int:
    """The operators of a tensor_scalar."""
    return len(i.attrs.get("steps", (None,)))


def _swaps(i: Instruction) -> bool:
    """Whether a tensor_scalar has its operand on the left, which tensor_scalar_reduce cannot."""
    steps = i.attrs.get("steps", ())
    return i.ins[0] is not i.tiles_in[0] or any(swapped for _, swapped in steps)


def _is_free(activation: Instruction, op: str) -> bool:
    """Whether an activation can do an operator with a number a partition first."""
    if op not in ("multiply", "add"):
        return False
    _, scale, bias = activation.ins[:3]
    plain = not isinstance(scale, Tensor) and scale == 1.0
    return plain and (op == "multiply" or (not isinstance(bias, Tensor) and bias == 0.0))


def _done_along(task: Task, reduces: bool, t: Timeline) -> Kind:
    """What is left of a task that another one does along: of a reduction, to read the result."""
    ns = t.timing.accumulator_cycles / t.timing.vector.ghz if reduces else 0.0
    return recosted(task.kind, lambda *_: Cost(ns, ns, 0.0))
