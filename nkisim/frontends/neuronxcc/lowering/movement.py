"""Moving tiles: DMA between HBM and SBUF, and copies on chip."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nkisim.errors import (
    IndexingError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
    TileSizeError,
    locate,
)
from nkisim.frontends.neuronxcc.lowering.gather import gather, scatter
from nkisim.frontends.neuronxcc.lowering.memory import full, ndarray
from nkisim.frontends.neuronxcc.lowering.numbers import constant, number
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import (
    as_tile,
    fit,
    require_one_bank,
    require_tensor,
    spread,
)
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.indirect import IndirectTensor
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.reshaping import once
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor, provide_operations
from nkisim.ir.dtypes import INTEGERS, as_dtype
from nkisim.ir.instruction import Engine
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Space, check_shapes
from nkisim.trace.tracer import current


@remembered
def load(src: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """DMA a region of HBM into a new SBUF tile.

    Args:
        src: HBM view of shape (partitions <= 128, free...). Rows may be picked by a tile of
            integers, `x[index_tile, nl.arange(512)[None, :]]`.
        mask: which elements to load; the rest of the tile is undefined.
        dtype: type of the tile; the DMA converts. The source's when None.

    Returns:
        An SBUF tile of `src`'s shape. On-chip tiles have two axes at least, so one-dimensional
        HBM, `x[0:128]` or `x[0:128, 3]`, becomes a column (n, 1), and a single element (1, 1).

    Raises:
        MemorySpaceError: `src` is on chip.
        TileSizeError: more than 128 partitions.
        IndexingError: an index tile that picks along a free axis.
        IndexError: when run, an index tile reaches outside of the tensor.
    """
    if isinstance(src, IndirectTensor):
        _require_hbm("nl.load from", src, "nisa.tensor_copy_dynamic_src")
        rows = _rows_only("nl.load", src)
        return gather(rows, mask=mask, dtype=dtype, skip=_skips("nl.load", **kwargs))
    require_tensor("nl.load", src)
    _require_hbm("nl.load from", src, "nl.copy")
    if src.ndim < 2:
        src = _as_column(src)
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=src.derived_name)
    current().emit("dma_copy", (tile,), (src,), mask=mask)
    return tile


def _skips(what: str, mode: Any = None, **kwargs: Any) -> bool:
    """Whether `mode=` says that indices out of range are passed over, as dma_copy's oob_mode."""
    if mode is None or getattr(mode, "name", mode) in ("error", "skip"):
        return getattr(mode, "name", mode) == "skip"
    raise ParameterError(
        f"{what}: mode={mode!r}",
        rule="it says what happens to indices that are out of range",
        fix="pass nisa.oob_mode.skip or nisa.oob_mode.error",
    )


def _as_column(src: Tensor) -> Tensor:
    """HBM with less than two axes in the shape of the tile it becomes: an element a partition."""
    pmax = current().trace.machine.partitions
    if src.size > pmax:
        raise TileSizeError(
            f"nl.load of {src.describe()}, which has one axis of {src.size} elements",
            rule=f"the first axis is the partition axis, of at most {pmax}: a one-dimensional "
            "load puts one element into each partition",
            fix=f"load it as a row of one partition, x.reshape((1, {src.size})), or divide it",
        )
    while src.ndim < 2:
        src = src.expand_dims(src.ndim)
    return src


