"""`neuronxcc.nki.language`: memory, indices, loops, loads, stores and elementwise mathematics.

Every function lowers to instructions through `trace.current().emit`; nothing is computed here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from nkisim import alu
from nkisim.dtypes import (
    BOOL,
    F32,
    INTEGERS,
    as_dtype,
    bfloat16,
    bool_,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    promote,
    uint8,
    uint16,
    uint32,
    weak_scalar_dtype,
)
from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
)
from nkisim.grid import NeuronCores, SpmdDim
from nkisim.index import DynSlice, IndexTensor, Mask, MGrid, _as_int, arange, broadcast_shapes
from nkisim.instruction import Engine
from nkisim.kernel import check_shapes
from nkisim.machine import TARGET
from nkisim.memory import Space
from nkisim.tensor import Tensor, provide_operations
from nkisim.trace import current, tracing

__all__ = [
    "affine_range",
    "arange",
    "bfloat16",
    "bool_",
    "broadcast_to",
    "copy",
    "device_print",
    "ds",
    "empty_like",
    "expand_dims",
    "float8_e4m3",
    "float8_e5m2",
    "float16",
    "float32",
    "full",
    "hbm",
    "int8",
    "int16",
    "int32",
    "load",
    "mgrid",
    "nc",
    "ndarray",
    "num_programs",
    "ones",
    "par_dim",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "sbuf",
    "sequential_range",
    "shared_hbm",
    "spmd_dim",
    "static_range",
    "store",
    "tile_size",
    "uint8",
    "uint16",
    "uint32",
    "where",
    "zeros",
    "zeros_like",
]

sbuf = Space.SBUF
psum = Space.PSUM
private_hbm = Space.PRIVATE_HBM
hbm = Space.PRIVATE_HBM
shared_hbm = Space.SHARED_HBM

mgrid = MGrid()


class tile_size:
    """Limits of a tile, from the table of the NeuronCore generation."""

    pmax = TARGET.partitions
    psum_fmax = TARGET.psum_fmax
    gemm_stationary_fmax = TARGET.gemm_stationary_fmax
    gemm_moving_fmax = TARGET.gemm_moving_fmax
    bn_stats_fmax = TARGET.bn_stats_fmax
    total_available_sbuf_size = TARGET.sbuf_usable_bytes


# -- launch grid


def nc(count: int) -> NeuronCores:
    """Mark a launch-grid dimension as spread over `count` physical NeuronCores."""
    return NeuronCores(count)


def spmd_dim(*parts: int | NeuronCores) -> SpmdDim:
    """One launch-grid dimension made of sub-dimensions, the last varying fastest.

    `spmd_dim(nc(2), n)` gives each core a block of `n` instances; `spmd_dim(n, nc(2))` deals
    instances to the cores in turn.
    """
    return SpmdDim(parts)


def program_id(axis: int) -> int:
    """Index of this kernel instance along launch-grid dimension `axis`."""
    tracer = current()
    _check_grid_axis("program_id", axis)
    return tracer.trace.grid.coordinates(tracer.program)[axis]


def num_programs(axes: int | tuple[int, ...] | None = None) -> int | tuple[int, ...]:
    """Number of kernel instances along launch-grid dimension `axes`; of all when None."""
    grid = current().trace.grid
    if axes is None:
        return grid.size
    if isinstance(axes, tuple | list):
        return tuple(num_programs(a) for a in axes)
    _check_grid_axis("num_programs", axes)
    return grid.shape[axes]


def program_ndim() -> int:
    """Number of dimensions of the launch grid; 0 when launched without one."""
    return len(current().trace.grid.shape)


def _check_grid_axis(what: str, axis: int) -> None:
    grid = current().trace.grid
    if _as_int(axis) is None or not 0 <= axis < len(grid.shape):
        raise ParameterError(
            f"nl.{what}({axis!r}) in a kernel launched "
            + (f"on a {grid} grid" if grid.shape else "without a grid"),
            rule="the axis is one of the launch grid's dimensions",
            fix="launch with a grid, kernel[n, m](...), or drop the call",
        )


# -- loops


def _loop(name: str, args: tuple) -> Iterator[int]:
    numbers = [_as_int(a) for a in args]
    if not 1 <= len(args) <= 3 or None in numbers or numbers[2:] == [0]:
        raise ParameterError(
            f"nl.{name}{args!r}",
            rule="loop bounds are integers known while tracing, as for range()",
            fix="compute the trip count from shapes, e.g. (rows + 127) // 128",
        )
    indices = range(*numbers)
    return current().loop(indices) if tracing() else iter(indices)


def affine_range(*args: int, **kwargs: Any) -> Iterator[int]:
    """Loop whose iterations do not depend on one another; the compiler may overlap them."""
    return _loop("affine_range", args)


def sequential_range(*args: int, **kwargs: Any) -> Iterator[int]:
    """Loop whose iterations run in order, each seeing what the ones before it wrote."""
    return _loop("sequential_range", args)


def static_range(*args: int) -> Iterator[int]:
    """Loop that is unrolled while tracing."""
    return _loop("static_range", args)


# -- memory


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


# -- data movement


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
    _require_tensor("nl.load", src)
    if src.space.on_chip:
        raise MemorySpaceError(
            f"nl.load from {src.describe()}",
            rule="nl.load moves data from HBM to SBUF",
            fix="use the tile directly, or copy it with nl.copy",
        )
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=_derived(src))
    current().emit("dma_copy", (tile,), (src,), mask=mask)
    return tile


def _derived(src: Tensor) -> str:
    """A name for a tile that holds part of `src`, for messages."""
    return f"{src.name}_tile" if src.name else ""


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
    _require_tensor("nl.store", dst)
    if dst.space.on_chip:
        raise MemorySpaceError(
            f"nl.store to {dst.describe()}",
            rule="nl.store moves data from SBUF to HBM",
            fix="assign on-chip tiles with tile[...] = value",
        )
    if not isinstance(value, Tensor):
        value = full(dst.shape, _number(value), dst.dtype)
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"nl.store of {value.describe()}",
            rule="nl.store writes on-chip tiles; a kernel moves HBM data through SBUF",
            fix="nl.load it first",
        )
    if value.space is Space.PSUM:  # DMA reads SBUF, so the tile goes there first
        value = copy(value, mask=mask)
    current().emit("dma_copy", (dst,), (_fit(value, dst, "nl.store"),), mask=mask)


def copy(
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: Engine | None = None,
    **kwargs: Any,
) -> Tensor:
    """Copy an on-chip tile into a new SBUF tile, converting to `dtype` if given."""
    _require_tensor("nl.copy", src)
    tile = ndarray(src.shape, src.dtype if dtype is None else dtype, name=_derived(src))
    current().emit("tensor_copy", (tile,), (src,), mask=mask, engine=engine)
    return tile


def broadcast_to(src: Tensor, *, shape: tuple[int, ...], **kwargs: Any) -> Tensor:
    """`src` broadcast to `shape`. Along free axes a view; along partitions a copy.

    Raises:
        ShapeError: an axis is neither equal nor 1.
    """
    _require_tensor("nl.broadcast_to", src)
    return _spread(src, check_shapes(shape))


def expand_dims(data: Tensor, axis: int) -> Tensor:
    """A view of a tile with a size-1 free axis at `axis`."""
    _require_tensor("nl.expand_dims", data)
    return data.expand_dims(axis)


def device_print(prefix: str, x: Tensor, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """Print `prefix` and a tile's values when the kernel runs (on the simulator only)."""
    _require_tensor("nl.device_print", x)
    current().emit("device_print", (), (x,), mask=mask, prefix=prefix)


