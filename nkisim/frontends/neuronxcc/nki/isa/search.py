"""Looking for values in partitions, shuffling partitions, and bounds of segments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkisim.errors import DTypeError, IndexingError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import narrow, require_elements, require_tile
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.integers import as_int
from nkisim.trace.tracer import current

_MAX_ELEMENTS = 16384
_QUADRANT = 32
_KEEP = 255


def _axes_at_most(what: str, x: Tensor, most: int) -> None:
    if x.ndim > most:
        raise ShapeError(
            f"{what} is {x.describe()} with {x.ndim} axes",
            rule=f"it has at most {most} axes",
            fix="reshape it to fewer axes, t.reshape((partitions, elements)), or index axes of "
            "size 1",
        )


def _eight(what: str, vals: Tensor, data: Tensor) -> Tensor:
    """The tile of 8 values a partition that goes with `data`."""
    vals = require_tile(f"{what}: vals", vals)
    _axes_at_most(f"{what}: vals", vals, 3)
    if vals.shape[0] != data.shape[0] or vals.size != 8 * data.shape[0]:
        raise ShapeError(
            f"{what}: vals is {vals.describe()}, for data of {data.shape[0]} partitions",
            rule="vals holds exactly 8 values for each partition of data",
            fix="pass what nisa.max8 gives",
        )
    return vals


@remembered
def max8(*, src: Tensor, mask: Mask | None = None, dtype: Any = None, **kwargs: Any) -> Tensor:
    """The 8 largest values of each partition, largest first, compared in fp32. Vector Engine.

    Args:
        src: tile of up to five axes, 8 to 16384 elements a partition.
        mask: which elements count.
        dtype: of the result; src's when None.

    Returns:
        An SBUF tile (partitions, 8).
    """
    what = "nisa.max8"
    src = require_tile(what, src)
    _axes_at_most(what, src, 5)
    require_elements(what, src, 8, _MAX_ELEMENTS)
    out = ndarray((src.shape[0], 8), src.dtype if dtype is None else dtype)
    left = restriction(mask, src.shape)
    if not left.empty:
        part = narrow(src, left)
        require_elements(what, part, 8, _MAX_ELEMENTS)
        current().emit("max8", (narrow(out, left, (0,)),), (part,), where=left.dense)
    return out


@remembered
def nc_find_index8(
    *, data: Tensor, vals: Tensor, mask: Mask | None = None, dtype: Any = None, **kwargs: Any
) -> Tensor:
    """The first position of each of 8 values among the flattened elements of its partition.

    If a value is given several times, its entries get successive positions, from the first entry
    to the last. The index of a value that does not occur, or not as often, has all bits set. The
    documentation of SDK 2.26 leaves both open; the release notes of NKI 0.6.0 (SDK 2.32) specify
    both for the hardware.

    Args:
        data: tile of up to five axes, 8 to 16384 elements a partition.
        vals: tile of up to three axes, 8 elements a partition.
        mask: which elements of data count: a range of partitions, or any condition that leaves the
            positions of the free axis in place.
        dtype: uint16 or uint32; uint32 when None.

    Returns:
        An SBUF tile (partitions, 8) of indices from 0.

    Raises:
        DTypeError: a dtype other than uint16 and uint32.
    """
    what = "nisa.nc_find_index8"
    data = require_tile(f"{what}: data", data)
    _axes_at_most(f"{what}: data", data, 5)
    require_elements(what, data, 8, _MAX_ELEMENTS)
    vals = _eight(what, vals, data)
    kind = as_dtype(np.uint32 if dtype is None else dtype)
    if kind.name not in ("uint16", "uint32"):
        raise DTypeError(
            f"{what}: dtype={kind}",
            rule="indices are uint16 or uint32",
            fix="drop dtype=, which gives uint32",
        )
    out = ndarray((data.shape[0], 8), kind)
    rows, where = _in_place(mask, data)
    if rows is not None:
        ins = (data.restrict((rows, *_rest(data))), vals.restrict((rows, *_rest(vals))))
        target = out.restrict((rows, *_rest(out)))
        current().emit("nc_find_index8", (target,), ins, where=where)
    return out


def _rest(x: Tensor) -> tuple[tuple[int, int], ...]:
    return tuple((0, n) for n in x.shape[1:])


def _in_place(mask: Mask | None, data: Tensor) -> tuple[tuple[int, int] | None, np.ndarray | None]:
    """A mask as a range of partitions, and which of their elements count (None for all), so that
    the positions of elements stay what they are. (None, None) when nothing is left."""
    left = restriction(mask, data.shape)
    if left.empty:
        return None, None
    rows = left.box[0]
    if left.dense is None and left.box[1:] == _rest(data):
        return rows, None
    where = np.zeros((rows[1] - rows[0], *data.shape[1:]), bool)
    inside = (slice(None), *(slice(low, high) for low, high in left.box[1:]))
    where[inside] = True if left.dense is None else left.dense
    return rows, where


@remembered
def nc_match_replace8(
    *,
    data: Tensor,
    vals: Tensor,
    imm: float,
    dst_idx: Tensor | None = None,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Replace the first occurrence of each of 8 values, from the last to the first, by a number.

    If a value is given several times, its last entry replaces the first occurrence (release notes
    of NKI 0.6.0, SDK 2.32).

    Vector Engine. Values that are not there replace nothing, and their index is 0; on hardware
    both are undefined.

    Args:
        data: tile of up to five axes and 16384 elements a partition.
        vals: tile of up to three axes, 8 elements a partition.
        imm: the number, in float32.
        dst_idx: tile of vals' shape that receives the positions of the values, uint16 or uint32.
        mask: which elements of data are looked at and written.
        dtype: of the result; data's when None.

    Returns:
        An SBUF tile of data's shape.

    Raises:
        ParameterError: imm is a tile.
        ShapeError: dst_idx has not the shape of vals, or is neither uint16 nor uint32.
    """
    what = "nisa.nc_match_replace8"
    data = require_tile(f"{what}: data", data)
    _axes_at_most(f"{what}: data", data, 5)
    require_elements(what, data, 1, _MAX_ELEMENTS)
    vals = _eight(what, vals, data)
    if isinstance(imm, Tensor):
        raise ParameterError(
            f"{what}: imm is {imm.describe()}",
            rule="imm is a float32 number known while tracing",
            fix="pass a Python number",
        )
    out = ndarray(data.shape, data.dtype if dtype is None else dtype)
    rows, where = _in_place(mask, data)
    if rows is None:
        return out
    outs = [out.restrict((rows, *_rest(out)))]
    if dst_idx is not None:
        index = require_tile(f"{what}: dst_idx", dst_idx)
        if index.shape != vals.shape or index.dtype.name not in ("uint16", "uint32"):
            raise ShapeError(
                f"{what}: dst_idx is {index.describe()}",
                rule=f"it has the shape of vals, {vals.shape}, and type uint16 or uint32",
                fix=f"declare nl.ndarray({vals.shape}, dtype=nl.uint32)",
            )
        outs.append(index.restrict((rows, *_rest(index))))
    ins = (data.restrict((rows, *_rest(data))), vals.restrict((rows, *_rest(vals))))
    current().emit("nc_match_replace8", tuple(outs), ins, where=where, imm=float(imm))
    return out


