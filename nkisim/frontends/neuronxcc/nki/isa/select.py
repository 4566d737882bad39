"""Instructions that choose between values, and iota, which makes the indices to choose by."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from nkisim.errors import DTypeError, ParameterError
from nkisim.frontends.neuronxcc.lowering.chain import with_reductions
from nkisim.frontends.neuronxcc.lowering.elementwise import operator_name
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.lowering.numbers import number
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import (
    lane_operand,
    lane_result,
    narrow,
    not_both_in_psum,
    one_of,
    require_tile,
    same_shape,
)
from nkisim.frontends.neuronxcc.lowering.registers import accumulate
from nkisim.frontends.neuronxcc.nki.isa.constants import (
    fp32,
    reduce_cmd,
)
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.access import Affine
from nkisim.ir.dtypes import FLOATS, as_dtype
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Space, c_strides
from nkisim.numerics import alu
from nkisim.trace.tracer import current


def _require_dtype(what: str, tile: Tensor, allowed: set[str], fix: str) -> None:
    if tile.dtype.name not in allowed:
        raise DTypeError(
            f"{what} is {tile.describe()}",
            rule="its type is one of " + ", ".join(sorted(allowed)),
            fix=fix,
        )


@remembered
def iota(expr: IndexTensor, dtype: Any, *, mask: Mask | None = None, **kwargs: Any) -> Tensor:
    """The values of an index expression, as an SBUF tile. GpSimd Engine.

    Args:
        expr: a sum of constants and multiples of nl.arange / nl.mgrid, of two axes or more; or a
            number, such as a loop index, for a tile (1, 1).
        dtype: type of the tile; values are computed in 32-bit integers and converted.
        mask: which elements to write.

    Raises:
        ParameterError: expr is neither an index expression of two axes or more, nor an integer.
    """
    what = "nisa.iota"
    if (number := as_int(expr)) is not None:
        expr = IndexTensor((1, 1), (0, 0), number)
    if not isinstance(expr, IndexTensor) or expr.ndim < 2:
        raise ParameterError(
            f"{what} of {expr!r}",
            rule="the expression is made of nl.arange or nl.mgrid, with a partition and a free "
            "axis, or it is an integer",
            fix="add an axis: nl.arange(128)[:, None], or use nisa.memset for a constant",
        )
    tile = ndarray(expr.shape, dtype)
    left = restriction(mask, expr.shape)
    if left.empty:
        return tile
    start = expr.offset + sum(c * lo for c, (lo, _) in zip(expr.coefs, left.box, strict=True))
    current().emit("iota", (narrow(tile, left),), (Affine(expr.coefs, start),), where=left.dense)
    return tile


_SELECTABLE = frozenset(FLOATS) | {np.dtype(t) for t in ("int8", "uint8", "int16", "uint16")}


def affine_select(
    pred: Mask | IndexTensor | bool,
    on_true_tile: Tensor,
    on_false_value: float,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """`on_true_tile` where an index comparison holds, else a number. GpSimd Engine.

    Args:
        pred: one comparison of index expressions over the tile's axes, such as `i_q >= i_k`; an
            index expression stands for `expression > 0`.
        on_true_tile: tile of a float or an 8- or 16-bit integer type. From PSUM, which the GpSimd
            Engine cannot read, it is copied into SBUF first.
        on_false_value: the number, in float32.
        mask: which elements to write.
        dtype: of the result; the tile's when None.

    Returns:
        An SBUF tile of the tile's shape.

    Raises:
        ParameterError: pred is not one comparison of index expressions, or on_false_value is a
            tile.
    """
    what = "nisa.affine_select"
    if isinstance(pred, IndexTensor):
        pred = pred > 0
    if isinstance(pred, bool | np.bool_):
        pred = Mask((IndexTensor((), (), 0 if pred else -1),))
    if not isinstance(pred, Mask) or not _one_comparison(pred):
        raise ParameterError(
            f"{what}: pred={pred!r}",
            rule="the predicate is one comparison of index expressions, known while tracing; "
            "conditions joined with & are not one",
            fix="use two instructions, or nl.where with a predicate tile",
        )
    if isinstance(on_false_value, Tensor):
        raise ParameterError(
            f"{what}: on_false_value is {on_false_value.describe()}",
            rule="the value where the predicate is false is a number",
            fix="choose between tiles by a tile: for i > j, "
            "nl.where(nisa.iota(i - j, nl.int32) > 0, x, y)",
        )
    return _select(what, on_true_tile, on_false_value, *pred.terms, mask=mask, dtype=dtype)


@remembered
def _select(
    what: str,
    tile: Tensor,
    other: float,
    *terms: IndexTensor,
    mask: Mask | None,
    dtype: Any,
) -> Tensor:
    """`tile` where all of some index expressions are >= 0, else `other`."""
    tile = require_tile(what, tile)
    result = tile.dtype if dtype is None else as_dtype(dtype)
    for dt in (tile.dtype, result):
        if dt not in _SELECTABLE:
            raise DTypeError(
                f"{what} of {tile.describe()} into {dt}",
                rule="types are floats and 8- or 16-bit integers",
                fix="convert the tile to float32 first",
            )
    left = restriction(mask, tile.shape)
    Mask(terms).check_fits(tile.shape)
    out = ndarray(tile.shape, result)
    if left.empty:
        return out
    if tile.space is Space.PSUM:  # where GpSimd cannot read; the compiler adds a copy, too
        tile = copy(tile, mask=mask)
    affines = []
    for term in terms:
        wide = term.expand(tile.shape)
        start = wide.offset + sum(c * lo for c, (lo, _) in zip(wide.coefs, left.box, strict=True))
        affines.append(Affine(wide.coefs, start))
    current().emit(
        "affine_select",
        (narrow(out, left),),
        (narrow(tile, left), *affines),
        where=left.dense,
        value=float(number(other)),
    )
    return out


def _one_comparison(pred: Mask) -> bool:
    """Whether a mask is a single comparison: one term, or two opposite ones for ==."""
    if len(pred.terms) == 2:
        a, b = pred.terms
        return a.coefs == tuple(-c for c in b.coefs) and a.offset == -b.offset
    return len(pred.terms) == 1


_cmd = reduce_cmd


def _only_max(what: str, reduce_op: Any) -> None:
    if operator_name(reduce_op) != "maximum":
        raise ParameterError(
            f"{what}: reduce_op={reduce_op!r}",
            rule="this instruction reduces with max only",
            fix="pass reduce_op=np.max, or reduce with nisa.tensor_reduce",
        )


@remembered
def range_select(
    *,
    on_true_tile: Tensor,
    comp_op0: Any,
    comp_op1: Any,
    bound0: Tensor,
    bound1: Tensor,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_res: Tensor | None = None,
    reduce_op: Any = np.amax,
    range_start: int = 0,
    on_false_value: float = fp32.min,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Elements whose free index lies in a range that each partition sets; the lowest float else.

    An element is kept where `comp_op0(index, bound0) and comp_op1(index, bound1)`, with index
    counted from range_start along the flattened free axes, in fp32. Vector Engine of NeuronCore-v3.

    Args:
        on_true_tile: floating-point tile.
        comp_op0, comp_op1: equal, less, less_equal, greater or greater_equal.
        bound0, bound1: float32 tiles of shape (partitions, 1).
        reduce_cmd: what to do with the Vector Engine's accumulators (max).
        reduce_res: float tile of shape (partitions, 1) that receives them.
        reduce_op: np.max.
        range_start: index of the first element, an integer; indices stay below 2**24.
        on_false_value: nl.fp32.min.
        mask: which elements are written, and count.
        dtype: of the result; the tile's when None.

    Returns:
        An SBUF tile of the tile's shape.

    Raises:
        ParameterError: before NeuronCore-v3; an on_false_value other than the lowest float32; or a
            range_start that lets indices reach 2**24.
        DTypeError: the tile is not floating point.
    """
    what = "nisa.range_select"
    if "range_select" not in current().trace.machine.abilities.instructions:
        raise ParameterError(
            f"{what} on {current().trace.machine.name}",
            rule="range_select exists from NeuronCore-v3 (Trn2) on",
            fix='target Trn2 with nki.jit(platform_target="trn2"), or use nl.where with a '
            "predicate from nisa.iota and nisa.tensor_scalar",
        )
    tile = require_tile(what, on_true_tile)
    if tile.dtype not in FLOATS:
        raise DTypeError(
            f"{what} of {tile.describe()}",
            rule="the tile is floating point",
            fix="convert it: nl.copy(tile, dtype=nl.float32)",
        )
    comparisons = tuple(
        one_of(what, operator_name(op), alu.COMPARISONS) for op in (comp_op0, comp_op1)
    )
    _only_max(what, reduce_op)
    if np.float32(on_false_value) != np.float32(fp32.min):
        raise ParameterError(
            f"{what}: on_false_value={on_false_value!r}",
            rule="the hardware fills with the lowest float32, nl.fp32.min",
            fix="drop on_false_value",
        )
    start = as_int(range_start)
    n = tile.size // max(tile.shape[0], 1)
    if start is None or not 0 <= start <= 2**24 - n:
        raise ParameterError(
            f"{what}: range_start={range_start!r} for {n} elements a partition",
            rule="indices are integers known while tracing, compared in fp32: below 2**24",
            fix="count from a nearer start and shift the bounds",
        )
    for name, bound in (("bound0", bound0), ("bound1", bound1)):
        _require_dtype(
            f"{what}: {name}", require_tile(what, bound), {"float32"}, "convert it to float32"
        )
    out = ndarray(tile.shape, tile.dtype if dtype is None else dtype)
    left = restriction(mask, tile.shape)
    coefs = (0, *c_strides(tile.shape)[1:])
    shift = sum(c * lo for c, (lo, _) in zip(coefs, left.box, strict=True))
    ins = (
        tile,
        lane_operand(f"{what}: bound0", bound0, tile),
        lane_operand(f"{what}: bound1", bound1, tile),
        Affine(coefs, start + shift),
    )
    attrs = {"comparisons": comparisons, "value": fp32.min}
    res = None if reduce_res is None else lane_result(f"{what}: reduce_res", reduce_res, tile)
    _emit_select("range_select", reduce_cmd, tile, res, out, ins, mask, attrs)
    return out


