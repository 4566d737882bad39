"""Transfers by DMA: copies, transposes, and copies that compute."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nkisim.errors import (
    DTypeError,
    IndexingError,
    MemorySpaceError,
    OutOfBoundsError,
    ParameterError,
    ShapeError,
)
from nkisim.frontends.nki.declare import make
from nkisim.frontends.nki.operands import common, free_of
from nkisim.frontends.nki.ops import op_name
from nkisim.frontends.nki.session import Recipe, Session, current
from nkisim.frontends.nki.surface.isa.copies import check_types, settled_pair, tensor_copy
from nkisim.frontends.nki.surface.isa.enums import (
    NkiInstruction,
    dge_mode,
    engine,
    oob_mode,
)
from nkisim.frontends.nki.tensors.indirect import add_rows, copy_rows
from nkisim.frontends.nki.tensors.layout import merged
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.matmul import TileTranspose
from nkisim.numerics.ops.movement import TransferCopy


def dma_copy(
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src, by DMA, between HBM and SBUF.

    Args:
        dst, src: equally many elements. Either may be dynamic (`.ap(scalar_offset=...)`); one of
            them may pick a row for each partition (`.ap(vector_offset=...)`, `vector_select`).
        priority: 0 to 3, on NeuronCore-v4.
        oob_mode: with `skip`, what an index would move whose walk leaves the tensor stays as it is.
        dge_mode: what generates descriptors: hardware, GpSimd (`swdge`), or the host before the
            kernel runs (`none`). With `hwdge` both have one dtype.
        engine: what starts it: sync or scalar, with `hwdge` only.
        name: of the instruction.

    Raises:
        MemorySpaceError: an operand in PSUM.
        ShapeError: different numbers of elements.
        DTypeError: `hwdge` with two dtypes, or a packed type and another one.
        IndexingError: rows that are picked on both sides, or on chip.
        OutOfBoundsError: a dynamic offset beyond its axis, unless it is skipped.
        ParameterError: a priority, a mode or an engine that the generation does not have.
    """
    session = current()
    if dst._indirect is not None or src._indirect is not None:
        if (dst._indirect or src._indirect).by_row:
            return copy_rows(session, dst, src, oob_mode)
        settled = _settled(session, oob_mode, dst, src)
        if settled is None:
            return NkiInstruction()
        dst, src = settled
    key = ("dma_copy", priority, dge_mode, engine)
    try:
        return NkiInstruction(session.issue(key, (dst, src), lambda: _dma(dst, src, *key[1:])))
    except _Split:
        return _split_copy(dst, src, partial(dma_copy, dge_mode=dge_mode, engine=engine))


def _settled(session: Session, mode: oob_mode, *tensors: NkiTensor) -> list[NkiTensor] | None:
    """`settled_pair`; None if a dynamic view is out of bounds and `mode` skips it."""
    try:
        return settled_pair(session, *tensors)
    except OutOfBoundsError:
        if mode.name == "skip":
            return None
        raise


class _Split(Exception):
    """A copy whose partitions lie on several axes of the other side."""


def _dma(dst: NkiTensor, src: NkiTensor, priority, mode: dge_mode, queue: engine) -> Recipe:
    call = "nisa.dma_copy"
    machine = current().trace.machine
    for which, t in (("dst", dst), ("src", src)):
        if not isinstance(t, NkiTensor):
            raise ParameterError(
                f"{call}: {which} is {t!r}",
                rule="a DMA moves the elements of a tensor to another one",
                fix="pass tensors",
            )
        if t._layout.space is Space.PSUM:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="a DMA moves data between HBM and SBUF",
                fix="copy between PSUM and SBUF with nisa.tensor_copy",
            )
    if priority is not None and not 0 <= priority <= 3:
        raise ParameterError(
            f"{call}: priority {priority}", rule="a priority is 0 to 3", fix="use one of these"
        )
    if priority is not None and not machine.abilities.dma_priorities:
        raise ParameterError(
            f"{call}: priority {priority} on {machine.name}",
            rule="DMAs have priorities from NeuronCore-v4 (trn3) on",
            fix="leave it out",
        )
    if mode is dge_mode.hwdge:
        if not machine.abilities.hardware_descriptors:
            raise ParameterError(
                f"{call}: dge_mode.hwdge on {machine.name}",
                rule="hardware descriptor generation needs NeuronCore-v3 (trn2)",
                fix="use nisa.dge_mode.unknown",
            )
        if dst.dtype != src.dtype:
            raise DTypeError(
                f"{call}: {src.dtype} to {dst.dtype} with dge_mode.hwdge",
                rule="hardware descriptor generation does not convert",
                fix="use nisa.dge_mode.unknown, or tensors of one type",
            )
        if queue not in (engine.unknown, engine.sync, engine.scalar):
            raise ParameterError(
                f"{call}: engine {queue.name} with dge_mode.hwdge",
                rule="the engines sync and scalar start a DMA with hardware descriptor generation",
                fix="name one of these, or no engine",
            )
    elif queue not in (engine.unknown,):
        raise ParameterError(
            f"{call}: engine {queue.name} with dge_mode.{mode.name}",
            rule="an engine starts a DMA with hardware descriptor generation only",
            fix="pass dge_mode=nisa.dge_mode.hwdge, or no engine"
            if machine.abilities.hardware_descriptors and queue in (engine.sync, engine.scalar)
            else "pass no engine",
        )
    check_types(call, dst, src)
    walks = dma_walks(call, dst, src)
    settings = TransferCopy(
        descriptors="" if mode is dge_mode.unknown else mode.name,
        started_by=Engine.SCALAR if queue is engine.scalar else None,
    )
    return Recipe("dma_copy", Engine.DMA, [walks[0]], [walks[1]], None, settings)


