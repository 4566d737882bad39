"""Tiles that the kernel places by hand: legal addresses, and no two live tiles on one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import numpy as np

from nkisim.checking.patterns import allowed_starts
from nkisim.errors import KernelError, PlacementError
from nkisim.instruction import Engine, Instruction
from nkisim.memory import Buffer, Placed, Space, block_of
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.machine import Machine
    from nkisim.trace import Trace

_QUARTER = 32  # partitions; legal start partitions are multiples of it


def place_tiles(
    buffer: Buffer, machine: Machine, overflow: Callable[[PlacementError], None]
) -> tuple[Placed, ...]:
    """Where each tile of a buffer that the kernel places goes, in the order of its blocks.

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
        for idx in np.ndindex(*blocks)
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
    what = f"block {idx} of {buffer!r} is placed at {dict(zip(names, place, strict=True))}"
    if start not in allowed_starts(partitions):
        raise PlacementError(
            what,
            rule=f"a tile of {partitions} partitions starts at one of {allowed_starts(partitions)}",
            fix="choose another start partition",
        )
    if in_psum:
        banks = machine.psum_bytes // machine.psum_bank_bytes
        if not 0 <= bank < banks or start or address:
            raise PlacementError(
                what,
                rule=f"a PSUM tile starts at partition 0 and byte 0 of one of {banks} banks",
                fix=f"use banks 0..{banks - 1}; rotate over them with num_bank_tiles",
            )
        return Placed(0, partitions, bank * machine.psum_bank_bytes, size)
    room, align = machine.sbuf_usable_bytes, machine.sbuf_min_align
    if address < 0 or address + size > room or address % align:
        error = PlacementError(
            f"{what}, and needs {size:,} bytes a partition from there",
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
    placed = {b.number for b in trace.buffers if b.place is not None}
    if not placed:
        return
    yield from _hidden_tiles(trace)
    yield from _mixed(trace)
    # The bytes of a partition are cut where a tile starts or ends: those between have one owner.
    cuts: dict[Space, dict[int, int]] = {}
    for space in (Space.SBUF, Space.PSUM):
        ends = {
            end
            for number in placed
            if trace.buffers[number].space is space
            for p in trace.buffers[number].placed
            for end in (p.address, p.address + p.size)
        }
        cuts[space] = {end: at for at, end in enumerate(sorted(ends))}
    owner = {space: np.full((4, len(at)), -1, np.int32) for space, at in cuts.items()}
    tiles: dict[tuple[int, int], int] = {}
    keys: list[tuple[int, int]] = []
    reported: set[tuple[int, int]] = set()
    written: set[int] = set()
    for instr in trace.instructions:
        for t, writes in (*((t, False) for t in instr.tiles_in), *((t, True) for t in instr.outs)):
            if t.buffer.number not in placed:
                continue
            key = (t.buffer.number, block_of(t))
            mine = tiles.setdefault(key, len(keys))
            if mine == len(keys):
                keys.append(key)
            p = t.buffer.placed[key[1]]
            quarters = slice(p.start // _QUARTER, -(-(p.start + p.partitions) // _QUARTER))
            at = cuts[t.space]
            cells = owner[t.space][quarters, at[p.address] : at[p.address + p.size]]
            if writes:
                cells[...] = mine
                written.add(mine)
                continue
            if mine not in written:  # a mask left nothing of what was to fill it
                continue
            others = cells[(cells != mine) & (cells >= 0)]
            if others.size and key not in reported:
                reported.add(key)
                yield _overlap(trace, instr, key, keys[int(others[0])])


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
    if instr.opcode.startswith("activation") and not isinstance(instr.ins[2], Tensor):
        return PlacementError(
            f"{instr.label} without a bias, in a kernel that places its tiles by hand",
            rule="an activation reads its bias from a tile, for which the compiler has no place in "
            "such a kernel; nl.exp and its kin are activations",
            fix="use nisa.activation(..., bias=tile), with a (partitions, 1) tile of zeros",
            code="err_bias_tensor_must_be_specified_in_allocation",
            location=instr.location,
        )
    if instr.opcode == "nc_transpose" and instr.engine is Engine.TENSOR:
        return PlacementError(
            f"{instr.label} on the Tensor Engine, in a kernel that places its tiles by hand",
            rule="transposes on the Tensor Engine multiply by an identity matrix, for which the "
            "compiler has no place in such a kernel; nl.matmul without transpose_x is one",
            fix="place an identity matrix and multiply by it with nisa.nc_matmul; up to 32 x 32 "
            "pass engine=nisa.vector_engine",
            code="err_transpose_on_tensor_engine_not_allowed_in_allocated_kernel",
            location=instr.location,
        )
    return None
