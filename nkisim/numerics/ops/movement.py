"""Instructions that move data: DMA, copies, and the simulator's own print."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from nkisim.ir.barriers import Meeting
from nkisim.ir.dtypes import F32, FLOATS
from nkisim.ir.instruction import Engine, Instruction, Missing, Needed, OpKind, TransferKind, opcode
from nkisim.ir.settings import Settings
from nkisim.machine.timing import Timing
from nkisim.numerics.ops.cycles import Cycles, OnEngine, Passes, fast_copy, no_time, semaphore
from nkisim.numerics.ops.float32 import as_f32, converted, write
from nkisim.numerics.ops.masking import masked
from nkisim.numerics.ops.matmul import TileTranspose


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TransferCopy(Settings):
    """Settings of a copy by DMA: the engine that starts it, and its role in an exchange."""

    sends: bool | None = None
    pipe: int | None = None  # of the exchange
    started_by: Engine | None = None  # unless GpSimd generates its descriptors
    descriptors: str = ""  # who generates them: a member of nisa.dge_mode, or the compiler chooses


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class EngineCopy(Settings):
    """Settings of a copy on an engine."""

    op: str = ""  # of an accumulation in registers
    accumulate: bool = False
    through_fp32: bool = False
    assign: bool = False
    left_to_compiler: bool = False  # whether it may be left out


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Barrier(Settings):
    """Settings of a barrier: the instances that meet."""

    meeting: Meeting
    fence: bool  # whether shared HBM is in order from there on


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Print(Settings):
    """Settings of a print: the text in front of the values."""

    prefix: str


def _copy(instr: Instruction) -> Callable:
    """A copy; into another type by way of fp32 (nisa.dma_copy and nisa.tensor_copy, SDK 2.32).
    `through_fp32` says so of a copy that does not convert."""
    out, src = instr.outs[0].dtype, instr.ins[0].dtype
    if out == src and not instr.settings.through_fp32:
        return masked(instr, np.copyto)
    if src in FLOATS and out in FLOATS:
        return masked(instr, lambda o, x: np.copyto(o, x, casting="unsafe"))
    return masked(instr, lambda o, x: write(o, as_f32(x)))


def _cost_copy(on: OnEngine) -> Cycles:
    return Cycles(1.0, fast=fast_copy(on.ins, on.outs))


def _copy_on(instr: Instruction, n: int, psum: bool, timing: Timing) -> tuple[Engine, ...]:
    return Engine.VECTOR, Engine.SCALAR


opcode(
    "tensor_copy",
    Engine.VECTOR,
    OpKind.COPY,
    settings=EngineCopy,
    cost=_cost_copy,
    engines=_copy_on,
    elementwise=True,
    pure_copy=True,
    joined_inputs=1,
)(_copy)


opcode(
    "dma_copy",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=TransferCopy,
    cost=TransferKind.COPY,
    on_chip=False,
    elementwise=True,
    pure_copy=True,
)(_copy)


def _cost_broadcast(on: OnEngine) -> Passes:
    """A product with a column of ones."""
    return Passes(on.ins[0].n, on.timing.tensor.fp32_passes if on.ins[0].dtype == F32 else 1)


opcode(
    "partition_broadcast",
    Engine.TENSOR,
    OpKind.BROADCAST,
    cost=_cost_broadcast,
    elementwise=True,
    pure_copy=True,
)(_copy)


def _flow_transpose(instr: Instruction, missing: Missing) -> Missing:
    source = missing[0]
    return [None if source is None else source.transpose(instr.settings.axes)]


def _reads_transpose(instr: Instruction, needed: Needed) -> list[np.ndarray]:
    (out,) = needed
    assert out is not None
    return [out.transpose(np.argsort(instr.settings.axes))]


@opcode(
    "dma_transpose",
    Engine.DMA,
    OpKind.TRANSFER,
    settings=TileTranspose,
    cost=TransferKind.TRANSPOSE,
    on_chip=False,
    flow=_flow_transpose,
    reads=_reads_transpose,
)
def _dma_transpose(instr: Instruction) -> Callable:
    axes, where = instr.settings.axes, instr.where_out
    out = instr.outs[0].dtype

    def run(o: np.ndarray, x: np.ndarray) -> None:
        values = converted(x.transpose(axes), out)
        np.copyto(o, values, where=True if where is None else where)

    return run


@opcode("barrier", Engine.SYNC, OpKind.BARRIER, settings=Barrier, cost=semaphore, on_chip=False)
def _barrier(instr: Instruction) -> Callable:
    return lambda: None  # instances run in the order that it asks for


def _text(values: np.ndarray) -> str:
    how = {"formatter": {"all": str}} if values.dtype == object else {}
    return np.array2string(values, separator=", ", threshold=64, **how)


@opcode("device_print", Engine.HOST, OpKind.PRINT, settings=Print, cost=no_time, on_chip=False)
def _device_print(instr: Instruction) -> Callable:
    prefix, where = instr.settings.prefix, instr.where

    def show(x: np.ndarray) -> None:
        values = x.astype(np.float32) if x.dtype.kind == "V" else x
        if where is not None:  # elements that the mask leaves out are shown as --
            values = np.where(where, values.astype(object), "--")
        print(f"{prefix}{_text(values)}", flush=True)

    return show
