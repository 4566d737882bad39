"""Accumulation in PSUM: the Tensor Engine adds to what a tile holds, in fp32, until it is read.

NeuronCore-v4 adds in bfloat16, too: each sum is rounded to what the tile holds.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import AccumulationError
from nkisim.ir.access import AccessPattern, block_of
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.instruction import Engine, Instruction, touching
from nkisim.ir.memory import Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

# A tile: the number of its tensor, and which of that one's it is.
_Tile = tuple[int, int]


def check_accumulation(trace: Trace) -> Iterator[AccumulationError]:
    """Each PSUM tile that is read in the middle of its accumulation, once."""
    psum = Space.PSUM
    if not any([b.space is psum for b in trace.buffers]):
        return
    accumulators = _in_doubt(trace)
    if not accumulators:
        return
    reads: dict[_Tile, dict[tuple, tuple[Instruction, AccessPattern]]] = {}
    reported: set[_Tile] = set()
    for _, instr, _ in touching(trace.instructions, (Space.PSUM,)):
        accumulates = is_accumulating(instr)
        for t in instr.outs:
            tile = _tile(t)
            if tile not in accumulators:
                continue
            if not accumulates:
                reads.pop(tile, None)  # written afresh: a new accumulation
                continue
            early = _overlapping(reads[tile], t) if tile in reads else None
            if early is not None and tile not in reported:
                reported.add(tile)
                yield _read_early(instr, t, early)
            elif t.buffer.dtype not in _sums(trace) and tile not in reported:
                reported.add(tile)
                yield _not_fp32(instr, t)
        if instr.engine is Engine.TENSOR:
            continue
        for t in instr.tiles_in:
            tile = _tile(t)
            if tile in accumulators and not any([t.same_elements(o) for o in instr.outs]):
                reads.setdefault(tile, {})[tuple(t.bounds())] = (instr, t)


def _sums(trace: Trace) -> tuple[np.dtype, ...]:
    """The types in which the Tensor Engine adds."""
    return tuple(map(as_dtype, trace.machine.abilities.sums))


def _tile(t: AccessPattern) -> _Tile:
    """The tile that a view is in."""
    return t.buffer.number, block_of(t)


def _in_doubt(trace: Trace) -> set[_Tile]:
    """The PSUM tiles that are read before they are added to for the last time, or are of a type
    that is not added in."""
    first_read: dict[_Tile, int] = {}
    last_sum: dict[_Tile, int] = {}
    sums: dict[int, bool] = {}  # by the settings of an instruction, whether it accumulates
    tensor, psum = Engine.TENSOR, Space.PSUM
    for at, instr in enumerate(trace.instructions):
        settings = id(instr.settings)
        accumulates = sums.get(settings)
        if accumulates is None:
            accumulates = sums[settings] = is_accumulating(instr)
        if accumulates:
            for t in instr.outs:
                last_sum[_tile(t)] = at
        if instr.engine is not tensor:
            for t in instr.tiles_in:
                if t.buffer.space is psum:
                    first_read.setdefault(_tile(t), at)
    never = len(trace.instructions)
    buffers, types = trace.buffers, _sums(trace)
    return {
        tile
        for tile, at in last_sum.items()
        if (first_read.get(tile, never) <= at or buffers[tile[0]].dtype not in types)
        and buffers[tile[0]].space is Space.PSUM
    }


def is_accumulating(instr: Instruction) -> bool:
    """Whether an instruction accumulates: it adds to what its outputs hold."""
    return instr.settings.accumulate and not instr.settings.starts


def _overlapping(reads: dict, t: AccessPattern) -> Instruction | None:
    mine = t.bounds()
    for bounds, (instr, other) in reads.items():
        if other.base_shape == t.base_shape and all(
            a_lo <= b_hi and b_lo <= a_hi
            for (a_lo, a_hi), (b_lo, b_hi) in zip(bounds, mine, strict=True)
        ):
            return instr
    return None


def _read_early(instr: Instruction, t: AccessPattern, early: Instruction) -> AccumulationError:
    at = f" at {early.location}" if early.location else ""
    return AccumulationError(
        f"{instr.label} goes on accumulating into {t.describe()} after {early.label}{at} has "
        "read it",
        rule="another engine may read the tile only after the last matmul that accumulates into "
        "it: before, the tile contains a partial sum, and a read may end the accumulation",
        fix="read the tile after the last matmul that accumulates into it, or zero it before "
        "accumulating again",
        location=instr.location,
    )


def _not_fp32(instr: Instruction, t: AccessPattern) -> AccumulationError:
    return AccumulationError(
        f"{instr.label} accumulates into {t.describe()} of {t.buffer.dtype}",
        rule="the Tensor Engine accumulates in fp32",
        fix="declare the PSUM tile with dtype=nl.float32, and convert when copying it to SBUF",
        location=instr.location,
    )
