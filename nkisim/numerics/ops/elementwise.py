"""Elementwise instructions of the Vector, Scalar and GpSimd Engines."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import INTEGERS, bfloat16, cast_into, float16, weak_scalar_dtype
from nkisim.ir.instruction import Engine, Instruction, Missing, OpKind, opcode
from nkisim.ir.settings import Settings
from nkisim.machine.timing import Timing
from nkisim.numerics import alu
from nkisim.numerics.ops.cycles import Cycles, OnEngine
from nkisim.numerics.ops.float32 import converted
from nkisim.numerics.ops.masking import masked


def _scalar(value: object) -> np.generic:
    """A scalar operand in the type that it brings to the engine."""
    return np.asarray(value, weak_scalar_dtype(value))[()]


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Operators(Settings):
    """One operator over the inputs, or a chain of them."""

    op: str = ""  # its name, those of a chain with commas
    steps: tuple[tuple[str, bool], ...] = ()  # of a chain: (operator, whether swapped) each
    native: bool = False  # integers are computed as integers


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Fill(Settings):
    """The constant."""

    value: float


def elementwise(instr: Instruction) -> Callable:
    """Operator `op` over tiles and scalars, in the order of `instr.ins`."""
    fixed = [None if isinstance(x, AccessPattern) else _scalar(x) for x in instr.ins]
    dtypes = tuple(x.dtype if s is None else s.dtype for x, s in zip(instr.ins, fixed, strict=True))
    native = instr.settings.native
    fn = alu.bind(instr.settings.op, instr.outs[0].dtype, dtypes, native)
    scalars = [(at, s) for at, s in enumerate(fixed) if s is not None]
    if not scalars:
        return masked(instr, fn)

    def with_scalars(out: np.ndarray, *tiles: np.ndarray) -> None:
        ins = list(tiles)
        for at, s in scalars:
            ins.insert(at, s)
        fn(out, *ins)

    return masked(instr, with_scalars)


def cost_of_reciprocal(on: OnEngine) -> Cycles:
    """A table on Scalar, iterations on Vector."""
    each = 1.0 if on.engine is Engine.SCALAR else on.timing.reciprocal_cycles
    return Cycles(each, n=on.ins[0].n, fast=None, table=True)


def reciprocal_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    """The engine on which the compiler computes a reciprocal of `n` elements a partition."""
    return (Engine.SCALAR if n >= timing.table_reciprocal_elements else Engine.VECTOR,)


def _instruction_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    if timing.vector_reciprocals:
        return (Engine.VECTOR,)
    return reciprocal_on(instr, n, psum, timing)


opcode(
    "reciprocal",
    Engine.VECTOR,
    OpKind.ELEMENTWISE,
    settings=Operators,
    cost=cost_of_reciprocal,
    engines=_instruction_on,
    elementwise=True,
    joined_inputs=1,
)(elementwise)


_HALF = (np.dtype(bfloat16), np.dtype(float16))


def _cost_fill(on: OnEngine) -> Cycles:
    zero = on.instr.settings.value == 0 and on.outs[0].dtype in _HALF
    return Cycles(0.5 if zero else 1.0)


def _fill_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    return (Engine.VECTOR,) if psum else (Engine.GPSIMD, Engine.VECTOR)


@opcode(
    "memset",
    Engine.VECTOR,
    OpKind.FILL,
    settings=Fill,
    cost=_cost_fill,
    engines=_fill_on,
    elementwise=True,
    joined_inputs=1,
)
def _memset(instr: Instruction) -> Callable:
    value = np.empty((), instr.outs[0].dtype)
    given = np.asarray(_scalar(instr.settings.value))
    with np.errstate(all="ignore"):  # a value past the type's range is infinite
        if given.dtype in INTEGERS:  # bits of a constant: -1 in an unsigned type is all ones
            np.copyto(value, given, casting="unsafe")
        else:
            cast_into(value, given)
    return masked(instr, lambda out: out.fill(value[()]))


def _flow_select(instr: Instruction, missing: Missing) -> Missing:
    """Definedness of a select, whose choice is data: an element that may be defined counts as
    such."""
    chosen_by, *choices = missing
    if len(choices) < 2:  # the other one is a number
        choices.append(None)
    garbage = None if any(m is None for m in choices) else choices[0] & choices[1]
    known = [m for m in (chosen_by, garbage) if m is not None]
    return [functools.reduce(np.logical_or, known) if known else None]


@opcode(
    "select",
    Engine.VECTOR,
    OpKind.ELEMENTWISE,
    cost=lambda on: Cycles(on.timing.select_cycles),
    elementwise=True,
    flow=_flow_select,
)
def _select(instr: Instruction) -> Callable:
    """condition ? x : y, on tiles; y may be a scalar. What is chosen keeps its bits if its type
    is the output's."""
    kind = instr.outs[0].dtype
    y = instr.ins[2]
    number = None if isinstance(y, AccessPattern) else converted(np.asarray(_scalar(y)), kind)

    def run(out: np.ndarray, c: np.ndarray, a: np.ndarray, *b: np.ndarray) -> None:
        other = converted(b[0], kind) if number is None else number
        np.copyto(out, np.where(c != 0, converted(a, kind), other))

    return masked(instr, run)
