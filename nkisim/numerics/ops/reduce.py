"""Reductions: along free axes, across partitions, and running ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

import numpy as np

from nkisim.ir.dtypes import BOOL, F32, bfloat16
from nkisim.ir.instruction import Engine, Instruction, OpKind, flow_by_axis, opcode, reads_by_axis
from nkisim.ir.settings import Settings
from nkisim.numerics import alu
from nkisim.numerics.ops.cycles import Cycles, OnEngine
from nkisim.numerics.ops.float32 import as_f32, operator, write

# NumPy's reduction calls its inner loop once for each output element. Along an axis this short,
# adding up slices of the whole tile is faster.
_SHORT = 16

_START = {"add": 0.0, "multiply": 1.0, "maximum": -np.inf, "minimum": np.inf}


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Reduction(Settings):
    """The reduction of some axes."""

    op: str
    axes: tuple[int, ...]
    negate: bool = False
    scale: float | None = None  # of the sum


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Scan(Settings):
    """Two operators, the first of them on what came before."""

    op: str = ""
    steps: tuple[tuple[str, bool], ...] = ()
    initial: float | None = None  # None where a tile has it


def reducer(
    name: str, axes: tuple[int, ...], shape: tuple[int, ...], where: np.ndarray | None
) -> Callable[..., np.ndarray]:
    """`f(x, out=None) -> fp32 array` that reduces `axes`, kept with extent 1.

    Args:
        name: an arithmetic operator with a ufunc.
        axes: the axes to reduce.
        shape: of x.
        where: the elements that count; all when None.
    """
    if name == "subtract":
        return _first_minus_rest(axes, shape, where)
    ufunc = alu.ALU[name].fn
    if where is not None:
        start = np.float32(_START[name])

        def masked(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
            return ufunc.reduce(
                as_f32(x), axis=axes, out=out, keepdims=True, initial=start, where=where
            )

        return masked
    whole = len(axes) == 1 and shape[axes[0]] > _SHORT
    length = prod(shape[a] for a in axes)
    rows = name == "add" and axes == tuple(range(axes[0], len(shape))) and length > _SHORT

    def run(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        if rows and x.dtype == F32 and (x.flags.c_contiguous or (x.ndim == 2 and _dense(x))):
            return _sum_rows(x.reshape(-1, length), x.shape[: axes[0]] + (1,) * len(axes), out)
        if whole or _one_stride(x, axes):
            return ufunc.reduce(x, axis=axes, dtype=F32, out=out, keepdims=True)
        return _axis_by_axis(ufunc, x, axes, out)

    return run


def _first_minus_rest(
    axes: tuple[int, ...], shape: tuple[int, ...], where: np.ndarray | None
) -> Callable[..., np.ndarray]:
    """Subtraction from left to right, over the last axes: twice the first minus the sum."""
    total = reducer("add", axes, shape, where)
    kept = tuple(1 if d in axes else n for d, n in enumerate(shape))
    lead = shape[: axes[0]]
    at = 0 if where is None else where.reshape(*lead, -1).argmax(axis=-1)[..., None]

    def run(x: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        rows = as_f32(x).reshape(*lead, -1)
        first = rows[..., :1] if where is None else np.take_along_axis(rows, at, axis=-1)
        return np.subtract(2 * first.reshape(kept), total(x), out=out)

    return run


def _dense(x: np.ndarray) -> bool:
    """Whether the rows of a matrix are contiguous."""
    return x.strides[1] == x.itemsize


def _sum_rows(rows: np.ndarray, shape: tuple[int, ...], out: np.ndarray | None) -> np.ndarray:
    """Sum the contiguous rows of a matrix, into `shape`.

    einsum adds with vector registers, several times as fast as np.add.reduce. Each of their
    elements sums a part of the row in fp32, so errors stay near those of pairwise summation.
    """
    sums = np.einsum("ij->i", rows).reshape(shape)
    if out is None:
        return sums
    np.copyto(out, sums)
    return out


def _one_stride(x: np.ndarray, axes: tuple[int, ...]) -> bool:
    """Whether `axes` can be walked as one long axis: NumPy is then at its best."""
    step = None
    count = 1
    for a in sorted((a for a in axes if x.shape[a] > 1), key=lambda a: x.strides[a]):
        if step is not None and x.strides[a] != step:
            return False
        step = x.strides[a] * x.shape[a]
        count *= x.shape[a]
    return count > _SHORT or count == 1


def _axis_by_axis(
    ufunc: np.ufunc, x: np.ndarray, axes: tuple[int, ...], out: np.ndarray | None
) -> np.ndarray:
    """Reduce the axis of the largest stride first: what is left to walk stays contiguous."""
    left = [a for a in sorted(axes, key=lambda a: -abs(x.strides[a])) if x.shape[a] > 1]
    while left:
        a = left.pop(0)
        into = out if not left else None
        if x.shape[a] > _SHORT:
            x = ufunc.reduce(x, axis=a, dtype=F32, out=into, keepdims=True)
            continue
        first, *rest = (x[(slice(None),) * a + (slice(i, i + 1),)] for i in range(x.shape[a]))
        x = first
        for piece in rest:
            x = ufunc(x, piece, out=into if x is first else x, dtype=F32, casting="unsafe")
    return x


_BF16_FAST = frozenset({"add", "maximum"})


def _cost(on: OnEngine) -> Cycles:
    fast = on.instr.settings.op in _BF16_FAST and all(
        o.dtype == bfloat16 for o in (*on.ins, *on.outs)
    )
    return Cycles(0.5 if fast and on.timing.bf16_pairs else 1.0)


def _cost_across(on: OnEngine) -> Cycles:
    """A core of GpSimd serves 16 partitions, serially."""
    return Cycles(float(max(1, on.ins[0].rows // 8)))


_BY_AXIS: dict = {"flow": flow_by_axis, "reads": reads_by_axis}


@opcode(
    "tensor_reduce",
    Engine.VECTOR,
    OpKind.REDUCTION,
    settings=Reduction,
    cost=_cost,
    joined_inputs=1,
    **_BY_AXIS,
)
def _tensor_reduce(instr: Instruction) -> Callable:
    """Reduce `axes`; the output has extent 1 there."""
    name, axes = instr.settings.op, instr.settings.axes
    out, data = instr.outs[0], instr.ins[0]
    kind = alu.ALU[name].kind
    if kind != "arith":
        return _own_type(alu.ALU[name].fn, axes, instr)
    reduce = reducer(name, axes, data.shape, instr.where)
    negate, scale = instr.settings.negate, instr.settings.scale
    if out.dtype == F32 and instr.where_out is None and scale is None and not negate:
        return lambda o, x: reduce(x, out=o)

    def run(o: np.ndarray, x: np.ndarray) -> None:
        total = reduce(x)
        if scale is not None:
            total = total * np.float32(scale)
        write(o, -total if negate else total, instr.where_out)

    return run


def _own_type(ufunc: np.ufunc, axes: tuple[int, ...], instr: Instruction) -> Callable:
    """Bitwise and logical reductions, which do not convert."""
    where = True if instr.where is None else instr.where
    start = {} if instr.where is None else {"initial": _neutral(ufunc, instr.ins[0].dtype)}

    def run(o: np.ndarray, x: np.ndarray) -> None:
        total = ufunc.reduce(x, axis=axes, keepdims=True, where=where, **start)
        kept = True if instr.where_out is None else instr.where_out
        np.copyto(o, total, where=kept, casting="unsafe")

    return run


def _neutral(ufunc: np.ufunc, dtype: np.dtype) -> object:
    if ufunc in (np.logical_and, np.logical_or, np.logical_xor):
        return ufunc is np.logical_and
    ones = ~np.zeros((), dtype) if dtype != BOOL else np.True_
    return ones if ufunc is np.bitwise_and else np.zeros((), dtype)[()]


opcode(
    "tensor_partition_reduce",
    Engine.GPSIMD,
    OpKind.REDUCTION,
    settings=Reduction,
    cost=_cost_across,
    **_BY_AXIS,
)(_tensor_reduce)


@opcode(
    "tensor_tensor_scan",
    Engine.VECTOR,
    OpKind.SCAN,
    settings=Scan,
    cost=lambda on: Cycles(on.timing.scan_cycles),
    in_place=True,
)
def _scan(instr: Instruction) -> Callable:
    """state = (data0 op0 state) op1 data1, along the free axes."""
    (name0, swap0), (name1, swap1) = instr.settings.steps
    op0, op1 = operator(name0), operator(name1)
    initial = None if len(instr.ins) > 2 else np.float32(instr.settings.initial)

    def run(out: np.ndarray, data0: np.ndarray, data1: np.ndarray, *start: np.ndarray) -> None:
        lanes = out.shape[0]
        # One row a step, so that each step reads and writes contiguous memory.
        a = np.ascontiguousarray(as_f32(data0).reshape(lanes, -1).T)
        b = np.ascontiguousarray(as_f32(data1).reshape(lanes, -1).T)
        states = np.empty_like(a)
        state = np.broadcast_to(
            initial if initial is not None else as_f32(start[0]).reshape(-1), (lanes,)
        )
        for x, y, result in zip(a, b, states, strict=True):
            if swap0:
                op0(result, state, x)
            else:
                op0(result, x, state)
            if swap1:
                op1(result, y, result)
            else:
                op1(result, result, y)
            state = result
        write(out, states.T.reshape(out.shape), instr.where)

    return run
