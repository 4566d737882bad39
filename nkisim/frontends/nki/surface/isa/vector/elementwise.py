"""Elementwise instructions: two tiles, a tile and scalars, and both."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import (
    DTypeError,
    KernelError,
    ParameterError,
)
from nkisim.frontends.nki.operands import (
    check_float32,
    check_on_chip,
    same_domain,
    vector,
)
from nkisim.frontends.nki.ops import ALU, BITS, UNARY, op_name
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.copies import settled_pair, wrong_engine
from nkisim.frontends.nki.surface.isa.enums import ENGINES, NkiInstruction, engine
from nkisim.frontends.nki.surface.isa.vector.checks import check_bits, constant, no_packed, one_psum
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.dtypes import check_constant
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.elementwise import Operators

Operand = "NkiTensor | float"
INTEGRAL = (int, np.integer, np.bool_)


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Any,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = op(data1, data2), element by element.

    Args:
        dst, data1, data2: tiles with equally many partitions and elements per partition.
        op: an operator of `nki.language`.
        engine: vector or gpsimd; the latter for 32-bit integers and powers unless PSUM is read.
        name: of the instruction.

    Arithmetic is done in fp32 and cast to dst's type. Where all three are int32 or uint32, GpSimd
    does it in integers, which wrap around; the Vector Engine, if `engine` names it or a tile is in
    PSUM, does it in fp32 (nisa.tensor_tensor, SDK 2.32).

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM, or both in PSUM.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: bits of no integer type, or a packed type.
        ParameterError: an op that is no operator of two tiles, or an engine that does not have it.
    """
    session = current()
    key = ("tensor_tensor", op, engine)
    try:
        if dst._indirect or data1._indirect or data2._indirect:
            dst, data1, data2 = settled_pair(session, dst, data1, data2)
    except AttributeError:
        pass
    return NkiInstruction(
        session.issue(
            key, (dst, data1, data2), lambda: _tensor_tensor(dst, data1, data2, op, engine)
        )
    )


WIDE = frozenset({"int32", "uint32"})


def _tensor_tensor(dst, data1, data2, op, where) -> Recipe:
    call = "nisa.tensor_tensor"
    check_on_chip(call, dst=dst, data1=data1, data2=data2)
    name = op_name(call, op, ALU - UNARY, current().trace.machine)
    no_packed(call, dst=dst, data1=data1, data2=data2)
    one_psum(call, data1=data1, data2=data2)
    check_bits(call, [name], dst=dst, data1=data1, data2=data2)
    psum = any(t._layout.space is Space.PSUM for t in (dst, data1, data2))
    whole = {dst.dtype, data1.dtype, data2.dtype} <= WIDE and name not in BITS
    at = ENGINES[where]
    if where not in (engine.unknown, engine.vector, engine.gpsimd):
        raise wrong_engine(call, where, "vector, gpsimd")
    if at is None:
        on_gpsimd = (whole and not psum) or name == "power"
        at = Engine.GPSIMD if on_gpsimd else Engine.VECTOR
    settings = Operators(op=name, native=whole and at is Engine.GPSIMD)
    walks = same_domain(call, dst, data1, data2)
    return Recipe(
        "tensor_tensor", at, [walks[0]], [*walks[1:]], None, settings, where is not engine.unknown
    )