def dma_walks(call: str, *tensors: NkiTensor) -> list:
    """Walks over as many elements, in HBM or on chip.

    Raises:
        ShapeError: different numbers of elements.
        _Split: the partitions of one lie on several axes of another.
    """
    size = tensors[0].size
    for t in tensors[1:]:
        if t.size != size:
            raise ShapeError(
                f"{call}: {tensors[0].describe()} and {t.describe()}",
                rule=f"both have as many elements; these have {size:,} and {t.size:,}",
                fix="slice them to one size",
            )
    lanes = {t.shape[0] for t in tensors if t._layout.on_chip}
    lane = max(lanes, default=0)
    if len(lanes) > 1:
        raise _Split
    walks = []
    for t in tensors:
        own = t._layout
        if own.on_chip:
            shape, strides = merged(own.shape[1:], own.strides[1:])
            if lane > 1:
                shape, strides = (lane, *shape), (own.strides[0], *strides)
        else:
            shape, strides = merged(own.shape, own.strides)
        walks.append((shape, strides))
    if lane <= 1:
        found = common(call, tensors, tuple(walks))
        if not lane:
            return found
        return [
            ((1, *shape), (t._layout.strides[0], *strides))
            for t, (shape, strides) in zip(tensors, found, strict=True)
        ]
    found = common(call, tensors, tuple(walks))
    if found[0][0][0] != lane:
        raise _Split
    if len(found[0][0]) == 1:
        return [((lane, 1), (strides[0], 1)) for _, strides in found]
    return found


def _split_copy(dst: NkiTensor, src: NkiTensor, copy: Callable) -> NkiInstruction:
    """A copy in several, each by `copy`: a DMA walks partitions on one axis."""
    chip, other = (dst, src) if dst._layout.on_chip else (src, dst)
    both = dst._layout.on_chip and src._layout.on_chip
    if both and dst.shape[0] != src.shape[0]:
        return _between_partitions(dst, src, copy)
    own = other._layout
    shape, strides = merged(own.shape, own.strides)
    flat = other._walk(shape, strides)
    outer = shape[0]
    if chip.shape[0] % outer:
        raise ShapeError(
            f"nisa.dma_copy: {dst.describe()} and {src.describe()}",
            rule="the partitions of a tile are whole rows of the other side",
            fix="reshape so that partitions come first, or copy in parts",
        )
    rows = chip.shape[0] // outer
    last = NkiInstruction()
    for i in range(outer):
        tile, part = chip[i * rows : (i + 1) * rows], flat[i]
        last = copy(tile, part) if chip is dst else copy(part, tile)
    return last


