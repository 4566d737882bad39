"""Checking and broadcasting the operands of an operation."""

from __future__ import annotations

import numpy as np

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError
from nkisim.index import IndexTensor
from nkisim.lowering.memory import ndarray
from nkisim.tensor import Tensor
from nkisim.trace import current


def number(value: object) -> object:
    """`value`, a Python or NumPy number. Raises DTypeError for anything else."""
    if isinstance(value, IndexTensor):
        raise DTypeError(
            "an index tensor is used as data",
            rule="nl.arange and nl.mgrid describe addresses; they are not memory",
            fix="materialise it as a tile with nisa.iota",
        )
    if not np.isscalar(value) or isinstance(value, str | bytes | complex):
        raise DTypeError(
            f"operand {brief(value)} is neither a tile nor a number",
            rule="operands are on-chip tiles, Python numbers or NumPy scalars",
            fix="pass arrays as kernel arguments and nl.load them",
        )
    return value


def require_tensor(what: str, x: object) -> None:
    """Raises ParameterError unless `x` is a Tensor; `what` names the function."""
    if not isinstance(x, Tensor):
        raise ParameterError(
            f"{what} is given {brief(x)}",
            rule=f"{what} takes an NKI tensor",
            fix="pass a kernel argument, an nl.ndarray or a tile",
        )


def brief(x: object) -> str:
    """An argument, short enough for a message."""
    shape = getattr(x, "shape", None)
    kind = type(x).__name__
    return f"{x!r} ({kind})" if shape is None else f"a {kind} of shape {tuple(shape)}"


def require_on_chip(op: str, tile: Tensor) -> None:
    """Raises MemorySpaceError when `tile` is in HBM; `op` names the function."""
    if not tile.space.on_chip:
        raise MemorySpaceError(
            f"nl.{op} is given {tile.describe()}",
            rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
            fix="nl.load the tensor into SBUF first",
        )


def spread(tile: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tile` with the shape of the iteration domain: a view, or a copy across partitions."""
    if tile.shape == shape:
        return tile
    wide = tile.broadcast_to(shape)
    if tile.ndim == len(shape) and tile.shape[0] == shape[0]:
        return wide
    row = (shape[0],) + (tile.shape[1:] if tile.ndim == len(shape) else shape[1:])
    spread = ndarray(row, tile.dtype, name=derived_name(tile))
    current().emit("partition_broadcast", (spread,), (tile.broadcast_to(row),))
    return spread.broadcast_to(shape)


def fit(value: Tensor, target: Tensor, what: str) -> Tensor:
    """`value` broadcast to the shape of `target`."""
    if value.shape == target.shape:
        return value
    try:
        return spread(value, target.shape)
    except ShapeError:
        raise ShapeError(
            f"{what}: {value.describe()} does not fit {target.describe()}",
            rule="the value's shape equals the target's, or broadcasts to it",
            fix="index the target with the same tile axes as the value",
        ) from None


def derived_name(src: Tensor) -> str:
    """A name for a tile that holds part of `src`, for messages."""
    return f"{src.name}_tile" if src.name else ""
