"""Checks of one instruction or one allocation by itself: `(what, ..., trace) -> error or None`.

Those of an instruction are given its tiles, too: what it writes and what it reads.
"""

from __future__ import annotations

import functools
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import (
    IndexingError,
    KernelError,
    MemorySpaceError,
    OutOfBoundsError,
    TileSizeError,
)
from nkisim.ir.access import AccessPattern, Coefs, affine_values
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def flawless(view: AccessPattern, trace: Trace) -> bool:
    """Whether the checks below that look at an on-chip operand by itself find nothing, whatever
    the instruction: its bounds, its axes and its first partition."""
    if len(view.buffer.shape) < 2:
        return False
    if not view.shape or view.shape[0] > trace.machine.partitions or view.escape() is not None:
        return False
    par = view.buffer.par_axis
    start = view.offsets[par]
    return _stray_axis(view.coefs, view.shape, par) is None and (
        not start or start in allowed_starts(view.shape[0])
    )


def check_bounds(
    instr: Instruction, tiles: tuple[AccessPattern, ...], trace: Trace
) -> KernelError | None:
    """Every coordinate of every operand lies in its tensor, where the mask is true."""
    for tensor in tiles:
        out = tensor.escape()
        if out is not None:
            out = _escape_where(tensor, instr.where_of(tensor), out)
        if out is None:
            continue
        axis, low, high, size = out
        reached = f"{high}" if high >= size else f"{low}"
        return OutOfBoundsError(
            f"{instr.label}: axis {axis} of {tensor.describe()} is reached at {reached}, "
            f"but its size is {size}",
            rule=f"coordinates lie in 0..{size - 1} on this axis{trace.rules.words.within}",
            fix=trace.rules.words.edge.format(size=size)
            if high >= size
            else "start the index at 0 or above",
            code="err_tensor_access_out_of_bound",
        )
    return None


def _escape_where(
    tensor: AccessPattern, where: np.ndarray | None, out: tuple[int, int, int, int]
) -> tuple[int, int, int, int] | None:
    """`out`, what `tensor.escape()` gave, when only the elements where the mask is true count."""
    if where is None:
        return out
    for axis, size in enumerate(tensor.base_shape):
        index = affine_values(tensor.shape, tensor.coefs[axis], tensor.offsets[axis])
        inside = index[where]
        low, high = int(inside.min()), int(inside.max())
        if low < 0 or high >= size:
            return axis, low, high, size
    return None


def check_memory(
    instr: Instruction, tiles: tuple[AccessPattern, ...], trace: Trace
) -> KernelError | None:
    """Engines read and write SBUF and PSUM only, GpSimd SBUF only; DMA moves data to and from
    HBM."""
    if not instr.spec.on_chip:
        return None
    gpsimd = instr.engine is Engine.GPSIMD
    for tensor in tiles:
        space = tensor.buffer.space
        if gpsimd and space is Space.PSUM:
            return MemorySpaceError(
                f"{instr.label} on the GpSimd Engine is given {tensor.describe()}",
                rule="the GpSimd Engine cannot access PSUM",
                fix=trace.rules.words.to_sbuf,
            )
        if not space.on_chip:
            return MemorySpaceError(
                f"{instr.label} on the {instr.engine.value} Engine is given {tensor.describe()}",
                rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
                fix=trace.rules.words.by_dma,
                code="err_unsupported_memory",
            )
    return None


def check_tiles(
    instr: Instruction, tiles: tuple[AccessPattern, ...], trace: Trace
) -> KernelError | None:
    """On-chip operands have their partition axis first, and not more partitions than exist."""
    pmax = trace.machine.partitions
    for tensor in tiles:
        if not tensor.buffer.space.on_chip:
            continue
        if len(tensor.buffer.shape) < 2:
            return _too_few_axes(tensor)
        if not tensor.shape:
            continue
        if tensor.shape[0] > pmax:
            return _too_many_partitions(tensor.describe(), tensor.shape[0], pmax)
        par = tensor.buffer.par_axis
        stray = _stray_axis(tensor.coefs, tensor.shape, par)
        if stray is not None:
            axis, d = stray
            return IndexingError(
                f"{instr.label}: axis {d} of a view of {tensor.describe()} walks its "
                f"axis {axis}, but its partition axis is {par}",
                rule="the first axis of a tile walks partitions, the others walk the free axes",
                fix="index so that the partition axis comes first, e.g. "
                + (
                    f"one block at a time, t[{', '.join(['i'] * par)}]"
                    if par
                    else "t[nl.arange(128)[:, None], nl.arange(512)[None, :]]"
                ),
                code="err_failed_to_infer_tile_from_local_tensor",
            )
    return None


