"""The times of an instruction on an engine, from the formula of its opcode.

Two times come out: `busy`, after which the engine starts its next instruction, and `done`, after
which others see the result. The formulas are in `nkisim.numerics.ops`, beside the functions that
compute the opcodes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nkisim.ir.instruction import Engine, Instruction
from nkisim.machine.timing import EngineTiming, Timing
from nkisim.numerics.ops.cycles import Fixed, OnEngine, Passes, TileOperand, Tiles

# Functions that every table of the Scalar Engine has, or that need none.
_NO_TABLE = frozenset({"copy", "square", "relu", "abs", "sign", "negative", "add", "multiply"})


class Cost(NamedTuple):
    """Times of one instruction, in nanoseconds.

    Attributes:
        busy: until the engine starts the next instruction.
        done: until the result is visible.
        data: the part of `busy` that grows with the elements.
        cycles: engine cycles an element, on the Tensor Engine passes; 0 where that means nothing.
        strided: whether a wide innermost stride holds the instruction up.
    """

    busy: float
    done: float
    data: float
    cycles: float = 0.0
    strided: bool = False


def passes_cost(columns: int, passes: int, timing: Timing) -> Cost:
    """`passes` passes of `columns` moving columns through the array."""
    pe = timing.tensor
    data = passes * columns / pe.ghz
    busy = data + passes * pe.pass_ns
    return Cost(busy, busy + pe.latency_ns, data, float(passes))


def in_a_row(costs: Sequence[Cost]) -> Cost:
    """Instructions that follow each other on an engine, as one."""
    busy, data = sum(c.busy for c in costs), sum(c.data for c in costs)
    last = costs[-1]
    return last._replace(busy=busy, done=busy - last.busy + last.done, data=data)


def feeding(costs: Sequence[Cost], readers: Sequence[float]) -> Cost:
    """Instructions that follow each other, each with a reader that follows the reader before.

    Args:
        costs: of the instructions.
        readers: how long each reader keeps its engine busy, in nanoseconds.

    Returns:
        The cost of all of them. It is done when the first reader can start so that none has to
        wait for what it reads.
    """
    done = begin = read = 0.0
    for cost, reader in zip(costs, readers, strict=True):
        done = max(done, begin + cost.done - read)
        begin += cost.busy
        read += reader
    return in_a_row(costs)._replace(done=done)


def cost(on: OnEngine) -> Cost:
    """The cost of an instruction on an engine."""
    formula, engine, timing = on.instr.spec.cost, on.engine, on.timing
    assert callable(formula), f"{on.instr.opcode} is a transfer"
    found = formula(on)
    if isinstance(found, Fixed):
        return Cost(found.ns, found.ns, 0.0)
    if isinstance(found, Passes):
        return passes_cost(*found, timing)
    rate = {Engine.VECTOR: timing.vector, Engine.SCALAR: timing.scalar}.get(engine, timing.gpsimd)
    if engine is Engine.SCALAR and (found.table or table_of(on.instr, engine)):
        rate = timing.activation
    each = found.each
    if engine is Engine.VECTOR and timing.performance_mode and found.fast is not None:
        each = min(each, 1 / found.fast)
    operands = (*on.ins, *on.outs)
    n = max(o.n for o in operands) if found.n is None else found.n
    return _of(n, each, found.extra, operands, rate, timing)


def table_of(instr: Instruction, engine: Engine) -> str:
    """The function whose table an engine needs for an instruction; empty for none."""
    if engine is not Engine.SCALAR or not instr.spec.table:
        return ""
    op = instr.settings.op
    return "" if op in _NO_TABLE else op


def copy(engine: Engine, data: TileOperand, out: TileOperand, timing: Timing) -> Cost:
    """A copy from one memory to another."""
    rate = timing.scalar if engine is Engine.SCALAR else timing.vector
    return _of(max(data.n, out.n), 1.0, 0.0, (data, out), rate, timing)


def reciprocal(engine: Engine, data: TileOperand, out: TileOperand, timing: Timing) -> Cost:
    """A reciprocal: a table on Scalar, iterations on Vector."""
    rate = timing.activation if engine is Engine.SCALAR else timing.vector
    cycles = 1.0 if engine is Engine.SCALAR else timing.reciprocal_cycles
    return _of(data.n, cycles, 0.0, (data, out), rate, timing)


def _of(
    n: int,
    cycles: float,
    extra: float,
    operands: Tiles,
    rate: EngineTiming,
    timing: Timing,
) -> Cost:
    data = n * cycles / rate.ghz
    strided = False
    if n > 1 and any(o.stride >= timing.wide_stride_bytes for o in operands):
        slow = 2 * n / timing.interface_ghz
        strided = slow > data
        data = max(data, slow)
    busy = max(data + (rate.issue_cycles + extra) / rate.ghz, timing.least_cycles / rate.ghz)
    done = data + (rate.latency_cycles + extra) / rate.ghz
    return Cost(busy, done, data, cycles, strided)
