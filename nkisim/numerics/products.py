"""Rewrites of a plan for matrix products, which BLAS computes fastest in few calls.

1. An operand that copies and transposes have put together is read where it came from: a transposed
   view costs nothing.
2. Products that are summed up in one PSUM tile, one after the other, become one product over the
   joined contraction. The sum is fp32 as before. BLAS may add in another order than tile by tile,
   which no documentation of the hardware fixes either.
3. Where such a tile is only added to another one, the product is added there itself.
4. Products that are added to neighbouring tiles become one product.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace

from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Instruction, Operand, OpKind, TransferKind
from nkisim.ir.memory import Role
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


def read_operands_at_their_source(steps: list[Step], keep: set[int]) -> list[Step]:
    """Take out copies and transposes that nothing but products read.

    Args:
        steps: each runs once, in this order.
        keep: numbers of buffers whose contents are outputs.
    """
    uses = Uses(steps)
    gone: set[int] = set()
    changed: dict[int, Step] = {}
    more: dict[int, set[int]] = defaultdict(set)  # reads that were those of copies
    for number, writes in reversed([*uses.writes.items()]):  # of copies of copies, the last first
        if number in keep or not all(_moves(steps[at]) for at in writes):
            continue
        readers = sorted({*uses.reads[number], *more[number]} - gone)
        if not readers or not all(_multiplies(steps[at]) for at in readers):
            continue
        now = {}
        for at in readers:
            step = now[at] = _from_source(changed.get(at, steps[at]), at, number, steps, uses)
            if step is None:
                break
        else:
            gone.update(writes)
            changed.update(now)
            for at, step in now.items():  # these read what the copies read
                for t in step.tiles_in:
                    more[t.buffer.number].add(at)
    return [changed.get(at, s) for at, s in enumerate(steps) if at not in gone]


def _multiplies(step: Step) -> bool:
    instr = step.instr
    plain = instr.spec.kind is OpKind.PRODUCT and instr.undefined is None
    if not plain:
        return False
    settings = instr.settings
    special = settings.transpose or settings.rows > 1 or settings.formats
    return not special and settings.fresh is None


def _transposes(instr: Instruction) -> bool:
    return instr.spec.kind is OpKind.TRANSPOSE or instr.spec.cost is TransferKind.TRANSPOSE


def _moves(step: Step) -> bool:
    """Whether a step moves elements unchanged, as they are or with two axes swapped, into distinct
    places of a local buffer."""
    instr = step.instr
    if len(step.outs) != 1 or step.outs[0].buffer.role is not Role.LOCAL:
        return False
    out = step.outs[0]
    if out.base_shape != out.buffer.shape or _axes(out.form) is None:
        return False
    if _transposes(instr):
        x = step.ins[0]
        same = out.dtype == x.dtype == out.buffer.stored == x.buffer.stored
        bare = instr.where is None and instr.where_out is None and instr.undefined is None
        swaps = instr.settings.axes == (1, 0)
        return same and bare and swaps and x.ndim == out.ndim == 2
    return plain_copy(step)


@functools.lru_cache(maxsize=4096)
def _axes(form: Form) -> tuple[int | None, ...] | None:
    """For each axis of a buffer, the axis of its view that walks it with unit steps, or None where
    the view stays at one place; None for views of any other access pattern."""
    found: list[int | None] = []
    for row in form.coefs:
        walked = [d for d, (c, n) in enumerate(zip(row, form.shape, strict=True)) if c and n > 1]
        if len(walked) > 1 or any(row[d] != 1 or d in found for d in walked):
            return None
        found.append(walked[0] if walked else None)
    return tuple(found)


def _from_source(step: Step, at: int, number: int, steps: list[Step], uses: Uses) -> Step | None:
    """A product whose operand in buffer `number`, a copy, is replaced by the source of the copy;
    None if that is not possible."""
    ins: list[Operand] = []
    spread = list(step.instr.settings.spread)
    for place, x in enumerate(step.ins):
        if not isinstance(x, AccessPattern) or x.buffer.number != number:
            ins.append(x)
            continue
        before = within(uses.writes[number], -1, at - 1)
        writers = (uses.writes[number][i] for i in reversed(before))
        last = next((w for w in writers if not apart(steps[w].outs[0], x)), None)
        if place > 1 or last is None:
            return None
        move = steps[last]
        source = _through(x, move)
        if source is None or source.buffer is step.outs[0].buffer:
            return None
        if within(uses.writes[source.buffer.number], last, at - 1):
            return None
        if move.instr.settings.spreads:
            if x.ndim != 2 or x.shape[1] != move.outs[0].shape[1]:
                return None  # what spreads comes from elements that are not read
            spread[place] = True
        ins.append(source)
    instr = step.instr
    if any(spread):
        instr = replace(instr, settings=instr.settings.but(spread=tuple(spread)))
    return make_step(instr, step.outs, tuple(ins))


def _through(x: AccessPattern, move: Step) -> AccessPattern | None:
    """An operand `x` that reads the result of `move`, as a view of the source of `move`; None where
    no access pattern describes it."""
    out, source = move.outs[0], move.ins[0]
    if x.base_shape != out.base_shape or x.dtype != out.dtype:
        return None
    if _transposes(move.instr):
        swapped = tuple([(second, first) for first, second in source.coefs])
        source = source.view_as(source.shape[::-1], source.offsets, swapped)
    offsets, coefs = [0] * out.ndim, [(0,) * x.ndim] * out.ndim
    bounds = x.bounds()
    for base, axis in enumerate(_axes(out.form) or ()):
        start, size = out.offsets[base], 1 if axis is None else out.shape[axis]
        if bounds[base][0] < start or bounds[base][1] >= start + size:
            return None
        if axis is not None:
            offsets[axis], coefs[axis] = x.offsets[base] - start, x.coefs[base]
    view = AccessPattern(out.buffer, x.shape, out.shape, tuple(offsets), tuple(coefs), out.dtype)
    return source.compose(view)


def join_products(steps: list[Step], keep: set[int]) -> list[Step]:
    """As few products as there can be.

    Args:
        steps, keep: as in `read_operands_at_their_source`.
    """
    steps = _add_in_place(_joined(steps, _join_contraction), keep)
    for join in (_join_columns, _join_rows, _join_contraction):
        steps = _joined(steps, join)
    return steps


def _joined(steps: list[Step], join: Callable[[Step, Step], Step | None]) -> list[Step]:
    found: list[Step] = []
    for step in steps:
        more = join(found[-1], step) if found else None
        if more is None:
            found.append(step)
        else:
            found[-1] = more
    return found


def _adds(step: Step) -> bool:
    """Whether a product is added to what is there, which is not one of its operands."""
    settings, out = step.instr.settings, step.outs[0]
    apart_from_it = all(t.buffer is not out.buffer for t in step.ins[:2])
    return settings.accumulate and not settings.starts and apart_from_it


def _join_contraction(a: Step, b: Step) -> Step | None:
    if not (_multiplies(a) and _multiplies(b) and _adds(b)):
        return None
    first, second = (s.instr.settings.but(accumulate=False, starts=False) for s in (a, b))
    if first is not second or not a.outs[0].same_elements(b.outs[0]):
        return None
    pairs = list(zip(a.ins[:2], b.ins[:2], strict=True))
    if not all(continues(p, q, 0) for p, q in pairs):
        return None
    return make_step(a.instr, a.outs, (*[stretch(p, q, 0) for p, q in pairs], *a.ins[2:]))


def _add_in_place(steps: list[Step], keep: set[int]) -> list[Step]:
    """`tile = 0; tile += product; total = total + tile` as `total += product`."""
    uses = Uses(steps)
    found: list[Step] = []
    for at, step in enumerate(steps):
        if len(found) >= 2 and _is_total(*found[-2:], step):
            tile = found[-1].outs[0].buffer
            seen = uses.writes[tile.number], uses.reads[tile.number]
            alone = seen == ([at - 2, at - 1], [at - 1, at])
            if alone and tile.role is Role.LOCAL and tile.number not in keep:
                product = found[-1]
                del found[-2:]
                step = make_step(product.instr, step.outs, (*product.ins[:2], step.outs[0]))
        found.append(step)
    return found


def _adds_tiles(step: Step) -> bool:
    return step.instr.settings.op == "add" and len(step.tiles_in) == len(step.ins) == 2


def _is_total(zero: Step, product: Step, step: Step) -> bool:
    if step.instr.spec.kind is not OpKind.ELEMENTWISE or not _adds_tiles(step):
        return False
    if zero.instr.spec.kind is not OpKind.FILL or not _multiplies(product) or not _adds(product):
        return False
    total, tile = step.outs[0], product.outs[0]
    return (
        zero.instr.settings.value == 0
        and zero.instr.where is step.instr.where is None
        and zero.outs[0].same_elements(tile)
        and total.dtype == tile.dtype == F32
        and total.shape == tile.shape
        and all(t.buffer is not total.buffer for t in product.ins[:2])
        and any(
            x.same_elements(total) and y.same_elements(tile)
            for x, y in (step.tiles_in, step.tiles_in[::-1])
        )
    )


def _join_columns(a: Step, b: Step) -> Step | None:
    """Two products of one stationary operand as one, their moving operands side by side; None if
    they do not lie so."""
    if not (_multiplies(a) and _multiplies(b) and _adds(a) and _adds(b)):
        return None
    (left, right, _), (same, more, _), out = a.ins, b.ins, a.outs[0]
    if a.instr.settings is not b.instr.settings or not left.same_elements(same) or out.ndim != 2:
        return None
    if not continues(right, more, 1) or not continues(out, b.outs[0], 1):
        return None
    if not apart(out, b.outs[0]):
        return None
    wide = stretch(out, b.outs[0], 1)
    return make_step(a.instr, (wide,), (left, stretch(right, more, 1), wide))


def _join_rows(a: Step, b: Step) -> Step | None:
    """Two products of one moving operand as one, their stationary operands side by side; None if
    they do not lie so. The output gets a leading axis, over the products."""
    if not (_multiplies(a) and _multiplies(b) and _adds(a) and _adds(b)):
        return None
    (left, right, _), (more, same, _), out, other = a.ins, b.ins, a.outs[0], b.outs[0]
    if a.instr.settings is not b.instr.settings or not right.same_elements(same) or other.ndim != 2:
        return None
    if left.ndim != 2 or not continues(left, more, 1) or out.buffer is not other.buffer:
        return None
    if out.base_shape != other.base_shape or out.shape[-2:] != other.shape:
        return None
    if tuple([row[-2:] for row in out.coefs]) != other.coefs:
        return None
    count = out.shape[0] if out.ndim == 3 else 1
    way = [q - p for p, q in zip(out.offsets, other.offsets, strict=True)]
    if out.ndim == 3:
        step = [row[0] for row in out.coefs]
    else:
        step = way
        if not apart(out, other):
            return None
    if way != [count * d for d in step]:
        return None
    coefs = tuple([(d, *row) for d, row in zip(step, other.coefs, strict=True)])
    tall = out.view_as((count + 1, *other.shape), out.offsets, coefs)
    return make_step(a.instr, (tall,), (stretch(left, more, 1), right, tall))