@functools.lru_cache(maxsize=4096)
def _stray_axis(coefs: Coefs, shape: tuple[int, ...], par: int) -> tuple[int, int] | None:
    """A base axis and the view axis that walks it, of which one is a partition axis only."""
    for axis, row in enumerate(coefs):
        for d, c in enumerate(row):
            if c and shape[d] > 1 and (axis == par) != (d == 0):
                return axis, d
    return None


def check_allocation(
    shape: tuple[int, ...],
    dtype: np.dtype,
    space: Space,
    par_axis: int,
    name: str,
    placed: bool,
    trace: Trace,
) -> tuple[KernelError, bool] | None:
    """A tile fits 128 partitions and the bytes of one partition. One with less than two axes is
    found where it is used: kernels declare some that they never use.

    Args:
        shape, dtype, space, par_axis, name: of the tensor.
        placed: whether the kernel places its tiles.
        trace: so far.

    Returns:
        What is wrong, and whether the compiler takes it all the same.
    """
    if not space.on_chip or len(shape) < 2:
        return None
    machine = trace.machine
    in_psum = machine.psum_bank_bytes if trace.rules.one_bank else machine.psum_bytes
    room = in_psum if space is Space.PSUM else machine.sbuf_usable_bytes
    need = prod(shape[par_axis + 1 :]) * dtype.itemsize
    if shape[par_axis] <= machine.partitions and need <= room:
        return None
    what = f"{name + ': ' if name else ''}a {dtype}{list(shape)} tile in {space.label}"
    if shape[par_axis] > machine.partitions:
        return _too_many_partitions(what, shape[par_axis], machine.partitions), False
    bank = "a PSUM bank" if trace.rules.one_bank else "PSUM"
    unit = bank if space is Space.PSUM else "SBUF"
    rule = f"{unit} of {machine.name} gives a tile {room:,} bytes a partition"
    taken = False
    if space is Space.PSUM and need <= machine.psum_bytes:
        taken = machine.abilities.beyond_pages and not placed
        if taken:
            rule += (
                " (NKI programming model, tile-size constraint 2); a trn2 took a tile over several "
                "banks, and so does the simulator"
            )
        elif not placed:
            rule += "; larger ones are known to pass on a trn2 only"
    error = TileSizeError(
        f"{what} needs {need:,} bytes a partition",
        rule=rule,
        fix="divide the free axes into smaller tiles, or use a narrower dtype"
        + (
            "; of several tiles mark the partition axis, as in "
            f"({shape[0]}, nl.par_dim({shape[1]}), {', '.join(map(str, shape[2:]))})"
            if len(shape) > 2 and par_axis == 0 and shape[1] <= machine.partitions
            else ""
        ),
    )
    return error, taken


def _too_few_axes(tensor: AccessPattern) -> TileSizeError:
    buffer = tensor.buffer
    axes = "1 axis" if buffer.shape else "0 axes"
    made = f", and was made at {buffer.location}" if buffer.location else ""
    return TileSizeError(
        f"a {buffer.dtype}{list(buffer.shape)} tile in {buffer.space.label} is used, which has "
        f"{axes}{made}",
        rule="on-chip memory is two-dimensional: a partition axis and at least one free axis",
        fix="declare (partitions, elements), e.g. (128, 1)",
    )


def _too_many_partitions(what: str, size: int, pmax: int) -> TileSizeError:
    return TileSizeError(
        f"{what} has a partition axis of {size}",
        rule=f"the partition axis (the first) is at most {pmax}: SBUF and PSUM have {pmax} "
        "partitions",
        fix=f"divide the axis into tiles of {pmax} (nl.tile_size.pmax) with a loop or a launch "
        "grid",
        code="err_num_partition_exceed_arch_limit",
    )


def allowed_starts(partitions: int) -> tuple[int, ...]:
    """Partitions where an access to this many of them may start (architecture guide, SDK 2.26)."""
    if partitions > 64:
        return (0,)
    return (0, 64) if partitions > 32 else (0, 32, 64, 96)


def check_start_partition(
    instr: Instruction, tiles: tuple[AccessPattern, ...], trace: Trace
) -> KernelError | None:
    """Engines read and write from partition 0, 32, 64 or 96 on."""
    if not instr.spec.on_chip:
        return None
    for tensor in tiles:
        start = tensor.offsets[tensor.buffer.par_axis]
        if not start or not tensor.buffer.space.on_chip or start in allowed_starts(tensor.shape[0]):
            continue
        count = tensor.shape[0]
        return TileSizeError(
            f"{instr.label} reaches {count} partitions of {tensor.describe()} from partition "
            f"{start} on",
            rule=f"an engine reaches {count} partitions from one of {allowed_starts(count)} on; "
            "the compiler moves the data for other starts, or refuses",
            fix="lay the data out so that it starts there, put it along a free axis, or move it "
            "with a DMA",
        )
    return None
