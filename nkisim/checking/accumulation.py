"""Accumulation in PSUM: the Tensor Engine adds to what a tile holds, in fp32, until it is read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nkisim.dtypes import F32
from nkisim.errors import AccumulationError
from nkisim.instruction import Engine, Instruction, touching
from nkisim.memory import Space, block_of
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.trace import Trace


def check_accumulation(trace: Trace) -> Iterator[AccumulationError]:
    """Each PSUM tile that is read in the middle of its accumulation, once."""
    accumulators = _in_doubt(trace)
    if not accumulators:
        return
    reads: dict[tuple[int, int], dict[tuple, tuple[Instruction, Tensor]]] = {}
    reported: set[tuple[int, int]] = set()
    for _, instr, _ in touching(trace.instructions, (Space.PSUM,)):
        accumulates = _accumulates(instr)
        for t in instr.outs:
            if t.buffer.number not in accumulators:
                continue
            key = (t.buffer.number, block_of(t))
            if not accumulates:
                reads.pop(key, None)  # written afresh: a new accumulation
                continue
            early = _overlapping(reads[key], t) if key in reads else None
            if early is not None and key not in reported:
                reported.add(key)
                yield _read_early(instr, t, early)
            elif t.buffer.dtype != F32 and key not in reported:
                reported.add(key)
                yield _not_fp32(instr, t)
        if instr.engine is Engine.TENSOR:
            continue
        for t in instr.tiles_in:
            if t.buffer.number not in accumulators:
                continue
            if not any([t.same_elements(o) for o in instr.outs]):
                key = (t.buffer.number, block_of(t))
                reads.setdefault(key, {})[tuple(t.bounds())] = (instr, t)


def _in_doubt(trace: Trace) -> set[int]:
    """The PSUM tensors that are read before they are added to for the last time, or not in fp32."""
    first_read: dict[int, int] = {}
    last_sum: dict[int, int] = {}
    kinds: dict[int, tuple[bool, bool]] = {}  # whether it accumulates, and reads; so do its copies
    for at, instr in enumerate(trace.instructions):
        origin = instr.origin or instr
        kind = kinds.get(id(origin))
        if kind is None:
            reads = instr.engine is not Engine.TENSOR and any(
                [t.buffer.space is Space.PSUM for t in instr.tiles_in]
            )
            kind = kinds[id(origin)] = _accumulates(instr), reads
        accumulates, reads = kind
        if accumulates:
            for t in instr.outs:
                last_sum[t.buffer.number] = at
        if reads:
            for t in instr.tiles_in:
                first_read.setdefault(t.buffer.number, at)
    never = len(trace.instructions)
    return {
        n
        for n, at in last_sum.items()
        if (first_read.get(n, never) <= at or trace.buffers[n].dtype != F32)
        and trace.buffers[n].space is Space.PSUM
        and n < trace.copies  # copies are like those that were traced
    }


def _accumulates(instr: Instruction) -> bool:
    """Whether it adds to what its results hold."""
    return bool(instr.attrs.get("accumulate")) and not instr.attrs.get("starts")


def _overlapping(reads: dict, t: Tensor) -> Instruction | None:
    mine = t.bounds()
    for bounds, (instr, other) in reads.items():
        if other.base_shape == t.base_shape and all(
            a_lo <= b_hi and b_lo <= a_hi
            for (a_lo, a_hi), (b_lo, b_hi) in zip(bounds, mine, strict=True)
        ):
            return instr
    return None


def _read_early(instr: Instruction, t: Tensor, early: Instruction) -> AccumulationError:
    at = f" at {early.location}" if early.location else ""
    return AccumulationError(
        f"{instr.label} goes on accumulating into {t.describe()} after {early.label}{at} has "
        "read it",
        rule="a group of accumulating matmuls ends before another engine reads the tile: until "
        "then it holds a partial sum, and reading may end the group",
        fix="read the tile after the loop that accumulates into it, or zero it before "
        "accumulating again",
        location=instr.location,
    )


def _not_fp32(instr: Instruction, t: Tensor) -> AccumulationError:
    return AccumulationError(
        f"{instr.label} accumulates into {t.describe()} of {t.buffer.dtype}",
        rule="the Tensor Engine accumulates in fp32",
        fix="declare the PSUM tile with dtype=nl.float32, and convert when copying it to SBUF",
        location=instr.location,
    )
