"""Gather and scatter: accesses whose addresses a tile holds."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import DTypeError, IndexingError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering.memory import full, ndarray
from nkisim.frontends.neuronxcc.lowering.numbers import number
from nkisim.frontends.neuronxcc.lowering.operands import as_tile, require_tile
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.indirect import IndirectTensor
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.instruction import Engine
from nkisim.trace.tracer import current


def gather(
    src: IndirectTensor,
    *,
    out: Tensor | None = None,
    mask: Mask | None = None,
    dtype: Any = None,
    skip: bool = False,
    opcode: str = "dma_gather",
    engine: Engine | None = None,
) -> Tensor:
    """Copy what `src` picks into `out`, or into a new SBUF tile.

    Args:
        src: what to read.
        out: where to write, of `src`'s shape.
        mask: which elements to copy.
        dtype: type of the new tile; the source's when None.
        skip: leave the elements whose index is out of range as they are; else they are an error.
        opcode: the instruction.
        engine: the engine; the opcode's when None.
    """
    if out is None:
        kind = src.dtype if dtype is None else as_dtype(dtype)
        out = ndarray(src.shape, kind, name=src.region.derived_name)
    target, where = out, None
    if mask is not None:
        left = restriction(mask, src.shape)
        if left.empty:
            return out
        src, target, where = src.restrict(left.box), out.restrict(left.box), left.dense
    current().emit(
        opcode,
        (target,),
        (src.region, *src.tiles),
        where_out=where,
        engine=engine,
        walked=src.walked,
        affines=_settings(src),
        skip=skip,
    )
    return out


def scatter(
    dst: IndirectTensor,
    value: Tensor,
    *,
    mask: Mask | None = None,
    skip: bool = False,
    accumulate: bool = False,
    opcode: str = "dma_scatter",
    engine: Engine | None = None,
) -> None:
    """Write `value` where `dst` picks.

    Args:
        dst: what to write.
        value: a tile of `dst`'s shape.
        mask: which elements to write.
        skip: leave out the elements whose index is out of range; else they are an error.
        accumulate: add to what is there; repeated indices add up.
        opcode: the instruction.
        engine: the engine; the opcode's when None.
    """
    where = None
    if mask is not None:
        left = restriction(mask, dst.shape)
        if left.empty:
            return
        dst, value, where = dst.restrict(left.box), value.restrict(left.box), left.dense
    old = (dst.region,) if accumulate else ()
    current().emit(
        opcode + "_add" if accumulate else opcode,
        (dst.region,),
        (*old, value, *dst.tiles),
        where=where,
        engine=engine,
        walked=dst.walked,
        affines=_settings(dst),
        skip=skip,
    )


def _settings(x: IndirectTensor) -> tuple:
    """The affine parts of the indices, as compile-time settings of an instruction."""
    return tuple((i.shape, i.coefs, i.offset) for i in x.affines)


def atomic_rmw(
    dst: IndirectTensor, value: Tensor | float, op: Any, *, mask: Mask | None = None, **kwargs: Any
) -> None:
    """`dst = op(dst, value)` on HBM, one element at a time.

    Args:
        dst: HBM tensor indexed with an SBUF tile of shape (n, 1).
        value: SBUF tile of `dst`'s shape, or a number.
        op: np.add (nl.add).
        mask: which elements to update.

    Raises:
        ParameterError: `dst` is not indexed with a tile, or `op` is not an addition.
        MemorySpaceError: `dst` is on chip.
        ShapeError: `value` does not fit.
        IndexError: when run, an index is out of range.
    """
    if not isinstance(dst, IndirectTensor):
        raise ParameterError(
            f"nl.atomic_rmw to {dst!r}",
            rule="the destination is HBM indexed with a tile, x[index_tile, i_f]",
            fix="load, add and store when the addresses are known while tracing",
        )
    require_add("nl.atomic_rmw op", op)
    if dst.space.on_chip:
        raise MemorySpaceError(
            f"nl.atomic_rmw to {dst.describe()}",
            rule="atomic updates are made by DMA in HBM",
            fix="add on-chip tiles with nl.add",
        )
    if not isinstance(value, Tensor):
        value = full(dst.shape, number(value), dst.dtype)
    elif value.space.on_chip:
        value = as_tile(value)
    if value.shape != dst.shape:
        try:
            value = value.broadcast_to(dst.shape)
        except ShapeError:
            raise ShapeError(
                f"nl.atomic_rmw of {value.describe()} into shape {dst.shape}",
                rule="the value's shape equals the target's, or broadcasts to it",
                fix="index the target with the same tile axes as the value",
            ) from None
    scatter(dst, value, mask=mask, accumulate=True)


def require_add(what: str, op: Any) -> None:
    """Raises ParameterError unless `op` is np.add or nl.add."""
    if getattr(op, "__name__", None) != "add":
        raise ParameterError(
            f"{what} is {op!r}",
            rule="DMA engines add; they have no other operator",
            fix="pass op=np.add or nl.add",
        )


def tensor_copy_dynamic_src(
    src: IndirectTensor, *, mask: Mask | None, dtype: Any, engine: Engine | None
) -> Tensor:
    """Lower nisa.tensor_copy_dynamic_src: an on-chip copy from run-time offsets."""
    _require_dynamic("nisa.tensor_copy_dynamic_src src", src)
    return gather(src, mask=mask, dtype=dtype, opcode="tensor_copy_dynamic_src", engine=engine)


def tensor_copy_dynamic_dst(
    dst: IndirectTensor, src: Tensor, *, mask: Mask | None, engine: Engine | None
) -> None:
    """Lower nisa.tensor_copy_dynamic_dst: an on-chip copy to run-time offsets."""
    _require_dynamic("nisa.tensor_copy_dynamic_dst dst", dst)
    value = require_tile("nisa.tensor_copy_dynamic_dst src", src)
    if value.size != int(np.prod(dst.shape)) or value.shape[0] != dst.shape[0]:
        raise ShapeError(
            f"nisa.tensor_copy_dynamic_dst of {value.describe()} to shape {dst.shape}",
            rule="source and destination have the same partitions and elements a partition",
            fix="index both with the same tile axes",
        )
    value = value.reshape(dst.shape)
    scatter(dst, value, mask=mask, opcode="tensor_copy_dynamic_dst", engine=engine)


def _require_dynamic(what: str, x: object) -> None:
    if not isinstance(x, IndirectTensor):
        raise ParameterError(
            f"{what} is {x!r}",
            rule="it is an on-chip tile with a run-time offset: t[i_p, index[0, i] + i_f]",
            fix="use nisa.tensor_copy when the offset is known while tracing",
        )
    if not x.space.on_chip:
        raise MemorySpaceError(
            f"{what} is {x.describe()}",
            rule="the engines reach SBUF and PSUM only",
            fix="use nisa.dma_copy, which moves data between HBM and SBUF at such an offset, too",
            code="err_unsupported_memory",
        )
    if any(t.size > 1 and t.shape[0] > 1 for t in x.tiles):
        raise IndexingError(
            f"{what} is {x.describe()}, with an offset of its own in each partition",
            rule="the offset is one number (or one for each free coordinate), the same for all "
            "partitions; one call an offset",
            fix="for offsets that differ by partition, "
            + (
                "gather with nl.gather_flattened or nisa.local_gather"
                if what.endswith("src")
                else "choose with nl.where, by nisa.iota of the columns compared with the offsets"
            ),
        )


def gather_flattened(
    data: Tensor,
    indices: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """In each partition, the elements of `data` (free axes flattened) that `indices` picks.

    Args:
        data: on-chip tile of 2 to 4 axes.
        indices: on-chip tile of uint32, 2 to 4 axes, with `data`'s partitions.
        mask: which elements of the result to compute.
        dtype: type of the result; `data`'s when None.

    Returns:
        An SBUF tile of the shape of `indices`.

    Raises:
        ShapeError: the number of axes, or the partitions, do not fit.
        DTypeError: `indices` is not uint32.
        IndexError: when run, an index is out of range (hardware would return garbage).
    """
    data = require_tile("nl.gather_flattened data", data)
    indices = require_tile("nl.gather_flattened indices", indices)
    if not (2 <= data.ndim <= 4 and 2 <= indices.ndim <= 4) or data.shape[0] != indices.shape[0]:
        raise ShapeError(
            f"nl.gather_flattened of {data.describe()} with {indices.describe()}",
            rule="data and indices have 2 to 4 axes and the same partitions",
            fix="reshape the free axes",
        )
    if indices.dtype != np.uint32:
        raise DTypeError(
            f"nl.gather_flattened with {indices.describe()} of {indices.dtype}",
            rule="indices are uint32",
            fix="make them with dtype=nl.uint32",
        )
    out = ndarray(indices.shape, data.dtype if dtype is None else dtype)
    target, source = out, data
    if mask is not None:
        left = restriction(mask, indices.shape)
        if left.empty:
            return out
        target, indices = out.restrict(left.box), indices.restrict(left.box)
        source = data.restrict((left.box[0], *((0, n) for n in data.shape[1:])))
        current().emit("gather_flattened", (target,), (source, indices), where_out=left.dense)
        return out
    current().emit("gather_flattened", (target,), (source, indices))
    return out


_CORE_PARTITIONS = 16  # SBUF partitions that one of the eight GpSimd cores reaches


def local_gather(
    src_buffer: Tensor,
    index: Tensor,
    num_elem_per_idx: int,
    num_valid_indices: int | None,
    *,
    mask: Mask | None,
) -> Tensor:
    """Lower nisa.local_gather. See `nkisim.frontends.neuronxcc.nki.isa`."""
    data = require_tile("nisa.local_gather src_buffer", src_buffer)
    index = require_tile("nisa.local_gather index", index)
    rows = data.shape[0]
    if rows != index.shape[0] or rows % _CORE_PARTITIONS:
        raise ShapeError(
            f"nisa.local_gather of {data.describe()} with {index.describe()}",
            rule="both have the same number of partitions, a multiple of 16",
            fix="give both 16, 32, ... 128 partitions: the 16 of a group share their indices",
        )
    if index.dtype != np.uint16:
        raise DTypeError(
            f"nisa.local_gather with {index.describe()} of {index.dtype}",
            rule="indices are uint16",
            fix="make them with dtype=nl.uint16",
        )
    width = index.size // rows
    most = width * _CORE_PARTITIONS
    if num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
        raise ParameterError(
            f"nisa.local_gather num_elem_per_idx={num_elem_per_idx!r}",
            rule="1, 2, 4, 8, 16 or 32 elements are read at an index",
            fix="pass one of these",
        )
    count = most if num_valid_indices is None else num_valid_indices
    if not 0 < count <= most or count > 4096:
        raise ParameterError(
            f"nisa.local_gather num_valid_indices={count} of {most} indices a core",
            rule="a GpSimd core gathers at most 4096 indices, and at most those it is given",
            fix="leave num_valid_indices out, or pass at most "
            f"{min(most, 4096)}; gather more in several calls",
        )
    grouped = (rows, width, _CORE_PARTITIONS, num_elem_per_idx)
    shape = grouped if count == most else (rows, count, num_elem_per_idx)
    out = ndarray(shape, data.dtype)
    if mask is not None and restriction(mask, shape).empty:
        return out
    left = None if mask is None else restriction(mask, shape)
    if left is not None and any(lo for lo, _ in left.box):
        raise IndexingError(
            f"nisa.local_gather with mask={mask!r}",
            rule="its mask may cut off the end of the result",
            fix="mask with < only",
        )
    target = out if left is None else out.restrict(left.box)
    current().emit(
        "local_gather",
        (target,),
        (data, index),
        where_out=None if left is None else left.dense,
        elements=num_elem_per_idx,
        count=count,
    )
    return out
