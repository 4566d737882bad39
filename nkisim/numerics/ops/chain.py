"""Instructions of two steps: tensor_scalar, scalar_tensor_tensor, and activation with scale and
bias, with their reductions on the side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32, bfloat16
from nkisim.ir.instruction import Engine, Instruction, OpKind, flow_by_axis, opcode, reads_by_axis
from nkisim.ir.memory import Space
from nkisim.ir.settings import Settings
from nkisim.machine.timing import Timing
from nkisim.numerics import alu
from nkisim.numerics.ops.cycles import (
    Cycles,
    OnEngine,
    Tiles,
    fast_copy,
    fast_pair,
    one_after_the_other,
    one_cycle,
    with_accumulator,
)
from nkisim.numerics.ops.elementwise import (
    Operators,
    cost_of_reciprocal,
    elementwise,
    reciprocal_on,
)
from nkisim.numerics.ops.float32 import as_f32, by_rows, operator, scratch, write
from nkisim.numerics.ops.reduce import reducer


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class OperatorsReduce(Settings):
    """A chain of operators, and a reduction of its result."""

    op: str = ""  # the names of the chain, with commas
    reduce_op: str
    steps: tuple[tuple[str, bool], ...]
    accumulate: bool = False


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Activation(Settings):
    """A function of the Scalar Engine."""

    op: str


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class ActivationReduce(Settings):
    """A function of the Scalar Engine, and a reduction of its result."""

    op: str
    reduce_op: str
    accumulate: bool = False


def _operands(instr: Instruction, count: int) -> Callable:
    """`f(tiles)` that gives the first `count` operands after the data, numbers filled in."""
    template = [
        None if isinstance(x, AccessPattern) else np.float32(x) for x in instr.ins[1 : 1 + count]
    ]

    def fill(tiles: tuple[np.ndarray, ...]) -> list:
        rest = iter(tiles)
        return [next(rest) if x is None else x for x in template]

    return fill


def _chain(instr: Instruction) -> Callable:
    """`f(out, data, *operands) -> fp32 result` of up to two operators, still unrounded.

    `steps` holds (operator, reversed) pairs.
    """
    steps = instr.settings.steps
    functions = [_step(name, swap) for name, swap in steps]
    fill = _operands(instr, len(steps))

    def compute(out: np.ndarray, data: np.ndarray, *tiles: np.ndarray) -> np.ndarray:
        operands = fill(tiles)
        value = scratch(out, *operands[1:])
        functions[0](value, data, operands[0])
        for fn, operand in zip(functions[1:], operands[1:], strict=True):
            fn(value, value, operand)
        return value

    return compute


def _step(name: str, swap: bool) -> Callable:
    fn = operator(name)
    if name in alu.UNARY_ALU:  # these have no use for their operand
        return lambda out, x, y: fn(out, x)
    if swap:
        return lambda out, x, y: fn(out, y, x)
    return fn


def _bits(instr: Instruction) -> Callable:
    """A chain of operators on bit patterns, in the data's own integer type."""
    steps = [(alu.ALU[name].fn, name, swap) for name, swap in instr.settings.steps]
    kind = instr.ins[0].dtype
    template = [
        None if isinstance(x, AccessPattern) else np.asarray(x).astype(kind)[()]
        for x in instr.ins[1:]
    ]

    def run(out: np.ndarray, data: np.ndarray, *tiles: np.ndarray) -> None:
        rest = iter(tiles)
        value = data
        for (fn, name, swap), fixed in zip(steps, template, strict=True):
            operand = next(rest).astype(kind) if fixed is None else fixed
            if name in alu.UNARY_ALU:
                value = fn(value)
            else:
                value = fn(operand, value) if swap else fn(value, operand)
        if instr.where is None:
            np.copyto(out, value, casting="unsafe")
        else:
            np.copyto(out, value, where=instr.where, casting="unsafe")

    return run


_BF16_FAST = frozenset({"add", "multiply", "subtract"})

# tensor_scalar operators that Scalar has too, as the scale and bias of a copy.
_AFFINE = frozenset({"multiply", "add", "subtract", "multiply, add", "multiply, subtract"})


