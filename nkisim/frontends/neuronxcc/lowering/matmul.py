"""The Tensor Engine's two jobs: matrix products and transposes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

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
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import require_one_bank, require_tile
from nkisim.frontends.neuronxcc.rules.compatibility import refuse
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.masks import not_a_mask, restriction
from nkisim.frontends.neuronxcc.tensors.tensor import MaskedTensor, Tensor
from nkisim.ir.dtypes import F32, FLOATS, as_dtype
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Space
from nkisim.ir.restriction import Box
from nkisim.trace.tracer import current

_VECTOR_TRANSPOSE_MAX = 32
_PE_STEP = 32


class _Operand(NamedTuple):
    """An operand of a matmul.

    Attributes:
        tile: all of it; of an operand under a mask of its own, `tile[mask]`, what is masked.
        box: the (low, high) range of each of its axes that this mask leaves.
    """

    tile: Tensor
    box: Box

    @property
    def part(self) -> Tensor:
        """The part of the tile that the matmul reads."""
        return self.tile.restrict(self.box)

    @property
    def is_masked(self) -> bool:
        return self.tile.shape != tuple([high - low for low, high in self.box])


def _operand(what: str, name: str, x: object, limit: int) -> _Operand:
    """One operand of a matmul, checked by itself."""
    whole = _in_sbuf(require_tile(f"{what}: {name}", x))
    operand = _Operand(whole, tuple([(0, n) for n in whole.shape]))
    if isinstance(x, MaskedTensor):
        operand = _Operand(_in_sbuf(x.whole, x.mask), x.box)
    tile = operand.part
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
            fix="divide the contraction into tiles and accumulate with += into a PSUM tile",
        )
    if (n := prod(tile.shape[1:])) > limit:
        raise TileSizeError(
            f"{what}: {name} is {tile.describe()}, {n} elements a partition",
            rule=f"the {name} operand has at most {limit} elements a partition",
            fix="divide it into tiles, with a loop",
        )
    return operand


def _in_sbuf(tile: Tensor, mask: Mask | None = None) -> Tensor:
    """An operand of the Tensor Engine, which reads SBUF: a PSUM tile that is an operation's result,
    and that the kernel has given no place, is moved to SBUF by the compiler."""
    moves = tile.space is Space.PSUM and not tile.buffer.declared
    return copy(tile, mask=mask) if moves else tile


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
        mask: conditions on the axes of the operands: see `_cut`.
        double_row: operands are fp8 of shape (K, 2, M) and (K, 2, N): 2 * K rows are contracted.
        **hints: attributes of the instruction.
    """
    machine = current().trace.machine
    rows = 2 if double_row else 1
    a = _operand(what, "stationary", stationary, rows * machine.gemm_stationary_fmax)
    b = _operand(what, "moving", moving, rows * machine.gemm_moving_fmax)
    _check_contraction(what, a.tile.shape[0], b.tile.shape[0], a.tile, b.tile)
    if double_row:
        _check_double_row(what, a.tile, b.tile)
        hints["rows"] = 2
    hints = {k: v for k, v in hints.items() if v}
    out = ndarray((prod(a.tile.shape[rows:]), *b.tile.shape[rows:]), F32, buffer=Space.PSUM)
    if mask is None and not a.is_masked and not b.is_masked:
        current().emit("nc_matmul", (out,), (a.tile, b.tile), **hints)
        return out
    if a.is_masked and len(a.tile.shape) > 2:
        raise ShapeError(
            f"{what}: stationary is {a.tile.describe()} under a mask of its own",
            rule="the stationary operand is masked by ranges of two axes",
            fix="reshape the operand to two axes, or slice it, before it is masked",
        )
    spans = _cut(what, a, b, _STATIONARY, mask, rows)
    if spans is not None:
        k, m, n = (spans[axis] for axis in ("K", "M", "N"))
        columns = (n,) if b.tile.ndim - rows == 1 else b.box[rows:]
        inner = ((0, 2),) * (rows - 1)
        left = out.restrict((m, *columns))
        parts = a.tile.restrict((k, *inner, m)), b.tile.restrict((k, *inner, *columns))
        current().emit("nc_matmul", (left,), parts, **hints)
    return out


def _check_contraction(what: str, of_a: int, of_b: int, a: Tensor, b: Tensor) -> None:
    if of_a != of_b:
        raise ShapeError(
            f"{what} of {a.describe()} and {b.describe()}: contraction of {of_a} with {of_b}",
            rule="both operands have the contraction axis on partitions, with one size",
            fix="nl.transpose the operand whose contraction axis is the other one, or slice both "
            f"to {min(of_a, of_b)} along it",
        )


def _check_double_row(what: str, a: Tensor, b: Tensor) -> None:
    for name, x in (("stationary", a), ("moving", b)):
        if x.dtype.itemsize != 1 or x.ndim != 3 or x.shape[1] != 2:
            raise ShapeError(
                f"{what} in a double-row mode: {name} is {x.describe()}",
                rule="both operands are fp8 of shape (partitions, 2, free)",
                fix="lay the two rows of a partition side by side, or drop perf_mode",
            )