def tensor_scalar(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: NkiTensor | float | None,
    reverse0: bool = False,
    op1: Any = None,
    operand1: NkiTensor | float | None = None,
    reverse1: bool = False,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1.

    Args:
        dst, data: tiles with equally many partitions and elements per partition.
        op0, op1: operators, both of bits or both arithmetic.
        operand0, operand1: numbers, or (P, 1) tiles (fp32 for arithmetic). None for an operator
            of one operand.
        reverse0, reverse1: operand first.
        engine: vector, scalar (multiply, add, on NeuronCore-v3 and later) or gpsimd (rsqrt).
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: data and dst of different sizes, or an operand that is neither a number nor one
            element a partition.
        DTypeError: an operand that is a tile and not float32, bits of no integer type, or a packed
            type.
        ParameterError: operators that do not go together, no operand for one, or an engine that
            does not have them.
    """
    session = current()
    if dst._indirect is not None or data._indirect is not None:
        dst, data = settled_pair(session, dst, data)
    first, second = type(operand0) is NkiTensor, type(operand1) is NkiTensor
    tensors: tuple = (dst, data)
    if first:
        tensors = (dst, data, operand0)
    if second:
        tensors = (*tensors, operand1)
    key = (
        "tensor_scalar",
        op0,
        None if first else operand0 or str(operand0),
        reverse0,
        op1,
        None if second else operand1 or str(operand1),
        reverse1,
        engine,
    )
    try:
        return NkiInstruction(
            session.issue(
                key,
                tensors,
                lambda: _tensor_scalar(
                    "nisa.tensor_scalar",
                    dst,
                    data,
                    [(op0, operand0, reverse0), (op1, operand1, reverse1)],
                    engine,
                ),
            )
        )
    except KernelError:  # some of which are a TypeError, too
        raise
    except TypeError as error:
        raise _bad_operand("nisa.tensor_scalar", operand0, operand1) from error


def _bad_operand(call: str, *operands: object) -> ParameterError:
    return ParameterError(
        f"{call}: operands {operands!r}",
        rule="an operand is a number, or a (P, 1) tile",
        fix="pass one of these",
    )


def steps_of(
    call: str, data: NkiTensor, given: list, axes: int, machine: Any
) -> tuple[tuple, list, list]:
    """(operator, reversed) pairs, operands (None for tiles), and the walks of these tiles."""
    steps, operands, walks = [], [], []
    for at, (op, operand, reverse) in enumerate(given):
        if op is None:
            continue
        name = op_name(call, op, ALU, machine)
        which = f"operand{at}"
        if name in UNARY and at == 0:
            if operand is not None and (isinstance(operand, NkiTensor) or operand != 0):
                given = operand.describe() if isinstance(operand, NkiTensor) else operand
                raise ParameterError(
                    f"{call}: {which}={given} of nl.{name}",
                    rule=f"nl.{name} has no second operand",
                    fix=f"pass {which}=None",
                )
            operand = 0.0
        elif name in UNARY and operand is None:
            operand = 0.0
        if isinstance(operand, NkiTensor):
            check_on_chip(call, **{which: operand})
            check_bits(call, [name], **{which: operand})
            walks.append(vector(call, which, operand, data.shape[0], axes))
            if name not in BITS:
                check_float32(call, **{which: operand})
            operands.append(None)
        elif operand is None:
            raise _bad_operand(call, operand)
        else:
            float(operand)  # which tells what is no number
            if name in BITS and name not in UNARY and not isinstance(operand, INTEGRAL):
                raise DTypeError(
                    f"{call}: {which}={operand!r} of nl.{name}",
                    rule="bit operators take integers, and do not convert",
                    fix=f"write {which}={int(operand)}, if that is meant",
                )
            if name in BITS:
                check_constant(f"{call}: {which} of nl.{name}", operand, np.dtype(np.int32))
            operands.append(operand)
        steps.append((name, bool(reverse)))
    bits = [name in BITS for name, _ in steps]
    if any(bits) and not all(bits):
        raise ParameterError(
            f"{call}: nl.{steps[0][0]} and nl.{steps[1][0]}",
            rule="both operators work on bits, or both are arithmetic",
            fix="use two instructions",
        )
    return tuple(steps), operands, walks


def _tensor_scalar(call: str, dst, data, given: list, where: engine) -> Recipe:
    machine = current().trace.machine
    check_on_chip(call, dst=dst, data=data)
    no_packed(call, dst=dst, data=data)
    out, source = same_domain(call, dst, data)
    steps, operands, walks = steps_of(call, data, given, len(source[0]), machine)
    names = [n for n, _ in steps]
    check_bits(call, names, dst=dst, data=data)
    at = ENGINES[where] or Engine.VECTOR
    if where is engine.scalar:
        affine = tuple(names) in (("multiply", "add"), ("multiply",), ("add",))
        if not (affine and machine.abilities.scalar_affine):
            raise ParameterError(
                f"{call}: {' and '.join('nl.' + n for n in names)} on the Scalar Engine of "
                f"{machine.name}",
                rule="the Scalar Engine of NeuronCore-v3 and later does multiply and add, multiply "
                "alone, or add alone",
                fix="use nisa.engine.vector, or nisa.activation",
            )
    elif where is engine.gpsimd:
        if names != ["rsqrt"]:
            raise ParameterError(
                f"{call}: {' and '.join('nl.' + n for n in names)} on the GpSimd Engine",
                rule="the GpSimd Engine does rsqrt alone here",
                fix="use nisa.engine.vector",
            )
    elif where not in (engine.unknown, engine.vector):
        raise wrong_engine(call, where, "vector, scalar, gpsimd")
    return Recipe(
        "tensor_scalar",
        at,
        [out],
        [source, *walks],
        (None, *operands),
        Operators(steps=steps),
        where is not engine.unknown,
    )


def scalar_tensor_tensor(
    dst: NkiTensor,
    data: NkiTensor,
    op0: Any,
    operand0: NkiTensor | float,
    op1: Any,
    operand1: NkiTensor,
    reverse0: bool = False,
    reverse1: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = (data op0 operand0) op1 operand1, where operand1 is a whole tile.

    Args:
        dst, data, operand1: tiles with equally many partitions and elements per partition.
        op0, op1: arithmetic operators.
        operand0: a number, or a (P, 1) tile.
        reverse0, reverse1: operand first.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM, or data and operand1 both in PSUM.
        ShapeError: operands of different sizes, or an operand0 that is neither a number nor one
            element a partition.
        DTypeError: a packed type.
        ParameterError: an op that is no operator of arithmetic.
    """
    session = current()
    dst, data, operand1 = settled_pair(session, dst, data, operand1)
    tile = type(operand0) is NkiTensor
    tensors = (dst, data, operand0, operand1) if tile else (dst, data, operand1)
    key = (
        "scalar_tensor_tensor",
        op0,
        None if tile else constant(operand0),
        op1,
        reverse0,
        reverse1,
    )

    def lower() -> Recipe:
        call = "nisa.scalar_tensor_tensor"
        machine = session.trace.machine
        check_on_chip(call, dst=dst, data=data, operand1=operand1)
        no_packed(call, dst=dst, data=data, operand1=operand1)
        one_psum(call, data=data, operand1=operand1)
        names = [op_name(call, op, ALU - BITS, machine) for op in (op0, op1)]
        out, source, other = same_domain(call, dst, data, operand1)
        walks = [source]
        if tile:
            check_on_chip(call, operand0=operand0)
            walks.append(vector(call, "operand0", operand0, data.shape[0], len(source[0])))
        steps = ((names[0], bool(reverse0)), (names[1], bool(reverse1)))
        operands = (None, None if tile else float(operand0), None)
        return Recipe(
            "scalar_tensor_tensor",
            Engine.VECTOR,
            [out],
            [*walks, other],
            operands,
            Operators(steps=steps),
        )

    return NkiInstruction(session.issue(key, tensors, lower))


def reciprocal(dst: NkiTensor, data: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = 1 / data.

    Args:
        dst, data: tiles with equally many partitions and elements per partition.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: a packed type.
    """
    session = current()
    dst, data = settled_pair(session, dst, data)

    def lower() -> Recipe:
        call = "nisa.reciprocal"
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        out, source = same_domain(call, dst, data)
        return Recipe(
            "reciprocal", Engine.VECTOR, [out], [source], None, Operators(op="reciprocal")
        )

    return NkiInstruction(session.issue(("reciprocal",), (dst, data), lower))


__all__ = ["reciprocal", "scalar_tensor_tensor", "tensor_scalar", "tensor_tensor"]