def _cost_pair(on: OnEngine) -> Cycles:
    """Two tiles take turns, unless one is in PSUM."""
    fast = fast_pair(on.ins, on.outs)
    one = Cycles(1.0, fast=fast)
    if len(on.ins) < 2 or sum(o.space is Space.PSUM for o in on.ins) == 1:
        return one
    op = on.instr.settings.op or on.instr.settings.steps[0][0]
    if on.timing.bf16_pairs and op in _BF16_FAST and _all_bf16((*on.ins, *on.outs)):
        return one
    return one_after_the_other(on.timing, fast)


def _all_bf16(operands: Tiles) -> bool:
    return all(
        o.dtype == bfloat16 and o.space is Space.SBUF and o.stride in (0, 2) for o in operands
    )


def _cost_chained(on: OnEngine) -> Cycles:
    tiles = [o for o in on.ins if o.stride]  # the others are one element a lane
    if len(tiles) < 2:
        return Cycles(1.0)
    names = tuple(name for name, _ in on.instr.settings.steps)
    fast = names == ("subtract", "multiply") and tiles[0].n % 2 == 0
    if on.timing.bf16_pairs and fast and all(o.dtype == bfloat16 for o in tiles):
        return Cycles(1.0)
    return one_after_the_other(on.timing)


def _cost_scalar(on: OnEngine) -> Cycles:
    root = on.engine is Engine.GPSIMD and on.instr.settings.op in ("rsqrt", "sqrt")
    each = on.timing.gpsimd_rsqrt_cycles if root else 1.0
    return Cycles(each, fast=fast_copy(on.ins, on.outs, of_fp32=True))


def is_affine(instr: Instruction, op: str | None = None) -> bool:
    """Whether a tensor_scalar is `scale * x + bias` of floats, which Scalar computes too; or would
    be if its operators were `op`."""
    return (op or instr.settings.op) in _AFFINE and not any(
        t.dtype.kind in "iub" for t in (*instr.outs, *instr.tiles_in)
    )


def _scalar_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    return (Engine.VECTOR, Engine.SCALAR) if is_affine(instr) else (Engine.VECTOR,)


_ELEMENTWISE: dict = {"kind": OpKind.ELEMENTWISE, "elementwise": True}


@opcode(
    "scalar_tensor_tensor", Engine.VECTOR, settings=Operators, cost=_cost_chained, **_ELEMENTWISE
)
@opcode(
    "tensor_scalar",
    Engine.VECTOR,
    settings=Operators,
    cost=_cost_scalar,
    engines=_scalar_on,
    joined_inputs=1,
    **_ELEMENTWISE,
)
@opcode(
    "tensor_tensor",
    Engine.VECTOR,
    settings=Operators,
    cost=_cost_pair,
    joined_inputs=2,
    **_ELEMENTWISE,
)
def _tensor_scalar(instr: Instruction) -> Callable:
    """(data op0 operand0) op1 operand1, the operands numbers, one a partition, or tiles.

    Without `steps`, one operator over the inputs in their order, by type promotion.
    """
    if not instr.settings.steps:
        return elementwise(instr)
    if instr.settings.steps[0][0] in alu.BITVEC:
        return _bits(instr)
    compute = _chain(instr)
    where = instr.where
    if where is None:
        run = _unmasked(compute)
        return by_rows(run) if len(instr.settings.steps) > 1 else run
    return _masked(compute, where)


def _unmasked(compute: Callable) -> Callable:
    return lambda out, *tiles: write(out, compute(out, *tiles))


def _masked(compute: Callable, where: np.ndarray) -> Callable:
    """Compute beside `out`, then write under the mask."""

    def run(out: np.ndarray, *tiles: np.ndarray) -> None:
        write(out, compute(np.empty(out.shape, F32), *tiles), where)

    return run


_REDUCTION: dict = {
    "kind": OpKind.REDUCTION,
    "cost": with_accumulator,
    "flow": flow_by_axis,
    "reads": reads_by_axis,
}


@opcode(
    "tensor_scalar_reduce", Engine.VECTOR, in_place=True, settings=OperatorsReduce, **_REDUCTION
)
def _tensor_scalar_reduce(instr: Instruction) -> Callable:
    """The chain, and a reduction of its result over the free axes."""
    return _with_reduction(instr, _chain(instr))


