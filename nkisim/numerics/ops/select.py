"""Instructions that choose between values: by a predicate tile, an affine one, or a range."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern, Affine, affine_values
from nkisim.ir.dtypes import F32, cast_into
from nkisim.ir.instruction import (
    Engine,
    Instruction,
    Missing,
    OpKind,
    flow_by_axis,
    opcode,
    reads_by_axis,
)
from nkisim.ir.memory import Space
from nkisim.ir.settings import Settings
from nkisim.numerics import alu
from nkisim.numerics.ops.cycles import Cycles, OnEngine, one_after_the_other, one_cycle
from nkisim.numerics.ops.float32 import as_f32, converted, write
from nkisim.numerics.ops.masking import masked


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class AffineSelect(Settings):
    """Settings of affine_select: the value where the predicate does not hold."""

    value: float
    domain: tuple[int, ...] | None = None  # extents of the coordinates; None for the tile's own
    negated: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Iota(Settings):
    """Settings of iota: the extents of its coordinates."""

    domain: tuple[int, ...] | None = None  # their extents; None for the tile's own


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Predicated(Settings):
    """Settings of a copy under a predicate."""

    reverse: bool  # where it is zero
    reduce_op: str = ""
    accumulate: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RangeSelect(Settings):
    """Settings of range_select: the comparisons of indices with the bounds."""

    comparisons: tuple[str, str]
    value: float  # of what is not selected
    reduce_op: str = ""
    accumulate: bool = False


def _predicate(instr: Instruction) -> np.ndarray:
    """The predicate by element: all affine operands are at least zero; the opposite if
    `negated`."""
    shape = instr.outs[0].shape
    domain = instr.settings.domain or shape
    return _dense(shape, domain, instr.ins[1:], instr.settings.negated)


@functools.lru_cache(maxsize=64)
def _dense(
    shape: tuple[int, ...], domain: tuple[int, ...], terms: tuple[Affine, ...], negated: bool
) -> np.ndarray:
    """Shared: causal masks repeat."""
    true = np.ones(domain, bool)
    for coefs, offset in terms:
        true &= affine_values(domain, coefs, offset) >= 0
    true = (true != negated).reshape(shape)
    true.flags.writeable = False
    return true


def _flow_affine(instr: Instruction, missing: Missing) -> Missing:
    """The input is read where the predicate holds."""
    shape = instr.outs[0].shape
    m = missing[0]
    if m is None or m.shape != shape:
        return flow_by_axis(instr, missing)
    undefined = m & _predicate(instr)
    return [undefined if undefined.any() else None]


@opcode(
    "affine_select",
    Engine.GPSIMD,
    OpKind.ELEMENTWISE,
    settings=AffineSelect,
    cost=one_cycle,
    flow=_flow_affine,
    reads=reads_by_axis,
    in_place=True,
)
def _affine_select(instr: Instruction) -> Callable:
    """The input where the affine predicate holds, else a number. `domain` has the extents
    of the coordinates, row by row those of the tile, where they are not the tile's own."""
    true = _predicate(instr)
    other = np.float32(instr.settings.value)
    direct = instr.outs[0].dtype == instr.ins[0].dtype
    fill = np.empty((), instr.outs[0].dtype)
    cast_into(fill, np.asarray(other))

    def run(out: np.ndarray, x: np.ndarray) -> None:
        if direct:
            np.copyto(out, x)
            np.copyto(out, fill, where=~true)
        else:
            write(out, np.where(true, as_f32(x), other))

    return masked(instr, run)


@opcode("iota", Engine.GPSIMD, OpKind.ELEMENTWISE, settings=Iota, cost=one_cycle)
def _iota(instr: Instruction) -> Callable:
    """An affine expression of the coordinates, in 32-bit integers, then converted."""
    coefs, offset = instr.ins[0]
    shape = instr.outs[0].shape
    values = np.empty(shape, instr.outs[0].dtype)
    domain = instr.settings.domain or shape
    wrapped = affine_values(domain, coefs, offset).astype(np.int32)
    cast_into(values, wrapped.reshape(shape))
    return masked(instr, lambda out: np.copyto(out, values))


def _cost_predicated(on: OnEngine) -> Cycles:
    one = sum(o.space is Space.PSUM for o in on.ins) == 1
    return Cycles(1.0) if one else one_after_the_other(on.timing)


@opcode(
    "tensor_copy_predicated",
    Engine.VECTOR,
    OpKind.ELEMENTWISE,
    settings=Predicated,
    cost=_cost_predicated,
    elementwise=True,
)
def _copy_predicated(instr: Instruction) -> Callable:
    """dst = src where the predicate is not zero; the last input is dst itself."""
    reverse, where = instr.settings.reverse, instr.where
    source = instr.ins[1]
    number = None if isinstance(source, AccessPattern) else np.asarray(source, F32)

    def run(dst: np.ndarray, pred: np.ndarray, *rest: np.ndarray) -> None:
        chosen = pred == 0 if reverse else pred != 0
        if where is not None:
            chosen &= where
        src = converted(rest[0] if number is None else number, dst.dtype)
        np.copyto(dst, src, where=chosen)

    return run


def _reduced_select(instr: Instruction, select: Callable) -> Callable:
    """Outputs (result, maximum...): the selected values, and their largest a partition."""
    outs = len(instr.outs)
    where = instr.where
    before = instr.settings.accumulate
    axes = tuple(range(1, instr.outs[0].ndim))

    def run(*tiles: np.ndarray) -> None:
        out, tops, ins = tiles[0], tiles[1:outs], tiles[outs:]
        start = None
        if before:
            start, ins = ins[-1], ins[:-1]
        value = select(*ins)
        if tops:
            low = np.float32(-np.inf)
            counts = True if where is None else where
            top = np.maximum.reduce(value, axis=axes, keepdims=True, initial=low, where=counts)
            if start is not None:
                top = np.maximum(start, top)
            for res in tops:
                write(res, top)
        write(out, value, where)

    return run


_BY_AXIS: dict = {"flow": flow_by_axis, "reads": reads_by_axis}


@opcode(
    "range_select",
    Engine.VECTOR,
    OpKind.REDUCTION,
    settings=RangeSelect,
    cost=one_cycle,
    **_BY_AXIS,
)
def _range_select(instr: Instruction) -> Callable:
    """The input where its free index lies within two bounds, else the lowest fp32 number."""
    first, second = (alu.ALU[name].fn for name in instr.settings.comparisons)
    low = np.float32(instr.settings.value)
    coefs, offset = instr.ins[3]
    index = affine_values(instr.ins[0].shape, coefs, offset).astype(F32)

    def select(x: np.ndarray, bound0: np.ndarray, bound1: np.ndarray) -> np.ndarray:
        return np.where(first(index, bound0) & second(index, bound1), as_f32(x), low)

    return _reduced_select(instr, select)


@opcode(
    "select_reduce",
    Engine.VECTOR,
    OpKind.REDUCTION,
    settings=Predicated,
    cost=_cost_predicated,
    **_BY_AXIS,
)
def _select_reduce(instr: Instruction) -> Callable:
    """on_true where the predicate is not zero, else on_false."""
    reverse = instr.settings.reverse
    number = None if isinstance(instr.ins[2], AccessPattern) else np.float32(instr.ins[2])

    def select(pred: np.ndarray, on_true: np.ndarray, *on_false: np.ndarray) -> np.ndarray:
        chosen = pred == 0 if reverse else pred != 0
        other = as_f32(on_false[0]) if number is None else number
        return np.where(chosen, as_f32(on_true), other)

    return _reduced_select(instr, select)
