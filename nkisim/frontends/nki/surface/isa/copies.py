"""Copies and fills by the compute engines."""

from __future__ import annotations

import numpy as np

from nkisim.errors import (
    DTypeError,
    KernelError,
    MemorySpaceError,
    ParameterError,
)
from nkisim.frontends.nki import dtypes
from nkisim.frontends.nki.operands import check_on_chip, same_domain
from nkisim.frontends.nki.session import Recipe, Session, current
from nkisim.frontends.nki.surface.isa.enums import (
    ENGINES,
    NkiInstruction,
    engine,
)
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.dtypes import check_constant
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.elementwise import Fill
from nkisim.numerics.ops.movement import EngineCopy
from nkisim.numerics.ops.select import Predicated


def settled_pair(session: Session, *tensors: NkiTensor) -> list[NkiTensor]:
    """Tensors, with dynamic views among them replaced by the static views that they are on the
    data."""
    return [t if t._indirect is None else session.settled(t) for t in tensors]


def check_types(call: str, dst: NkiTensor, src: NkiTensor) -> None:
    packed = dtypes.PACKED
    if dst.dtype != src.dtype and (dst.dtype in packed or src.dtype in packed):
        bits = {dst._layout.type.itemsize, src._layout.type.itemsize}
        if len(bits) > 1:
            raise DTypeError(
                f"{call}: {src.dtype} to {dst.dtype}",
                rule="packed types are moved as they are",
                fix="use tensors of one type",
            )


def tensor_copy(
    dst: NkiTensor, src: NkiTensor, engine: engine = engine.unknown, name: str | None = None
) -> NkiInstruction:
    """dst = src, on chip.

    Args:
        dst, src: tiles with equally many partitions and elements per partition. One may be dynamic.
        engine: vector, scalar (not on NeuronCore-v2) or gpsimd (no PSUM).
        name: of the instruction.

    Equal dtypes keep their bits on the Vector and GpSimd Engines; others convert through fp32.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: a packed type and another one.
        ParameterError: an engine that has no copy, or does not reach PSUM.
    """
    session = current()
    if dst._indirect is not None or src._indirect is not None:
        dst, src = settled_pair(session, dst, src)
    key = ("tensor_copy", engine)
    return NkiInstruction(session.issue(key, (dst, src), lambda: _copy(dst, src, engine)))


def _copy(dst: NkiTensor, src: NkiTensor, where: engine) -> Recipe:
    call = "nisa.tensor_copy"
    check_on_chip(call, dst=dst, src=src)
    if where is engine.scalar and not current().trace.machine.abilities.scalar_copies:
        raise ParameterError(
            f"{call}: engine.scalar on {current().trace.machine.name}",
            rule="the Scalar Engine of NeuronCore-v2 has no tensor_copy",
            fix="use nisa.activation(dst, op=nl.copy, data=src)",
        )
    if where not in (engine.unknown, engine.vector, engine.scalar, engine.gpsimd):
        raise wrong_engine(call, where, "vector, scalar, gpsimd")
    check_types(call, dst, src)
    walks = same_domain(call, dst, src)
    at = ENGINES[where] or Engine.VECTOR
    settings = EngineCopy(through_fp32=at is Engine.SCALAR)
    return Recipe(
        "tensor_copy", at, [walks[0]], [walks[1]], None, settings, where is not engine.unknown
    )


def wrong_engine(call: str, where: engine, allowed: str) -> KernelError:
    return ParameterError(
        f"{call}: engine.{where.name}",
        rule=f"it runs on one of: {allowed}",
        fix="name one of these, or none",
    )


def memset(
    dst: NkiTensor, value: float, engine: engine = engine.unknown, name: str | None = None
) -> NkiInstruction:
    """dst = value, on chip.

    Args:
        dst: a tile.
        value: an int for integer types; 0 for packed ones.
        engine: vector or gpsimd.
        name: of the instruction.

    Raises:
        DTypeError: the type of the value is not that of dst.
    """
    session = current()
    if dst._indirect is not None:
        dst = session.settled(dst)
    key = ("memset", type(value), value or str(value), engine)
    return NkiInstruction(session.issue(key, (dst,), lambda: _memset(dst, value, engine)))


def _memset(dst: NkiTensor, value: float, where: engine) -> Recipe:
    call = "nisa.memset"
    check_on_chip(call, dst=dst)
    whole = dst.dtype in dtypes.INTEGERS or dst.dtype in dtypes.PACKED
    if whole and not (isinstance(value, int) or float(value).is_integer()):
        raise DTypeError(
            f"{call}: value {value!r} in {dst.describe()}",
            rule="the value has the type of the tensor",
            fix="pass an integer, or declare a tensor of a float type",
        )
    if dst.dtype in dtypes.PACKED and value != 0:
        raise DTypeError(
            f"{call}: value {value!r} in {dst.describe()}",
            rule="packed types are set to 0 only",
            fix="set the bytes of t.view(nl.uint8)",
        )
    if where not in (engine.unknown, engine.vector, engine.gpsimd):
        raise wrong_engine(call, where, "vector, gpsimd")
    (walk,) = same_domain(call, dst)
    number = int(value) if whole else float(value)
    if dst.dtype in dtypes.INTEGERS:
        check_constant(call, number, np.dtype(dst.dtype))
    at = ENGINES[where] or Engine.VECTOR
    return Recipe("memset", at, [walk], [], (), Fill(value=number), where is not engine.unknown)


def tensor_copy_predicated(
    dst: NkiTensor,
    src: NkiTensor | float,
    predicate: NkiTensor,
    reverse_pred: bool = False,
    name: str | None = None,
) -> NkiInstruction:
    """dst = src where predicate is not 0; elsewhere dst stays as it is.

    Args:
        dst: a tile.
        src: a tile of its dtype, or a number.
        predicate: a tile of uint8, uint16 or uint32.
        reverse_pred: copy where predicate is 0.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM, or src and predicate both in PSUM.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: a predicate that is no unsigned integer, or src and dst of two types.
    """
    session = current()
    tile = isinstance(src, NkiTensor)
    tensors = (dst, predicate, src) if tile else (dst, predicate)
    key = ("tensor_copy_predicated", reverse_pred, None if tile else (src or str(src)))

    def lower() -> Recipe:
        call = "nisa.tensor_copy_predicated"
        check_on_chip(call, dst=dst, predicate=predicate, src=src if tile else None)
        if predicate.dtype not in ("uint8", "uint16", "uint32"):
            raise DTypeError(
                f"{call}: predicate is {predicate.describe()}",
                rule="a predicate is uint8, uint16 or uint32",
                fix="make it with dtype=nl.uint8, or view its bits as that",
            )
        if tile and src.dtype != dst.dtype:
            raise DTypeError(
                f"{call}: src is {src.describe()}, dst {dst.describe()}",
                rule="both have one dtype",
                fix="convert with nisa.tensor_copy first",
            )
        if tile and src._layout.space is predicate._layout.space is Space.PSUM:
            raise MemorySpaceError(
                f"{call}: src and predicate in PSUM",
                rule="at most one of them is in PSUM",
                fix="copy one to SBUF",
            )
        first, *walks = same_domain(call, *tensors)
        # The instruction reads what it leaves as it is.
        order = (None, None if tile else src, None)
        return Recipe(
            "tensor_copy_predicated",
            Engine.VECTOR,
            [first],
            [*walks, first],
            order,
            Predicated(reverse=reverse_pred),
        )

    return NkiInstruction(session.issue(key, (*tensors, dst), lower))


__all__ = ["memset", "tensor_copy", "tensor_copy_predicated"]