# -- elementwise mathematics


def elementwise(
    op: str,
    *operands: Tensor | float,
    out: Tensor | None = None,
    dtype: Any = None,
    mask: Mask | None = None,
    engine: Engine | None = None,
) -> Tensor:
    """Lower one elementwise operator. All of the functions below come here.

    Args:
        op: key in `nkisim.alu.ALU`.
        *operands: on-chip tiles, or numbers; at least one tile.
        out: tile to write; a new SBUF tile when None.
        dtype: output type; by NKI type promotion when None.
        mask: where to compute.
        engine: engine to run on; the documented choice when None.
    """
    values = [x if isinstance(x, Tensor) else _number(x) for x in operands]
    tiles = [x for x in values if isinstance(x, Tensor)]
    if not tiles:
        raise ShapeError(
            f"nl.{op} of numbers only",
            rule="at least one operand is a tile",
            fix="compute it in Python",
        )
    try:
        shape = broadcast_shapes(*(t.shape for t in tiles))
    except ValueError:
        raise ShapeError(
            f"nl.{op} of " + " and ".join(t.describe() for t in tiles),
            rule="operand shapes follow NumPy's broadcasting rule",
            fix="load tiles of one shape, or index with new axes",
        ) from None
    types = tuple(x.dtype if isinstance(x, Tensor) else weak_scalar_dtype(x) for x in values)
    alu.check_operand_types(op, types)
    for tile in tiles:
        _require_on_chip(op, tile)
    if out is None:
        result = as_dtype(dtype) if dtype is not None else _result_dtype(op, types)
        out = ndarray(shape, result)
    elif out.shape != shape:
        raise ShapeError(
            f"result of shape {shape} into {out.describe()}",
            rule="an in-place operation keeps the shape of its left operand",
            fix="broadcast the right operand, not the left",
        )
    opcode = _opcode(op, values, shape)
    ins = tuple(_spread(x, shape) if isinstance(x, Tensor) else x for x in values)
    chosen = engine or _engine(op, opcode, types)
    current().emit(opcode, (out,), ins, mask=mask, engine=chosen, op=op)
    return out


