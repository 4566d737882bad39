"""The eight largest values of a partition, where values are, and replacing them."""

from __future__ import annotations

from nkisim.errors import (
    DTypeError,
    ShapeError,
)
from nkisim.frontends.nki.operands import (
    check_on_chip,
    free_of,
    same_domain,
)
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.surface.isa.vector.checks import constant, per_partition, rows_of
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.search import Replacement


def _searched(call: str, data: NkiTensor, name: str = "data") -> None:
    if not 8 <= free_of(data) <= 16384 or data.ndim > 3:
        raise ShapeError(
            f"{call}: {name} is {data.describe()}",
            rule="it has up to 3 axes, and 8 to 16384 elements a partition",
            fix="pad it, or call it on parts",
        )


def max8(dst: NkiTensor, src: NkiTensor, name: str | None = None) -> NkiInstruction:
    """dst = the 8 largest elements of each partition, in descending order.

    Args:
        dst: a tile of 8 elements a partition.
        src: a tile of 8 to 16384 elements a partition.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: more than 3 axes, other than 8 to 16384 elements a partition, or a dst of other
            than 8.
        DTypeError: a packed type.
    """

    def lower() -> Recipe:
        check_on_chip("nisa.max8", dst=dst, src=src)
        _searched("nisa.max8", src, "src")
        return per_partition("nisa.max8", "max8", dst, src, 8)

    return NkiInstruction(current().issue(("max8",), (dst, src), lower))


def nc_find_index8(
    dst: NkiTensor, data: NkiTensor, vals: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst = the position of each of 8 values in its partition of data; all ones if it is absent.

    Equal values get successive places.

    Args:
        dst: a uint16 or uint32 tile of 8 elements a partition.
        data: a tile of 8 to 16384 elements a partition.
        vals: a tile of 8 elements a partition.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: more than 3 axes, other than 8 to 16384 elements a partition, or other than 8
            values.
        DTypeError: a dst that is not uint16 or uint32, or a packed type.
    """

    def lower() -> Recipe:
        call = "nisa.nc_find_index8"
        check_on_chip(call, dst=dst, data=data, vals=vals)
        _searched(call, data)
        if dst.dtype not in ("uint16", "uint32"):
            raise DTypeError(
                f"{call}: dst is {dst.describe()}",
                rule="places are uint16 or uint32",
                fix="declare dst so",
            )
        _eight(call, vals)
        recipe = per_partition(call, "nc_find_index8", dst, vals, 8)
        return Recipe(
            "nc_find_index8", Engine.VECTOR, recipe.walks[:1], [rows_of(data), rows_of(vals)]
        )

    return NkiInstruction(current().issue(("nc_find_index8",), (dst, data, vals), lower))


def _eight(call: str, vals: NkiTensor) -> None:
    if free_of(vals) != 8:
        raise ShapeError(
            f"{call}: vals is {vals.describe()}",
            rule="it looks for 8 values in each partition",
            fix="pass a (P, 8) tile, as nisa.max8 makes",
        )


def nc_match_replace8(
    dst: NkiTensor,
    data: NkiTensor,
    vals: NkiTensor,
    imm: float,
    dst_idx: NkiTensor | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """dst = data with the first occurrence of each of 8 values replaced, from the last value on.

    Args:
        dst, data: tiles with equally many elements.
        vals: a tile of 8 elements a partition.
        imm: the number that replaces the values.
        dst_idx: a uint16 or uint32 tile of 8 elements a partition, for the positions.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: more than 3 axes, other than 8 to 16384 elements a partition, or other than 8
            values.
        DTypeError: a dst_idx that is not uint16 or uint32.
    """
    outs = (dst,) if dst_idx is None else (dst, dst_idx)
    key = ("nc_match_replace8", constant(imm), dst_idx is None)

    def lower() -> Recipe:
        call = "nisa.nc_match_replace8"
        check_on_chip(call, dst=dst, data=data, vals=vals, dst_idx=dst_idx)
        _searched(call, data)
        out, source = same_domain(call, dst, data)
        walks = [out] if dst_idx is None else [out, rows_of(dst_idx)]
        return Recipe(
            "nc_match_replace8",
            Engine.VECTOR,
            walks,
            [source, rows_of(vals)],
            None,
            Replacement(imm=float(imm)),
        )

    return NkiInstruction(current().issue(key, (*outs, data, vals), lower))


__all__ = ["max8", "nc_find_index8", "nc_match_replace8"]