@remembered
def store(dst: Tensor, value: Tensor | float, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """DMA an on-chip tile, or a number, into a region of HBM, converting to its type.

    Args:
        dst: HBM view. Rows may be picked by a tile of integers.
        value: tile whose shape broadcasts to `dst`'s, or a number. One-dimensional HBM of n
            elements accepts a column (n, 1) or a row (1, n).
        mask: which elements to store; the others keep their value.

    Raises:
        MemorySpaceError: `dst` is on chip, or `value` is in HBM.
        ShapeError: the shapes do not fit.
        IndexingError: an index tile that picks along a free axis.
        IndexError: when run, an index tile reaches outside of the tensor.
    """
    if isinstance(dst, IndirectTensor):
        _require_hbm("nl.store to", dst, "nisa.tensor_copy_dynamic_dst")
        value = _storable(value, dst, mask)
        value = _fitted("nl.store", value, dst)
        rows = _rows_only("nl.store", dst)
        scatter(rows, value, mask=mask, skip=_skips("nl.store", **kwargs))
        return
    require_tensor("nl.store", dst)
    _require_hbm("nl.store to", dst, "an assignment, tile[...] = value")
    while dst.ndim < 2:  # as a row if the value is one
        row = isinstance(value, Tensor) and dst.ndim == 1 and as_tile(value).shape == (1, dst.size)
        dst = dst.expand_dims(0 if row else dst.ndim)
    value = _storable(value, dst, mask)
    _check_repeats(dst, value)
    current().emit("dma_copy", (dst,), (fit(value, dst, "nl.store"),), mask=mask)


def _check_repeats(dst: Tensor, value: Tensor) -> None:
    """Report a store that writes its elements again and again: an index of nl.mgrid spans axes
    along which it does not move."""
    still = [d for d in range(dst.ndim) if not any([row[d] for row in dst.coefs])]
    times = math.prod([dst.shape[d] for d in still])
    if times < 2:
        return
    axes = range(dst.ndim)
    rows = [f"nl.arange({dst.shape[d]})[{_along(d, dst.ndim)}]" for d in axes if d not in still]
    error = ShapeError(
        f"nl.store of {value.describe()} writes each element of {dst.describe()} {times} times",
        rule="the DMA moves an element for each of the index; indices of nl.mgrid have the "
        "extents of all its axes",
        fix="index with " + (" and ".join(rows) if rows else "slices, i:i + 1"),
        location=locate(),
    )
    current().checker.report("store", error)


def _along(axis: int, ndim: int) -> str:
    return ", ".join([":" if d == axis else "None" for d in range(ndim)])


def _storable(value: object, dst: Tensor | IndirectTensor, mask: Mask | None) -> Tensor:
    """`value` as an SBUF tile."""
    if not isinstance(value, Tensor):
        return full(dst.shape, number(value), dst.dtype)
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"nl.store of {value.describe()}",
            rule="nl.store writes on-chip tiles; a kernel moves HBM data through SBUF",
            fix="nl.load it first, or use nisa.dma_copy",
        )
    if value.space is Space.PSUM:  # DMA reads SBUF, so the tile goes there first
        return copy(value, mask=mask)
    return value


def _require_hbm(what: str, x: Tensor | IndirectTensor, instead: str) -> None:
    if x.space.on_chip:
        raise MemorySpaceError(
            f"{what} {x.describe()}",
            rule="nl.load and nl.store move data between HBM and SBUF",
            fix=f"between on-chip tiles use {instead}; a tensor in HBM is declared with "
            "buffer=nl.shared_hbm",
            code="err_unsupported_memory",
        )


def _rows_only(what: str, x: IndirectTensor) -> IndirectTensor:
    """`x`, whose index tiles pick whole rows. Raises IndexingError otherwise."""
    wide = [t for t in x.tiles if t.size > 1 and t.size != t.shape[0]]
    if x.free or wide:
        raise IndexingError(
            f"{what} of {x.describe()}: the index tile picks along a free axis",
            rule="an index tile picks rows: it has shape (n, 1) and indexes the partition axis, "
            "or it is one number that indexes an axis before it",
            fix="index with nl.arange(n)[:, None] and nl.arange(m)[None, :] (not nl.mgrid), and "
            "put the tile where the partition axis is",
            code="err_indirect_indices_free_dim",
        )
    return x


def _fitted(what: str, value: Tensor, dst: IndirectTensor) -> Tensor:
    if value.space.on_chip:
        value = as_tile(value)
    try:
        return value if value.shape == dst.shape else value.broadcast_to(dst.shape)
    except ShapeError:
        raise ShapeError(
            f"{what}: {value.describe()} does not fit {dst.describe()} of shape {dst.shape}",
            rule="the value's shape equals the target's, or broadcasts to it",
            fix="index the target with the same tile axes as the value",
        ) from None