def _opcode(op: str, values: list, shape: tuple[int, ...]) -> str:
    """Which instruction carries the operator: one tile, a tile and a number a lane, or two."""
    if alu.ALU[op].kind == "float" and len(values) == 1:
        return "activation"
    if len(values) == 1:
        return "tensor_scalar"
    vectors = [
        isinstance(x, Tensor) and x.shape[1:] == (1,) * (len(x.shape) - 1) != shape[1:]
        for x in values
    ]
    numbers = [not isinstance(x, Tensor) for x in values]
    return "tensor_scalar" if any(numbers) or any(vectors) else "tensor_tensor"


def _engine(op: str, opcode: str, types: tuple[np.dtype, ...]) -> Engine | None:
    """Power and 32-bit integer arithmetic run on GpSimd (nisa.tensor_tensor, SDK 2.26)."""
    wide_int = all(t in INTEGERS for t in types) and any(t.itemsize == 4 for t in types)
    if op == "power" or (op in ("add", "subtract", "multiply") and wide_int):
        return Engine.GPSIMD
    return None


def _result_dtype(op: str, types: tuple[np.dtype, ...]) -> np.dtype:
    kind = alu.ALU[op].kind
    if kind in ("compare", "logic"):
        return BOOL
    result = functools.reduce(promote, types)
    if kind == "float" and result not in _FLOATING:
        return F32
    return np.dtype(np.uint8) if result == BOOL and kind == "arith" else result


_FLOATING = {np.dtype(t) for t in (float32, float16, bfloat16, float8_e4m3, float8_e5m2)}


def _number(value: object) -> object:
    if isinstance(value, IndexTensor):
        raise DTypeError(
            "an index tensor is used as data",
            rule="nl.arange and nl.mgrid describe addresses; they are not memory",
            fix="materialise it as a tile with nisa.iota",
        )
    if not np.isscalar(value) or isinstance(value, str | bytes | complex):
        raise DTypeError(
            f"operand {_brief(value)} is neither a tile nor a number",
            rule="operands are on-chip tiles, Python numbers or NumPy scalars",
            fix="pass arrays as kernel arguments and nl.load them",
        )
    return value


def _require_tensor(what: str, x: object) -> None:
    if not isinstance(x, Tensor):
        raise ParameterError(
            f"{what} is given {_brief(x)}",
            rule=f"{what} takes an NKI tensor",
            fix="pass a kernel argument, an nl.ndarray or a tile",
        )


def _brief(x: object) -> str:
    """An argument, short enough for a message."""
    shape = getattr(x, "shape", None)
    kind = type(x).__name__
    return f"{x!r} ({kind})" if shape is None else f"a {kind} of shape {tuple(shape)}"


def _require_on_chip(op: str, tile: Tensor) -> None:
    if not tile.space.on_chip:
        raise MemorySpaceError(
            f"nl.{op} is given {tile.describe()}",
            rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
            fix="nl.load the tensor into SBUF first",
        )


