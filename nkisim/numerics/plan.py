"""From a trace to as few NumPy calls as possible, with the same results.

Instructions are executed on NumPy views. Rewrites, each valid for any program, remove work
that only moves data around in host memory, or whose result nobody reads:

1. a copy whose source stays as it is until the copy's last reader: readers use the source;
2. a copy that is the only reader of its source: the source's writer writes the destination;
3. neighbouring elementwise instructions of the same kind become one on the joined tiles;
4. an instruction with several results is told which of them are never read. (It may then add up
   in another order, which no documentation fixes.)
5. matrix products read their operands before copies and transposes, and are joined where they are
   summed up: `nkisim.numerics.products`.

The trace itself is not touched: checks, timing and listings see every instruction.
"""

from __future__ import annotations

from bisect import bisect_left
from copy import copy

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Operand
from nkisim.ir.memory import Role
from nkisim.ir.trace import Trace
from nkisim.numerics.products import join_products, read_operands_at_their_source
from nkisim.numerics.steps import (
    Step,
    Uses,
    apart,
    continues,
    make_step,
    plain_copy,
    stretch,
    within,
)


def plan(trace: Trace, keep: set[int]) -> list[Step]:
    """The steps that run `trace`.

    Args:
        trace: the traced kernel.
        keep: numbers of buffers whose contents are outputs, which no rewrite may remove.
    """
    steps = [Step(i, i.outs, i.ins, i.tiles_in) for i in trace.instructions]
    steps = _forward_sources(steps, keep)
    steps = _forward_destinations(steps, keep)
    steps = join_products(read_operands_at_their_source(steps, keep), keep)
    return _note_unread(_merge_neighbours(steps), keep)


def _forward_sources(steps: list[Step], keep: set[int]) -> list[Step]:
    uses = Uses(steps)
    sources: dict[int, tuple[AccessPattern, tuple[int, ...]]] = {}  # buffer -> (source, box origin)
    kept: list[Step] = []
    for at, step in enumerate(steps):
        for t in step.tiles_in:
            if t.buffer.number in sources:
                step = make_step(
                    step.instr,
                    step.outs,
                    tuple(
                        _through(x, *sources[x.buffer.number])
                        if isinstance(x, AccessPattern) and x.buffer.number in sources
                        else x
                        for x in step.ins
                    ),
                )
                break
        if plain_copy(step) and _removable(step, at, steps, uses, keep):
            sources[step.outs[0].buffer.number] = (step.ins[0], step.outs[0].offsets)
        else:
            kept.append(step)
    return kept


def _removable(step: Step, at: int, steps: list[Step], uses: Uses, keep: set[int]) -> bool:
    out, source = step.outs[0], step.ins[0]
    buffer = out.buffer
    if buffer.role is not Role.LOCAL or buffer.number in keep or not out.is_box:
        return False
    if len(uses.writes[buffer.number]) != 1 or out.base_shape != buffer.shape:
        return False
    readers = uses.reads[buffer.number]
    if not readers or not all(
        t.base_shape == buffer.shape and t.dtype == buffer.dtype and _inside(t, out)
        for r in readers
        for t in steps[r].tiles_in
        if t.buffer is buffer
    ):
        return False
    return not within(uses.writes[source.buffer.number], at, readers[-1])


def _through(
    reader: AccessPattern, source: AccessPattern, origin: tuple[int, ...]
) -> AccessPattern:
    """`reader`, a view of a copy's destination box, as a view of the copy's source."""
    shifted = AccessPattern(
        reader.buffer,
        reader.shape,
        reader.base_shape,
        tuple(o - start for o, start in zip(reader.offsets, origin, strict=True)),
        reader.coefs,
        reader.dtype,
    )
    return source.compose(shifted)


def _forward_destinations(steps: list[Step], keep: set[int]) -> list[Step]:
    uses = Uses(steps)
    gone: set[int] = set()
    for at, step in enumerate(steps):
        if not plain_copy(step):
            continue
        source, target = step.ins[0], step.outs[0]
        number = source.buffer.number
        writers = uses.writes[number]
        if (
            source.buffer.role is not Role.LOCAL
            or number in keep
            or len(writers) != 1
            or uses.reads[number] != [at]
            or writers[0] >= at
        ):
            continue
        writer = steps[writers[0]]
        written = writer.outs[0]
        if (
            len(writer.outs) != 1
            or writer.instr.where is not None
            or writer.instr.where_out is not None
            or not _may_write_into(writer, target)
            or not (source.is_box and written.is_box)
            or source.base_shape != written.base_shape
            or source.offsets != written.offsets
            or source.shape != written.shape
            or source.dtype != written.dtype  # a view of the bits as another type
            or _touched_between(steps, uses, target, writers[0], at)
        ):
            continue
        steps[writers[0]] = Step(writer.instr, (target,), writer.ins, writer.tiles_in)
        moved = uses.writes[target.buffer.number]
        del moved[bisect_left(moved, at)]
        moved.insert(bisect_left(moved, writers[0]), writers[0])
        gone.add(at)
    return [s for at, s in enumerate(steps) if at not in gone]


