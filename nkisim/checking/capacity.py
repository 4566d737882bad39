"""Liveness and capacity: the tiles that are alive at one time fit the chip.

A tile lives from its first write to its last use. A fill of all of it does not count: the compiler
does it where the tile is first used. SBUF tiles on fewer partitions than all share their bytes with
others, so they count for the quarters of the memory that they occupy. PSUM tiles do not: they start
at partition 0 of a bank, as the direct allocation guide has it.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Collection, Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nkisim.errors import TileSizeError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import OpKind
from nkisim.ir.memory import Buffer, Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

_QUARTER = 32  # partitions
_MOST_OPERANDS = 8  # of an instruction, results included

# The number of a buffer; with block axes, and which block it is.
_Tile = int | tuple[int, tuple[int, ...]]


class Lifetimes(NamedTuple):
    """The tiles that the compiler places, in the order in which they are first used.

    Attributes:
        buffer: of each, the number of its buffer.
        kind: of each, which of `kinds` its buffer is like.
        first, last: of each, the positions of its first write and its last use.
        kinds: a buffer of each kind.
    """

    buffer: np.ndarray
    kind: np.ndarray
    first: np.ndarray
    last: np.ndarray
    kinds: list[Buffer]


def may_overflow(trace: Trace, space: Space) -> bool:
    """Whether a memory would be too small if all tiles lived as long as the loop iteration that
    made them, in which they are used."""
    made: dict[tuple[int | None, tuple], int] = {}  # in each iteration of each instance, in bytes
    scopes: dict[int, tuple] = {}  # by identity of the loops that a tensor was made in
    room = _room(trace, space)
    for b in trace.buffers:
        if b.space is space and b.place is None:
            opened = scopes.get(id(b.loops))
            if opened is None:
                unrolled = [trace.loops[n].is_unrolled for n, _ in b.loops]  # those open no scope
                opened = b.loops[: unrolled.index(True)] if True in unrolled else b.loops
                scopes[id(b.loops)] = opened
            scope = b.program, opened
            size = _size(b.shape, b.par_axis, b.dtype.itemsize, space) * prod(b.shape[: b.par_axis])
            total = made[scope] = made.get(scope, 0) + size
            if total > room:
                return True
    return any(
        sum(made.get((program, loops[:depth]), 0) for depth in range(len(loops) + 1)) > room
        for program, loops in made
    )


def lifetimes(trace: Trace, spaces: Collection[Space]) -> Lifetimes:
    """The lifetimes (live ranges) of the tiles in some on-chip memories."""
    first: dict[_Tile, int] = {}
    last: dict[_Tile, int] = {}
    for at, instr in enumerate(trace.instructions):
        if instr.spec.kind is OpKind.FILL:
            (t,) = instr.outs
            if t.form.size == prod(t.buffer.shape[t.buffer.par_axis :]):
                continue
        for t in instr.outs + instr.tiles_in:
            buffer = t.buffer
            if buffer.place is None and buffer.space in spaces:
                blocks = buffer.par_axis
                tile = (buffer.number, t.offsets[:blocks]) if blocks else buffer.number
                if tile not in last:
                    first[tile] = at
                last[tile] = at
    numbers = [tile if type(tile) is int else tile[0] for tile in first]
    buffers = list(map(trace.buffers.__getitem__, numbers))
    examples = {b.kind: b for b in buffers}
    places = {kind: n for n, kind in enumerate(examples)}
    kinds = [places[b.kind] for b in buffers]
    columns = numbers, kinds, list(first.values()), list(last.values())
    arrays = [np.array(column, np.int64) for column in columns]
    return Lifetimes(*arrays, list(examples.values()))


def check_capacity(trace: Trace, space: Space, lives: Lifetimes) -> Iterator[TileSizeError]:
    """The moment of the largest overflow of `space`, if there is one."""
    room = _room(trace, space)
    sizes_of = [
        _size(b.shape, b.par_axis, b.dtype.itemsize, space) if b.space is space else 0
        for b in lives.kinds
    ]
    sizes = np.array(sizes_of, np.int64)[lives.kind]
    change = np.zeros(len(trace.instructions) + 1, np.int64)
    np.add.at(change, lives.first, sizes)
    np.subtract.at(change, lives.last + 1, sizes)
    used = np.cumsum(change)
    at = int(used.argmax())
    if used[at] <= room:
        return
    alive = (lives.first <= at) & (at <= lives.last) & (sizes > 0)
    yield _error(trace, space, int(used[at]), room, at, lives.buffer[alive].tolist())


def check_operands(trace: Trace) -> Iterator[TileSizeError]:
    """The first instruction whose operands do not fit SBUF together: they are there at one time,
    so that spilling does not help (aws-neuron-sdk issue 1060: GCA035)."""
    room = _room(trace, Space.SBUF)
    largest = max([b.partition_bytes for b in trace.buffers if b.space is Space.SBUF], default=0)
    if largest * 4 * _MOST_OPERANDS <= room:
        return
    for instr in trace.instructions:
        tiles = instr.outs + instr.tiles_in
        needed: dict[int, int] = {}  # by the buffer
        for t in tiles:
            if t.buffer.space is Space.SBUF:
                number = t.buffer.number
                needed[number] = max(needed.get(number, 0), _part_size(t))
        total = sum(needed.values())
        if total > room:
            buffers = [repr(trace.buffers[n]) for n in needed]
            yield TileSizeError(
                f"the operands of {instr.label} need {total // 4:,} bytes a partition of "
                f"{Space.SBUF.label} together: {'; '.join(buffers)}",
                rule=f"{Space.SBUF.label} of {trace.machine.name} has {room // 4:,} bytes a "
                "partition for a kernel, and all operands of an instruction are there at one time",
                fix="loop over blocks of the free axis, or use a narrower type",
                location=instr.location,
            )
            return


def _part_size(t: AccessPattern) -> int:
    """Bytes a partition that a view reaches at least, times the quarters it occupies."""
    if not t.shape or not t.form.size:
        return 0
    free = prod([n for d, n in enumerate(t.shape) if d and any([row[d] for row in t.coefs])])
    buffer = t.buffer
    whole = prod(buffer.shape[buffer.par_axis + 1 :]) * buffer.dtype.itemsize
    return min(free * t.itemsize, whole) * -(-t.shape[0] // _QUARTER)


def _room(trace: Trace, space: Space) -> int:
    """Bytes a partition of a memory, times its quarters."""
    machine = trace.machine
    return (machine.sbuf_usable_bytes if space is Space.SBUF else machine.psum_bytes) * 4


@functools.lru_cache(maxsize=4096)
def _size(shape: tuple[int, ...], par_axis: int, itemsize: int, space: Space) -> int:
    """Bytes a partition of a tile, times the quarters of the partitions it occupies."""
    quarters = 4 if space is Space.PSUM else -(-shape[par_axis] // _QUARTER)
    return prod(shape[par_axis + 1 :]) * itemsize * quarters


def _error(trace, space, worst, room, at, alive) -> TileSizeError:
    tiles = Counter(alive)  # by their buffer

    def weight(number: int) -> int:
        b = trace.buffers[number]
        return tiles[number] * _size(b.shape, b.par_axis, b.dtype.itemsize, space)

    largest = sorted(tiles, key=weight, reverse=True)[:3]
    listing = "; ".join(
        f"{tiles[n]} x {trace.buffers[n]!r}"
        + (f" from {trace.buffers[n].location}" if trace.buffers[n].location else "")
        for n in largest
    )
    if space is Space.SBUF:
        consequence = "the compiler spills the rest to HBM and loads it again, which is slow"
        fix = "load tiles where they are used, make them smaller or narrower, or loop over blocks"
    else:
        consequence = "the compiler spills results and loads them again where it can, which is slow"
        fix = "copy results to SBUF before the next matmuls, or make the tiles smaller"
    return TileSizeError(
        f"{len(alive):,} tiles alive at once need {worst // 4:,} bytes a partition of "
        f"{space.label}; the largest: {listing}",
        rule=f"{space.label} of {trace.machine.name} has {room // 4:,} bytes a partition for a "
        f"kernel; {consequence}",
        fix=fix,
        location=trace.instructions[at].location,
    )
