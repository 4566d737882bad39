"""Assignments as the compiler sees them: the instruction writes its result where it is assigned.

`t[i] = nl.load(x)` traces as a load into a tile of its own and a copy of that into `t[i]`. No such
copy exists on hardware. Once the whole kernel is traced, and it is known that nothing else reads
the tile, the load is made to write `t[i]` and the copy goes.

Python's own loops leave no record, so a tile may come out of one, or from an iteration before.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32, FLOATS
from nkisim.ir.instruction import Engine, Instruction, OpKind
from nkisim.ir.memory import Role, Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def fold_assignments(trace: Trace) -> None:
    """Take the copies that assignments left behind out of a trace, and change their writers."""
    instructions = trace.instructions
    copies = [i for i in instructions if i.settings.assign]
    if not copies:
        return
    # The positions of the instructions that touch a tile which is assigned, or assigned to.
    touches: dict[int, list[int]] = {t.buffer.number: [] for i in copies for t in (*i.outs, *i.ins)}
    for at, instr in enumerate(instructions):
        for t in instr.outs + instr.tiles_in:
            positions = touches.get(t.buffer.number)
            if positions is not None and (not positions or positions[-1] != at):
                positions.append(at)
    gone: set[int] = set()
    for at, copy in enumerate(instructions):
        if not copy.settings.assign:
            continue
        copy.settings = copy.settings.but(assign=False)
        value, target = copy.ins[0], copy.outs[0]
        trace.assigned.add(value.buffer.number)
        positions = touches[value.buffer.number]
        if len(positions) != 2 or positions[1] != at:
            if len(positions) > 2:
                trace.assigned.discard(value.buffer.number)
            continue
        writer = instructions[positions[0]]
        if not _writes_only(writer, value, copy) or not _may_write(writer, value, target):
            continue
        if writer.loops != copy.loops:
            continue
        between = touches[target.buffer.number]
        first = bisect_right(between, positions[0])
        if first != bisect_left(between, at):
            continue
        writer.outs = tuple([target if t.same_elements(value) else t for t in writer.outs])
        moved = bisect_left(between, at)
        reads_it = moved and between[moved - 1] == positions[0]
        between[moved : moved + 1] = [] if reads_it else [positions[0]]
        gone.add(at)
    trace.instructions = [i for at, i in enumerate(instructions) if at not in gone]


def _writes_only(writer: Instruction, value: AccessPattern, copy: Instruction) -> bool:
    """Whether `writer` makes exactly what `copy` moves, in the same instance."""
    buffer = value.buffer
    made = [t for t in writer.outs if t.buffer is buffer]
    return (
        buffer.role is Role.LOCAL
        and len(made) == 1
        and not writer.spec.partial
        and all([t.buffer is not buffer for t in writer.tiles_in])
        and made[0].same_elements(value)
        and _same_mask(writer.where_of(value), copy.where_of(value))
        and writer.program == copy.program
    )


def _same_mask(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    if a is None or b is None:
        return a is b
    return a is b or bool(np.array_equal(a, b))


def _may_write(writer: Instruction, value: AccessPattern, target: AccessPattern) -> bool:
    """Whether the engine of `writer` can write `target`, with the same result."""
    spaces = (value.space, target.space)
    if spaces not in ((Space.SBUF, Space.SBUF), (Space.PSUM, Space.PSUM), _INTO_PSUM):
        return False
    if spaces == _INTO_PSUM and (not writer.spec.on_chip or writer.engine is Engine.GPSIMD):
        return False
    # Engines compute in fp32 and convert on the way out, and DMA converts: one rounding, not two.
    # What only moves elements rounds nothing, so a wider target takes them as they are.
    if value.dtype != target.dtype and not (
        (value.dtype == F32 and target.dtype in FLOATS)
        or (
            writer.spec.on_chip
            and (writer.spec.pure_copy or writer.spec.kind is OpKind.TRANSPOSE)
            and writer.tiles_in[0].dtype == value.dtype
            and value.dtype in FLOATS
            and target.dtype == F32
        )
    ):
        return False
    return writer.spec.elementwise or all(
        t.buffer is not target.buffer or (writer.spec.in_place and t.same_elements(target))
        for t in writer.tiles_in
    )


_INTO_PSUM = (Space.SBUF, Space.PSUM)
