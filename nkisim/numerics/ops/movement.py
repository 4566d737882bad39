"""Instructions that move data: DMA, copies, and the simulator's own print."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nkisim.ir.dtypes import FLOATS, INTEGERS, cast_into
from nkisim.ir.instruction import Engine, Instruction, Missing, opcode
from nkisim.ir.regions import BEGIN, END
from nkisim.numerics.ops.masking import masked


def _copy(instr: Instruction) -> Callable:
    out, src = instr.outs[0].dtype, instr.ins[0].dtype
    if out != src and src in FLOATS and out not in FLOATS:
        return masked(instr, cast_into)
    return masked(instr, lambda o, x: np.copyto(o, x, casting="unsafe"))


@opcode("tensor_copy", Engine.VECTOR, elementwise=True, pure_copy=True)
def _tensor_copy(instr: Instruction) -> Callable:
    """As `_copy`, but the engines convert by way of fp32; `through_fp32` says so of a copy that
    does not convert."""
    out, src = instr.outs[0].dtype, instr.ins[0].dtype
    whole = src in INTEGERS and out in INTEGERS
    if not whole or (out == src and "through_fp32" not in instr.attrs):
        return _copy(instr)
    return masked(instr, lambda o, x: cast_into(o, x.astype(np.float32)))


opcode("dma_copy", Engine.DMA, on_chip=False, elementwise=True, pure_copy=True)(_copy)
opcode("partition_broadcast", Engine.TENSOR, elementwise=True, pure_copy=True)(_copy)


def _flow_transpose(instr: Instruction, missing: Missing) -> Missing:
    source = missing[0]
    return [None if source is None else source.transpose(instr.attrs["axes"])]


@opcode("dma_transpose", Engine.DMA, on_chip=False, flow=_flow_transpose)
def _dma_transpose(instr: Instruction) -> Callable:
    axes, where = instr.attrs["axes"], instr.where_out
    out, src = instr.outs[0].dtype, instr.ins[0].dtype
    to_integer = out != src and src in FLOATS and out not in FLOATS

    def run(o: np.ndarray, x: np.ndarray) -> None:
        values = x.transpose(axes)
        if to_integer:
            whole = np.empty(values.shape, out)
            cast_into(whole, values)
            values = whole
        np.copyto(o, values, casting="unsafe", where=True if where is None else where)

    return run


@opcode("barrier", Engine.SYNC, on_chip=False)
def _barrier(instr: Instruction) -> Callable:
    return lambda: None  # instances run in the order that it asks for


@opcode(BEGIN, Engine.SYNC, on_chip=False)
@opcode(END, Engine.SYNC, on_chip=False)
def _loop(instr: Instruction) -> Callable:
    raise AssertionError(f"{instr.opcode} is run by nkisim.numerics.program")


def _text(values: np.ndarray) -> str:
    how = {"formatter": {"all": str}} if values.dtype == object else {}
    return np.array2string(values, separator=", ", threshold=64, **how)


@opcode("device_print", Engine.HOST, on_chip=False)
def _device_print(instr: Instruction) -> Callable:
    prefix, where = instr.attrs["prefix"], instr.where

    def show(x: np.ndarray) -> None:
        values = x.astype(np.float32) if x.dtype.kind == "V" else x
        if where is not None:  # elements that the mask leaves out are shown as --
            values = np.where(where, values.astype(object), "--")
        print(f"{prefix}{_text(values)}", flush=True)

    return show
