"""Reductions, running reductions, and statistics of rows."""

from __future__ import annotations

from typing import Any

from nkisim.errors import MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering import reduce as lowering
from nkisim.frontends.neuronxcc.lowering.elementwise import operator_name
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import (
    lane_operand,
    lane_view,
    narrow,
    not_both_in_psum,
    one_of,
    require_elements,
    require_tile,
    same_shape,
)
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import as_dtype, promote
from nkisim.ir.memory import Space
from nkisim.numerics import alu
from nkisim.trace.tracer import current


@remembered
def tensor_reduce(
    op: Any,
    data: Tensor,
    axis: int | tuple[int, ...] | list[int],
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    negate: bool = False,
    keepdims: bool = False,
    **kwargs: Any,
) -> Tensor:
    """Reduce the last free axes of a tile on the Vector Engine, in fp32.

    Args:
        op: add, subtract, multiply, max, min, a logical or a bit operator (integers in and out).
        data: tile in SBUF or PSUM.
        axis: the last axes of data, up to four, never axis 0. Other free axes are accepted, with
            a warning: published kernels reduce them, but the documentation does not.
        mask: which elements count.
        dtype: of the result; data's when None.
        negate: multiply an arithmetic result by -1.
        keepdims: keep the reduced axes, with extent 1.

    Returns:
        An SBUF tile without the reduced axes; (partitions, 1) when no free axis is left.
    """
    what = "nisa.tensor_reduce"
    name = one_of(what, operator_name(op), alu.REDUCTIONS)
    data, axis, mask = lowering.with_axes_last(what, data, axis, mask)
    return lowering.reduce(
        what, name, data, axis, dtype=dtype, mask=mask, keepdims=keepdims, negate=bool(negate)
    )


_ACROSS = frozenset({"add", "maximum", "bitwise_or", "bitwise_and"})