@remembered
def copy(src: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Copy an on-chip tile into a new SBUF tile, converting to `dtype` if given."""
    return copy_with(None, src, mask=mask, dtype=dtype, left_to_compiler=True)


def copy_with(
    engine: Engine | None,
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    **attrs: bool,
) -> Tensor:
    """`copy` on a given engine; the Vector Engine when None. `attrs` go to the instruction."""
    require_tensor("nl.copy", src)
    src = as_tile(src)
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=src.derived_name)
    # Scalar of NeuronCore-v2 has no bit-exact copy (nisa.tensor_copy, SDK 2.26).
    exact = current().trace.machine.abilities.scalar_copies
    rounds = engine is Engine.SCALAR and not exact and src.dtype in INTEGERS
    if rounds and src.dtype.itemsize == 4:
        attrs["through_fp32"] = True
    current().emit("tensor_copy", (tile,), (src,), mask=mask, engine=engine, **attrs)
    return tile


def dma_copy(
    dst: Tensor | IndirectTensor,
    src: Tensor | IndirectTensor,
    *,
    mask: Mask | None = None,
    accumulate: bool = False,
    skip: bool = False,
    descriptors: str = "",
) -> None:
    """Lower nisa.dma_copy.

    Args:
        dst, src: HBM or SBUF, of one shape; either may be indexed with tiles.
        mask: which elements to move.
        accumulate: add to `dst` instead of overwriting it.
        skip: leave out the elements whose index is out of range; else they are an error.
        descriptors: who generates them, a member of nisa.dge_mode; "" if the compiler chooses.
    """
    for name, x in (("dst", dst), ("src", src)):
        if not isinstance(x, IndirectTensor):
            require_tensor(f"nisa.dma_copy {name}", x)
        if x.space is Space.PSUM:
            raise MemorySpaceError(
                f"nisa.dma_copy {name} is {x.describe()}",
                rule="DMA moves data between HBM and SBUF",
                fix="copy the PSUM tile into SBUF with nisa.tensor_copy",
                code="err_unsupported_memory",
            )
    if isinstance(src, IndirectTensor):
        if not isinstance(dst, IndirectTensor) and not accumulate:
            gather(src, out=_same_shape(dst, src.shape), mask=mask, skip=skip)
            return
        src = gather(src, mask=mask, skip=skip)
    if isinstance(dst, IndirectTensor):
        value = _fitted("nisa.dma_copy", src, dst)
        scatter(dst, value, mask=mask, skip=skip, accumulate=accumulate)
        return
    value = src if src.shape == dst.shape else _same_shape(src, dst.shape)
    if accumulate:
        current().emit("dma_compute", (dst,), (dst, value), mask=mask)
    elif descriptors:
        current().emit("dma_copy", (dst,), (value,), mask=mask, descriptors=descriptors)
    else:
        current().emit("dma_copy", (dst,), (value,), mask=mask)


def _same_shape(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`x` with axes `shape`; a DMA sees elements in order, so equal sizes will do."""
    if x.shape == shape:
        return x
    if x.size != int(np.prod(shape)):
        raise ShapeError(
            f"nisa.dma_copy between {x.describe()} and shape {shape}",
            rule="source and destination have the same number of elements",
            fix="index both with the same tile axes",
        )
    return x.reshape(shape)


TRANSPOSES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}


