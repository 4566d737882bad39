"""What an instruction costs on a compute engine: cycle formulas over its operands.

The formulas are those of the `nki.isa` docstrings (SDK 2.26), with the constants of
`nkisim.machine.timing`. N is the number of elements a partition. Two times come out: `busy`, after
which the engine starts its next instruction, and `done`, after which others see the result.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32, bfloat16, float16
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space
from nkisim.machine.timing import EngineTiming, Timing

_BF16_FAST = frozenset({"add", "multiply", "subtract"})
_BF16_REDUCE = frozenset({"add", "maximum"})
BF16 = np.dtype(bfloat16)
_HALF = (BF16, np.dtype(float16))

# tensor_scalar operators that Scalar has too, as the scale and bias of a copy.
_AFFINE = frozenset({"multiply", "add", "subtract", "multiply, add", "multiply, subtract"})

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


class Operand(NamedTuple):
    """What the formulas look at in an operand."""

    n: int  # elements a partition
    rows: int
    dtype: object
    space: Space
    stride: int  # bytes between neighbours on the innermost free axis; 0 when there is one element


def operand(t: AccessPattern, space: Space) -> Operand:
    """A tile operand, in the memory that the compiler chose for it."""
    stride = 0
    for d in range(t.ndim - 1, 0, -1):
        if t.shape[d] > 1:
            stride = abs(t.strides[d]) * t.itemsize
            break
    return Operand(prod(t.shape[1:]), t.shape[0], t.dtype, space, stride)


def tensor_cost(instr: Instruction, ins: tuple[Operand, ...], out: Operand, timing: Timing) -> Cost:
    """A matmul or transpose on the Tensor Engine."""
    pe = timing.tensor
    if instr.opcode == "nc_transpose":
        columns = max(ins[0].rows, min(pe.min_columns, ins[0].n))
        dtype, passes = ins[0].dtype, pe.transpose_passes
    else:
        rows = instr.attrs.get("rows", 1)
        stationary, moving = ins[0], ins[1]
        columns = max(moving.n // rows, min(pe.min_columns, stationary.n // rows))
        dtype = F32 if F32 in (stationary.dtype, moving.dtype) else moving.dtype
        passes = pe.transpose_passes if instr.attrs.get("transpose") else pe.fp32_passes
    return passes_cost(columns, passes if dtype == F32 else 1, timing)


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


def cost(
    instr: Instruction,
    engine: Engine,
    ins: tuple[Operand, ...],
    outs: tuple[Operand, ...],
    timing: Timing,
) -> Cost:
    """An instruction on the Vector, Scalar or GpSimd Engine.

    Args:
        instr: the instruction.
        engine: the one of the three that runs it.
        ins, outs: its tile operands.
        timing: the table of the generation.
    """
    rate = {Engine.VECTOR: timing.vector, Engine.SCALAR: timing.scalar}.get(engine, timing.gpsimd)
    if table_of(instr, engine):
        rate = timing.activation
    n = _elements(instr, ins, outs)
    cycles, extra = 1.0, 0.0
    formula = _FORMULAS.get(instr.opcode)
    if formula is not None:
        cycles, extra = formula(instr, ins, outs, timing)
    if is_reciprocal(instr):
        return reciprocal(engine, ins[0], outs[0], timing)
    if engine is Engine.GPSIMD and instr.attrs.get("op") in ("rsqrt", "sqrt"):
        cycles = timing.gpsimd_rsqrt_cycles
    if engine is Engine.VECTOR and timing.performance_mode:
        cycles = min(cycles, 1 / _elements_a_cycle(instr, ins, outs))
    return _of(n, cycles, extra, (*ins, *outs), rate, timing)


def table_of(instr: Instruction, engine: Engine) -> str:
    """The function whose table an engine needs for an instruction; empty for none."""
    if engine is not Engine.SCALAR or not instr.opcode.startswith("activation"):
        return ""
    op = instr.attrs.get("op", "copy")
    return "" if op in _NO_TABLE else op


def _elements_a_cycle(
    instr: Instruction, ins: tuple[Operand, ...], outs: tuple[Operand, ...]
) -> int:
    """Elements that a lane of Vector takes a cycle in performance mode, which hardware chooses.

    Trainium2 architecture guide: of 16-bit types copies and tensor_scalar take four from SBUF to
    SBUF, two where elements are apart or one side is in PSUM; tensor_tensor two, all in SBUF. In
    profiles on trn2 (see nkisim.machine.timing) tensor_scalar takes two of fp32 in SBUF, too.
    """
    tiles = [o for o in (*ins, *outs) if o.stride]  # the others are one element a lane
    sizes = {np.dtype(o.dtype).itemsize for o in tiles}
    in_psum = sum(o.space is Space.PSUM for o in tiles)
    dense = all(o.stride == np.dtype(o.dtype).itemsize for o in tiles)
    if instr.opcode == "tensor_tensor":
        return 2 if sizes == {2} and not in_psum else 1
    if instr.opcode not in ("tensor_copy", "tensor_scalar"):
        return 1
    if sizes == {2}:
        if not in_psum:
            return 4 if dense else 2
        return 2 if in_psum == 1 and dense else 1
    return 2 if instr.opcode == "tensor_scalar" and sizes == {4} and not in_psum and dense else 1


def _elements(instr: Instruction, ins: tuple[Operand, ...], outs: tuple[Operand, ...]) -> int:
    """The elements a partition that an instruction goes over: of a tile that it picks some out of,
    or puts some into, those."""
    if instr.opcode == "local_gather":
        return outs[0].n
    if instr.opcode in ("tensor_copy_dynamic_src", "tensor_copy_dynamic_dst"):
        return min(ins[0].n, outs[0].n)
    return max(o.n for o in (*ins, *outs))


def copy(engine: Engine, data: Operand, out: Operand, timing: Timing) -> Cost:
    """A copy from one memory to another."""
    rate = timing.scalar if engine is Engine.SCALAR else timing.vector
    return _of(max(data.n, out.n), 1.0, 0.0, (data, out), rate, timing)


def is_affine(instr: Instruction, op: str | None = None) -> bool:
    """Whether a tensor_scalar is `scale * x + bias` of floats, which Scalar computes too; or would
    be if its operators were `op`."""
    return (op or instr.attrs.get("op")) in _AFFINE and not any(
        t.dtype.kind in "iub" for t in (*instr.outs, *instr.tiles_in)
    )


def is_reciprocal(instr: Instruction) -> bool:
    """Whether an instruction is a reciprocal that Vector and Scalar both have."""
    if instr.opcode == "activation":
        return instr.attrs["op"] == "reciprocal" and not instr.engine_asked
    return instr.opcode == "reciprocal"


def reciprocal(engine: Engine, data: Operand, out: Operand, timing: Timing) -> Cost:
    """A reciprocal: a table on Scalar, iterations on Vector."""
    rate = timing.activation if engine is Engine.SCALAR else timing.vector
    cycles = 1.0 if engine is Engine.SCALAR else timing.reciprocal_cycles
    return _of(data.n, cycles, 0.0, (data, out), rate, timing)


def _of(
    n: int,
    cycles: float,
    extra: float,
    operands: tuple[Operand, ...],
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


Formula = Callable[[Instruction, tuple, tuple, Timing], tuple[float, float]]


def _two_inputs(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    if len(ins) < 2:
        return 1.0, 0.0
    in_psum = sum(o.space is Space.PSUM for o in ins)
    if in_psum == 1:
        return 1.0, 0.0
    op = instr.attrs.get("op") or instr.attrs["steps"][0][0]
    if timing.bf16_pairs and op in _BF16_FAST and _all_bf16((*ins, *outs)):
        return 1.0, 0.0
    return _one_after_the_other(timing)


def _one_after_the_other(timing: Timing) -> tuple[float, float]:
    """Two operands that are read in turn: both the elements and the access cost twice."""
    return timing.two_input_cycles, (timing.two_input_cycles - 1) * timing.vector.issue_cycles


def _all_bf16(operands: tuple[Operand, ...]) -> bool:
    return all(
        o.dtype == BF16 and o.space is Space.SBUF and o.stride in (0, BF16.itemsize)
        for o in operands
    )


def _chained(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    tiles = [o for o in ins if o.stride]  # the others are one element a lane
    if len(tiles) < 2:
        return 1.0, 0.0
    names = tuple(name for name, _ in instr.attrs["steps"])
    fast = names == ("subtract", "multiply") and tiles[0].n % 2 == 0
    if timing.bf16_pairs and fast and all(o.dtype == BF16 for o in tiles):
        return 1.0, 0.0
    return _one_after_the_other(timing)


def _reduction(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    fast = instr.attrs["op"] in _BF16_REDUCE and all(o.dtype == BF16 for o in (*ins, *outs))
    return (0.5 if fast and timing.bf16_pairs else 1.0), 0.0


def _across_partitions(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    return float(max(1, ins[0].rows // 8)), 0.0  # a core of GpSimd serves 16 partitions, serially


def _with_sum(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    return 1.0, timing.accumulator_cycles


def _fill(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    zero = instr.attrs.get("value") == 0 and outs[0].dtype in _HALF
    return (0.5 if zero else 1.0), 0.0


def _predicated(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    one = sum(o.space is Space.PSUM for o in ins) == 1
    return (1.0, 0.0) if one else _one_after_the_other(timing)


def _dynamic(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    return 1.0, max(0.0, timing.dynamic_cycles - _elements(instr, ins, outs))


def _local_gather(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    each = instr.attrs["elements"]
    per_cycle = ((28 + 4 * each) / (4 * each)) / min(4 / outs[0].dtype.itemsize, each)
    return 1 / per_cycle, 0.0


def _topk(instr: Instruction, ins: tuple, outs: tuple, timing: Timing) -> tuple:
    """Published: 4 n + K cycles, n values in the 16 partitions of a group (API reference, 0.6)."""
    cycles = 4 * instr.attrs["n"] + outs[0].n
    return cycles / _elements(instr, ins, outs), 0.0


_FORMULAS: dict[str, Formula] = {
    "tensor_tensor": _two_inputs,
    "scalar_tensor_tensor": _chained,
    "tensor_tensor_scan": lambda i, ins, outs, t: (t.scan_cycles, 0.0),
    "tensor_reduce": _reduction,
    "tensor_partition_reduce": _across_partitions,
    "activation_reduce": _with_sum,
    "tensor_scalar_reduce": _with_sum,
    "memset": _fill,
    "select": lambda i, ins, outs, t: (t.select_cycles, 0.0),
    "tensor_copy_predicated": _predicated,
    "select_reduce": _predicated,
    "bn_aggr": lambda i, ins, outs, t: (t.bn_aggr_cycles, 0.0),
    "tensor_copy_dynamic_src": _dynamic,
    "tensor_copy_dynamic_dst": _dynamic,
    "local_gather": _local_gather,
    "topk": _topk,
}
