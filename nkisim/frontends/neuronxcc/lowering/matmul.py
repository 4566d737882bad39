"""The Tensor Engine's two jobs: matrix products and transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nkisim.errors import (
    AccumulationError,
    DTypeError,
    Location,
    MemorySpaceError,
    ParameterError,
    ShapeError,
    TileSizeError,
    locate,
)
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.lowering.operands import require_tile
from nkisim.frontends.neuronxcc.rules.compatibility import refuse
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask, as_int
from nkisim.frontends.neuronxcc.tensors.masks import not_a_mask, restriction
from nkisim.frontends.neuronxcc.tensors.tensor import MaskedTensor, Tensor
from nkisim.ir.dtypes import F32, FLOATS, as_dtype
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space
from nkisim.ir.restriction import Box
from nkisim.machine import GEN2
from nkisim.trace.op_cache import remembered
from nkisim.trace.tracer import current

_VECTOR_TRANSPOSE_MAX = 32
_PE_STEP = 32


def _operand(what: str, name: str, x: object, limit: int) -> Tensor:
    """One operand of a matmul, checked by itself."""
    tile = _in_sbuf(require_tile(f"{what}: {name}", x))
    if tile.space is not Space.SBUF:
        raise MemorySpaceError(
            f"{what}: {name} is {tile.describe()}",
            rule="the Tensor Engine reads SBUF and writes PSUM",
            fix="copy the tile into SBUF first, with nl.copy",
        )
    if tile.dtype not in FLOATS:
        raise DTypeError(
            f"{what}: {name} is {tile.describe()}",
            rule="the Tensor Engine multiplies float8_e4m3, float8_e5m2, bfloat16, float16 and "
            "float32",
            fix="convert the tile, e.g. nl.copy(tile, dtype=nl.bfloat16)",
        )
    partitions = current().trace.machine.partitions
    if tile.shape[0] > partitions:
        raise TileSizeError(
            f"{what}: {name} is {tile.describe()}",
            rule=f"the contraction axis lies on partitions: at most {partitions}",
            fix="cut the contraction in tiles and accumulate with += into a PSUM tile",
        )
    if (n := prod(tile.shape[1:])) > limit:
        raise TileSizeError(
            f"{what}: {name} is {tile.describe()}, {n} elements a partition",
            rule=f"the {name} operand has at most {limit} elements a partition",
            fix="cut it in tiles, with a loop",
        )
    return tile


def _in_sbuf(tile: Tensor) -> Tensor:
    """What the Tensor Engine reads: a PSUM tile that is an operation's result, and that the kernel
    has given no place, is moved to SBUF by the compiler."""
    moves = tile.space is Space.PSUM and not tile.buffer.declared
    return copy(tile) if moves else tile


def nc_matmul(
    what: str,
    stationary: Tensor,
    moving: Tensor,
    *,
    mask: Mask | bool | None = None,
    double_row: bool = False,
    **hints: Any,
) -> Tensor:
    """Lower stationary.T @ moving into a new fp32 PSUM tile.

    Args:
        what: the function called, for messages.
        stationary: SBUF tile (K <= 128, M <= 128).
        moving: SBUF tile (K, N <= 512); N may be several axes.
        mask: conditions on axis 0 (the contraction) and on axis 1 of either operand.
        double_row: operands are fp8 of shape (K, 2, M) and (K, 2, N): 2 * K rows are contracted.
        **hints: attributes of the instruction.
    """
    machine = current().trace.machine
    rows = 2 if double_row else 1
    a = _operand(what, "stationary", stationary, rows * machine.gemm_stationary_fmax)
    b = _operand(what, "moving", moving, rows * machine.gemm_moving_fmax)
    empty = 0 in a.shape or 0 in b.shape  # by a mask of its own
    if not empty and a.shape[0] != b.shape[0]:
        raise ShapeError(
            f"{what} of {a.describe()} and {b.describe()}: contraction of {a.shape[0]} with "
            f"{b.shape[0]}",
            rule="both operands have the contraction axis on partitions, with one size",
            fix="transpose the operand whose contraction axis is free (nisa.nc_transpose)",
        )
    if double_row:
        _check_double_row(what, a, b)
        hints["rows"] = 2
    hints = {k: v for k, v in hints.items() if v}
    if mask is None and type(a) is type(b) is Tensor and not empty:
        out = ndarray((prod(a.shape[rows:]), *b.shape[rows:]), F32, buffer=Space.PSUM)
        current().emit("nc_matmul", (out,), (a, b), **hints)
        return out
    (columns_a, box_a), (columns_b, box_b) = _unmasked(a, rows), _unmasked(b, rows)
    if len(a.shape) - rows != 1:
        columns_a, box_a = (prod(a.shape[rows:]),), ((0, prod(a.shape[rows:])),)
    out = ndarray((*columns_a, *columns_b), F32, buffer=Space.PSUM)
    cut = None if empty else _cut(what, a, b, mask, rows)
    if cut is None:
        return out
    (k, m, n) = cut
    left = out.restrict((*box_a, *box_b))
    if mask is not None and mask is not True:
        full = ((0, s) for s in b.shape[1:])
        columns = (n,) if b.ndim == 2 else tuple(full)
        a = a.restrict((k, m))
        b = b.restrict((k, *columns))
        left = left.restrict((m, *columns))
    a, b = _as_plain(a), _as_plain(b)
    current().emit("nc_matmul", (left,), (a, b), **hints)
    return out


def _unmasked(x: Tensor, rows: int) -> tuple[tuple[int, ...], Box]:
    """The free axes of an operand without its own mask (`tile[mask]`), and what this leaves."""
    shape, box = _whole(x)
    return shape[rows:], box[rows:]


def _as_plain(x: Tensor) -> Tensor:
    """An operand without what its own mask left out: instructions have no other."""
    return x.view_of(x.form, x.offsets) if isinstance(x, MaskedTensor) else x


def _whole(x: Tensor) -> tuple[tuple[int, ...], Box]:
    """The axes of an operand without its own mask, and what this leaves of them."""
    if isinstance(x, MaskedTensor):
        return x.unmasked, x.box
    return x.shape, tuple([(0, n) for n in x.shape])


def _check_double_row(what: str, a: Tensor, b: Tensor) -> None:
    for name, x in (("stationary", a), ("moving", b)):
        if x.dtype.itemsize != 1 or x.ndim != 3 or x.shape[1] != 2:
            raise ShapeError(
                f"{what} in a double-row mode: {name} is {x.describe()}",
                rule="both operands are fp8 of shape (partitions, 2, free)",
                fix="lay the two rows of a partition side by side, or drop perf_mode",
            )


def _cut(
    what: str, a: Tensor, b: Tensor, mask: Mask | bool | None, rows: int
) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int]] | None:
    """The ranges of contraction, stationary and moving columns that a mask leaves."""
    k, m, n = (0, a.shape[0]), (0, a.shape[-1]), (0, b.shape[-1])
    if mask is None or isinstance(mask, bool | np.bool_):
        return None if mask is not None and not mask else (k, m, n)
    if not isinstance(mask, Mask):
        raise not_a_mask(mask)
    if a.ndim != 2 or b.ndim != 2 or rows != 1:
        raise ShapeError(
            f"{what}: a mask with operands of more than two axes",
            rule="masks of a matmul are on the two axes of either operand",
            fix="mask the loads, or slice the operands",
        )
    (size_a, box_a), (size_b, box_b) = _whole(a), _whole(b)
    for term in mask.terms:
        walked = [d for d, c in enumerate(term.coefs) if c and term.shape[d] > 1]
        size = term.shape[walked[0]] if walked else 0
        if not walked:
            if term.offset < 0:
                return None
        elif walked == [0] and term.ndim == 2 and size == size_a[0] == size_b[0]:
            k = _narrowed(k, term, 0, box_a[0][0])
        elif walked == [1] and term.ndim == 2 and size in (size_a[1], size_b[1]):
            own = [
                box[1] != (0, size) and _narrowed(box[1], term, 1, 0) == box[1]
                for box in (box_a, box_b)
            ]
            if size_a[1] == size_b[1] and sum(own) == 1:
                continue  # it says again what the operand's own mask says
            if size_a[1] == size_b[1]:
                raise ParameterError(
                    f"{what}: it is open whether the mask is on the columns of the stationary or "
                    f"of the moving operand, which both have {size}",
                    rule="masks are told apart by the extents of their axes",
                    fix="slice the operand instead, or mask it: operand[i, j][mask]",
                )
            if size == size_a[1]:
                m = _narrowed(m, term, 1, box_a[1][0])
            else:
                n = _narrowed(n, term, 1, box_b[1][0])
        else:
            raise ShapeError(
                f"{what}: a mask of shape {term.shape} for operands {size_a} and {size_b}",
                rule="masks of a matmul are conditions on one axis of one operand",
                fix="build the mask from the index axes of the operands",
            )
    return None if any(low >= high for low, high in (k, m, n)) else (k, m, n)


def _narrowed(at: tuple[int, int], term: IndexTensor, axis: int, start: int) -> tuple[int, int]:
    """What a condition leaves of a range of an axis, which is that from `start` on of the mask."""
    line = (term.shape[axis],)
    mask = Mask((IndexTensor(line, (term.coefs[axis],), term.offset),))
    ((low, high),) = mask.restrict(line).box
    return max(at[0], low - start), min(at[1], high - start)


def check_pe_tile(
    what: str, position: Sequence[int], size: Sequence[int], stationary: Tensor, gen2: bool
) -> None:
    """Rules of tile_position and tile_size, which give a matmul a part of the PE array.

    Raises:
        ParameterError: a rule is broken.
    """
    problem, narrow = None, False
    numbers = [as_int(v) for v in (*position, *size)]
    if bool(position) != bool(size):
        problem, rule = "one without the other", "both are given, or neither"
    elif not position:
        return
    elif len(position) != 2 or len(size) != 2 or None in numbers:
        problem, rule = "not two pairs of integers", "each is (row, column), in integers"
    elif any(v % _PE_STEP or v < 0 for v in numbers):
        problem, rule = "not multiples of 32", "rows and columns are multiples of 32"
    elif size[0] < stationary.shape[0] or size[1] < prod(stationary.shape[1:]):
        problem = f"smaller than the stationary tile {stationary.shape}"
        rule = "tile_size covers the partitions and the free axis of the stationary tile"
    elif position[0] + size[0] > 128 or position[1] + size[1] > 128:
        problem, rule = "outside the array", "the PE array has 128 rows and 128 columns"
    elif gen2 and _PE_STEP in size:
        problem, rule = "32 rows or columns", "on NeuronCore-v2 neither size is 32"
        narrow = True
    if problem:
        error = ParameterError(
            f"{what}: tile_position={tuple(position)}, tile_size={tuple(size)}: {problem}",
            rule=rule,
            fix="use e.g. tile_position=(0, 0), tile_size=(64, 64); (128, 128) is the whole array",
        )
        if not narrow:
            raise error
        refuse(current(), error)


def nc_transpose(
    what: str,
    data: Tensor,
    *,
    dtype: Any = None,
    mask: Mask | bool | None = None,
    engine: Engine | None = None,
) -> Tensor:
    """Lower a transpose of partitions and free axes.

    Args:
        what: the function called, for messages.
        data: tile (P, F...): at most 128 x 128 in SBUF (Tensor), or 32 x 32 (Vector).
        dtype: of the result; another than data's costs one more instruction.
        mask: which elements of data to move.
        engine: Tensor or Vector; when None, Vector for what fits and Tensor for the rest.

    Returns:
        A tile (F, P): in PSUM from the Tensor Engine, in SBUF from the Vector Engine.
    """
    data = require_tile(what, data)
    if engine is Engine.TENSOR or max(data.shape[0], prod(data.shape[1:])) > _VECTOR_TRANSPOSE_MAX:
        data = _in_sbuf(data)
    rows, columns = data.shape[0], prod(data.shape[1:])
    small = max(rows, columns) <= _VECTOR_TRANSPOSE_MAX
    runs_on = engine or (Engine.VECTOR if small else Engine.TENSOR)
    limit = (
        _VECTOR_TRANSPOSE_MAX if runs_on is Engine.VECTOR else current().trace.machine.partitions
    )
    if max(rows, columns) > limit:
        raise TileSizeError(
            f"{what} of {data.describe()}: {rows} partitions, {columns} elements a partition",
            rule=f"the {runs_on.value} Engine transposes at most {limit} by {limit}",
            fix="cut the tile in blocks" + ("" if limit == 128 else ", or use the Tensor Engine"),
            code="err_size_of_dimension_exceed_arch_limit",
        )
    if runs_on is Engine.TENSOR and data.space is not Space.SBUF:
        raise MemorySpaceError(
            f"{what} of {data.describe()} on the Tensor Engine",
            rule="the Tensor Engine reads SBUF and writes PSUM",
            fix="copy the tile into SBUF first, with nl.copy",
        )
    space = Space.PSUM if runs_on is Engine.TENSOR else Space.SBUF
    out = ndarray((columns, rows), data.dtype, buffer=space)
    source, target = data, out
    if mask is not None:
        left = restriction(mask, data.shape)
        if left.empty:
            return out
        if left.dense is not None or data.ndim != 2:
            raise ShapeError(
                f"{what}: a mask that couples axes, or on more than two axes",
                rule="a transpose is masked by ranges of its two axes",
                fix="mask the load of the tile, or what reads the result",
            )
        source, target = data.restrict(left.box), out.restrict(left.box[::-1])
    spreads = runs_on is Engine.TENSOR and current().trace.machine is GEN2 and data.dtype in FLOATS
    attrs = {"spreads": True} if spreads else {}
    current().emit("nc_transpose", (target,), (source,), engine=engine, default=runs_on, **attrs)
    if dtype is not None and as_dtype(dtype) != data.dtype:
        return copy(out, dtype=dtype)
    return out


def absorb_product(target: Tensor, value: Tensor, location: Location | None) -> bool:
    """Turn `target += value` into accumulation in PSUM, if `value` has just come from a matmul.

    The Tensor Engine adds to what a PSUM tile holds; no other engine is needed. The matmul that
    made `value` is replaced, and comes back if `value` is read after all. Where nothing has
    written `target` yet, the matmul starts the accumulation and overwrites it, as on hardware:
    tiles that the kernel places itself cannot be made with zeros in them.

    Args:
        target: what is added to.
        value: what is added.
        location: the kernel line.

    Returns:
        Whether that was done.

    Raises:
        AccumulationError: `target` is not float32.
    """
    tracer = current()
    instructions = tracer.trace.instructions
    last: Instruction | None = instructions[-1] if instructions else None
    if last is None or last.opcode != "nc_matmul" or last.attrs.get("accumulate"):
        return False
    part = last.outs[0]
    if (
        part.buffer is not value.buffer
        or target.buffer.space is not Space.PSUM
        or target.shape != value.shape
        or len(value.shape) != len(part.shape)
        or not (value is part or value.covers_buffer)
    ):
        return False
    if target.dtype != F32:
        tracer.checker.report("accumulation", _not_fp32(target), mild=tracer.checker.as_sdk)
        return False
    # Operands under masks give a part of the product: nothing is added to the rest.
    if part.shape != target.shape:
        target = target.restrict(
            tuple([(at, at + n) for at, n in zip(part.offsets, part.shape, strict=True)])
        )
    is_known = tracer.checker.is_known(target)
    starts = not is_known and tracer.checker.untouched(target)
    attrs = _STARTS if starts else _GOES_ON
    attrs = last.attrs | attrs if last.attrs else attrs
    tracer.absorb(value, target, attrs, not starts, is_known, location)
    return True


def _not_fp32(target: Tensor) -> AccumulationError:
    return AccumulationError(
        f"a matmul is added to {target.describe()}",
        rule="the Tensor Engine accumulates in fp32, and its result in PSUM is float32 "
        "(nisa.nc_matmul, NeuronCore-v2 and -v3)",
        fix="declare the tile with dtype=nl.float32, and convert the sum when it is copied to "
        f"SBUF: nl.copy(total, dtype=nl.{target.dtype})",
        location=locate(),
    )


_GOES_ON = {"accumulate": True}
_STARTS = {"accumulate": True, "starts": True}


# -- nki.language


@remembered
def matmul(
    x: Tensor, y: Tensor, *, transpose_x: bool = False, mask: Mask | None = None, **kwargs: Any
) -> Tensor:
    """x @ y, or x.T @ y with `transpose_x`, on the Tensor Engine, fp32 inside.

    Args:
        x: tile (M <= 128, K <= 128), or (K, M) with transpose_x, which saves a transpose.
        y: tile (K, N <= 512). A tile in PSUM is copied into SBUF first.
        mask: as for nisa.nc_matmul.

    Returns:
        A float32 PSUM tile (M, N).
    """
    what = "nl.matmul"
    x, y = (copy(t) if _in_psum(t) else t for t in (x, y))
    if not transpose_x:
        x = _operand(what, "x", x, current().trace.machine.gemm_stationary_fmax)
        x = copy(nc_transpose(what, x, engine=Engine.TENSOR))
    return nc_matmul(what, x, y, mask=mask)


def _in_psum(x: object) -> bool:
    return isinstance(x, Tensor) and x.space is Space.PSUM


@remembered
def transpose(x: Tensor, *, dtype: Any = None, mask: Mask | None = None, **kwargs: Any) -> Tensor:
    """Swap the two axes of a tile.

    Args:
        x: tile (P <= 128, F <= 128), of two axes.
        dtype: of the result; x's when None.
        mask: which elements of x to move.

    Returns:
        A tile (F, P): in SBUF up to 32 by 32 (Vector Engine), else in PSUM (Tensor Engine).
    """
    what = "nl.transpose"
    x = require_tile(what, x)
    if x.ndim != 2:
        raise ShapeError(
            f"{what} of {x.describe()} with {x.ndim} axes",
            rule="nl.transpose swaps partitions and one free axis: two axes",
            fix="index the tile to two axes, or permute free axes in an access pattern",
            code="err_exceed_max_supported_dimension",
        )
    if _in_psum(x) and max(x.shape) > _VECTOR_TRANSPOSE_MAX:
        x = copy(x)
    return nc_transpose(what, x, dtype=dtype, mask=mask)
