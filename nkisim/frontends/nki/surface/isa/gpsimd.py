"""The GpSimd Engine: index patterns, gathers, and reductions across partitions."""

from __future__ import annotations

from math import prod
from typing import Any

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki.operands import (
    check_generation,
    check_on_chip,
    free_of,
    free_walks,
    same_domain,
)
from nkisim.frontends.nki.ops import COMPARISONS, NAMES, op_name
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction, nc_version
from nkisim.frontends.nki.surface.isa.vector.checks import constant, no_packed, rows_of
from nkisim.frontends.nki.surface.operators import equal
from nkisim.frontends.nki.target import current_machine
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.access import Affine
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.gather import LocalGather
from nkisim.numerics.ops.generated import NonZero
from nkisim.numerics.ops.reduce import Reduction
from nkisim.numerics.ops.select import AffineSelect, Iota


def check_sbuf(call: str, **tensors: NkiTensor | None) -> None:
    """Raises MemorySpaceError for an operand that is not in SBUF."""
    for which, t in tensors.items():
        if t is not None and t._layout.space is not Space.SBUF:
            raise MemorySpaceError(
                f"{call}: {which} is {t.describe()}",
                rule="operands are in SBUF",
                fix="copy it to SBUF first",
            )


def _affine(
    call: str, dst: NkiTensor, pattern: Any, offset: int, multiplier: int
) -> tuple[Affine, tuple[int, ...]]:
    """offset + p * multiplier + sum(i * step), and the extents of its coordinates."""
    try:
        pairs = [(int(step), int(count)) for step, count in pattern]
    except (TypeError, ValueError):
        raise ParameterError(
            f"{call}: pattern {pattern!r}",
            rule="a pattern is a list of up to 4 [step, count] pairs",
            fix="write e.g. [[1, 512]]",
        ) from None
    counts = [n for _, n in pairs]
    if len(pairs) > 4 or prod(counts) != free_of(dst):
        raise ShapeError(
            f"{call}: pattern {pattern!r} for {dst.describe()}",
            rule=f"the counts of up to 4 pairs multiply to the {free_of(dst)} elements of a "
            "partition",
            fix="correct the counts",
        )
    coefs = (int(multiplier), *(step for step, _ in pairs))
    wide = [n for n in (int(offset), *coefs) if not -(2**31) <= n < 2**31]
    if wide:
        raise ParameterError(
            f"{call}: {wide[0]} in its pattern, offset or channel_multiplier",
            rule="the values are int32, and so is what they come from",
            fix="use numbers from -2**31 to 2**31 - 1",
        )
    return Affine(coefs, int(offset)), (dst.shape[0], *counts)


