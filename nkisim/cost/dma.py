"""DMA transfers: from access patterns to descriptors, and from those to time.

A descriptor moves one run of elements that is contiguous on both sides, and within one partition
on chip. The runs of a transfer are dealt out over the DMA engines by partition. A mask that couples
axes, such as a triangle, cuts the runs of the box around what it leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction, TransferKind
from nkisim.machine.timing import DmaTiming

_INDIRECT = (TransferKind.GATHER, TransferKind.SCATTER, TransferKind.SCATTER_ADD)


class Transfer(NamedTuple):
    """The load of a DMA instruction on the queues.

    Attributes:
        engine_ns: time that each of its DMA engines is busy.
        engines: how many DMA engines it uses.
        latency_ns: from the last byte's turn to the semaphore.
        nbytes: bytes moved, counted once; of the wider side, where the transfer converts.
        hbm_bytes: bytes read from or written to HBM, each as it is stored there.
        run_bytes: bytes of a descriptor.
        descriptors: how many.
        indirect: whether GpSimd writes the descriptors while the kernel runs, of addresses that it
            reads.
        later_ns: how much later than others it begins after its start.
    """

    engine_ns: float
    engines: int
    latency_ns: float
    nbytes: int
    hbm_bytes: int
    run_bytes: int
    descriptors: int
    indirect: bool
    later_ns: float = 0.0


def transfer(instr: Instruction, timing: DmaTiming) -> Transfer:
    """The cost of a DMA instruction."""
    kind = instr.spec.cost
    if kind in _INDIRECT:
        return _indirect(instr, timing)
    out = instr.outs[0]
    sources = [x for x in instr.ins if isinstance(x, AccessPattern)]
    if kind is TransferKind.TRANSPOSE:
        return _transpose(out, sources[-1], timing)
    if kind is TransferKind.SUM:
        return _sum(instr, out, sources, timing)
    return _copy(instr, out, sources[-1], timing)


def _copy(
    instr: Instruction, out: AccessPattern, source: AccessPattern, timing: DmaTiming
) -> Transfer:
    run, partitions = runs(out, source)
    item = max(out.itemsize, source.itemsize)
    left = _cut(instr.where, out.size, run)
    received = instr.settings.sends is False
    return _time(out, source, *left, partitions, item, timing, received)


def _sum(
    instr: Instruction, out: AccessPattern, sources: Sequence[AccessPattern], timing: DmaTiming
) -> Transfer:
    """Each source in turn. That which is the destination is read in the runs of the others."""
    others = [x for x in sources if not x.same_elements(out)] or sources
    each = [_copy(instr, out, x, timing) for x in others]
    ns = sum(x.engine_ns for x in each) * len(sources) / len(each)
    size = each[0].nbytes // max(out.itemsize, others[0].itemsize)  # elements, without masked ones
    hbm = size * sum(x.itemsize for x in (out, *sources) if not x.space.on_chip)
    return each[-1]._replace(
        engine_ns=ns,
        nbytes=sum(x.nbytes for x in each),
        hbm_bytes=hbm,
        descriptors=sum(x.descriptors for x in each),
    )


def runs(out: AccessPattern, source: AccessPattern) -> tuple[int, int]:
    """(elements of a descriptor, partitions on chip or 0)."""
    sides = [(t.strides, _partition_axis(t)) for t in (out, source)]
    partitions = 0
    for t, (_, axis) in zip((out, source), sides, strict=True):
        if t.space.on_chip:
            partitions = max(partitions, out.shape[axis] if axis >= 0 else 1)
    return _contiguous(out.shape, sides), partitions


_Side = tuple[tuple[int, ...], int]  # strides, and the axis that walks over partitions


def _contiguous(shape: tuple[int, ...], sides: list[_Side]) -> int:
    """Elements that are contiguous on both sides."""
    run = 1
    for d in range(len(shape) - 1, -1, -1):
        if shape[d] == 1:
            continue
        if any(strides[d] != run or d == axis for strides, axis in sides):
            break
        run *= shape[d]
    return run


def _cut(where: np.ndarray | None, size: int, run: int) -> tuple[int, float]:
    """(elements that a mask leaves, those of a descriptor on average), of a box of `size` elements
    with runs of `run`."""
    if where is None:
        return size, run
    rows = where.reshape(-1, run)
    left = np.count_nonzero(rows)
    pieces = np.count_nonzero(rows[:, 0]) + np.count_nonzero(rows[:, 1:] > rows[:, :-1])
    return left, left / pieces


def swaps_axes(instr: Instruction) -> bool:
    """Whether a copy goes element by element because HBM is contiguous along the partitions.

    A transposed load or store, that is. The same copy after a transpose on chip has long runs.
    """
    out, source = instr.outs[0], instr.ins[-1]
    if instr.spec.cost is not TransferKind.COPY or out.space.on_chip == source.space.on_chip:
        return False
    chip, hbm = (out, source) if out.space.on_chip else (source, out)
    axis = _partition_axis(chip)
    return (
        axis == 0
        and chip.shape[0] > 1
        and chip.size > chip.shape[0]
        and hbm.strides[0] == 1
        and runs(out, source)[0] == 1
    )


def swapped(instr: Instruction, columns: int, timing: DmaTiming) -> Transfer:
    """The transfer of `columns` columns of a copy that swaps axes (`swaps_axes`): each column is
    contiguous in HBM."""
    out, source = instr.outs[0], instr.ins[-1]
    rows, item = out.shape[0], max(out.itemsize, source.itemsize)
    return _time(out, source, rows * columns, rows, columns, item, timing)


def _partition_axis(t: AccessPattern) -> int:
    """The view axis that walks over partitions; -1 when none does."""
    if not t.space.on_chip:
        return -1
    if t.base_shape is t.buffer.shape or len(t.base_shape) > t.buffer.par_axis:
        row = t.coefs[t.buffer.par_axis]
        for d, c in enumerate(row):
            if c:
                return d
    return -1


def _time(
    out: AccessPattern,
    source: AccessPattern,
    size: int,
    run: float,
    partitions: int,
    item: int,
    timing: DmaTiming,
    from_core: bool = False,
) -> Transfer:
    to_hbm, from_hbm = not out.space.on_chip, not (from_core or source.space.on_chip)
    descriptors = max(1, round(size / max(run, 1)))
    run_bytes = round(run * item)
    if partitions:
        engines = min(partitions, timing.engines, descriptors)
    else:  # HBM to HBM: long runs are cut
        pieces = max(1, run_bytes // timing.packet_bytes)
        descriptors, run_bytes = descriptors * pieces, -(-run_bytes // pieces)
        engines = min(timing.engines, descriptors)
    each = (
        timing.load_descriptor_ns + run_bytes / timing.load_rate
        if from_hbm
        else timing.store_descriptor_ns + run_bytes / timing.store_rate
    )
    if to_hbm and run_bytes < timing.write_granule:
        each += timing.short_write_ns
    latency = timing.load_latency_ns if from_hbm else timing.store_latency_ns
    nbytes = size * item
    return Transfer(
        each * -(-descriptors // engines),
        engines,
        latency + timing.semaphore_ns,
        nbytes,
        size * (out.itemsize * to_hbm + source.itemsize * from_hbm),
        run_bytes,
        descriptors,
        False,
    )


def _transpose(out: AccessPattern, source: AccessPattern, timing: DmaTiming) -> Transfer:
    nbytes = out.size * out.itemsize
    engines = min(timing.engines, max(1, out.shape[0]))
    row = prod(out.shape[1:]) * out.itemsize
    rows = -(-out.shape[0] // engines)
    each = timing.load_descriptor_ns + row / (timing.load_rate * timing.transpose_factor)
    return Transfer(
        each * rows,
        engines,
        timing.load_latency_ns + timing.semaphore_ns,
        nbytes,
        source.size * source.itemsize * (not source.space.on_chip),
        row,
        out.shape[0],
        False,
    )


def _indirect(instr: Instruction, timing: DmaTiming) -> Transfer:
    """One descriptor an index: the elements that it picks are taken as contiguous. An index that is
    one number only says where a copy begins, which is cut in descriptors as others are."""
    tiles, kind = instr.tiles_in, instr.spec.cost
    out = region = instr.outs[0]
    if kind is TransferKind.GATHER:
        region, moved, indices = tiles[0], out, tiles[1:]
    elif kind is TransferKind.SCATTER_ADD:
        moved, indices = tiles[1], tiles[2:]
    else:
        moved, indices = tiles[0], tiles[1:]
    picks = max((t.size for t in indices), default=1)
    if picks == 1 and moved.space.on_chip and not region.space.on_chip:
        axis, strides = _partition_axis(moved), _strides_of_view(region, instr, moved.ndim)
        sides = [(moved.strides, axis), (strides, -1)]
        run = _contiguous(moved.shape, sides)
        partitions = moved.shape[axis] if axis >= 0 else 1
    else:
        run = max(1, moved.size // picks)
        partitions = moved.shape[0] if moved.space.on_chip else 0
    found = _time(
        out,
        region if kind is TransferKind.GATHER else moved,
        moved.size,
        run,
        partitions,
        moved.itemsize,
        timing,
    )
    return found._replace(indirect=True)


def _strides_of_view(region: AccessPattern, instr: Instruction, ndim: int) -> tuple[int, ...]:
    """The stride in HBM of each axis of an indirect transfer, where its indices are numbers with
    affine expressions added to them."""
    walked, affines = instr.settings.walked, instr.settings.affines
    found = [0] * ndim
    for stride, axis in zip(region.strides, walked, strict=False):
        found[axis] += stride
    for stride, (_, coefs, _) in zip(region.strides[len(walked) :], affines, strict=True):
        for axis, c in enumerate(coefs):
            found[axis] += c * stride
    return tuple(found)