@remembered
def nc_stream_shuffle(
    src: Tensor,
    dst: Tensor,
    shuffle_mask: Sequence[int],
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    **kwargs: Any,
) -> None:
    """Permute partitions within each quadrant of 32: `dst[i] = src[shuffle_mask[i]]`.

    Vector Engine. `dst` may be `src`.

    Args:
        src, dst: tiles of one type with the same elements a partition. They start at partition 0,
            for more than 64 active partitions; at 0 or 64, for up to 64; or at the start of a
            quadrant, for up to 32.
        shuffle_mask: 32 partitions of src, by output partition; 255 leaves that one as it is.
        dtype: must be dst's type if given.
        mask: which elements of dst to write.

    Raises:
        DTypeError: src, dst and dtype are not one type.
        ShapeError: src and dst have other elements a partition.
        ParameterError: shuffle_mask has not 32 entries from 0 to 31 or 255, or reads a partition
            that src does not have.
    """
    what = "nisa.nc_stream_shuffle"
    src, dst = require_tile(f"{what}: src", src), require_tile(f"{what}: dst", dst)
    if src.dtype != dst.dtype or (dtype is not None and as_dtype(dtype) != dst.dtype):
        raise DTypeError(
            f"{what} of {src.describe()} into {dst.describe()}",
            rule="src, dst and dtype are one type",
            fix="convert with nl.copy before or after",
        )
    if src.shape[1:] != dst.shape[1:]:
        raise ShapeError(
            f"{what} of {src.describe()} into {dst.describe()}",
            rule="src and dst have the same elements a partition",
            fix="index both with the same free axes",
        )
    entries = [as_int(i) for i in shuffle_mask]
    if len(entries) != _QUADRANT or any(
        i is None or not (0 <= i < _QUADRANT or i == _KEEP) for i in entries
    ):
        raise ParameterError(
            f"{what}: shuffle_mask={list(shuffle_mask)!r}",
            rule="it has 32 integers from 0 to 31, or 255 to leave a partition as it is",
            fix="write [source of partition i for i in range(32)]",
        )
    _check_starts(what, src, dst)
    pairs = [
        (start + i, start + entries[i])
        for start in range(0, dst.shape[0], _QUADRANT)
        for i in range(min(_QUADRANT, dst.shape[0] - start))
        if entries[i] != _KEEP
    ]
    beyond = [s for _, s in pairs if s >= src.shape[0]]
    if beyond:
        raise ParameterError(
            f"{what}: shuffle_mask reads partition {beyond[0]} of {src.describe()}",
            rule=f"sources are partitions of src, which has {src.shape[0]}",
            fix="use a mask that stays inside, or a src of 32 partitions a quadrant",
        )
    left = restriction(mask, dst.shape)
    if not pairs or left.empty:
        return
    where = None
    if left.dense is not None or left.box != tuple((0, n) for n in dst.shape):
        where = np.zeros(dst.shape, bool)
        box = tuple(slice(low, high) for low, high in left.box)
        where[box] = True if left.dense is None else left.dense
    moves = (tuple(t for t, _ in pairs), tuple(s for _, s in pairs))
    whole = len(pairs) == dst.shape[0] and where is None
    current().emit(
        "nc_stream_shuffle",
        (dst,),
        (src,) if whole else (src, dst),
        where_out=where,
        moves=moves,
    )


