"""Allocation: tensors in SBUF, PSUM and HBM."""

from __future__ import annotations

from typing import Any

from nkisim.dtypes import as_dtype
from nkisim.errors import MemorySpaceError
from nkisim.index import DynSlice
from nkisim.kernel import check_shapes
from nkisim.memory import Space
from nkisim.tensor import Tensor
from nkisim.trace import current


class _PartitionDim(int):
    """A shape entry marked as the partition axis."""


def par_dim(size: int) -> int:
    """Mark a shape entry as the partition axis: `nl.ndarray((4, nl.par_dim(128), 512), ...)`."""
    return _PartitionDim(size)


def ds(start: int, size: int) -> DynSlice:
    """The range `start : start + size`, for indexing."""
    return DynSlice(start, size)


def ndarray(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor that holds nothing yet.

    Args:
        shape: extents; on chip the first, or the one marked by par_dim, is the partition axis.
        dtype: element type.
        buffer: nl.sbuf (when None), nl.psum, nl.private_hbm, nl.hbm or nl.shared_hbm.
        name: for messages and listings.

    Raises:
        TileSizeError: more than 128 partitions, or more bytes than a partition has.
        DTypeError: the NeuronCore has no such type.
    """
    space = Space.SBUF if buffer is None else buffer
    if not isinstance(space, Space):
        raise MemorySpaceError(
            f"buffer={buffer!r}",
            rule="tensors live in nl.sbuf, nl.psum, nl.private_hbm (nl.hbm) or nl.shared_hbm",
            fix="pass one of these",
        )
    entries = shape if isinstance(shape, tuple | list) else (shape,)
    marked = [axis for axis, s in enumerate(entries) if isinstance(s, _PartitionDim)]
    return current().allocate(
        check_shapes(shape),
        as_dtype(dtype),
        space,
        name=name,
        par_axis=marked[0] if marked else 0,
    )


def full(
    shape: tuple[int, ...],
    fill_value: float,
    dtype: Any,
    *,
    buffer: Space | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of one value. Not for HBM, which no engine can fill.

    Raises:
        MemorySpaceError: `buffer` is in HBM.
    """
    if isinstance(buffer, Space) and not buffer.on_chip:
        raise MemorySpaceError(
            f"a tensor in {buffer!r} with an initial value",
            rule="HBM tensors are created empty: only DMA writes HBM",
            fix="create it with nl.ndarray and nl.store the value",
            code="err_hbm_tensor_with_init_value_not_supported",
        )
    tile = ndarray(shape, dtype, buffer=buffer, name=name)
    current().emit("memset", (tile,), value=fill_value)
    return tile


def zeros(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of zeros, on chip."""
    return full(shape, 0, dtype, buffer=buffer, name=name)


def ones(
    shape: tuple[int, ...],
    dtype: Any,
    *,
    buffer: Space | None = None,
    name: str = "",
    **kwargs: Any,
) -> Tensor:
    """A tensor of ones, on chip."""
    return full(shape, 1, dtype, buffer=buffer, name=name)


def empty_like(
    a: Tensor, dtype: Any = None, *, buffer: Space | None = None, name: str = "", **kwargs: Any
) -> Tensor:
    """A tensor of `a`'s shape, and dtype unless given, that holds nothing yet."""
    return ndarray(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)


def zeros_like(
    a: Tensor, dtype: Any = None, *, buffer: Space | None = None, name: str = "", **kwargs: Any
) -> Tensor:
    """A tensor of zeros of `a`'s shape, and dtype unless given."""
    return zeros(a.shape, a.dtype if dtype is None else dtype, buffer=buffer, name=name)
