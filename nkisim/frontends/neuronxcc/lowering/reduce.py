"""Reductions along free axes, and the functions made of them alone: mean, variance."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from nkisim.errors import DTypeError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering.elementwise import elementwise
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import narrow, require_tile
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import BOOL, F32, FLOATS, INTEGERS, as_dtype
from nkisim.ir.integers import as_int
from nkisim.ir.restriction import Box, Restriction, boxes
from nkisim.numerics import alu
from nkisim.trace.tracer import current


def free_axes(what: str, axis: object, x: Tensor) -> tuple[int, ...]:
    """`axis` as a tuple of the axes to reduce.

    Raises:
        ParameterError: not integers, the partition axis, or not the last axes in a row.
    """
    axes = _as_axes(axis, x)
    if axes and axes == list(range(x.ndim - len(axes), x.ndim)) and axes[0] > 0:
        return tuple(axes)
    last = ", ".join(str(list(range(i, x.ndim))) for i in range(x.ndim - 1, 0, -1))
    raise ParameterError(
        f"{what}: axis={axis!r} of {x.describe()}",
        rule="an engine reduces the last free axes, in a row, and never axis 0, which lies across "
        f"partitions; of this tile: {last}",
        fix="give the axes as integers; of two tiles the larger is nl.maximum(x, y), and the "
        "smaller nl.minimum(x, y)"
        if axes is None
        else _permuting(x, axes)
        if axes and _all_free(axes, x)
        else "reduce axis 0 by a matmul with ones or by nisa.tensor_partition_reduce, or "
        "nl.transpose the tile first"
        if 0 in axes
        else f"count the axes of the tile, 0 to {x.ndim - 1}, each once: axis={x.ndim - 1}",
    )


def with_axes_last(what: str, x: Any, axis: Any, mask: Mask | None = None) -> tuple[Any, Any, Any]:
    """`x`, `axis` and `mask` with the axes to reduce moved to the end, when they are free axes.

    The documentation wants the last axes, and AWS's own average pooling tutorial sums axes [2, 4]
    of five: the compiler permutes the access pattern, which costs nothing (aws-neuron-sdk issue
    1257), and a warning says so. `free_axes` refuses what is left.
    """
    axes = _as_axes(axis, x) if isinstance(x, Tensor) else None
    if not axes or not _all_free(axes, x) or axes[0] == x.ndim - len(axes):
        return x, axis, mask
    current().checker.warn(
        ParameterError(
            f"{what}: axis={axis!r} of {x.describe()}",
            rule="the documentation has the last free axes only; for others the compiler permutes "
            "the access pattern",
            fix=_permuting(x, axes),
        )
    )
    order = _with_last(axes, x)
    if isinstance(mask, Mask):
        mask = mask.permuted(x.shape, order)
    shape = tuple(x.shape[d] for d in order)
    coefs = tuple(tuple(row[d] for d in order) for row in x.coefs)
    return x.view_as(shape, x.offsets, coefs), tuple(range(x.ndim - len(axes), x.ndim)), mask


def _as_axes(axis: Any, x: Tensor) -> list[int] | None:
    """The axes, in order, counted from the first. None when one is no integer."""
    numbers = [as_int(a) for a in (axis if isinstance(axis, tuple | list) else (axis,))]
    return None if None in numbers else sorted([a + x.ndim if a < 0 else a for a in numbers])


def _all_free(axes: list[int], x: Tensor) -> bool:
    """Whether axes are free axes of a tile, each once."""
    return axes[0] > 0 and axes[-1] < x.ndim and len(set(axes)) == len(axes)


def _with_last(axes: list[int], x: Tensor) -> list[int]:
    return [d for d in range(x.ndim) if d not in axes] + axes


def _permuting(x: Tensor, axes: list[int]) -> str:
    """The index that permutes a tile so that some of its free axes come last."""
    order = _with_last(axes, x)
    names = [f"i{d}" for d in range(x.ndim)]
    ranges = ", ".join([f"0:{x.shape[d]}" for d in order])
    index = ", ".join([names[order.index(d)] for d in range(x.ndim)])
    return (
        f"permute the axes in the index, which costs nothing: {', '.join(names)} = "
        f"nl.mgrid[{ranges}], then axis={list(range(x.ndim - len(axes), x.ndim))} of t[{index}]"
    )


def reduce(
    what: str,
    op: str,
    x: Tensor,
    axis: Any,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    keepdims: bool = False,
    negate: bool = False,
) -> Tensor:
    """Lower one reduction along free axes. Vector Engine, fp32 inside.

    Args:
        what: the function called, for messages.
        op: an operator of `alu.REDUCTIONS`.
        x: on-chip tile.
        axis: the last axes of x, an int or several.
        dtype: of the result; x's when None.
        mask: which elements of x count.
        keepdims: keep reduced axes, with extent 1.
        negate: multiply the result by -1.

    Returns:
        An SBUF tile without the reduced axes; (partitions, 1) when no free axis is left.
    """
    x = require_tile(what, x)
    axes = free_axes(what, axis, x)
    result = x.dtype if dtype is None else as_dtype(dtype)
    if not math.prod([x.shape[d] for d in axes]):
        raise ShapeError(
            f"{what} of {x.describe()} along axes {list(axes)}, which have no elements",
            rule="a result is made of at least one element",
            fix="leave out tiles without elements: if x.shape[1] > 0",
        )
    if op in alu.BITVEC:
        check_integers(what, x.dtype, result)
        if negate:
            raise ParameterError(
                f"{what}: negate=True with {op}",
                rule="only arithmetic results can be negated",
                fix="drop negate",
            )
    kept = x.shape[: axes[0]]
    shape = kept + (1,) * len(axes) if keepdims else kept if len(kept) > 1 else (*kept, 1)
    out = ndarray(shape, result)
    view = out
    while view.ndim < x.ndim:
        view = view.expand_dims(view.ndim)
    emit_reduction("tensor_reduce", op, view, x, axes, mask, negate=negate)
    return out


def emit_reduction(
    opcode: str,
    op: str,
    out: Tensor,
    x: Tensor,
    axes: tuple[int, ...],
    mask: Mask | None,
    **attrs: Any,
) -> None:
    """Write down a reduction of `x` over `axes` into `out`, which has extent 1 on them."""
    if mask is None and x.size:
        _emit_where(opcode, op, out, x, axes, None, attrs)
        return
    left = restriction(mask, x.shape)
    if left.empty:
        return
    kept = tuple(d for d in range(x.ndim) if d not in axes)
    out, x = narrow(out, left, kept), narrow(x, left)
    if left.dense is None or x.escape() is None:
        _emit_where(opcode, op, out, x, axes, left.dense, attrs)
        return
    # Where the mask is false, x reaches outside of its tensor: an access pattern has to stop
    # short of that. One instruction for each part of the result that reads the same window.
    for part, window in _windows(left.dense, kept):
        inside = x.restrict(part).restrict(window.box)
        _emit_where(opcode, op, out.restrict(_on(part, kept)), inside, axes, window.dense, attrs)


def _emit_where(
    opcode: str,
    op: str,
    out: Tensor,
    x: Tensor,
    axes: tuple[int, ...],
    where: np.ndarray | None,
    attrs: dict[str, Any],
) -> None:
    seen = None if where is None else where.any(axis=axes, keepdims=True)
    current().emit(
        opcode,
        (out,),
        (x,),
        where=where,
        where_out=None if seen is None or seen.all() else seen,
        op=op,
        axes=axes,
        **attrs,
    )


def _windows(true: np.ndarray, kept: tuple[int, ...]) -> Iterator[tuple[Box, Restriction]]:
    """Boxes of the `kept` axes (whole along the others) whose elements are true in the same
    places along the other axes, each with these places as a restriction of the box."""
    axes = tuple(d for d in range(true.ndim) if d not in kept)
    alike = 0 in kept and bool((true == true[:1]).all())  # then one partition tells of all
    shown = true[:1] if alike else true
    rows = shown.transpose(*kept, *axes).reshape(*(shown.shape[d] for d in kept), -1)
    patterns, which = np.unique(rows.reshape(-1, rows.shape[-1]), axis=0, return_inverse=True)
    which = which.reshape(rows.shape[:-1])
    for number, pattern in enumerate(patterns):
        if not pattern.any():
            continue
        for at in boxes(which == number):
            part = [(0, n) for n in true.shape]
            for d, span in zip(kept, at, strict=True):
                part[d] = (0, len(true)) if alike and d == 0 else span
            inside = true[tuple(slice(lo, hi) for lo, hi in part)]
            whole = tuple((0, n) for n in inside.shape)
            yield tuple(part), Restriction(whole, inside).tightened()


def _on(box: Box, kept: tuple[int, ...]) -> Box:
    """`box`, of extent 1 on the axes that are not kept."""
    return tuple(span if d in kept else (0, 1) for d, span in enumerate(box))


def check_integers(what: str, *dtypes: np.dtype) -> None:
    """Raises DTypeError unless all types are integers, as bit operations want them."""
    for dt in dtypes:
        if dt not in INTEGERS and dt != BOOL:
            raise DTypeError(
                f"{what}: a bit operation with a {dt} operand or result",
                rule="bit operations treat elements as bit patterns: integer types in and out",
                fix="convert the tile to an integer type, or pass an integer dtype; write a "
                "number as an integer",
            )


def float_type(x: Tensor, dtype: Any) -> np.dtype:
    if dtype is not None:
        return as_dtype(dtype)
    return x.dtype if x.dtype in FLOATS else F32


def _count(x: Tensor, axes: tuple[int, ...], mask: Mask | None, what: str) -> int:
    """The number of elements that each output of a reduction is made from."""
    left = restriction(mask, x.shape)
    if left.dense is not None:
        raise ParameterError(
            f"{what} under a mask that couples axes: outputs have unequal numbers of elements",
            rule="the mean divides by one number",
            fix="sum under the mask and divide by a tile of counts",
        )
    return math.prod(hi - lo for d, (lo, hi) in enumerate(left.box) if d in axes)


@remembered
def mean(x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs):
    """Arithmetic mean along free axes. fp32 for integer tiles."""
    x = require_tile("nl.mean", x)
    n = _count(x, free_axes("nl.mean", axis, x), mask, "nl.mean")
    total = reduce("nl.mean", "add", x, axis, dtype=F32, mask=mask, keepdims=keepdims)
    if n == 0:
        return total
    return elementwise(
        "multiply", total, 1.0 / n, dtype=float_type(x, dtype), mask=kept_mask(mask, x, total)
    )


def kept_mask(mask: Mask | bool | None, x: Tensor, result: Tensor) -> Mask | bool | None:
    """A mask on the elements of `x`, as one on a result that has x's leading axes.

    Of a mask that couples axes only the bounding box counts.
    """
    left = restriction(mask, x.shape)
    if left.empty:
        return False
    terms: list[IndexTensor] = []
    shape = result.shape
    for d, ((low, high), n) in enumerate(zip(left.box, shape, strict=False)):
        if n == x.shape[d] and (low, high) != (0, n):
            index = IndexTensor(
                tuple(n if a == d else 1 for a in range(len(shape))),
                tuple(int(a == d) for a in range(len(shape))),
            )
            terms += [index - low, (high - 1) - index]
    return Mask(tuple(terms)) if terms else None


@remembered
def var(x, axis, *, dtype=None, mask=None, **kwargs):
    """Variance (of the population) along free axes, in fp32.

    Raises:
        ParameterError: `keepdims` is given; `nl.var` has no such parameter.
    """
    if "keepdims" in kwargs:
        raise ParameterError(
            f"nl.var with keepdims={kwargs['keepdims']!r}",
            rule="nl.var has no keepdims: the reduced axes go",
            fix="index the result with None, or use nl.mean, which keeps them",
        )
    x = require_tile("nl.var", x)
    axes = free_axes("nl.var", axis, x)
    n = _count(x, axes, mask, "nl.var")
    center = mean(x, axis, dtype=F32, mask=mask, keepdims=True)
    apart = elementwise("subtract", x, center, dtype=F32, mask=mask)
    squares = elementwise("square", apart, mask=mask)
    total = reduce("nl.var", "add", squares, axis, mask=mask)
    if n == 0:
        return total
    return elementwise(
        "multiply", total, 1.0 / n, dtype=float_type(x, dtype), mask=kept_mask(mask, x, total)
    )


def _reduce_free(
    what: str, op: str, x: Any, axis: Any, dtype: Any, mask: Mask | None, keepdims: bool
) -> Tensor:
    """:func:`reduce` of any free axes; of the last ones with `keepdims`."""
    if not keepdims:
        x, axis, mask = with_axes_last(what, x, axis, mask)
    return reduce(what, op, x, axis, dtype=dtype, mask=mask, keepdims=keepdims)


# These names hide Python's from here on, so they stand last.


@remembered
def max(x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs):
    """Maximum along free axes. NaN if one is, as in NumPy; AWS does not say what a device gives."""
    return _reduce_free("nl.max", "maximum", x, axis, dtype, mask, keepdims)


@remembered
def min(x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs):
    """Minimum along free axes. NaN if one is, as in NumPy; AWS does not say what a device gives."""
    return _reduce_free("nl.min", "minimum", x, axis, dtype, mask, keepdims)


@remembered
def sum(x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs):
    """Sum along free axes, in fp32."""
    return _reduce_free("nl.sum", "add", x, axis, dtype, mask, keepdims)


@remembered
def prod(x, axis, *, dtype=None, mask=None, keepdims=False, **kwargs):
    """Product along free axes, in fp32."""
    return _reduce_free("nl.prod", "multiply", x, axis, dtype, mask, keepdims)


@remembered
def all(x, axis, *, dtype=bool, mask=None, **kwargs):
    """Whether every element along free axes is non-zero."""
    return reduce("nl.all", "logical_and", x, axis, dtype=dtype, mask=mask)