def dma_transpose(
    what: str,
    src: Tensor,
    *,
    axes: tuple[int, ...] | None = None,
    mask: Mask | None = None,
    dtype: Any = None,
) -> Tensor:
    """Transpose through DMA into a new SBUF tile.

    Args:
        what: the API function, for messages.
        src: HBM or SBUF, 2 to 4 axes.
        axes: the permutation, one of TRANSPOSES; by the number of axes when None.
        mask: which elements of `src` to move.
        dtype: type of the tile; the source's when None.
    """
    if isinstance(src, IndirectTensor):
        raise IndexingError(
            f"{what} of {src.describe()}",
            rule=f"{what} takes no index tiles",
            fix="gather with nl.load or nisa.dma_copy first, then transpose the tile",
            code="err_indirect_indices_are_not_supported_with_nki_api",
        )
    require_tensor(what, src)
    if src.ndim not in TRANSPOSES or src.space is Space.PSUM:
        raise ShapeError(
            f"{what} of {src.describe()} with {src.ndim} axes",
            rule=f"{what} takes an HBM or SBUF tensor of 2, 3 or 4 axes",
            fix="reshape it, or copy a PSUM tile into SBUF first",
        )
    order = TRANSPOSES[src.ndim]
    if axes is not None and tuple(axes) != order:
        raise ParameterError(
            f"{what}: axes={tuple(axes)} of {src.describe()}",
            rule="the permutation is " + ", ".join(f"{v} for {k}-D" for k, v in TRANSPOSES.items()),
            fix=f"pass axes={order}, or leave it out",
        )
    kind = src.dtype if dtype is None else as_dtype(dtype)
    tile = ndarray(tuple(src.shape[d] for d in order), kind, name=src.derived_name)
    out, where = tile, None
    if mask is not None:
        left = restriction(mask, src.shape)
        if left.empty:
            return tile
        src = src.restrict(left.box)
        out = tile.restrict(tuple(left.box[d] for d in order))
        where = None if left.dense is None else left.dense.transpose(order)
    current().emit("dma_transpose", (out,), (src,), where_out=where, axes=order)
    return tile


