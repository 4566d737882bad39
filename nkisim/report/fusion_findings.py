"""Instructions that another one could do along: engines work in two steps, and reduce on the side,
and a matmul has room for more moving columns.

What each instruction can do is in the `nki.isa` docstrings (SDK 2.26). Only instructions on floats
without a mask are looked at.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING

from nkisim.cost.compute import cost
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import FLOATS
from nkisim.ir.instruction import Engine, Instruction
from nkisim.numerics.ops.chain import is_affine
from nkisim.numerics.ops.cycles import OnEngine, tile_operand
from nkisim.report.gains import Finding, Tasks
from nkisim.report.report import counted
from nkisim.report.whatif import done_along

if TYPE_CHECKING:
    from nkisim.cost.tasks import Access, Kind, ScheduledTask
    from nkisim.report.times import Times

_SCALED, _SQUARED = "scaled", "square_reduce"
_HINTS = {
    "tensor_scalar": "nisa.tensor_scalar does two operators one after the other",
    "tensor_tensor": "nisa.scalar_tensor_tensor does an operator with a number, or one a "
    "partition, and then one with a tile",
    _SCALED: "nisa.activation multiplies by its scale and adds its bias first; that of x - m is -m",
    _SQUARED: "nisa.activation_reduce squares and sums in one, on the Scalar Engine",
    "activation_reduce": "nisa.activation_reduce sums its results on the side",
    "tensor_scalar_reduce": "nisa.tensor_scalar_reduce reduces its results on the side",
}
# What does the work of both, and where, if that is not where the one that stays can run anyway.
_BOTH = {
    "tensor_scalar": ("tensor_scalar", Engine.VECTOR),
    "tensor_scalar_reduce": ("tensor_scalar_reduce", Engine.VECTOR),
    "activation_reduce": ("activation_reduce", Engine.SCALAR),
    _SQUARED: ("activation_reduce", Engine.SCALAR),
}
_REDUCED = {  # what an instruction that reduces on the side can do
    "activation": ("add",),
    "tensor_scalar": ("add", "multiply", "maximum", "minimum"),
}
_LOOKED_AT = (*_REDUCED, "tensor_tensor", "tensor_reduce", "activation_reduce")


def fusable(t: Times) -> Iterator[Finding]:
    """Pairs of instructions of which one could do both's work."""
    plain = [g for g in t.groups if _is_plain(g.task)]
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
            if _leaves_no_choice(what, first.instr, task.instr):
                other = before if gone == at else at
                found[what].add_one(other, tasks[other], 0.0)
            break
    for what, pairs in found.items():
        reduces = what.endswith("_reduce")
        count = sum(ns > 0 for ns in pairs.saved.values())
        yield from pairs.finding(
            t,
            f"{counted(count, 'instruction')} could be part of "
            f"{'the one before' if reduces else 'the next one'}: {_HINTS[what]}",
            partial(_fused, what, t),
        )


def _pair(
    first: ScheduledTask, second: ScheduledTask, read: Access, only: bool, t: Times
) -> str | None:
    """The fusion of two instructions into one, as a key of `_HINTS`; None if there is none.

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
        whole = prod(b.outs[0].shape[1:]) == 1 and not b.settings.negate
        known = b.settings.op in _REDUCED.get(a.opcode, ()) and not _swaps(a)
        if not (whole and known):
            return None
        if (
            a.opcode == "tensor_scalar" and len(a.ins) == 1
        ):  # a function: of one number, no operator
            squares = a.settings.op == "square" and b.settings.op == "add" and only
            return _SQUARED if squares and not a.engine_asked else None
        return f"{a.opcode}_reduce"
    if a.opcode != "tensor_scalar" or not only or len(a.ins) == 1:
        return None
    result = a.outs[0].buffer
    if b.opcode == "tensor_tensor":
        twice = second.costs[0][1].cycles == t.timing.two_input_cycles
        other = any(x.buffer is not result for x in b.tiles_in)
        return b.opcode if twice and other and b.outs[0].ndim == 2 else None
    if b.ins[0] is not b.tiles_in[0] or b.tiles_in[0].buffer is not result:
        return None
    if b.opcode == "tensor_scalar":
        return b.opcode if _steps(b) == 1 and len(b.ins) == 2 else None
    return _SCALED if _is_free(b, a) else None


def _is_plain(task: ScheduledTask) -> bool:
    """Whether a task is a candidate for fusion: an opcode in `_LOOKED_AT`, on floats, without a
    mask."""
    i = task.instr
    if i.opcode not in _LOOKED_AT or i.where is not None or i.engine is Engine.GPSIMD:
        return False
    # Others are what the compiler has put in front of one.
    return task.label == i.label and all(x.dtype in FLOATS for x in (*i.outs, *i.tiles_in))


def _steps(i: Instruction) -> int:
    """The operators of a tensor_scalar."""
    return len(i.settings.steps) or 1


def _swaps(i: Instruction) -> bool:
    """Whether a tensor_scalar has its operand on the left, which tensor_scalar_reduce cannot."""
    steps = i.settings.steps
    return i.ins[0] is not i.tiles_in[0] or any(swapped for _, swapped in steps)


def _is_free(activation: Instruction, first: Instruction) -> bool:
    """Whether an activation can do an operator with a number a partition first."""
    op = first.settings.op
    if op not in ("multiply", "add", "subtract") or (op == "subtract" and _swaps(first)):
        return False
    _, scale, bias = activation.ins[:3]
    plain = not isinstance(scale, AccessPattern) and scale == 1.0
    return plain and (op == "multiply" or (not isinstance(bias, AccessPattern) and bias == 0.0))


def _leaves_no_choice(what: str, first: Instruction, second: Instruction) -> bool:
    """Whether one engine only has the instruction that does both's work."""
    if what == "tensor_scalar":
        return not is_affine(second, f"{first.settings.op}, {second.settings.op}")
    return what in _BOTH


def _fused(what: str, t: Times, task: ScheduledTask, ns: float) -> Kind:
    """A pair in one instruction: the first is done along the way, the second does both."""
    return done_along(task.kind) if ns else _doing_both(task, what, t)


def _doing_both(task: ScheduledTask, what: str, t: Times) -> Kind:
    """The kind of a task after another one was fused into it: see `_BOTH`."""
    opcode, engine = _BOTH[what]
    i, memory = task.instr, t._core.work.memory
    ins, outs = (
        tuple(
            [tile_operand(x, memory[n].space) for x, (n, _) in zip(tiles, accesses, strict=False)]
        )
        for tiles, accesses in ((i.tiles_in, task.reads), (i.outs, task.writes))
    )
    both = cost(OnEngine(replace(i, opcode=opcode), engine, ins, outs, t.timing))
    return replace(task.kind, costs=((engine, both),))
