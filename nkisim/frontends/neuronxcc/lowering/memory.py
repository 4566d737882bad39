"""Allocation: tensors in SBUF, PSUM and HBM."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from nkisim.errors import MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering.numbers import constant
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.tensors.ranges import DynSlice
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Allocation, Buffer, PartitionDim, Space, check_shapes
from nkisim.trace.tracer import current


def par_dim(size: int) -> int:
    """Mark a shape entry as the partition axis: `nl.ndarray((4, nl.par_dim(128), 512), ...)`."""
    return PartitionDim(size)


def ds(start: int, size: int) -> DynSlice:
    """The range `start : start + size`, for indexing."""
    return tuple.__new__(DynSlice, (start, size))  # as DynSlice does, by one call less


def ndarray(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | Allocation | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor that holds nothing yet.

    Args:
        shape: extents; on chip the first, or the one marked by par_dim, is the partition axis.
        dtype: element type.
        buffer: nl.sbuf (when None), nl.psum, nl.private_hbm, nl.hbm or nl.shared_hbm, or an
            allocation of nki.compiler, e.g. ncc.sbuf.mod_alloc(base_addr=0).
        name: for messages and listings.

    Raises:
        TileSizeError: more than 128 partitions, or more bytes than a partition has.
        DTypeError: the NeuronCore has no such type.
    """
    where = _allocation(buffer)
    sizes = check_shapes(shape)
    return current().allocate(
        sizes,
        as_dtype(dtype),
        where.space,
        name=name,
        place=where.place,
        par_axis=0 if sizes is shape else _marked_axis(shape),
    )


def _marked_axis(shape: Any) -> int:
    """The axis that par_dim marks; the first when none is."""
    entries = shape if isinstance(shape, tuple | list) else (shape,)
    marked = [axis for axis, s in enumerate(entries) if isinstance(s, PartitionDim)]
    return marked[0] if marked else 0


def declare(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | Allocation | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A new, uninitialised tensor in the memory that `buffer` names."""
    tensor = ndarray(shape, dtype, buffer=buffer, name=name)
    tensor.buffer.declared = True
    return tensor


declare.__qualname__ = "nl.ndarray"  # as Python's own errors about arguments name it
declare = remembered(declare)


def _allocation(buffer: object) -> Allocation:
    """The Allocation that `buffer=` stands for. Raises MemorySpaceError when it is no memory."""
    if buffer is None:
        return _ANYWHERE[Space.SBUF]
    if isinstance(buffer, Allocation):
        return buffer
    if isinstance(buffer, Buffer):  # `buffer=other.buffer`: where another tensor lives
        return _ANYWHERE[buffer.space]
    if isinstance(buffer, Space):
        return _ANYWHERE[buffer]
    raise MemorySpaceError(
        f"buffer={buffer!r}",
        rule="tensors live in nl.sbuf, nl.psum, nl.private_hbm (nl.hbm) or nl.shared_hbm",
        fix="pass one of these, or an allocation of nki.compiler",
    )


_ANYWHERE = {space: Allocation(space) for space in Space}


@remembered
def full(
    shape: tuple[int, ...],
    fill_value: float,
    dtype: Any,
    *,
    buffer: Space | Allocation | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of one value. Not for HBM, which no engine can fill.

    Raises:
        DTypeError: the value is no number.
        MemorySpaceError: `buffer` is in HBM.
    """
    where = _allocation(buffer)
    if where.place is not None:
        raise MemorySpaceError(
            f"a tensor placed by hand ({where.space.label}) with an initial value",
            rule="a kernel that allocates directly creates its tiles empty",
            fix="create it with nl.ndarray and assign: t[...] = nisa.memset(shape, value, dtype)",
            code="err_tensor_creation_on_scratchpad_with_init_value_not_supported",
        )
    if not where.space.on_chip:
        raise MemorySpaceError(
            f"a tensor in {buffer!r} with an initial value",
            rule="HBM tensors are created empty: only DMA writes HBM",
            fix="create it with nl.ndarray and nl.store the value",
            code="err_hbm_tensor_with_init_value_not_supported",
        )
    tile = declare(shape, dtype, buffer=buffer, name=name)
    # One instruction fills one tile: a tensor with block axes is filled tile by tile.
    blocks = itertools.product(*map(range, tile.shape[: tile.buffer.par_axis]))
    first = next(blocks, None)
    if first is not None:
        part = tile[first] if first else tile
        current().emit("memset", (part,), value=constant("a fill", fill_value, part.dtype))
        inside = part.offsets[len(first) :]
        current().repeat([part.moved(tile.buffer, (*block, *inside)) for block in blocks])
    return tile


@remembered
def zeros(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | Allocation | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of zeros, on chip."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


@remembered
def ones(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | Allocation | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of ones, on chip."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def empty_like(
    a: Tensor, dtype: Any = None, *, buffer: Space | None = None, name: str = "", **kwargs: Any
) -> Tensor:
    """An uninitialised tensor with the shape of `a`, and its dtype unless `dtype` is given."""
    return declare(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def zeros_like(
    a: Tensor, dtype: Any = None, *, buffer: Space | None = None, name: str = "", **kwargs: Any
) -> Tensor:
    """A tensor of zeros of `a`'s shape, and dtype unless given."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def shared_constant(constant: np.ndarray, dtype: Any = None, **kwargs: Any) -> Tensor:
    """An HBM tensor of data known when the kernel is compiled. Load it before use.

    Args:
        constant: the values.
        dtype: element type; the array's when None.

    Raises:
        ParameterError: a tensor of the kernel.
    """
    if isinstance(constant, Tensor):
        raise ParameterError(
            f"nl.shared_constant of {constant.describe()}",
            rule="a constant is an array whose values are known while tracing",
            fix="pass a NumPy array; a tile of the kernel needs no constant",
        )
    values = np.asarray(constant)
    target = as_dtype(values.dtype if dtype is None else dtype, "constant")
    return current().constant(values.astype(target))


def shared_identity_matrix(n: int, dtype: Any = np.uint8, **kwargs: Any) -> Tensor:
    """An (n, n) identity matrix in HBM. Calls with one n and dtype give one tensor.

    Raises:
        ShapeError: n is not a positive integer.
    """
    size = as_int(n)
    if size is None or size < 1:
        raise ShapeError(
            f"nl.shared_identity_matrix({n!r})",
            rule="n is a positive integer",
            fix="use n=128 for a transpose on the Tensor Engine",
        )
    return current().identity(size, as_dtype(dtype))