def iota(
    dst: NkiTensor,
    pattern: list[list[int]],
    offset: int = 0,
    channel_multiplier: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst[p, i, j, ...] = offset + p * channel_multiplier + i * step0 + j * step1 ...

    Args:
        dst: an SBUF tile.
        pattern: up to 4 [step, count] pairs; the counts multiply to the elements of a partition.
        offset, channel_multiplier: ints.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: counts that are not the elements of a partition.
        ParameterError: no list of up to 4 [step, count] pairs, or values beyond int32.
    """
    session = current()
    offset = _plain(session, offset)
    key = ("iota", tuple(map(tuple, pattern)), offset, channel_multiplier)

    def lower() -> Recipe:
        call = "nisa.iota"
        check_on_chip(call, dst=dst)
        check_sbuf(call, dst=dst)
        value, domain = _affine(call, dst, pattern, offset, channel_multiplier)
        return Recipe("iota", Engine.GPSIMD, [rows_of(dst)], [], (value,), Iota(domain=domain))

    return NkiInstruction(session.issue(key, (dst,), lower))


def _plain(session: Any, offset: Any) -> int:
    """An offset that a register or a tile may hold."""
    return offset if isinstance(offset, int) else session.number_of(offset)


def affine_select(
    dst: NkiTensor,
    pattern: list[list[int]],
    channel_multiplier: int,
    on_true_tile: NkiTensor,
    on_false_value: float,
    cmp_op: Any = equal,
    offset: int = 0,
    name: str | None = None,
) -> NkiInstruction:
    """dst = on_true_tile where cmp_op(affine value, 0), else on_false_value.

    Args:
        dst, on_true_tile: SBUF tiles of one shape.
        pattern, channel_multiplier, offset: the affine value of each element, as for `iota`.
        on_false_value: a number.
        cmp_op: a comparison.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: a packed type.
        ParameterError: an operator that does not compare, an on_false_value that is no number, no
            list of up to 4 [step, count] pairs, or values beyond int32.
    """
    session = current()
    if isinstance(on_false_value, NkiTensor) or not hasattr(on_false_value, "__float__"):
        raise ParameterError(
            f"nisa.affine_select: on_false_value={on_false_value!r}",
            rule="it is a number, taken as float32",
            fix="pass a number; choose between tiles with nisa.tensor_copy_predicated",
        )
    offset = _plain(session, offset)
    key = (
        "affine_select",
        tuple(map(tuple, pattern)),
        channel_multiplier,
        constant(on_false_value),
        cmp_op,
        offset,
    )

    def lower() -> Recipe:
        call = "nisa.affine_select"
        check_on_chip(call, dst=dst, on_true_tile=on_true_tile)
        check_sbuf(call, dst=dst, on_true_tile=on_true_tile)
        no_packed(call, dst=dst, on_true_tile=on_true_tile)
        compare = op_name(call, cmp_op, COMPARISONS, session.trace.machine)
        value, domain = _affine(call, dst, pattern, offset, channel_multiplier)
        minus = Affine(tuple(-c for c in value.coefs), -value.offset)
        terms = {  # what is at least zero where the comparison with zero holds
            "greater_equal": (value,),
            "greater": (value.moved(-1),),
            "less_equal": (minus,),
            "less": (minus.moved(-1),),
            "equal": (value, minus),
            "not_equal": (value, minus),
        }[compare]
        out, source = same_domain(call, dst, on_true_tile)
        settings = AffineSelect(
            value=float(on_false_value), domain=domain, negated=compare == "not_equal"
        )
        return Recipe("affine_select", Engine.GPSIMD, [out], [source], (None, *terms), settings)

    return NkiInstruction(session.issue(key, (dst, on_true_tile), lower))


_ACROSS = {
    "add": "add",
    "average": "add",
    "maximum": "maximum",
    "max": "maximum",
    "bitwise_or": "bitwise_or",
    "bitwise_and": "bitwise_and",
}


def tensor_partition_reduce(
    dst: NkiTensor, op: Any, data: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst = op over the partitions of data.

    Args:
        dst: a tile of one partition, with as many elements as a partition of data.
        op: nl.add, nl.average, nl.max, nl.bitwise_or or nl.bitwise_and.
        data: a tile.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: dst is not one partition of as many elements.
        DTypeError: a packed type.
        ParameterError: another operator than add, average, max, bitwise_or or bitwise_and.
    """
    session = current()
    key = ("tensor_partition_reduce", op)

    def lower() -> Recipe:
        call = "nisa.tensor_partition_reduce"
        check_on_chip(call, dst=dst, data=data)
        no_packed(call, dst=dst, data=data)
        found = NAMES.get(op, getattr(op, "__name__", ""))
        if found not in _ACROSS:
            raise ParameterError(
                f"{call}: operator {found or op!r}",
                rule="it is nl.add, nl.average, nl.max, nl.bitwise_or or nl.bitwise_and",
                fix="name one of these",
            )
        if dst.shape[0] != 1 or free_of(dst) != free_of(data):
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, data {data.describe()}",
                rule=f"dst is one partition of {free_of(data)} elements",
                fix=f"declare it (1, {free_of(data)})",
            )
        (shape, own), (_, other) = free_walks(call, (dst, data))
        out = ((1, *shape), (dst._layout.strides[0], *own))
        source = ((data.shape[0], *shape), (data._layout.strides[0], *other))
        scale = 1.0 / data.shape[0] if found == "average" else None
        settings = Reduction(op=_ACROSS[found], axes=(0,), scale=scale)
        return Recipe("tensor_partition_reduce", Engine.GPSIMD, [out], [source], None, settings)

    return NkiInstruction(session.issue(key, (dst, data), lower))