# What the axes of the operands are: of the contraction, and the rows and columns of the result.
_STATIONARY = ("K", "M"), ("K", "N")
_ROWS = ("M", "K"), ("K", "N")

_Span = tuple[int, int]


def _cut(
    what: str,
    a: _Operand,
    b: _Operand,
    axes: tuple[tuple[str, str], tuple[str, str]],
    mask: Mask | bool | None,
    rows: int = 1,
) -> dict[str, _Span] | None:
    """The ranges of contraction (K), rows (M) and columns (N) of the result that masks leave.

    A condition speaks of an axis of an operand, as this is given to the function: the one that has
    the extent of the index. Where that fits axes of several meanings the condition is refused; a
    mask of the operand's own, `operand[i, j][mask]`, says which is meant.

    Args:
        what: the function called, for messages.
        a, b: the operands, with masks of their own.
        axes: what their first and last axes are.
        mask: conditions on these axes.
        rows: how many rows of the contraction lie in a partition.

    Returns:
        None when nothing is left.
    """
    spans: dict[str, _Span] = {}
    for operand, names in zip((a, b), axes, strict=True):
        ends = operand.box[0], operand.box[-1]
        if names[1] == "M" and operand.tile.ndim > 2:
            ends = ends[0], (0, prod(operand.tile.shape[rows:]))
        for name, (low, high) in zip(names, ends, strict=True):
            at = spans.get(name, (low, high))
            spans[name] = max(at[0], low), min(at[1], high)
    if mask is None or isinstance(mask, bool | np.bool_):
        terms = ()
        if mask is not None and not mask:
            return None
    elif not isinstance(mask, Mask):
        raise not_a_mask(mask)
    elif a.tile.ndim != 2 or b.tile.ndim != 2 or rows != 1:
        raise ShapeError(
            f"{what}: a mask with operands of more than two axes",
            rule="masks of a matmul are on the two axes of either operand",
            fix="mask the loads, or slice the operands",
        )
    else:
        terms = mask.terms
    for term in terms:
        walked = [d for d, c in enumerate(term.coefs) if c and term.shape[d] > 1]
        if not walked:
            if term.offset < 0:
                return None
            continue
        if len(walked) > 1:
            raise _unfitting(what, term, a, b)
        axis = walked[0] - term.ndim
        line = (term.shape[axis],)
        ((low, high),) = (
            Mask((IndexTensor(line, (term.coefs[axis],), term.offset),)).restrict(line).box
        )
        fits = [
            (names[axis], operand.box[axis] == (low, high) != (0, *line))
            for operand, names in zip((a, b), axes, strict=True)
            if _fits(term, operand.tile.shape)
        ]
        meant = {name for name, _ in fits}
        if not meant:
            raise _unfitting(what, term, a, b)
        if len(meant) > 1:
            if sum(said for _, said in fits) == 1:
                continue  # it says again what the operand's own mask says
            raise _open(what, term, meant, a, b)
        (name,) = meant
        spans[name] = max(spans[name][0], low), min(spans[name][1], high)
    return None if any(low >= high for low, high in spans.values()) else spans


def _fits(term: IndexTensor, shape: tuple[int, ...]) -> bool:
    """Whether a condition may be one on the axes of an operand."""
    return term.ndim == len(shape) and all(
        m in (1, n) for m, n in zip(term.shape, shape, strict=True)
    )


_CALLED = {
    "K": "the contraction",
    "M": "the rows of the result",
    "N": "the columns of the result",
}


def _open(
    what: str, term: IndexTensor, meant: set[str], a: _Operand, b: _Operand
) -> ParameterError:
    called = " or ".join([_CALLED[name] for name in sorted(meant)])
    return ParameterError(
        f"{what} of {a.tile.shape} and {b.tile.shape}: it is open whether a condition of shape "
        f"{term.shape} cuts {called}",
        rule="a condition is on the axis of an operand that has its extent, and here it fits both",
        fix="give each operand the condition on its own axes, in place of mask=: "
        "a[i, j][i < rows], b[i, j][j < columns]",
    )


def _unfitting(what: str, term: IndexTensor, a: _Operand, b: _Operand) -> ShapeError:
    return ShapeError(
        f"{what}: a mask of shape {term.shape} for operands {a.tile.shape} and {b.tile.shape}",
        rule="masks of a matmul are conditions on one axis of one operand",
        fix="build the mask from the index axes of the operands, each as long as the axis: "
        f"nl.arange({a.tile.shape[0]})[:, None] < rows",
    )