@remembered
def load_transpose2d(
    src: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """DMA a two-dimensional region of HBM into SBUF, transposed.

    Args:
        src: HBM view (free, partitions <= 128).
        mask: which elements of `src` to load.
        dtype: type of the tile; the source's when None.

    Returns:
        An SBUF tile (partitions, free).

    Raises:
        ShapeError: `src` has not two axes.
        MemorySpaceError: `src` is on chip.
        IndexingError: `src` is indexed with a tile.
    """
    if not isinstance(src, IndirectTensor):
        require_tensor("nl.load_transpose2d", src)
        _require_hbm("nl.load_transpose2d from", src, "nisa.nc_transpose")
        if src.ndim != 2:
            raise ShapeError(
                f"nl.load_transpose2d of {src.describe()} with {src.ndim} axes",
                rule="it transposes two axes",
                fix="index the others with integers",
            )
    return dma_transpose("nl.load_transpose2d", src, mask=mask, dtype=dtype)


@remembered
def broadcast_to(src: Tensor, *, shape: tuple[int, ...], **kwargs: Any) -> Tensor:
    """`src` broadcast to `shape`. Along free axes a view; along partitions a copy.

    Raises:
        ShapeError: an axis is neither equal nor 1.
    """
    require_tensor("nl.broadcast_to", src)
    sizes = check_shapes(shape)
    return spread(as_tile(src) if len(sizes) > 1 and src.space.on_chip else src, sizes)


def expand_dims(data: Tensor, axis: int) -> Tensor:
    """A view of a tile with a size-1 free axis behind its last one.

    Args:
        data: a tensor.
        axis: its number of axes, or -1.

    Raises:
        ParameterError: another axis.
    """
    require_tensor("nl.expand_dims", data)
    if as_int(axis) not in (data.ndim, -1):
        raise ParameterError(
            f"nl.expand_dims of {data.describe()} at axis {axis!r}",
            rule="the new axis is a free one, behind the last axis of the tile",
            fix=f"pass axis={data.ndim}; elsewhere index with None, or use tile.expand_dims",
        )
    return data.expand_dims(axis)


def device_print(prefix: str, x: Tensor, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """Print `prefix` and a tile's values when the kernel runs (on the simulator only)."""
    require_tensor("nl.device_print", x)
    current().emit("device_print", (), (x,), mask=mask, prefix=prefix)


def _assign(target: Tensor, value: Tensor | float) -> None:
    """`target[...] = value` for on-chip tiles.

    An operation that ran under a mask defines a part of its result; only that part is assigned,
    as it would be if the operation wrote into the target, which on hardware it does.
    """
    if isinstance(target, IndirectTensor) or isinstance(value, IndirectTensor):
        raise IndexingError(
            "a tile indexed with another tile is assigned",
            rule="indices known only at run time need an instruction that takes them",
            fix="use nisa.tensor_copy_dynamic_src(data[..., index, ...]) for reading, and "
            "nisa.tensor_copy_dynamic_dst(dst=..., src=...) for writing",
            code="err_copy_dynamic_indirect_indices_not_natively_supported",
        )
    if not target.space.on_chip:
        raise MemorySpaceError(
            f"assignment to {target.describe()}",
            rule="HBM is written by DMA",
            fix="use nl.store(tensor[...], value)",
        )
    if not isinstance(value, Tensor):
        tile = as_tile(target)
        filled = constant("an assignment", value, tile.dtype)
        current().emit("memset", (tile,), value=filled)
        return
    tracer = current()
    write = tracer.unassigned.pop(value.buffer.number, None)
    if write is not None:
        write(as_tile(target))
        return
    checker = tracer.checker
    if target.space is Space.PSUM:
        _refuse_gpsimd(target, value)
        if _is_product(value):
            require_one_bank(target)
    if checker.is_known(value):
        _assign_whole(target, value)
        return
    if checker.left_out(value):
        if checker.untouched(target):
            checker.on_masked_off((target,))
        return
    if checker.defined_part(value) is None:
        _assign_whole(target, value)
        return
    target, value = _alike(target, value)
    left, where = checker.defined_part(value), None
    if left is not None:
        target, value, where = target.restrict(left.box), value.restrict(left.box), left.dense
    tracer.emit("tensor_copy", (target,), (value,), where=where, assign=True)


@remembered
def _assign_whole(target: Tensor, value: Tensor) -> None:
    target, value = _alike(target, value)
    current().emit("tensor_copy", (target,), (value,), assign=True)


def _alike(target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of an assignment in one shape.

    Raises:
        MemorySpaceError: the value is in HBM.
        ShapeError: it does not fit.
    """
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"assignment of {value.describe()} to a tile",
            rule="HBM is read by DMA",
            fix="nl.load it first",
        )
    target = as_tile(target)
    if value.size > target.size:
        raise ShapeError(
            f"{value.describe()} is assigned to {target.describe()}, which is smaller",
            rule="the target of an assignment has the value's shape, or a larger one that the "
            "value broadcasts to",
            fix="index the part of the value that is meant, or assign to a larger part",
            code="err_store_dst_shape_smaller_than_other_shape",
        )
    if value.ndim != target.ndim and value.size == target.size:
        value = as_tile(value).reshape(target.shape)
    target, value = _once(target, value)
    return target, fit(value, target, "assignment")


def _refuse_gpsimd(target: Tensor, value: Tensor) -> None:
    """`target[...] = nisa.f(..., engine=gpsimd)`: GpSimd is to write PSUM, and cannot. Of a tile
    that was made before, another engine copies."""
    made = current().trace.instructions[-1:]
    if (
        made
        and made[0].engine is Engine.GPSIMD
        and made[0].engine_asked
        and made[0].location == locate()
        and any(t.buffer is value.buffer for t in made[0].outs)
    ):
        current().checker.report(
            "memory",
            MemorySpaceError(
                f"{made[0].label} on the GpSimd Engine is to write {target.describe()}",
                rule="the GpSimd Engine cannot access PSUM",
                fix="use the Vector or the Scalar Engine, or a target in SBUF",
            ),
        )


def _is_product(value: Tensor) -> bool:
    """Whether the Tensor Engine made a tile: it then writes what the tile is assigned to."""
    if value.space is not Space.PSUM or value.buffer.declared:
        return False
    made = (i for i in reversed(current().trace.instructions) if i.outs)
    return any(i.engine is Engine.TENSOR for i in made if i.outs[0].buffer is value.buffer)


def _once(target: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Both sides of an assignment without what each repeats, where the value still fits."""
    few, least = once(target), once(value)
    if few is target or least.ndim != few.ndim:
        return target, value
    fits = all(n in (1, m) for n, m in zip(least.shape, few.shape, strict=True))
    return (few, least) if fits else (target, value)


provide_operations({"copy": copy, "assign": _assign})