def _spread(tile: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tile` with the shape of the iteration domain: a view, or a copy across partitions."""
    if tile.shape == shape:
        return tile
    wide = tile.broadcast_to(shape)
    if tile.ndim == len(shape) and tile.shape[0] == shape[0]:
        return wide
    row = (shape[0],) + (tile.shape[1:] if tile.ndim == len(shape) else shape[1:])
    spread = ndarray(row, tile.dtype, name=_derived(tile))
    current().emit("partition_broadcast", (spread,), (tile.broadcast_to(row),))
    return spread.broadcast_to(shape)


def _fit(value: Tensor, target: Tensor, what: str) -> Tensor:
    """`value` broadcast to the shape of `target`."""
    if value.shape == target.shape:
        return value
    try:
        return _spread(value, target.shape)
    except ShapeError:
        raise ShapeError(
            f"{what}: {value.describe()} does not fit {target.describe()}",
            rule="the value's shape equals the target's, or broadcasts to it",
            fix="index the target with the same tile axes as the value",
        ) from None


def where(
    condition: Tensor,
    x: Tensor,
    y: Tensor | float,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """`x` where `condition` is not zero, else `y`. Tiles of one shape; `y` may be a number."""
    for tile in (condition, x):
        _require_tensor("nl.where", tile)
        _require_on_chip("where", tile)
    shape = broadcast_shapes(*(t.shape for t in (condition, x, y) if isinstance(t, Tensor)))
    kind = y.dtype if isinstance(y, Tensor) else weak_scalar_dtype(_number(y))
    out = ndarray(shape, promote(x.dtype, kind) if dtype is None else dtype)
    ins = tuple(_spread(t, shape) if isinstance(t, Tensor) else t for t in (condition, x, y))
    current().emit("select", (out,), ins, mask=mask)
    return out


def _unary(name: str, doc: str) -> Callable:
    def function(x, *, dtype=None, mask=None, **kwargs):
        return elementwise(name, x, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _binary(name: str, doc: str) -> Callable:
    def function(x, y, *, dtype=None, mask=None, **kwargs):
        return elementwise(name, x, y, dtype=dtype, mask=mask)

    return _named(function, name, doc)


def _named(function: Callable, name: str, doc: str) -> Callable:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = (
        f"{doc}\n\n    Operands are on-chip tiles, first axis partitions (<= 128), or numbers; "
        "shapes broadcast.\n    Output dtype by NKI type promotion, or `dtype`. Only elements "
        "under `mask` are computed.\n    "
    )
    return function


_UNARY = {
    "abs": "Absolute value.",
    "arctan": "Inverse tangent.",
    "ceil": "Round up.",
    "cos": "Cosine.",
    "exp": "e to the x.",
    "floor": "Round down.",
    "invert": "Bitwise not, of integers.",
    "log": "Natural logarithm.",
    "logical_not": "Logical not.",
    "negative": "-x.",
    "reciprocal": "1 / x.",
    "relu": "max(x, 0).",
    "rsqrt": "1 / sqrt(x).",
    "sigmoid": "1 / (1 + exp(-x)).",
    "sign": "-1, 0 or 1 by sign.",
    "silu": "x * sigmoid(x).",
    "sin": "Sine.",
    "softplus": "log(1 + exp(x)).",
    "sqrt": "Square root.",
    "square": "x * x.",
    "tan": "Tangent.",
    "tanh": "Hyperbolic tangent.",
    "trunc": "Round toward zero.",
}
_BINARY = {
    "add": "x + y.",
    "bitwise_and": "Bitwise and, of integers.",
    "bitwise_or": "Bitwise or, of integers.",
    "bitwise_xor": "Bitwise exclusive or, of integers.",
    "divide": "x / y.",
    "equal": "x == y, as bool.",
    "fmod": "Remainder with the sign of x.",
    "greater": "x > y, as bool.",
    "greater_equal": "x >= y, as bool.",
    "left_shift": "x << y, of integers.",
    "less": "x < y, as bool.",
    "less_equal": "x <= y, as bool.",
    "logical_and": "Logical and, as bool.",
    "logical_or": "Logical or, as bool.",
    "logical_xor": "Logical exclusive or, as bool.",
    "maximum": "The larger of x and y.",
    "minimum": "The smaller of x and y.",
    "mod": "Remainder with the sign of y.",
    "multiply": "x * y.",
    "not_equal": "x != y, as bool.",
    "power": "x to the y.",
    "right_shift": "x >> y, of integers.",
    "subtract": "x - y.",
}
_functions = {name: _unary(name, doc) for name, doc in _UNARY.items()}
_functions |= {name: _binary(name, doc) for name, doc in _BINARY.items()}
globals().update(_functions)
__all__ += list(_functions)
_NAMES = {fn: name for name, fn in _functions.items()}


def operator_name(op: Any) -> str:
    """The ALU operator that `op` (an nl function, or NumPy's function of that name) stands for.

    Raises:
        ParameterError: no engine has such an operator.
    """
    name = _NAMES.get(op) if callable(op) else None
    if name is None:
        name = {"true_divide": "divide", "remainder": "mod"}.get(
            getattr(op, "__name__", ""), getattr(op, "__name__", "")
        )
    if name not in alu.ALU:
        raise ParameterError(
            f"op={op!r} is not an operator of the engines",
            rule="operators are " + ", ".join(sorted(alu.ALU)),
            fix="pass an nki.language function, e.g. op=nl.add",
        )
    return name


# -- behind Python's operators


def _assign(target: Tensor, value: Tensor | float) -> None:
    """`target[...] = value` for on-chip tiles."""
    if not target.space.on_chip:
        raise MemorySpaceError(
            f"assignment to {target.describe()}",
            rule="HBM is written by DMA",
            fix="use nl.store(tensor[...], value)",
        )
    if not isinstance(value, Tensor):
        current().emit("memset", (target,), value=_number(value))
        return
    if not value.space.on_chip:
        raise MemorySpaceError(
            f"assignment of {value.describe()} to a tile",
            rule="HBM is read by DMA",
            fix="nl.load it first",
        )
    current().emit("tensor_copy", (target,), (_fit(value, target, "assignment"),))


def _assign_op(op: str, target: Tensor, value: Tensor | float) -> None:
    elementwise(op, target, value, out=target)


provide_operations(_functions | {"copy": copy, "assign": _assign, "assign_op": _assign_op})
