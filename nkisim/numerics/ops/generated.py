"""Values and masks that a kernel's code fixes, and instructions of NeuronCore-v3 and v4."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import (
    Engine,
    Instruction,
    OpKind,
    flow_by_axis,
    opcode,
    reads_by_axis,
)
from nkisim.ir.settings import Settings
from nkisim.numerics import alu
from nkisim.numerics.ops.cycles import one_cycle
from nkisim.numerics.ops.float32 import as_f32, operator, write


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Cumulative(Settings):
    """Running values over those of an operator with an operand."""

    step: str
    running: str
    fresh: bool  # whether it starts with the first value


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Activation2(Settings):
    """(data op0 imm0) op1 imm1, a function of it, and a reduction of that."""

    op: str
    steps: tuple[tuple[str, bool], ...]
    slope: float  # of prelu
    reduce_op: str = "add"
    accumulate: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Exponential(Settings):
    """Settings of exponential: its reduction on the side."""

    reduce_op: str = "add"
    accumulate: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NonZero(Settings):
    """Settings of nonzero: the number added to positions, and the value behind the last one."""

    offset: int
    padding: int


@opcode(
    "tensor_scalar_cumulative",
    Engine.VECTOR,
    OpKind.SCAN,
    settings=Cumulative,
    cost=one_cycle,
    flow=flow_by_axis,
)
def _cumulative(instr: Instruction) -> Callable:
    """Outputs (running values, last value): `running` over (data `step` operand),
    from a start on unless `fresh`."""
    step, running = operator(instr.settings.step), alu.ALU[instr.settings.running].fn
    numbers = [None if isinstance(x, AccessPattern) else np.float32(x) for x in instr.ins[1:]]
    fresh = instr.settings.fresh

    def run(out: np.ndarray, last: np.ndarray, data: np.ndarray, *tiles: np.ndarray) -> None:
        rest = iter(tiles)
        operand, start = (next(rest) if n is None else n for n in numbers)
        value = np.empty(data.shape, F32)
        step(value, data, operand)
        rows = value.reshape(value.shape[0], -1)
        state = np.broadcast_to(np.asarray(start, F32).reshape(-1), (rows.shape[0],))
        first = 0
        if fresh and instr.settings.running != "subtract":
            state, first = rows[:, 0].copy(), 1
        for i in range(first, rows.shape[1]):
            state = rows[:, i] = running(state, rows[:, i])
        write(out, value)
        write(last, rows[:, -1].reshape(last.shape))

    return run


def _prelu(x: np.ndarray, slope: np.float32) -> np.ndarray:
    return np.where(x >= 0, x, slope * x)


def _activate2_values(instr: Instruction) -> Callable:
    """`f(data, *tiles)`: op((data op0 imm0) op1 imm1) in fp32."""
    numbers = [None if isinstance(x, AccessPattern) else np.float32(x) for x in instr.ins[1:3]]
    steps = instr.settings.steps
    name, slope = instr.settings.op, np.float32(instr.settings.slope)

    def compute(data: np.ndarray, *tiles: np.ndarray) -> np.ndarray:
        rest = iter(tiles)
        operands = [as_f32(next(rest)) if n is None else n for n in numbers]
        value = as_f32(data)
        for (op, swap), operand in zip(steps, operands, strict=True):
            if op != "bypass":
                fn = alu.ALU[op].fn
                value = fn(operand, value) if swap else fn(value, operand)
        return _prelu(value, slope) if name == "prelu" else alu.ALU[name].fn(value)

    return compute


@opcode(
    "activate2",
    Engine.SCALAR,
    OpKind.ELEMENTWISE,
    settings=Activation2,
    cost=one_cycle,
    table=True,
    elementwise=True,
)
def _activate2(instr: Instruction) -> Callable:
    compute = _activate2_values(instr)
    return lambda out, *ins: write(out, compute(*ins))


_REDUCTION: dict = {
    "kind": OpKind.REDUCTION,
    "cost": one_cycle,
    "flow": flow_by_axis,
    "reads": reads_by_axis,
}


@opcode("activate2_reduce", Engine.SCALAR, table=True, settings=Activation2, **_REDUCTION)
def _activate2_reduce(instr: Instruction) -> Callable:
    return _reduced(instr, _activate2_values(instr))


@opcode("exponential", Engine.VECTOR, settings=Exponential, **_REDUCTION)
def _exponential(instr: Instruction) -> Callable:
    """exp(data - maximum), and its sum if there are more outputs."""
    top = None if isinstance(instr.ins[1], AccessPattern) else np.float32(instr.ins[1])

    def compute(data: np.ndarray, *tiles: np.ndarray) -> np.ndarray:
        return np.exp(as_f32(data) - (as_f32(tiles[0]) if top is None else top))

    return _reduced(instr, compute)


def _reduced(instr: Instruction, compute: Callable) -> Callable:
    """Outputs (result, reduction...); with `accumulate` the last input is what was
    accumulated before."""
    outs = len(instr.outs)
    merge = alu.ALU[instr.settings.reduce_op].fn
    before = instr.settings.accumulate

    def run(*tiles: np.ndarray) -> None:
        out, sums, ins = tiles[0], tiles[1:outs], tiles[outs:]
        start = None
        if before:
            start, ins = ins[-1], ins[:-1]
        value = compute(*ins)
        if sums:
            rows = value.reshape(value.shape[0], -1)
            if isinstance(merge, np.ufunc):
                total = merge.reduce(rows, axis=1)
            else:
                total = rows[:, 0]
                for i in range(1, rows.shape[1]):
                    total = merge(total, rows[:, i])
            if start is not None:
                total = merge(start.reshape(-1), total)
            for res in sums:
                write(res, total.reshape(res.shape))
        write(out, value)

    return run


@opcode(
    "nonzero_with_count",
    Engine.GPSIMD,
    OpKind.SEARCH,
    settings=NonZero,
    cost=one_cycle,
    flow=flow_by_axis,
)
def _nonzero_with_count(instr: Instruction) -> Callable:
    """In each partition: the places of what is not zero, padding, and their number."""
    offset, padding = instr.settings.offset, instr.settings.padding

    def run(out: np.ndarray, data: np.ndarray) -> None:
        rows = np.full((out.shape[0], out.size // out.shape[0]), padding, np.int64)
        for row, values in zip(rows, data.reshape(data.shape[0], -1), strict=True):
            at = np.flatnonzero(values)
            row[: at.size] = at + offset
            row[-1] = at.size
        np.copyto(out, rows.reshape(out.shape), casting="unsafe")

    return run