def _affine(instr: Instruction) -> Callable:
    """`f(out, data, *vectors) -> fp32 result` of act(data * scale + bias)."""
    fn = operator(instr.settings.op)
    scale, bias = instr.ins[1], instr.ins[2]
    fill = _operands(instr, 2)
    scaled = isinstance(scale, AccessPattern) or scale != 1.0
    biased = isinstance(bias, AccessPattern) or bias != 0.0
    identity = instr.settings.op == "copy"

    def compute(out: np.ndarray, data: np.ndarray, *tiles: np.ndarray) -> np.ndarray:
        by, plus = fill(tiles)
        value = scratch(out, by, plus)
        if scaled:
            np.multiply(data, by, out=value, dtype=F32, casting="unsafe")
            data = value
        if biased:
            np.add(data, plus, out=value, dtype=F32, casting="unsafe")
            data = value
        if not identity or data is not value:
            fn(value, data)
        return value

    return compute


def _is_reciprocal(instr: Instruction) -> bool:
    """Whether an activation is a reciprocal that Vector may compute, too."""
    return instr.settings.op == "reciprocal" and not instr.engine_asked


def _cost_activation(on: OnEngine) -> Cycles:
    cost = cost_of_reciprocal if _is_reciprocal(on.instr) else one_cycle
    return cost(on)


def _activation_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    return reciprocal_on(instr, n, psum, timing) if _is_reciprocal(instr) else (Engine.SCALAR,)


@opcode(
    "activation",
    Engine.SCALAR,
    settings=Activation,
    cost=_cost_activation,
    engines=_activation_on,
    table=True,
    joined_inputs=1,
    **_ELEMENTWISE,
)
def _activation(instr: Instruction) -> Callable:
    """op(data * scale + bias)."""
    compute = _affine(instr)
    if instr.where is None:
        return by_rows(_unmasked(compute))
    return _masked(compute, instr.where)


@opcode(
    "activation_reduce",
    Engine.SCALAR,
    table=True,
    in_place=True,
    settings=ActivationReduce,
    **_REDUCTION,
)
def _activation_reduce(instr: Instruction) -> Callable:
    """The activation, and a reduction of its result over the free axes."""
    return _sum_of_squares(instr) or _with_reduction(instr, _affine(instr))


def _sum_of_squares(instr: Instruction) -> Callable | None:
    """The squares added up in one pass, when it is this that is asked for and nobody reads the
    squares themselves. None otherwise, and with NumPy 1, which has no `vecdot`."""
    data, scale, bias = instr.ins[:3]
    unread = instr.unread
    what = instr.settings.op, instr.settings.reduce_op, data.ndim, len(instr.ins)
    tiles = isinstance(scale, AccessPattern) or isinstance(bias, AccessPattern)
    plain = not tiles and (scale, bias) == (1.0, 0.0)
    if what != ("square", "add", 2, 3) or not plain or instr.where is not None:
        return None
    if not unread or not unread[0] or not hasattr(np, "vecdot"):
        return None
    read = [at for at, nobody in enumerate(unread) if not nobody]

    def run(*tiles: np.ndarray) -> None:
        x = as_f32(tiles[len(unread)])
        total = np.vecdot(x, x)[:, None]
        for at in read:
            write(tiles[at], total)

    return run


def _with_reduction(instr: Instruction, compute: Callable) -> Callable:
    """Outputs (result, reduction, ...): each reduction gets the same values. With
    `accumulate` the last input is what was accumulated before."""
    where = instr.where
    axes = tuple(range(1, instr.ins[0].ndim))
    name = instr.settings.reduce_op
    reduce = reducer(name, axes, instr.ins[0].shape, where)
    merge = alu.ALU[name].fn
    outs = len(instr.outs)
    before = instr.settings.accumulate

    def run(*tiles: np.ndarray) -> None:
        out, sums, ins = tiles[0], tiles[1:outs], tiles[outs:]
        start = None
        if before:
            start, ins = ins[-1], ins[:-1]
        value = compute(out if where is None else np.empty(out.shape, F32), *ins)
        total = reduce(value)
        if start is not None:
            total = merge(start, total)
        write(out, value, where)
        for res in sums:
            write(res, total)

    return run