@remembered
def tensor_partition_reduce(
    op: Any, data: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """Reduce a tile across partitions on the GpSimd Engine.

    Args:
        op: add, max, bitwise_or or bitwise_and.
        data: SBUF tile (P, F...); the GpSimd Engine cannot access PSUM.
        mask: which elements count.
        dtype: of the result; data's when None.

    Returns:
        An SBUF tile (1, F...).

    Raises:
        MemorySpaceError: data in PSUM.
    """
    what = "nisa.tensor_partition_reduce"
    data = require_tile(what, data)
    name = one_of(what, operator_name(op), _ACROSS)
    if data.space is Space.PSUM:
        raise MemorySpaceError(
            f"{what} of {data.describe()}",
            rule="the GpSimd Engine cannot access PSUM",
            fix="copy the tile into SBUF first, with nl.copy",
        )
    result = data.dtype if dtype is None else as_dtype(dtype)
    if name in alu.BITVEC:
        lowering.check_integers(what, data.dtype, result)
    out = ndarray((1, *data.shape[1:]), result)
    lowering.emit_reduction("tensor_partition_reduce", name, out, data, (0,), mask)
    return out


@remembered
def tensor_tensor_scan(
    data0: Tensor,
    data1: Tensor,
    initial: Tensor | float,
    op0: Any,
    op1: Any,
    reverse0: bool = False,
    reverse1: bool = False,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> Tensor:
    """Running `state = (data0[i] op0 state) op1 data1[i]` along the free axes, in fp32.

    Args:
        data0, data1: tiles of one shape, not both in PSUM.
        initial: the first state: a number, or a tile of shape (partitions, 1).
        op0, op1: binary arithmetic operators.
        reverse0: put the state on the left of op0.
        reverse1: put data1 on the left of op1.
        dtype: of the result; the promoted input type when None.
        mask: which elements to write; every element before them is scanned.

    Returns:
        An SBUF tile of the states.

    Raises:
        ParameterError: a mask that leaves out the beginning of the free axis.
    """
    what = "nisa.tensor_tensor_scan"
    data0, data1 = require_tile(what, data0), require_tile(what, data1)
    same_shape(what, data0, data1)
    not_both_in_psum(what, data0, data1)
    allowed = alu.ALU_OPERATORS - alu.BITVEC - alu.UNARY_ALU
    steps = tuple(
        (one_of(what, operator_name(op), allowed), bool(swap))
        for op, swap in ((op0, reverse0), (op1, reverse1))
    )
    out = ndarray(data0.shape, promote(data0.dtype, data1.dtype) if dtype is None else dtype)
    start = lane_operand(f"{what}: initial", initial, data0)
    attrs: dict[str, Any] = {"op": f"{steps[0][0]}, {steps[1][0]}", "steps": steps}
    ins: tuple = (data0, data1)
    left = restriction(mask, data0.shape)
    if left.empty:
        return out
    if isinstance(start, Tensor):
        vector = lane_view(require_tile(what, initial), data0)
        ins += (narrow(vector, left, (0,)),)
    else:
        attrs["initial"] = float(start)
    if any(low for low, _ in left.box[1:]):
        raise ParameterError(
            f"{what}: a mask that leaves out the beginning of the free axis",
            rule="a scan starts at the first element",
            fix="slice the operands instead",
        )
    current().emit(
        "tensor_tensor_scan",
        (narrow(out, left),),
        (narrow(data0, left), narrow(data1, left), *ins[2:]),
        where=left.dense,
        **attrs,
    )
    return out


@remembered
def bn_stats(data: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Count, mean and variance * count of the even, then of the odd elements of each partition.

    Vector Engine, fp32 inside. `bn_aggr` makes a mean and a variance of one or more of these.

    Args:
        data: tile of at most 512 elements a partition (nl.tile_size.bn_stats_fmax).
        mask: which elements count: a range of partitions; free axes are not maskable.
        dtype: of the result; data's when None.

    Returns:
        An SBUF tile (partitions, 6).
    """
    what = "nisa.bn_stats"
    data = require_tile(what, data)
    require_elements(what, data, 1, current().trace.machine.bn_stats_fmax)
    out = ndarray((data.shape[0], 6), data.dtype if dtype is None else dtype)
    return _by_partition(what, "bn_stats", out, data, mask)


@remembered
def bn_aggr(data: Tensor, *, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """Mean and variance of each partition from (count, mean, variance * count) triples.

    Args:
        data: tile whose elements a partition are outputs of `bn_stats`: a multiple of 3.
        mask: which elements count: a range of partitions.
        dtype: of the result; data's when None.

    Returns:
        An SBUF tile (partitions, 2): mean, variance.

    Raises:
        ShapeError: a number of elements a partition that is no multiple of 3.
    """
    what = "nisa.bn_aggr"
    data = require_tile(what, data)
    n = data.size // max(data.shape[0], 1)
    if n % 3 or not n:
        raise ShapeError(
            f"{what} of {data.describe()}: {n} elements a partition",
            rule="a partition holds (count, mean, variance * count) triples: a multiple of 3",
            fix="pass what nisa.bn_stats gives, 6 elements a call",
        )
    out = ndarray((data.shape[0], 2), data.dtype if dtype is None else dtype)
    return _by_partition(what, "bn_aggr", out, data, mask)


def _by_partition(what: str, opcode: str, out: Tensor, data: Tensor, mask: Mask | None) -> Tensor:
    left = restriction(mask, data.shape)
    if left.empty:
        return out
    if left.dense is not None or left.box[1:] != tuple((0, n) for n in data.shape[1:]):
        raise ParameterError(
            f"{what}: a mask on the free axis",
            rule="the mask of a statistic is a range of partitions (known issue, SDK 2.26)",
            fix="slice the tile: tile[:, 0:n]",
        )
    current().emit(opcode, (narrow(out, left, (0,)),), (narrow(data, left),))
    return out


__all__ = ["bn_aggr", "bn_stats", "tensor_partition_reduce", "tensor_reduce", "tensor_tensor_scan"]
