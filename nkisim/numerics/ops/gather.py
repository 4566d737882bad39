"""Instructions whose addresses a tile holds: gather, scatter, read-modify-write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nkisim.errors import OutOfBoundsError
from nkisim.ir.access import AccessPattern, affine_values
from nkisim.ir.dtypes import F32, INTEGERS, cast_into
from nkisim.ir.instruction import Engine, Instruction, Missing, OpKind, TransferKind, opcode
from nkisim.ir.settings import Settings
from nkisim.numerics.ops.cycles import Cycles, OnEngine, one_cycle
from nkisim.numerics.ops.float32 import as_f32, converted, write


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Indexed(Settings):
    """Settings of an indirect access: the way in which index tiles pick elements of a region."""

    walked: tuple[int, ...]  # view axes that the region has before the indexed ones
    affines: tuple  # what is added to each index: (shape, coefficients, offset)
    skip: bool  # whether indices out of bounds are left out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class LocalGather(Settings):
    """Settings of local_gather: the elements that the indices of 16 partitions pick."""

    elements: int  # an index
    count: int  # of indices


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransferSum(Settings):
    """Settings of a sum by DMA: its descriptors can only be made before the kernel runs
    (nisa.dma_compute)."""

    descriptors: ClassVar[str] = "none"


class _Picker:
    """Turns index tiles into coordinates of the region, and checks them.

    Args:
        instr: the instruction.
        region: its operand that the tiles index.
        shape: extents of the gathered or scattered view.
        where: elements of the view that count; all when None.
    """

    def __init__(
        self,
        instr: Instruction,
        region: AccessPattern,
        shape: tuple[int, ...],
        where: np.ndarray | None,
    ) -> None:
        self.instr = instr
        self.region = region
        self.shape = shape
        self.where = where
        self.walked = instr.settings.walked
        self.skip = instr.settings.skip
        self.extents = region.shape[len(self.walked) :]
        self.addends = [
            affine_values(*part) if any(part[1]) else part[2] for part in instr.settings.affines
        ]
        # View axes that the region does not have count as one element there.
        self.walk_shape = tuple(n if d in self.walked else 1 for d, n in enumerate(shape))
        self.grids = tuple(
            np.arange(shape[d]).reshape((-1,) + (1,) * (len(shape) - d - 1)) for d in self.walked
        )

    def __call__(self, tiles: tuple[np.ndarray, ...]) -> tuple[tuple, np.ndarray | None]:
        """(coordinates on the indexed axes, elements of the view to leave out)."""
        picks = []
        left_out = None
        for tile, addend, extent in zip(tiles, self.addends, self.extents, strict=True):
            at = tile.astype(np.int64) + addend
            bad = (at < 0) | (at >= extent)
            if bad.any():
                counted = bad if self.where is None else bad & self.where
                if counted.any() and not self.skip:
                    self._raise(at, counted, len(picks))
                left_out = bad if left_out is None else left_out | bad
                at = np.where(bad, 0, at)
            picks.append(at)
        return tuple(picks), left_out

    def kept(self, left_out: np.ndarray | None) -> np.ndarray | None:
        """The mask of the elements of the view that are moved; None for all of them."""
        if left_out is None:
            return self.where
        keep = np.broadcast_to(~left_out, self.shape)
        return keep if self.where is None else keep & self.where

    def _raise(self, at: np.ndarray, bad: np.ndarray, which: int) -> None:
        first = tuple(int(i) for i in np.argwhere(np.broadcast_to(bad, self.shape))[0])
        value = int(np.broadcast_to(at, self.shape)[first])
        column = len(self.walked) + which
        axis = next((a for a, row in enumerate(self.region.coefs) if row[column]), 0)
        whole = AccessPattern(self.region.buffer)
        raise OutOfBoundsError(
            f"{self.instr.label}: index {value} is out of bounds for axis {axis} of "
            f"{whole.describe()}; it picks element {list(first)} of the access",
            rule=f"the index is in 0..{self.extents[which] - 1}, so that what it picks lies in the "
            "tensor; its value is checked when the kernel runs",
            fix="correct the index values, or use nisa.dma_copy(..., "
            "oob_mode=nisa.oob_mode.skip) to leave such elements out",
            location=self.instr.location,
        )


def _by_rows(picker: _Picker, picks: tuple) -> np.ndarray | None:
    """The row numbers, when the view picks whole rows by one index along its first axis."""
    if len(picks) != 1 or 0 in picker.walked:
        return None
    at = picks[0]
    return at.reshape(-1) if at.size == at.shape[0] == picker.shape[0] else None


def _gather(instr: Instruction) -> Callable:
    out_tile, region = instr.outs[0], instr.ins[0]
    pick = _Picker(instr, region, out_tile.shape, instr.where_out)
    kind = out_tile.dtype

    def run(out: np.ndarray, source: np.ndarray, *tiles: np.ndarray) -> None:
        picks, left_out = pick(tiles)
        rows = _by_rows(pick, picks)
        if rows is not None:
            values = np.moveaxis(source, -1, 0)[rows].reshape((len(rows), *pick.walk_shape[1:]))
        elif all(at.size == 1 for at in picks):
            values = source[(..., *(int(at.reshape(-1)[0]) for at in picks))]
            values = values.reshape(pick.walk_shape)
        else:
            values = source[(*pick.grids, *picks)]
        keep = pick.kept(left_out)
        np.copyto(out, converted(values, kind), where=True if keep is None else keep)

    return run


def _scatter(instr: Instruction, accumulate: bool = False) -> Callable:
    region = instr.outs[0]
    value = instr.ins[1 if accumulate else 0]
    pick = _Picker(instr, region, value.shape, instr.where)
    in_fp32 = accumulate and region.dtype in INTEGERS  # as DMA engines add

    def run(target: np.ndarray, x: np.ndarray, *tiles: np.ndarray) -> None:
        picks, left_out = pick(tiles)
        x = converted(x, target.dtype)
        keep = pick.kept(left_out)
        rows = _by_rows(pick, picks) if keep is None and not in_fp32 else None
        if rows is not None and x.shape[1:] == pick.walk_shape[1:]:
            place = np.moveaxis(target, -1, 0)
            index: tuple = (rows,)
            x = x.reshape((len(rows), *place.shape[1:]))
        else:
            place = target
            index = np.broadcast_arrays(*pick.grids, *picks, np.empty(pick.shape, bool))[:-1]
            if keep is not None:
                index, x = tuple(i[keep] for i in index), x[keep]
        if in_fp32:
            _add_in_fp32(target, region.strides, index, x)
        elif accumulate:
            np.add.at(place, tuple(index), x)
        else:
            place[tuple(index)] = x

    if accumulate:
        return lambda target, _old, x, *tiles: run(target, x, *tiles)
    return run


def _add_in_fp32(
    target: np.ndarray, strides: tuple[int, ...], index: Sequence[np.ndarray], x: np.ndarray
) -> None:
    """target[index] += x, summed in fp32 and rounded once. The view may reach an element by several
    coordinates, as overlapping windows do; `strides` tell them apart."""
    flat = [i.reshape(-1) for i in index]
    address = sum(s * i for s, i in zip(strides, flat, strict=True))
    _, first, which = np.unique(address, return_index=True, return_inverse=True)
    picked = tuple(i[first] for i in flat)
    total = as_f32(target[picked])
    np.add.at(total, which.reshape(-1), as_f32(x).reshape(-1))
    rounded = np.empty(total.shape, target.dtype)
    cast_into(rounded, total)
    target[picked] = rounded


def _scatter_add(instr: Instruction) -> Callable:
    return _scatter(instr, accumulate=True)


def _flow_gather(instr: Instruction, missing: Missing) -> Missing:
    """Undefined where the index is. Which elements of the region are read is not known here."""
    union = None
    for m in missing[1:]:
        if m is not None:
            wide = np.broadcast_to(m, instr.outs[0].shape)
            union = wide if union is None else union | wide
    return [union]


opcode(
    "dma_gather",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=Indexed,
    cost=TransferKind.GATHER,
    on_chip=False,
    flow=_flow_gather,
)(_gather)
opcode(
    "dma_scatter",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=Indexed,
    cost=TransferKind.SCATTER,
    on_chip=False,
    partial=True,
)(_scatter)
opcode(
    "dma_scatter_add",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=Indexed,
    cost=TransferKind.SCATTER_ADD,
    on_chip=False,
    partial=True,
)(_scatter_add)


def _cost_dynamic(on: OnEngine) -> Cycles:
    """The cycles of a dynamic access: the engine goes over the picked elements, not over the
    tile."""
    n = min(on.ins[0].n, on.outs[0].n)
    return Cycles(1.0, max(0.0, on.timing.dynamic_cycles - n), n)


opcode(
    "tensor_copy_dynamic_src",
    Engine.VECTOR,
    OpKind.GATHER,
    settings=Indexed,
    cost=_cost_dynamic,
    flow=_flow_gather,
)(_gather)
opcode(
    "tensor_copy_dynamic_dst",
    Engine.VECTOR,
    OpKind.GATHER,
    settings=Indexed,
    cost=_cost_dynamic,
    partial=True,
)(_scatter)


@opcode(
    "dma_compute",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=TransferSum,
    cost=TransferKind.SUM,
    on_chip=False,
    elementwise=True,
)
def _dma_compute(instr: Instruction) -> Callable:
    """The sum of the inputs, in fp32."""

    def run(out: np.ndarray, *ins: np.ndarray) -> None:
        total = ins[0].astype(F32)
        for x in ins[1:]:
            total += as_f32(x)
        write(out, total, instr.where)

    return run


@opcode("gather_flattened", Engine.GPSIMD, OpKind.GATHER, cost=one_cycle, flow=_flow_gather)
def _gather_flattened(instr: Instruction) -> Callable:
    """In each partition, elements of the flattened free axes."""
    out, data = instr.outs[0], instr.ins[0]
    where, per_partition = instr.where_out, data.size // max(data.shape[0], 1)

    def run(o: np.ndarray, x: np.ndarray, indices: np.ndarray) -> None:
        at = indices.reshape(indices.shape[0], -1).astype(np.int64)
        bad = at >= per_partition
        if where is not None:
            bad &= where.reshape(bad.shape)
        if bad.any():
            p, i = (int(v) for v in np.argwhere(bad)[0])
            raise OutOfBoundsError(
                f"{instr.label}: index {int(at[p, i])} is out of bounds in partition {p}: a "
                f"partition of {data.describe()} has {per_partition} elements",
                rule="indices count the elements of one partition; hardware returns garbage for "
                "others",
                fix="correct the index values",
                location=instr.location,
            )
        at[at >= per_partition] = 0
        values = np.take_along_axis(x.reshape(x.shape[0], -1), at, axis=1)
        values = converted(values, out.dtype).reshape(o.shape)
        np.copyto(o, values, where=True if where is None else where)

    return run


def _flow_local_gather(instr: Instruction, missing: Missing) -> Missing:
    """A partition gathers from its own elements, which of them data decides."""
    data, index = missing[0], missing[1]
    shape = instr.outs[0].shape
    if index is not None or data is None:
        return [np.ones(shape, bool)]  # where the index is undefined
    open_ = data.reshape(shape[0], -1).any(axis=1)
    return [np.broadcast_to(open_.reshape(-1, *[1] * (len(shape) - 1)), shape)]


def _cost_local(on: OnEngine) -> Cycles:
    each = on.instr.settings.elements
    per_cycle = ((28 + 4 * each) / (4 * each)) / min(4 / on.outs[0].dtype.itemsize, each)
    return Cycles(1 / per_cycle, n=on.outs[0].n)


@opcode(
    "local_gather",
    Engine.GPSIMD,
    OpKind.GATHER,
    settings=LocalGather,
    cost=_cost_local,
    flow=_flow_local_gather,
)
def _local_gather(instr: Instruction) -> Callable:
    """Each group of 16 partitions gathers by the indices that the group holds."""
    data = instr.ins[0]
    width, count, where = instr.settings.elements, instr.settings.count, instr.where_out
    groups = data.shape[0] // 16
    per_partition = data.size // data.shape[0]

    def run(o: np.ndarray, x: np.ndarray, indices: np.ndarray) -> None:
        # A core reads its indices partition by partition within each column.
        at = indices.reshape(groups, 16, -1).transpose(0, 2, 1).reshape(groups, -1)[:, :count]
        at = at.astype(np.int64)[:, :, None] + np.arange(width)
        if at.max(initial=0) >= per_partition:
            raise OutOfBoundsError(
                f"{instr.label}: element {int(at.max())} is out of bounds: a partition of "
                f"{data.describe()} has {per_partition}",
                rule="index values are element offsets in a partition; what is read outside is "
                "undefined on hardware",
                fix="correct the index values; they are offsets of elements, so multiply row "
                "numbers by num_elem_per_idx",
                location=instr.location,
            )
        rows = np.repeat(at.reshape(groups, -1), 16, axis=0)
        values = np.take_along_axis(x.reshape(x.shape[0], -1), rows, axis=1)
        shape = (o.shape[0], -1, 16, width) if o.ndim == 4 else (o.shape[0], count, width)
        values = values.reshape(shape)[tuple(slice(n) for n in o.shape)]
        np.copyto(o, values, where=True if where is None else where)

    return run
