"""Moving tiles: DMA between HBM and SBUF, and copies on chip."""

from __future__ import annotations

from typing import Any

from nkisim.errors import MemorySpaceError
from nkisim.index import Mask
from nkisim.instruction import Engine
from nkisim.kernel import check_shapes
from nkisim.lowering.memory import full, ndarray
from nkisim.lowering.operands import as_tile, derived_name, fit, number, require_tensor, spread
from nkisim.memory import Space
from nkisim.tensor import Tensor, provide_operations
from nkisim.trace import current


def load(src: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """DMA a region of HBM into a new SBUF tile.

    Args:
        src: HBM view of shape (partitions <= 128, free...).
        mask: which elements to load; the rest of the tile is undefined.
        dtype: type of the tile; the DMA converts. The source's when None.

    Returns:
        An SBUF tile of `src`'s shape.

    Raises:
        MemorySpaceError: `src` is on chip.
        TileSizeError: more than 128 partitions.
    """
    require_tensor("nl.load", src)
    if src.space.on_chip:
        raise MemorySpaceError(
            f"nl.load from {src.describe()}",
            rule="nl.load moves data from HBM to SBUF",
            fix="use the tile directly, or copy it with nl.copy",
        )
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=derived_name(src))
    current().emit("dma_copy", (tile,), (src,), mask=mask)
    return tile


def store(dst: Tensor, value: Tensor | float, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """DMA an on-chip tile, or a number, into a region of HBM, converting to its type.

    Args:
        dst: HBM view.
        value: tile whose shape broadcasts to `dst`'s, or a number.
        mask: which elements to store; the others keep their value.

    Raises:
        MemorySpaceError: `dst` is on chip, or `value` is in HBM.
        ShapeError: the shapes do not fit.
    """
    require_tensor("nl.store", dst)
    if dst.space.on_chip:
        raise MemorySpaceError(
            f"nl.store to {dst.describe()}",
            rule="nl.store moves data from SBUF to HBM",
            fix="assign on-chip tiles with tile[...] = value",
        )
    if not isinstance(value, Tensor):
        value = full(dst.shape, number(value), dst.dtype)
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"nl.store of {value.describe()}",
            rule="nl.store writes on-chip tiles; a kernel moves HBM data through SBUF",
            fix="nl.load it first",
        )
    if value.space is Space.PSUM:  # DMA reads SBUF, so the tile goes there first
        value = copy(value, mask=mask)
    current().emit("dma_copy", (dst,), (fit(value, dst, "nl.store"),), mask=mask)


def copy(
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: Engine | None = None,
    **kwargs: Any,
) -> Tensor:
    """Copy an on-chip tile into a new SBUF tile, converting to `dtype` if given."""
    require_tensor("nl.copy", src)
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=derived_name(src))
    current().emit("tensor_copy", (tile,), (src,), mask=mask, engine=engine)
    return tile


def broadcast_to(src: Tensor, *, shape: tuple[int, ...], **kwargs: Any) -> Tensor:
    """`src` broadcast to `shape`. Along free axes a view; along partitions a copy.

    Raises:
        ShapeError: an axis is neither equal nor 1.
    """
    require_tensor("nl.broadcast_to", src)
    return spread(src, check_shapes(shape))


def expand_dims(data: Tensor, axis: int) -> Tensor:
    """A view of a tile with a size-1 free axis at `axis`."""
    require_tensor("nl.expand_dims", data)
    return data.expand_dims(axis)


def device_print(prefix: str, x: Tensor, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """Print `prefix` and a tile's values when the kernel runs (on the simulator only)."""
    require_tensor("nl.device_print", x)
    current().emit("device_print", (), (x,), mask=mask, prefix=prefix)


def _assign(target: Tensor, value: Tensor | float) -> None:
    """`target[...] = value` for on-chip tiles."""
    if not target.space.on_chip:
        raise MemorySpaceError(
            f"assignment to {target.describe()}",
            rule="HBM is written by DMA",
            fix="use nl.store(tensor[...], value)",
        )
    if not isinstance(value, Tensor):
        current().emit("memset", (target,), value=number(value))
        return
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"assignment of {value.describe()} to a tile",
            rule="HBM is read by DMA",
            fix="nl.load it first",
        )
    target = as_tile(target)
    current().emit("tensor_copy", (target,), (fit(value, target, "assignment"),))


provide_operations({"copy": copy, "assign": _assign})
