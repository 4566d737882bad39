"""Partitions that change places, 32 at a time."""

from __future__ import annotations

from nkisim.errors import (
    ParameterError,
    PlacementError,
    ShapeError,
)
from nkisim.frontends.nki.operands import (
    check_on_chip,
    common,
    free_of,
)
from nkisim.frontends.nki.session import Recipe, current
from nkisim.frontends.nki.surface.isa.copies import settled_pair
from nkisim.frontends.nki.surface.isa.enums import NkiInstruction
from nkisim.frontends.nki.tensors.layout import merged
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.numerics.ops.search import Shuffle


def nc_stream_shuffle(
    dst: NkiTensor, src: NkiTensor, shuffle_mask: list[int], name: str | None = None
) -> NkiInstruction:
    """dst[32 q + i] = src[32 q + shuffle_mask[i]]: partitions are moved within each quadrant.

    Args:
        dst, src: tiles of one dtype, with equally many elements a partition.
        shuffle_mask: 32 partitions of a quadrant; 255 leaves that partition of dst as it is.
        name: of the instruction.

    Raises:
        TileSizeError: more than 128 partitions.
        MemorySpaceError: an operand in HBM.
        ShapeError: src and dst of different types, or of different numbers of elements.
        ParameterError: a mask that has not 32 entries of 0 to 31, or 255.
        PlacementError: partitions that begin where such an access does not.
    """
    session = current()
    dst, src = settled_pair(session, dst, src)
    mask = tuple(shuffle_mask)
    starts = tuple([t.offset // max(t._layout.row, 1) for t in (dst, src)])
    key = ("nc_stream_shuffle", mask, starts)

    def lower() -> Recipe:
        call = "nisa.nc_stream_shuffle"
        check_on_chip(call, dst=dst, src=src)
        if len(mask) != 32 or any(not (0 <= m < 32 or m == 255) for m in mask):
            raise ParameterError(
                f"{call}: shuffle_mask {list(mask)}",
                rule="it has 32 entries, each a partition 0 to 31, or 255 to leave one as it is",
                fix="give all 32",
            )
        if dst._layout.type.stored != src._layout.type.stored or free_of(dst) != free_of(src):
            raise ShapeError(
                f"{call}: dst is {dst.describe()}, src {src.describe()}",
                rule="both have one dtype, and as many elements a partition",
                fix="slice or convert one",
            )
        for which, t, start in (("dst", dst, starts[0]), ("src", src, starts[1])):
            lanes = t.shape[0]
            step = 32 if lanes <= 32 else 64 if lanes <= 64 else 128
            if start % step:
                raise PlacementError(
                    f"{call}: {which} is {t.describe()}, from partition {start} on",
                    rule="up to 32 partitions start at 0, 32, 64 or 96, up to 64 at 0 or 64, more "
                    "at 0",
                    fix=f"use a tile that starts at a multiple of {step}, or shuffle in parts of "
                    "32 partitions",
                )
        (shape, own), (_, other) = common(
            call,
            (dst, src),
            tuple(merged(t.shape[1:], t._layout.strides[1:]) for t in (dst, src)),
        )
        targets, sources = [], []
        for p in range(dst.shape[0]):
            quadrant, lane = divmod(p, 32)
            if mask[lane] != 255:
                at = quadrant * 32 + mask[lane]
                if at >= src.shape[0]:
                    at = mask[lane] if src.shape[0] <= 32 else None
                if at is None or at >= src.shape[0]:
                    continue
                targets.append(p)
                sources.append(at)
        out = ((dst.shape[0], *shape), (dst._layout.strides[0], *own))
        source = ((src.shape[0], *shape), (src._layout.strides[0], *other))
        whole = len(targets) == dst.shape[0]
        return Recipe(
            "nc_stream_shuffle",
            Engine.VECTOR,
            [out],
            [source] if whole else [source, out],
            None,
            Shuffle(moves=(tuple(targets), tuple(sources))),
        )

    whole = len(mask) == 32 and 255 not in mask
    recipe_tensors = (dst, src) if whole and _covers(dst, src, mask) else (dst, src, dst)
    return NkiInstruction(session.issue(key, recipe_tensors, lower))


def _covers(dst: NkiTensor, src: NkiTensor, mask: tuple[int, ...]) -> bool:
    """Whether each partition of dst gets one of src."""
    few = src.shape[0] <= 32
    for p in range(dst.shape[0]):
        at = mask[p % 32] if few else p // 32 * 32 + mask[p % 32]
        if at >= src.shape[0]:
            return False
    return True


__all__ = ["nc_stream_shuffle"]
