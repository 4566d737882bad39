"""The instructions: for each opcode, the NumPy call that computes it.

A `bind` function receives an instruction and returns `f(*outs, *tiles_in)`, to be called on NumPy
views every time the program runs. Whatever can be decided from types and attributes is decided
once, in `bind`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nkisim import alu
from nkisim.dtypes import F32, FLOATS, cast_into, weak_scalar_dtype
from nkisim.instruction import Engine, Instruction, opcode
from nkisim.tensor import Tensor


def masked(instr: Instruction, fn: Callable) -> Callable:
    """`fn` with `instr.where` applied: elements outside the mask keep their old value."""
    where = instr.where
    if where is None:
        return fn

    def write_where(out: np.ndarray, *ins: np.ndarray) -> None:
        result = np.empty_like(out)
        fn(result, *ins)
        np.copyto(out, result, where=where)

    return write_where


def _scalar(value: object) -> np.generic:
    """A scalar operand in the type that it brings to the engine."""
    return np.asarray(value, weak_scalar_dtype(value))[()]


def _elementwise(instr: Instruction) -> Callable:
    """Operator `attrs["op"]` over tiles and scalars, in the order of `instr.ins`."""
    fixed = [None if isinstance(x, Tensor) else _scalar(x) for x in instr.ins]
    dtypes = tuple(x.dtype if s is None else s.dtype for x, s in zip(instr.ins, fixed, strict=True))
    fn = alu.bind(instr.attrs["op"], instr.outs[0].dtype, dtypes)
    scalars = [(at, s) for at, s in enumerate(fixed) if s is not None]
    if not scalars:
        return masked(instr, fn)

    def with_scalars(out: np.ndarray, *tiles: np.ndarray) -> None:
        ins = list(tiles)
        for at, s in scalars:
            ins.insert(at, s)
        fn(out, *ins)

    return masked(instr, with_scalars)


opcode("tensor_tensor", Engine.VECTOR, elementwise=True)(_elementwise)
opcode("tensor_scalar", Engine.VECTOR, elementwise=True)(_elementwise)
opcode("activation", Engine.SCALAR, elementwise=True)(_elementwise)


def _copy(instr: Instruction) -> Callable:
    out, src = instr.outs[0].dtype, instr.ins[0].dtype
    if out != src and src in FLOATS and out not in FLOATS:
        return masked(instr, cast_into)
    return masked(instr, lambda o, x: np.copyto(o, x, casting="unsafe"))


opcode("tensor_copy", Engine.VECTOR, elementwise=True, pure_copy=True)(_copy)
opcode("dma_copy", Engine.DMA, on_chip=False, elementwise=True, pure_copy=True)(_copy)
opcode("partition_broadcast", Engine.TENSOR, elementwise=True, pure_copy=True)(_copy)


@opcode("memset", Engine.VECTOR, elementwise=True)
def _memset(instr: Instruction) -> Callable:
    value = np.empty((), instr.outs[0].dtype)
    cast_into(value, np.asarray(_scalar(instr.attrs["value"])))
    return masked(instr, lambda out: out.fill(value[()]))


@opcode("select", Engine.VECTOR, elementwise=True)
def _select(instr: Instruction) -> Callable:
    """condition ? x : y, on tiles; y may be a scalar."""
    y = instr.ins[2]
    if isinstance(y, Tensor):
        return masked(
            instr,
            lambda out, c, a, b: cast_into(out, np.where(c != 0, a.astype(F32), b.astype(F32))),
        )
    number = np.float32(y)
    return masked(instr, lambda out, c, a: cast_into(out, np.where(c != 0, a.astype(F32), number)))


@opcode("device_print", Engine.HOST, on_chip=False)
def _device_print(instr: Instruction) -> Callable:
    prefix = instr.attrs["prefix"]

    def show(x: np.ndarray) -> None:
        values = x.astype(np.float32) if x.dtype.kind == "V" else x
        print(f"{prefix}{np.array2string(values, separator=', ', threshold=64)}", flush=True)

    return show