def _may_write_into(writer: Step, target: AccessPattern) -> bool:
    """Whether a step may compute in place: its result is the same if its output overlaps inputs.

    Elementwise steps do; the others read elements after they have written some.
    """
    return writer.instr.spec.elementwise or all(
        t.buffer is not target.buffer for t in writer.tiles_in
    )


def _touched_between(
    steps: list[Step], uses: Uses, target: AccessPattern, first: int, last: int
) -> bool:
    """Whether any step strictly between touches elements of `target`."""
    number = target.buffer.number
    for positions in (uses.reads[number], uses.writes[number]):
        for i in within(positions, first, last - 1):
            step = steps[positions[i]]
            for t in (*step.outs, *step.tiles_in):
                if t.buffer.number == number and not apart(t, target):
                    return True
    return False


def _inside(t: AccessPattern, box: AccessPattern) -> bool:
    """Whether `t` stays in the base coordinates of `box`, a box of the same buffer.

    A whole tile may be computed on when a masked load has filled a part of it; the rest of the
    tile has nothing behind it in the load's source.
    """
    return all(
        start <= low and high < start + extent
        for (low, high), start, extent in zip(t.bounds(), box.offsets, box.shape, strict=True)
    )


# -- joining neighbours


def _merge_neighbours(steps: list[Step]) -> list[Step]:
    """Join runs of neighbouring steps until nothing changes (a pass an axis, in practice)."""
    while True:
        merged: list[Step] = []
        for step in steps:
            joined = _join(merged[-1], step) if merged else None
            if joined is None:
                merged.append(step)
            else:
                merged[-1] = joined
        if len(merged) == len(steps):
            return merged
        steps = merged


def _join(a: Step, b: Step) -> Step | None:
    """One step on the joined tiles of two, or None when they are not neighbours."""
    x, y = a.instr, b.instr
    if x.opcode != y.opcode or not x.spec.elementwise or x.settings is not y.settings:
        return None
    if x.watched != y.watched or x.contested is not None or y.contested is not None:
        return None
    if x.where is not None or y.where is not None or len(a.ins) != len(b.ins):
        return None
    if a.outs[0].buffer is not b.outs[0].buffer:
        return None
    for p, q in zip(a.ins, b.ins, strict=True):
        if isinstance(p, AccessPattern) != isinstance(q, AccessPattern):
            return None
        if not isinstance(p, AccessPattern) and not _same_constant(p, q):
            return None
    axis = _joint(a.outs[0], b.outs[0])
    if axis is None:
        return None
    outs = (stretch(a.outs[0], b.outs[0], axis),)
    if not _distinct(outs[0]):  # windows that meet, written one after the other
        return None
    ins: list[Operand] = []
    for p, q in zip(a.ins, b.ins, strict=True):
        if isinstance(p, AccessPattern):
            # A tile that the first step has just written must be read in place by the second.
            if q.buffer is a.outs[0].buffer and not _same_access(p, a.outs[0]):
                return None
            ours, theirs = a.outs[0].shape[axis], b.outs[0].shape[axis]
            if (p.shape[axis], q.shape[axis]) == (ours, theirs):
                if not continues(p, q, axis):
                    return None
                p = stretch(p, q, axis)
            elif p.shape != q.shape or p.dtype != q.dtype or not _same_access(p, q):
                return None  # one element along the axis, for all of the output: not one for both
        ins.append(p)
    return make_step(x, outs, tuple(ins))


def _same_constant(p: object, q: object) -> bool:
    """Whether two scalars or settings are one and the same: 0.0 is neither -0.0 nor 0."""
    return type(p) is type(q) and p == q and (p != 0 or repr(p) == repr(q))


def _joint(a: AccessPattern, b: AccessPattern) -> int | None:
    """The axis along which `b` continues `a`."""
    if a.ndim != b.ndim:
        return None
    for axis in range(a.ndim):
        if any(a.coefs[k][axis] for k in range(len(a.coefs))) and continues(a, b, axis):
            return axis
    return None


def _same_access(a: AccessPattern, b: AccessPattern) -> bool:
    return a.buffer is b.buffer and a.offsets == b.offsets and a.coefs == b.coefs


def _distinct(t: AccessPattern) -> bool:
    """Whether the elements of a view are surely all different ones.

    On each base axis every step must be larger than all smaller ones together can reach.
    """
    for row in t.coefs:
        reach = 0
        for c, n in sorted((abs(c), n) for c, n in zip(row, t.shape, strict=True) if c and n > 1):
            if c <= reach:
                return False
            reach += c * (n - 1)
    moved = [any(row[d] for row in t.coefs) for d in range(t.ndim)]
    return all(m or n == 1 for m, n in zip(moved, t.shape, strict=True))


# -- results without a reader


def _note_unread(steps: list[Step], keep: set[int]) -> list[Step]:
    """Give steps with several results the note `unread`: for each, whether nobody reads it."""
    needed = keep | {t.buffer.number for step in steps for t in step.tiles_in}
    noted = []
    for step in steps:
        if len(step.outs) == 1:
            noted.append(step)
            continue
        unread = tuple(
            t.buffer.role is Role.LOCAL and t.buffer.number not in needed for t in step.outs
        )
        if any(unread):
            instr = copy(step.instr)
            instr.unread = unread
            step = Step(instr, step.outs, step.ins, step.tiles_in)
        noted.append(step)
    return noted