def _between_partitions(dst: NkiTensor, src: NkiTensor, copy: Callable) -> NkiInstruction:
    """A copy between tiles with different numbers of partitions, row by row of the larger one."""
    few, many = (dst, src) if dst.shape[0] < src.shape[0] else (src, dst)
    times, rest = divmod(many.shape[0], few.shape[0])
    count = free_of(many)
    if rest or count * times != free_of(few) or not few.is_contiguous():
        raise ShapeError(
            f"nisa.dma_copy: {dst.describe()} and {src.describe()}",
            rule="the partitions of one tile are whole parts of those of the other",
            fix="copy in parts",
        )
    flat = few.reshape((few.shape[0], times, count))
    wide = many.reshape((many.shape[0], count))
    last = NkiInstruction()
    for p in range(many.shape[0]):
        row = flat[p // times, p % times : p % times + 1, :].reshape((1, count))
        one = wide[p : p + 1]
        last = copy(one, row) if many is dst else copy(row, one)
    return last


def dma_transpose(
    dst: NkiTensor,
    src: NkiTensor,
    axes: tuple[int, ...] | None = None,
    priority: int | None = None,
    dge_mode: dge_mode = dge_mode.unknown,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src with its axes permuted, by DMA.

    Args:
        dst: a tensor of the permuted shape.
        src: a tensor of that dtype.
        axes: (1, 0), (2, 1, 0) or (3, 1, 2, 0); None for the one of src's rank.
        priority, dge_mode, oob_mode, name: as for `dma_copy`.

    Raises:
        MemorySpaceError: an operand in PSUM.
        ShapeError: dst is not the permuted shape, or a mode or row numbers that do not take the
            shape.
        DTypeError: src and dst of two types, or elements that are not of 2 bytes with such a mode.
        ParameterError: another permutation, or a mode that the generation does not have.
    """
    session = current()
    by_row = src._indirect is not None and src._indirect.by_row
    _check_transpose_mode(session, src, dge_mode, by_row)
    if by_row:
        return _transpose_rows(session, dst, src, axes, oob_mode)
    if dst._indirect is not None or src._indirect is not None:
        settled = _settled(session, oob_mode, dst, src)
        if settled is None:
            return NkiInstruction()
        dst, src = settled
    order = None if axes is None else tuple(axes)
    key = ("dma_transpose", order)
    return NkiInstruction(session.issue(key, (dst, src), lambda: _transpose(dst, src, order)))


def _check_transpose_mode(session: Session, src: NkiTensor, mode: dge_mode, by_row: bool) -> None:
    """Raises ParameterError, DTypeError or ShapeError where a way of making descriptors does not
    go with a transpose."""
    call = "nisa.dma_transpose"
    machine = session.trace.machine
    mode = dge_mode(mode)  # or its number
    if mode.name == ("hwdge" if by_row else "swdge"):
        raise ParameterError(
            f"{call}: dge_mode.{mode.name} {'with' if by_row else 'without'} row numbers",
            rule="software generates the descriptors of transposes with row numbers, hardware "
            "those of others",
            fix="use nisa.dge_mode.unknown",
        )
    if mode.name != "hwdge" and not by_row:
        return
    if not machine.abilities.hardware_descriptors:
        raise ParameterError(
            f"{call} with {'row numbers' if by_row else 'dge_mode.hwdge'} on {machine.name}",
            rule="it needs NeuronCore-v3 (trn2)",
            fix="compile for trn2, or leave it out",
        )
    if src._layout.type.itemsize != 2:
        raise DTypeError(
            f"{call}: src is {src.describe()}",
            rule="such a transpose moves elements of 2 bytes",
            fix="use nisa.dge_mode.unknown without row numbers, or a 2-byte type",
        )
    if by_row:
        return
    first, rows, last = src.shape[0], src.shape[0] * src.shape[-2], src.shape[-1]
    fits = first == 16 if src.ndim == 2 else first in (1, 2, 4, 8, 16) and rows % 16 == 0
    if not fits or last > 128:
        raise ShapeError(
            f"{call}: src is {src.describe()} with dge_mode.hwdge",
            rule="the last axis has at most 128 elements; the first has 16, or with more than two "
            "axes 1, 2, 4, 8 or 16, its product with the last but one being a multiple of 16",
            fix="use nisa.dge_mode.unknown, or transpose parts of that shape",
        )


_ORDERS = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def _transpose(dst: NkiTensor, src: NkiTensor, axes: tuple[int, ...] | None) -> Recipe:
    call = "nisa.dma_transpose"
    order = _ORDERS.get(src.ndim) if axes is None else axes
    if order != _ORDERS.get(src.ndim):
        raise ParameterError(
            f"{call}: axes {axes} of {src.describe()}",
            rule="it permutes by (1, 0), (2, 1, 0) or (3, 1, 2, 0)",
            fix="reshape src to 2, 3 or 4 axes",
        )
    shape = tuple(src.shape[a] for a in order)
    if dst.shape != shape:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, src {src.describe()}",
            rule=f"dst has the permuted shape, {list(shape)}",
            fix="declare or reshape it so",
        )
    if dst._layout.type.stored != src._layout.type.stored:
        raise DTypeError(
            f"{call}: dst is {dst.describe()}, src {src.describe()}",
            rule="a transpose does not convert",
            fix="use tensors of one dtype",
        )
    for which, t in (("dst", dst), ("src", src)):
        if t._layout.space is Space.PSUM:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="a DMA moves data between HBM and SBUF",
                fix="use nisa.nc_transpose",
            )
    out, own = dst._layout, src._layout
    return Recipe(
        "dma_transpose",
        Engine.DMA,
        [(out.shape, out.strides)],
        [(own.shape, own.strides)],
        None,
        TileTranspose(axes=order),
    )


def dma_compute(
    dst: NkiTensor,
    srcs: list[NkiTensor],
    reduce_op: object,
    scales: list[float] | None = None,
    unique_indices: bool = True,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> NkiInstruction:
    """dst = the sum of srcs, inside the DMA engine, in fp32.

    Args:
        dst: a tensor in HBM or SBUF.
        srcs: up to 16 tensors of equally many elements. With a dynamic row for each partition: two,
            one of which is dst, and rows are added to what is there.
        reduce_op: nl.add.
        scales: 1.0 for each source.
        unique_indices: that no row comes twice.
        oob_mode, name: as for `dma_copy`.

    Raises:
        MemorySpaceError: an operand in PSUM, or row numbers that are not in SBUF.
        ShapeError: different numbers of elements.
        DTypeError: a packed type and another one, or row numbers of another type.
        ParameterError: another operator than nl.add, no source or more than 16, a scale other than
            1.0, or rows that may come twice.
    """
    session = current()
    call = "nisa.dma_compute"
    if isinstance(srcs, (int, float)) or reduce_op is None:
        raise ParameterError(
            f"{call}: srcs {srcs!r}", rule="srcs is a list of tensors", fix="pass a list"
        )
    if isinstance(reduce_op, (list, tuple)) and scales is not None and callable(scales):
        reduce_op, scales = scales, reduce_op  # the order before NKI 0.4
    op_name(call, reduce_op, frozenset({"add"}), session.trace.machine)
    if not 1 <= len(srcs) <= 16:
        raise ParameterError(
            f"{call}: {len(srcs)} sources", rule="it adds up 1 to 16", fix="use several calls"
        )
    if scales is not None and any(s != 1.0 for s in scales):
        raise ParameterError(
            f"{call}: scales {scales}",
            rule="each source is added as it is: scales are 1.0",
            fix="multiply on an engine first",
        )
    for which, t in (("dst", dst), *((f"srcs[{i}]", t) for i, t in enumerate(srcs))):
        if t._layout.space is Space.PSUM:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="a DMA moves data between HBM and SBUF",
                fix="copy it to SBUF with nisa.tensor_copy first",
            )
    if any(t._indirect is not None and t._indirect.by_row for t in (dst, *srcs)):
        if not unique_indices:
            raise ParameterError(
                f"{call}: unique_indices=False with row numbers",
                rule="rows are read, added to and written: one that comes twice would lose a sum",
                fix="pass row numbers that differ, with unique_indices=True",
            )
        return add_rows(session, dst, srcs, oob_mode)
    settled = _settled(session, oob_mode, dst, *srcs)
    if settled is None:
        return NkiInstruction()
    dst, *srcs = settled
    if len(srcs) == 1:
        return dma_copy(dst, srcs[0])
    key = ("dma_compute", len(srcs))

    def lower() -> Recipe:
        walks = dma_walks(call, dst, *srcs)
        return Recipe("dma_compute", Engine.DMA, walks[:1], walks[1:])

    return NkiInstruction(session.issue(key, (dst, *srcs), lower))


def assign(dst: NkiTensor, value: object) -> None:
    """`dst[...] = value`: a copy."""
    if not isinstance(value, NkiTensor):
        raise IndexingError(
            f"{value!r} is assigned to a part of {dst.describe()}",
            rule="a tensor is assigned to a part of another one",
            fix="use nisa.memset(dst, value)",
        )
    if value._buffer is dst._buffer and value.offset == dst.offset and value.shape == dst.shape:
        return
    if dst._layout.on_chip and value._layout.on_chip:
        tensor_copy(dst, value)
    else:
        dma_copy(dst, value)


def _transpose_rows(
    session: Session, dst: NkiTensor, src: NkiTensor, axes: Any, mode: Any
) -> NkiInstruction:
    """dst = rows that src picks, transposed: a gather into a tile, and its transpose."""
    rows = make(src.shape, src.dtype, MemoryRegion.sbuf)
    copy_rows(session, rows, src, mode)
    return dma_transpose(dst, rows, axes)


__all__ = ["dma_compute", "dma_copy", "dma_transpose"]