def _check_starts(what: str, src: Tensor, dst: Tensor) -> None:
    active = -(-max(src.shape[0], dst.shape[0]) // _QUADRANT) * _QUADRANT
    allowed = {32: (0, 32, 64, 96), 64: (0, 64)}.get(active, (0,))
    for name, x in (("src", src), ("dst", dst)):
        if x.base_shape is not x.buffer.shape:
            continue
        start = x.offsets[x.buffer.par_axis]
        if start not in allowed:
            raise IndexingError(
                f"{what}: {name} is {x.describe()}, which starts at partition {start}",
                rule=f"with {active} active partitions, tiles start at partition "
                + " or ".join(map(str, allowed)),
                fix="place the tile at one of these partitions",
            )


def sequence_bounds(*, segment_ids: Tensor, dtype: Any = None) -> Tensor:
    """For each element of a row of segment ids, where its segment starts and ends.

    GpSimd Engine. Ends point behind the last element. Padding, with id 0, gets (n, -1).

    Args:
        segment_ids: tile (1, n) of float32 or int32; ids are not negative.
        dtype: float32 or int32; that of the ids when None.

    Returns:
        An SBUF tile (1, 2, n): starts, ends.

    Raises:
        ShapeError: the ids are not of shape (1, n).
        DTypeError: ids or bounds are neither float32 nor int32.
    """
    what = "nisa.sequence_bounds"
    ids = require_tile(what, segment_ids)
    kind = ids.dtype if dtype is None else as_dtype(dtype)
    for dt in (ids.dtype, kind):
        if dt.name not in ("float32", "int32"):
            raise DTypeError(
                f"{what} of {ids.describe()} into {dt}",
                rule="ids and bounds are float32 or int32",
                fix="convert the ids: nl.copy(ids, dtype=nl.int32)",
            )
    if ids.ndim != 2 or ids.shape[0] != 1:
        raise ShapeError(
            f"{what} of {ids.describe()}",
            rule="the ids are one partition: shape (1, n)",
            fix="handle one row at a time: ids[i:i + 1, :]",
        )
    out = ndarray((1, 2, ids.shape[1]), kind)
    current().emit("sequence_bounds", (out,), (ids,))
    return out


__all__ = [
    "max8",
    "nc_find_index8",
    "nc_match_replace8",
    "nc_stream_shuffle",
    "sequence_bounds",
]