def nc_n_gather(
    dst: NkiTensor, data: NkiTensor, indices: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst[p, i] = data[p, indices[p, i]], in the flattened free axes of each partition.

    Args:
        dst: an SBUF tile of data's dtype, as large as indices.
        data: an SBUF tile.
        indices: a uint32 SBUF tile.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: operands of different numbers of partitions, or of elements in each.
        DTypeError: indices that are not uint32, or data and dst of two types.
        OutOfBoundsError: when the kernel runs, an index beyond the elements of a partition.
    """

    def lower() -> Recipe:
        call = "nisa.nc_n_gather"
        check_on_chip(call, dst=dst, data=data, indices=indices)
        check_sbuf(call, dst=dst, data=data, indices=indices)
        if indices.dtype != "uint32":
            raise DTypeError(
                f"{call}: indices are {indices.describe()}",
                rule="indices are uint32",
                fix="convert them",
            )
        if dst._layout.type.stored != data._layout.type.stored:
            raise DTypeError(
                f"{call}: dst is {dst.describe()}, data {data.describe()}",
                rule="a gather does not convert",
                fix="use one dtype",
            )
        out, index = same_domain(call, dst, indices)
        return Recipe("gather_flattened", Engine.GPSIMD, [out], [rows_of(data), index])

    return NkiInstruction(current().issue(("nc_n_gather",), (dst, data, indices), lower))


def local_gather(
    dst: NkiTensor,
    src_buffer: NkiTensor,
    index: NkiTensor,
    num_elem_per_idx: int = 1,
    num_valid_indices: int | None = None,
    name: str | None = None,
) -> NkiInstruction:
    """Each group of 16 partitions gathers from its partitions, by the indices that it holds.

    Args:
        dst: an SBUF tile of src_buffer's dtype.
        src_buffer: an SBUF tile; its partitions are a multiple of 16.
        index: a uint16 SBUF tile: offsets of elements in a partition.
        num_elem_per_idx: elements for each index: 1, 2, 4, 8, 16 or 32.
        num_valid_indices: how many indices a group uses; None for all.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: partitions that are no multiple of 16, more than 4096 indices, or a dst that
            they do not fill.
        DTypeError: indices that are not uint16, or a source and dst of two types.
        ParameterError: a num_elem_per_idx that is not 1, 2, 4, 8, 16 or 32.
    """
    valid = 16 * free_of(index) if num_valid_indices is None else num_valid_indices
    key = ("local_gather", num_elem_per_idx, valid)

    def lower() -> Recipe:
        call = "nisa.local_gather"
        check_on_chip(call, dst=dst, src_buffer=src_buffer, index=index)
        check_sbuf(call, dst=dst, src_buffer=src_buffer, index=index)
        if index.dtype != "uint16":
            raise DTypeError(
                f"{call}: index is {index.describe()}", rule="indices are uint16", fix="convert it"
            )
        if dst._layout.type.stored != src_buffer._layout.type.stored:
            raise DTypeError(
                f"{call}: dst is {dst.describe()}, src_buffer {src_buffer.describe()}",
                rule="a gather does not convert",
                fix="use one dtype",
            )
        if src_buffer.shape[0] % 16 or not dst.shape[0] == src_buffer.shape[0] == index.shape[0]:
            raise ShapeError(
                f"{call}: {src_buffer.describe()}",
                rule="all tiles have as many partitions, a multiple of 16",
                fix="pad them",
            )
        if num_elem_per_idx not in (1, 2, 4, 8, 16, 32):
            raise ParameterError(
                f"{call}: num_elem_per_idx={num_elem_per_idx}",
                rule="it is 1, 2, 4, 8, 16 or 32",
                fix="use one of these",
            )
        if valid > 4096 or valid * num_elem_per_idx != free_of(dst):
            raise ShapeError(
                f"{call}: {valid} indices of {num_elem_per_idx} elements for {dst.describe()}",
                rule="at most 4096 indices; their elements are those of a partition of dst",
                fix="give num_valid_indices and num_elem_per_idx so",
            )
        flat = (dst.shape[0], valid, num_elem_per_idx)
        view = dst.reshape(flat)._layout
        return Recipe(
            "local_gather",
            Engine.GPSIMD,
            [(view.shape, view.strides)],
            [rows_of(src_buffer), rows_of(index)],
            None,
            LocalGather(elements=num_elem_per_idx, count=valid),
        )

    return NkiInstruction(current().issue(key, (dst, src_buffer, index), lower))


def sequence_bounds(
    dst: NkiTensor, segment_ids: NkiTensor, name: str | None = None
) -> NkiInstruction:
    """dst = for each segment id, where its segment starts, and where it ends.

    Args:
        dst: a tile (1, 2, n), float32 or int32.
        segment_ids: a tile (1, n); 0 is padding, whose bounds are (n, -1).
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: segment_ids that are not one partition, or a dst that has not two elements for
            each.
        DTypeError: neither float32 nor int32.
    """

    def lower() -> Recipe:
        call = "nisa.sequence_bounds"
        check_on_chip(call, dst=dst, segment_ids=segment_ids)
        if segment_ids.shape[0] != 1 or free_of(dst) != 2 * free_of(segment_ids):
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, segment_ids {segment_ids.describe()}",
                rule="segment_ids is one partition of n elements, dst has 2 n",
                fix="declare them so",
            )
        for which, t in (("dst", dst), ("segment_ids", segment_ids)):
            if t.dtype not in ("float32", "int32"):
                raise DTypeError(
                    f"{call}: {which} is {t.describe()}",
                    rule="it takes float32 or int32",
                    fix="convert it",
                )
        n = free_of(segment_ids)
        view = dst.reshape((1, 2, n))._layout
        return Recipe(
            "sequence_bounds",
            Engine.GPSIMD,
            [(view.shape, view.strides)],
            [rows_of(segment_ids)],
        )

    return NkiInstruction(current().issue(("sequence_bounds",), (dst, segment_ids), lower))


def nonzero_with_count(
    dst: NkiTensor,
    src: NkiTensor,
    index_offset: int = 0,
    padding_val: int = -1,
    name: str | None = None,
) -> NkiInstruction:
    """dst = the positions of the non-zero elements, then padding, then their number.

    Partitions 0, 16, ..., 112 are read and written; the others stay as they are.

    Args:
        dst: an int32 SBUF tile (P, n + 1).
        src: a float32 or int32 SBUF tile (P, n).
        index_offset: is added to each place.
        padding_val: fills the rest.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand that is not in SBUF.
        ShapeError: dst has not one element more a partition than src.
        DTypeError: src is neither float32 nor int32, or dst is not int32.
        ParameterError: on a NeuronCore before v3.
    """
    session = current()
    key = ("nonzero_with_count", index_offset, padding_val)

    def lower() -> Recipe:
        call = "nisa.nonzero_with_count"
        check_generation(call, session.trace.machine, "target trn2")
        check_on_chip(call, dst=dst, src=src)
        check_sbuf(call, dst=dst, src=src)
        if src.dtype not in ("float32", "int32") or dst.dtype != "int32":
            raise DTypeError(
                f"{call}: dst is {dst.describe()}, src {src.describe()}",
                rule="src is float32 or int32, dst int32",
                fix="convert them",
            )
        if dst.shape[0] != src.shape[0] or free_of(dst) != free_of(src) + 1:
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, src {src.describe()}",
                rule="dst has one element more a partition than src, for the count",
                fix=f"declare it ({src.shape[0]}, {free_of(src) + 1})",
            )
        settings = NonZero(offset=int(index_offset), padding=int(padding_val))
        lanes = -(-src.shape[0] // 16)
        out, source = rows_of(dst), rows_of(src)
        steps = [((lanes, *w[0][1:]), (w[1][0] * 16, *w[1][1:])) for w in (out, source)]
        return Recipe("nonzero_with_count", Engine.GPSIMD, steps[:1], steps[1:], None, settings)

    return NkiInstruction(session.issue(key, (dst, src), lower))


def get_nc_version() -> nc_version:
    """The generation that the kernel is compiled for.

    Raises:
        ParameterError: a generation that AWS has no name for: a table of your own.
    """
    machine = current_machine()
    try:
        return nc_version(machine.version)
    except ValueError:
        raise ParameterError(
            f"nisa.get_nc_version() on {machine.name}, version {machine.version}",
            rule=f"nisa.nc_version has {', '.join(v.name for v in nc_version)}",
            fix="give your table the version of the generation that its kernels are written for",
        ) from None


def get_nc_sub_version() -> int:
    """The revision of that generation: 0.

    Raises:
        ParameterError: the environment names no generation.
    """
    return 0


__all__ = [
    "affine_select",
    "get_nc_sub_version",
    "get_nc_version",
    "iota",
    "local_gather",
    "nc_n_gather",
    "nonzero_with_count",
    "sequence_bounds",
    "tensor_partition_reduce",
]
