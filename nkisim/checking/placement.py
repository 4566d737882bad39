"""Tiles that the kernel places by hand: legal addresses, and no two live tiles on one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nkisim.checking.patterns import allowed_starts
from nkisim.errors import KernelError, PlacementError
from nkisim.ir.access import AccessPattern, block_of
from nkisim.ir.instruction import Engine, Instruction, OpKind
from nkisim.ir.memory import Buffer, Placed, Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace
    from nkisim.machine import Machine

_QUARTER = 32  # partitions; legal start partitions are multiples of it


def place_tiles(
    buffer: Buffer, machine: Machine, overflow: Callable[[PlacementError], None]
) -> tuple[Placed, ...]:
    """The places of the tiles of a buffer that the kernel places, in the order of its blocks.

    Args:
        buffer: the tiles.
        machine: whose memory they go to.
        overflow: is called with an error when a tile reaches past the end of SBUF.

    Raises:
        PlacementError: an address that the hardware cannot reach.
    """
    blocks = buffer.shape[: buffer.par_axis]
    size, partitions = buffer.partition_bytes, buffer.shape[buffer.par_axis]
    return tuple(
        _checked(buffer, idx, buffer.place(idx, partitions, size), machine, overflow)
        for idx in itertools.product(*map(range, blocks))
    )


def _checked(
    buffer: Buffer,
    idx: tuple[int, ...],
    place: object,
    machine: Machine,
    overflow: Callable[[PlacementError], None],
) -> Placed:
    in_psum = buffer.space is Space.PSUM
    names = ("bank", "start partition", "byte address") if in_psum else ("start partition", "byte")
    if not isinstance(place, tuple) or len(place) != len(names):
        raise PlacementError(
            f"the place of block {idx} of {buffer!r} is {place!r}",
            rule=f"an allocation function for {buffer.space.label} returns ({', '.join(names)})",
            fix="return a tuple of these",
        )
    bank, start, address = place if in_psum else (0, *place)
    size, partitions = buffer.partition_bytes, buffer.shape[buffer.par_axis]

    def what() -> str:
        return f"block {idx} of {buffer!r} is placed at {dict(zip(names, place, strict=True))}"

    if start not in allowed_starts(partitions):
        raise PlacementError(
            what(),
            rule=f"a tile of {partitions} partitions starts at one of {allowed_starts(partitions)}",
            fix="start at one of these partitions",
        )
    if in_psum:
        banks = machine.psum_bytes // machine.psum_bank_bytes
        if not 0 <= bank < banks or start or address:
            raise PlacementError(
                what(),
                rule=f"a PSUM tile starts at partition 0 and byte 0 of one of {banks} banks",
                fix=f"return (bank, 0, 0) with a bank of 0..{banks - 1}; to rotate over banks is "
                "num_bank_tiles of ncc.psum.mod_alloc",
            )
        return Placed(0, partitions, bank * machine.psum_bank_bytes, size)
    room, align = machine.sbuf_usable_bytes, machine.sbuf_min_align
    if address < 0 or address + size > room or address % align:
        error = PlacementError(
            f"{what()}, and needs {size:,} bytes a partition from there",
            rule=f"SBUF of {machine.name} gives kernels bytes 0..{room - 1} of each partition, "
            f"aligned to {align}",
            fix="use fewer physical tiles (num_free_tiles), or a lower base address",
        )
        if address < 0 or address % align:
            raise error
        overflow(error)
    return Placed(start, partitions, address, size)


def check_placement(trace: Trace) -> Iterator[KernelError]:
    """Two placed tiles never share bytes while the first is still to be read."""
    if all([b.place is None for b in trace.buffers]):
        return
    if trace.rules.places_all:
        yield from _hidden_tiles(trace)
        yield from _mixed(trace)
    cells = _cells({(b.space, p) for b in trace.buffers for p in b.placed})
    owner: dict[int, int] = {}  # of each cell: the tile that was written there last
    tiles: dict[tuple[int, int], int] = {}
    keys: list[tuple[int, int]] = []
    reported: set[int] = set()
    for instr in trace.instructions:
        for t in instr.tiles_in:
            buffer = t.buffer
            if buffer.place is None:
                continue
            key = buffer.number, block_of(t)
            mine = tiles.get(key)
            if mine is None:  # a mask left nothing of what was to fill it
                continue
            for cell in cells[buffer.space, buffer.placed[key[1]]]:
                other = owner.get(cell, mine)
                if other != mine and mine not in reported:
                    reported.add(mine)
                    yield _overlap(trace, instr, key, keys[other])
        for t in instr.outs:
            buffer = t.buffer
            if buffer.place is not None:
                key = buffer.number, block_of(t)
                mine = tiles.setdefault(key, len(keys))
                if mine == len(keys):
                    keys.append(key)
                for cell in cells[buffer.space, buffer.placed[key[1]]]:
                    owner[cell] = mine


def _cells(places: set[tuple[Space, Placed]]) -> dict[tuple[Space, Placed], list[int]]:
    """The memory behind some places in cells, so that each place is a few of them: mostly one,
    where places are the same or apart."""
    ends: dict[Space, set[int]] = {space: set() for space, _ in places}
    for space, p in places:
        ends[space] |= {p.address, p.address + p.size}
    cuts = {space: {end: at for at, end in enumerate(sorted(of))} for space, of in ends.items()}
    inside: dict[tuple[Space, Placed], list[tuple]] = {}
    owners: dict[tuple, list[tuple[Space, Placed]]] = {}  # by memory, quarter and range of bytes
    for place in places:
        space, p = place
        first, last = cuts[space][p.address], cuts[space][p.address + p.size]
        quarters = range(p.start // _QUARTER, -(-(p.start + p.partitions) // _QUARTER))
        inside[place] = [(space, q, at) for q in quarters for at in range(first, last)]
        for part in inside[place]:
            owners.setdefault(part, []).append(place)
    # What the same places are in is one cell.
    numbers: dict[tuple, int] = {}
    cell = {part: numbers.setdefault(tuple(of), len(numbers)) for part, of in owners.items()}
    return {place: list(dict.fromkeys([cell[x] for x in of])) for place, of in inside.items()}


def _overlap(trace: Trace, instr, mine: tuple[int, int], other: tuple[int, int]) -> PlacementError:
    a, b = trace.buffers[mine[0]], trace.buffers[other[0]]
    p, q = a.placed[mine[1]], b.placed[other[1]]
    return PlacementError(
        f"{instr.label} reads tile {mine[1]} of {a!r}, placed at {p}, after tile {other[1]} of "
        f"{b!r}, placed at {q}, was written over it",
        rule="tiles that are alive at the same time need addresses of their own",
        fix="give one of them another base address, or more physical tiles (num_free_tiles, "
        "num_bank_tiles); ncc.force_auto_alloc shows whether placement is what goes wrong",
        location=instr.location,
    )


def _mixed(trace: Trace) -> Iterator[PlacementError]:
    """A kernel that places tiles places all of them."""
    for instr in trace.instructions:
        for t in instr.outs:
            buffer = t.buffer
            if (
                buffer.space.on_chip
                and buffer.place is None
                and buffer.number not in trace.hidden
                and buffer.number not in trace.assigned
            ):
                yield PlacementError(
                    f"{instr.label} writes {buffer!r}, which the compiler places, in a kernel "
                    "that places other tiles by hand",
                    rule="a kernel allocates all of its on-chip tensors directly, or none",
                    fix="declare the tile with an allocation of nki.compiler and assign the "
                    "result to it: t[...] = nl.load(x)",
                    location=instr.location,
                )
                return


def _hidden_tiles(trace: Trace) -> Iterator[PlacementError]:
    """Instructions for which the compiler would need a tile of its own, once each kind."""
    seen: set[str] = set()
    for instr in trace.instructions:
        error = _needs_hidden_tile(instr) if instr.opcode not in seen else None
        if error is not None:
            seen.add(instr.opcode)
            yield error


def _needs_hidden_tile(instr: Instruction) -> PlacementError | None:
    if instr.spec.table and not isinstance(instr.ins[2], AccessPattern):
        return PlacementError(
            f"{instr.label} without a bias, in a kernel that places its tiles by hand",
            rule="an activation reads its bias from a tile, for which the compiler has no place in "
            "such a kernel; nl.exp and its kin are activations",
            fix="use nisa.activation(..., bias=tile), with a (partitions, 1) tile of zeros",
            code="err_bias_tensor_must_be_specified_in_allocation",
            location=instr.location,
        )
    if instr.spec.kind is OpKind.TRANSPOSE and instr.engine is Engine.TENSOR:
        return PlacementError(
            f"{instr.label} on the Tensor Engine, in a kernel that places its tiles by hand",
            rule="transposes on the Tensor Engine multiply by an identity matrix, for which the "
            "compiler has no place in such a kernel; nl.matmul without transpose_x is one",
            fix="place an identity matrix and multiply by it with nisa.nc_matmul; up to 32 x 32 "
            "pass engine=nisa.vector_engine; give nl.matmul x with the contraction on partitions, "
            "and transpose_x=True",
            code="err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
            location=instr.location,
        )
    return None
