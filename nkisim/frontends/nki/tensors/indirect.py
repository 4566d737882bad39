"""DMA of rows that an index tensor picks, one for each partition."""

from __future__ import annotations

from math import prod
from typing import Any

from nkisim.errors import DTypeError, IndexingError, MemorySpaceError, ParameterError, ShapeError
from nkisim.frontends.nki.session import Recipe, Session
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.layout import merged, refined
from nkisim.frontends.nki.tensors.tensor import Indirect, NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.ops.gather import Indexed

_CALL = "nisa.dma_copy"


def _check(call: str, picked: NkiTensor, other: NkiTensor) -> tuple[NkiTensor, int]:
    """The index tensor and the partitions of an indirect copy."""
    moved: Indirect = picked._indirect
    index = moved.index
    if not isinstance(index, NkiTensor) or index._layout.space is not Space.SBUF:
        given = index.describe() if isinstance(index, NkiTensor) else repr(index)
        raise MemorySpaceError(
            f"{call}: vector_offset is {given}",
            rule="row numbers are in an SBUF tile, one for each partition",
            fix="load them first",
        )
    if index.dtype not in ("int32", "uint32", "int16", "uint16"):
        raise DTypeError(
            f"{call}: vector_offset is {index.describe()}",
            rule="row numbers are int32 or uint32",
            fix="convert them",
        )
    if picked._layout.on_chip:
        raise MemorySpaceError(
            f"{call}: rows of {picked.describe()} are picked",
            rule="rows are picked from, or put into, a tensor in HBM",
            fix="pick in HBM, or use nisa.nc_n_gather on chip",
        )
    lanes = index.shape[0]
    if picked.shape[0] != lanes or index.size != lanes or other.size != picked.size:
        raise ShapeError(
            f"{call}: {picked.describe()} by {index.describe()}, with {other.describe()}",
            rule="there is a row number for each partition, and as many elements on both sides",
            fix="slice them to one size",
        )
    return index, lanes


def _domain(call: str, picked: NkiTensor, other: NkiTensor, lanes: int) -> tuple:
    """Shapes and strides, behind the partition, that both sides have."""
    a = merged(picked.shape[1:], picked._layout.strides[1:])
    own = other._layout
    if other.shape[0] == lanes:
        b = merged(other.shape[1:], own.strides[1:])
        first = own.strides[0]
    else:
        wide = other.reshape((lanes, other.size // lanes))
        b = merged(wide.shape[1:], wide._layout.strides[1:])
        first = wide._layout.strides[0]
    found = refined((a, b))
    if found is None:
        raise ShapeError(
            f"{call}: {picked.describe()} and {other.describe()}",
            rule="both sides are walked by axes that they share",
            fix="reshape one of them",
        )
    shape, (mine, theirs) = found
    if not shape:
        shape, mine, theirs = (1,), (1,), (1,)
    return shape, mine, theirs, first


def _picked_walk(picked: NkiTensor, shape: tuple, strides: tuple) -> tuple:
    """What is picked from: the walk from an index, then an axis of all indices whose walk stays in
    the tensor. It begins where index 0 does, and has that one at least: if even that walk leaves
    the tensor, the check of the instruction's bounds says so."""
    moved: Indirect = picked._indirect
    indices = moved.size
    if moved.unit > 0:
        highest = sum(s * (n - 1) for s, n in zip(strides, shape, strict=True) if s > 0)
        room = prod(picked._layout.base) - 1 - picked.offset - highest
        indices = min(indices, room // moved.unit + 1)
    return (*shape, max(indices, 1)), (*strides, moved.unit)


def _settings(lanes: int, shape: tuple, skips: bool) -> Indexed:
    axes = len(shape) + 1
    index_shape = (lanes, *[1] * len(shape))
    affines = ((index_shape, (0,) * axes, 0),)
    return Indexed(walked=tuple(range(1, axes)), skip=skips, affines=affines)


def copy_rows(session: Session, dst: NkiTensor, src: NkiTensor, mode: Any) -> NkiInstruction:
    """dst = src by DMA, where one of them is a row for each partition."""
    gathers = src._indirect is not None
    if gathers and dst._indirect is not None:
        if dst._indirect.by_row and src._indirect.by_row:
            raise IndexingError(
                f"{_CALL} with row numbers on both sides",
                rule="one side is picked by an index tensor",
                fix="copy to SBUF first",
            )
        if dst._indirect.by_row:
            src, gathers = session.settled(src), False
        else:
            dst = session.settled(dst)
    picked, other = (src, dst) if gathers else (dst, src)
    index, lanes = _check(_CALL, picked, other)
    skips = mode.name == "skip"
    shape, mine, theirs, first = _domain(_CALL, picked, other, lanes)
    walk = _picked_walk(picked, shape, mine)
    side = (lanes, *shape), (first, *theirs)
    steps = (lanes, *[1] * len(shape)), (index._layout.strides[0], *[1] * len(shape))
    key = ("rows", gathers, skips, walk, side)
    settings = _settings(lanes, shape, skips)
    if gathers:
        # Rows that are skipped stay as they are.
        tensors = (other, picked, index)
        recipe = lambda: Recipe("dma_gather", Engine.DMA, [side], [walk, steps], None, settings)  # noqa: E731
    else:
        tensors = (picked, other, index)
        recipe = lambda: Recipe("dma_scatter", Engine.DMA, [walk], [side, steps], None, settings)  # noqa: E731
    return NkiInstruction(session.issue(key, tensors, recipe))


def add_rows(session: Session, dst: NkiTensor, srcs: list[NkiTensor], mode: Any) -> NkiInstruction:
    """Rows of dst += the other source: a read-modify-write by DMA."""
    call = "nisa.dma_compute"
    if len(srcs) != 2 or dst._indirect is None:
        raise ParameterError(
            f"{call} with row numbers and {len(srcs)} sources",
            rule="dst has the row numbers; there are two sources, one of them dst itself",
            fix="pass [dst, values]",
        )
    other = next((t for t in srcs if t._buffer is not dst._buffer), None)
    if other is None:
        raise ParameterError(
            f"{call}: no source but dst", rule="one source is added to dst", fix="pass it"
        )
    if other._indirect is not None:
        other = session.settled(other)
    index, lanes = _check(call, dst, other)
    shape, mine, theirs, first = _domain(call, dst, other, lanes)
    walk = _picked_walk(dst, shape, mine)
    side = (lanes, *shape), (first, *theirs)
    steps = (lanes, *[1] * len(shape)), (index._layout.strides[0], *[1] * len(shape))
    skips = mode.name == "skip"
    settings = _settings(lanes, shape, skips)

    def lower() -> Recipe:
        return Recipe("dma_scatter_add", Engine.DMA, [walk], [walk, side, steps], None, settings)

    key = ("add rows", skips, walk, side)
    return NkiInstruction(session.issue(key, (dst, dst, other, index), lower))