def check_pe_tile(
    what: str,
    position: Sequence[int],
    size: Sequence[int],
    stationary: Tensor,
    sizes: Sequence[int],
) -> None:
    """Rules of tile_position and tile_size, which give a matmul a part of the PE array.

    Args:
        what: the function, for messages.
        position, size: as the kernel gave them.
        stationary: the operand that the part holds.
        sizes: the sides that a part may have.

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
    elif _PE_STEP in size and _PE_STEP not in sizes:
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
        data: tile (P, F...): at most 128 x 128 in SBUF (Tensor), or 32 x 32 (Vector; up to
            128 x 128, with a warning, where the machine's abilities say that it is taken).
        dtype: of the result; another than data's costs one more instruction.
        mask: which elements of data to move.
        engine: Tensor or Vector; when None, Vector for what fits and Tensor for the rest.

    Returns:
        A tile (F, P): in PSUM from the Tensor Engine, in SBUF from the Vector Engine.
    """
    data = require_tile(what, data)
    rows, columns = data.shape[0], prod(data.shape[1:])
    small = max(rows, columns) <= _VECTOR_TRANSPOSE_MAX
    runs_on = engine or (Engine.VECTOR if small else Engine.TENSOR)
    if runs_on is Engine.TENSOR:
        data = _in_sbuf(data)
    machine = current().trace.machine
    on_vector = runs_on is Engine.VECTOR
    limit = _VECTOR_TRANSPOSE_MAX if on_vector else machine.partitions
    if max(rows, columns) > limit:
        passed = on_vector and max(rows, columns) <= machine.partitions
        taken = passed and machine.abilities.beyond_pages
        rule = f"the {runs_on.value} Engine transposes at most {limit} by {limit}"
        if taken:
            rule += (
                " (page of nisa.nc_transpose); a trn2 took 128 by 128, and so does the simulator"
            )
        elif passed:
            rule += "; larger tiles are known to pass on a trn2 only"
        error = TileSizeError(
            f"{what} of {data.describe()}: {rows} partitions, {columns} elements a partition",
            rule=rule,
            fix="divide the tile into blocks" + (", or use the Tensor Engine" if on_vector else ""),
            code="err_size_of_dimension_exceed_arch_limit",
        )
        if not taken:
            raise error
        current().checker.report("tile", error, mild=True)
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
    exact = current().trace.machine.abilities.exact_transposes
    spreads = runs_on is Engine.TENSOR and not exact and data.dtype in FLOATS
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
    if last is None or last.opcode != "nc_matmul" or last.settings.accumulate:
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
    require_one_bank(target)
    starts = not tracer.checker.is_known(target) and tracer.checker.untouched(target)
    settings = last.settings.but(accumulate=True, starts=starts)
    tracer.absorb(value, target, settings, not starts, location)
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


# -- nki.language


@remembered
def matmul(
    x: Tensor, y: Tensor, *, transpose_x: bool = False, mask: Mask | None = None, **kwargs: Any
) -> Tensor:
    """x @ y, or x.T @ y with `transpose_x`, on the Tensor Engine, fp32 inside.

    Args:
        x: tile (M <= 128, K <= 128), or (K, M) with transpose_x, which saves a transpose.
        y: tile (K, N <= 512). A tile in PSUM is copied into SBUF first.
        mask: conditions on the axes of x and y. A condition of shape (n, 1) is on the first axis of
            the operand with n partitions, one of shape (1, n) on the second axis of the operand
            with n columns. One that fits axes of several meanings is refused: `x[i, j][mask]` masks
            an operand by itself.

    Returns:
        A float32 PSUM tile (M, N).

    Raises:
        ShapeError: masks with operands of more than two axes.
    """
    what = "nl.matmul"
    x, y = map(_out_of_psum, (x, y))
    if transpose_x:
        return nc_matmul(what, x, y, mask=mask)
    machine = current().trace.machine
    if mask is None and type(x) is type(y) is Tensor:
        rows = _operand(what, "x", x, machine.gemm_stationary_fmax)
        return nc_matmul(what, copy(nc_transpose(what, rows.tile, engine=Engine.TENSOR)), y)
    a = _operand(what, "x", x, machine.gemm_stationary_fmax)
    b = _operand(what, "y", y, machine.gemm_moving_fmax)
    if a.tile.ndim != 2 or b.tile.ndim != 2:
        raise ShapeError(
            f"{what}: masks with operands of more than two axes",
            rule="masks of a matmul are on the two axes of either operand",
            fix="mask the loads, or slice the operands",
        )
    _check_contraction(what, a.tile.shape[1], b.tile.shape[0], a.tile, b.tile)
    out = ndarray((a.tile.shape[0], b.tile.shape[1]), F32, buffer=Space.PSUM)
    spans = _cut(what, a, b, _ROWS, mask)
    if spans is not None:
        k, m, n = (spans[axis] for axis in ("K", "M", "N"))
        turned = copy(nc_transpose(what, a.tile.restrict((m, k)), engine=Engine.TENSOR))
        left = out.restrict((m, n))
        current().emit("nc_matmul", (left,), (turned, b.tile.restrict((k, n))))
    return out


def _out_of_psum(x: object) -> object:
    """A copy in SBUF of a tile in PSUM; under its mask, if it has one of its own."""
    if not _in_psum(x):
        return x
    return copy(x.whole, mask=x.mask)[x.mask] if isinstance(x, MaskedTensor) else copy(x)


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

    Raises:
        ShapeError: x has another number of axes than two.
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