def _emit_select(
    opcode: str,
    command: reduce_cmd,
    data: Tensor,
    res: Tensor | None,
    out: Tensor,
    ins: tuple,
    mask: Mask | None,
    attrs: dict,
) -> None:
    emit = functools.partial(with_reductions, opcode, out, ins, mask=mask, **attrs)
    accumulate(
        "Vector Engine",
        command.name,
        data,
        res,
        "maximum",
        idle=lambda: emit(reduce_op="maximum", reductions=()),
        reduce=emit,
    )


@remembered
def select_reduce(
    *,
    dst: Tensor,
    predicate: Tensor,
    on_true: Tensor,
    on_false: Tensor | float,
    reduce_res: Tensor | None = None,
    reduce_cmd: reduce_cmd = reduce_cmd.idle,
    reduce_op: Any = np.amax,
    reverse_pred: bool = False,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> None:
    """`dst = on_true where predicate else on_false`, and the maximum of each partition.

    Args:
        dst: tile written, of the predicate's shape.
        predicate: tile of int8, uint8, int16 or uint16.
        on_true: tile of any type but int32, uint32 and tfloat32; not in PSUM with the predicate.
        on_false: a number, or a tile of shape (partitions, 1).
        reduce_res: float tile of shape (partitions, 1) that receives the maximum.
        reduce_cmd: what to do with the Vector Engine's accumulators.
        reduce_op: np.max.
        reverse_pred: choose on_true where the predicate is zero.
        mask: which elements are written, and count.
        dtype: must be dst's type if given.

    Raises:
        DTypeError: a type of predicate, on_true or reduce_res that the instruction does not take.
    """
    what = "nisa.select_reduce"
    dst, predicate = require_tile(what, dst), require_tile(what, predicate)
    on_true = require_tile(what, on_true)
    same_shape(what, dst, predicate)
    same_shape(what, dst, on_true)
    not_both_in_psum(what, on_true, predicate)
    _require_dtype(
        f"{what}: predicate",
        predicate,
        {"int8", "uint8", "int16", "uint16", "bool"},
        "convert it: nl.copy(predicate, dtype=nl.uint8)",
    )
    if on_true.dtype.name in ("int32", "uint32"):
        raise DTypeError(
            f"{what}: on_true is {on_true.describe()}",
            rule="on_true has any type but tfloat32, int32 and uint32",
            fix="convert it to float32 or to a 16-bit type",
        )
    _check_dtype_is(what, dst, dtype)
    _only_max(what, reduce_op)
    res = None
    if reduce_res is not None:
        res = lane_result(f"{what}: reduce_res", reduce_res, dst)
        if res.dtype not in FLOATS:
            raise DTypeError(
                f"{what}: reduce_res is {res.describe()}",
                rule="reduce_res is floating point",
                fix="declare it with dtype=nl.float32",
            )
    other = lane_operand(f"{what}: on_false", on_false, dst)
    other = other if isinstance(other, Tensor) else float(other)
    attrs = {"reverse": bool(reverse_pred)}
    ins = (predicate, on_true, other)
    _emit_select("select_reduce", reduce_cmd, dst, res, dst, ins, mask, attrs)


def _check_dtype_is(what: str, dst: Tensor, dtype: Any) -> None:
    if dtype is not None and as_dtype(dtype) != dst.dtype:
        raise DTypeError(
            f"{what}: dtype={as_dtype(dtype)} for {dst.describe()}",
            rule="the result has the type of dst",
            fix="drop dtype=, or declare dst with it",
        )


@remembered
def tensor_copy_predicated(
    *,
    src: Tensor | float,
    dst: Tensor,
    predicate: Tensor,
    reverse_pred: bool = False,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> None:
    """Copy `src` into `dst` where the predicate is not zero; the rest of dst stays. Vector Engine.

    Args:
        src: a tile of dst's shape and type, or a number; not in PSUM with the predicate.
        dst: tile in SBUF or PSUM.
        predicate: tile of dst's shape, uint8, uint16 or uint32 (bool counts as uint8).
        reverse_pred: copy where the predicate is zero.
        mask: which elements may be written.
        dtype: must be dst's type if given.

    Raises:
        DTypeError: src and dst are not one type.
    """
    what = "nisa.tensor_copy_predicated"
    dst, predicate = require_tile(what, dst), require_tile(what, predicate)
    same_shape(what, dst, predicate)
    _require_dtype(
        f"{what}: predicate",
        predicate,
        {"uint8", "uint16", "uint32", "bool"},
        "convert it: nl.copy(predicate, dtype=nl.uint8)",
    )
    _check_dtype_is(what, dst, dtype)
    if isinstance(src, Tensor):
        src = require_tile(what, src)
        same_shape(what, dst, src)
        not_both_in_psum(what, src, predicate)
        if src.dtype != dst.dtype:
            raise DTypeError(
                f"{what} of {src.describe()} into {dst.describe()}",
                rule="src and dst have one type",
                fix="convert src first, with nl.copy(src, dtype=...)",
            )
    else:
        src = number(src)
    ins = (predicate, src, dst)
    reverse = bool(reverse_pred)
    current().emit("tensor_copy_predicated", (dst,), ins, mask=mask, reverse=reverse)


__all__ = [
    "affine_select",
    "iota",
    "range_select",
    "select_reduce",
    "tensor_copy_predicated",
]
