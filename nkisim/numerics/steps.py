"""Steps: what a plan is made of, and what its rewrites ask of them."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from dataclasses import dataclass

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction, Operand


@dataclass(slots=True)
class Step:
    """An instruction with the operands it will really use."""

    instr: Instruction
    outs: tuple[AccessPattern, ...]
    ins: tuple[Operand, ...]
    tiles_in: tuple[AccessPattern, ...]  # the tensors among `ins`


def make_step(
    instr: Instruction, outs: tuple[AccessPattern, ...], ins: tuple[Operand, ...]
) -> Step:
    """A step: an instruction with the given operands in the place of its own."""
    return Step(instr, outs, ins, tuple([x for x in ins if isinstance(x, AccessPattern)]))


class Uses:
    """The def-use table of a list of steps: the positions that write and read each buffer."""

    def __init__(self, steps: list[Step]) -> None:
        self.writes: dict[int, list[int]] = defaultdict(list)
        self.reads: dict[int, list[int]] = defaultdict(list)
        for at, step in enumerate(steps):
            for t in step.outs:
                self.writes[t.buffer.number].append(at)
            for t in step.tiles_in:
                self.reads[t.buffer.number].append(at)


def plain_copy(step: Step) -> bool:
    """Whether the step moves elements unchanged, under no mask, each as what it was stored as."""
    instr = step.instr
    if not instr.spec.pure_copy or instr.where is not None or instr.settings.through_fp32:
        return False
    if instr.contested is not None:  # what it finds there is compared
        return False
    out, source = step.outs[0], step.ins[0]
    same = out.dtype == source.dtype == out.buffer.dtype == source.buffer.dtype
    return same and out.buffer.stored == source.buffer.stored


def within(positions: list[int], after: int, upto: int) -> range:
    """Indices into `positions` of those in (after, upto]."""
    return range(bisect_right(positions, after), bisect_right(positions, upto))


def apart(a: AccessPattern, b: AccessPattern) -> bool:
    """Whether two views of a buffer surely share no element: their bounding boxes are disjoint."""
    if a.base_shape != b.base_shape:
        return False
    for (a_lo, a_hi), (b_lo, b_hi) in zip(a.bounds(), b.bounds(), strict=True):
        if a_hi < b_lo or b_hi < a_lo:
            return True
    return False


def continues(a: AccessPattern, b: AccessPattern, axis: int) -> bool:
    """Whether `b` begins where `a` ends along an axis, and is like it along the others."""
    if a.buffer is not b.buffer or a.coefs != b.coefs or a.base_shape != b.base_shape:
        return False
    if a.dtype != b.dtype:
        return False
    if any(d != axis and m != n for d, (m, n) in enumerate(zip(a.shape, b.shape, strict=True))):
        return False
    extent = a.shape[axis]
    return all(
        q == p + row[axis] * extent for p, q, row in zip(a.offsets, b.offsets, a.coefs, strict=True)
    )


def stretch(a: AccessPattern, b: AccessPattern, axis: int) -> AccessPattern:
    """The view of both, where `b` continues `a` along an axis."""
    shape = (*a.shape[:axis], a.shape[axis] + b.shape[axis], *a.shape[axis + 1 :])
    return AccessPattern(a.buffer, shape, a.base_shape, a.offsets, a.coefs, a.dtype)
