"""Grids: a tensor seen as tiles, or as blocks of tiles, and indexed by their coordinates.

A grid holds no data. It is a box of the tensor's elements and, for each axis, how many elements a
step of its coordinate is. Tiles at the edge of a tensor are as long as the tensor is there.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Self

from nkisim.errors import (
    IndexingError,
    OutOfBoundsError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)
from nkisim.frontends.nki import declare, releases
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor

__all__ = [
    "NkiBlockGrid",
    "NkiGrid",
    "NkiTileGrid",
    "alloc_blocks",
    "alloc_tiles",
    "blocks",
    "tiles",
]

Ints = tuple[int, ...]


class _Axis(NamedTuple):
    """An axis of the tensor, in a grid.

    Attributes:
        start, size: the elements that are selected.
        tile: elements of a tile; 0 of an axis in front of the tiles, which is walked one by one.
        step: elements that a step of the coordinate is: a tile, or the tiles of a block.
        open: whether it has a coordinate: no integer has selected one.
    """

    start: int
    size: int
    tile: int
    step: int
    open: bool = True

    @property
    def count(self) -> int:
        """Coordinates, with one for what is left at the end."""
        return -(-self.size // self.step)


class NkiGrid:
    """A view of a tensor in tiles or in blocks of tiles: the class of `nl.tiles` and `nl.blocks`.
    New in NKI 0.7.

    `grid[i, j]` and `grid[i, :]` select by coordinates, and give a grid of the same kind.

    Attributes:
        shape: how many tiles, or blocks, there are on each axis that still has a coordinate.
        element_shape: elements that are selected, on each axis of the tensor. An axis in front of
            the tiles that an integer has consumed is left out.
        tile_shape: elements of a whole tile.
        index_step_elements: elements that a step of a coordinate is, on each axis of `shape`.
        is_remainder: whether the selection has a tile, or block, that is not whole.
        is_data_representable: whether `data` is there.
        data: the tensor that instructions take.
        dtype, buffer: of the tensor.
    """

    __slots__ = ("_axes", "_folded", "_source")

    def __init__(self, source: NkiTensor, axes: tuple[_Axis, ...], folded: int = 0) -> None:
        self._source = source
        self._axes = axes
        self._folded = folded  # on chip: partitions of a row of tiles, where there are several

    @property
    def shape(self) -> Ints:
        return tuple(a.count for a in self._axes if a.open)

    @property
    def element_shape(self) -> Ints:
        return tuple(a.size for a in self._axes if a.tile or a.open)

    @property
    def tile_shape(self) -> Ints:
        return tuple(a.tile for a in self._axes if a.tile)

    @property
    def index_step_elements(self) -> Ints:
        return tuple(a.step for a in self._axes if a.open)

    @property
    def dtype(self) -> str:
        return self._source.dtype

    @property
    def buffer(self) -> MemoryRegion:
        return self._source.buffer

    @property
    def is_remainder(self) -> bool:
        return any(a.size % a.step for a in self._axes if a.tile)

    @property
    def is_data_representable(self) -> bool:
        rows = self._axes[0]
        return not self._folded or rows.start // self._folded == (rows.start + rows.size - 1) // (
            self._folded
        )

    @property
    def data(self) -> NkiTensor:
        """The tensor that instructions take.

        Raises:
            UnsupportedError: on chip, a selection with tiles of several rows.
        """
        if not self.is_data_representable:
            raise UnsupportedError(
                f".data of {self!r}",
                rule=releases.BY_NAME["nl.NkiTileGrid"].unpublished,
                fix="select tiles of one row first: grid[i, :].data",
            )
        if self._folded:  # (partitions of a row of tiles, rows of tiles, elements)
            rows, columns = self._axes
            at, row = divmod(rows.start, self._folded)
            ends = row + rows.size, columns.start + columns.size
            return self._source[row : ends[0], at, columns.start : ends[1]]
        return self._source[
            tuple(
                slice(a.start, a.start + a.size) if a.tile or a.open else a.start
                for a in self._axes
            )
        ]

    def __getitem__(self, key: object) -> Self:
        open_axes = [n for n, a in enumerate(self._axes) if a.open]
        keys = key if isinstance(key, tuple) else (key,)
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            rest = len(open_axes) - len(keys) + 1
            keys = (*keys[:at], *[slice(None)] * rest, *keys[at + 1 :])
        if len(keys) > len(open_axes):
            raise IndexingError(
                f"{len(keys)} indices on {self!r}",
                rule=f"it has {len(open_axes)} axes of coordinates"
                + ("; .data is the tensor of what is selected" if not open_axes else ""),
                fix="give at most one index an axis",
            )
        axes = list(self._axes)
        for n, k in zip(open_axes, keys, strict=False):
            axes[n] = self._selected(axes[n], k, n)
        return type(self)(self._source, tuple(axes), self._folded)

    def _selected(self, axis: _Axis, k: object, n: int) -> _Axis:
        count = axis.count
        if isinstance(k, slice):
            given = (k.start, k.stop, k.step)
            if not all(v is None or type(v) is int for v in given) or k.step not in (None, 1):
                raise self._no_index(k, "a slice of coordinates is of integers, with step 1")
            first = 0 if k.start is None else k.start
            last = count if k.stop is None else k.stop
            if not 0 <= first < last <= count:
                raise OutOfBoundsError(
                    f"coordinates {first}:{last} on axis {n} of {self!r}",
                    rule=f"the axis has {count}; a slice that extends beyond it is an error",
                    fix=f"use coordinates in 0..{count}",
                )
            start = axis.start + first * axis.step
            end = min(axis.start + axis.size, axis.start + last * axis.step)
            return axis._replace(start=start, size=end - start)
        at = getattr(k, "__index__", None)
        if isinstance(k, bool) or at is None:
            raise self._no_index(k, "a coordinate is an integer or a slice, known while tracing")
        at = at()
        if not 0 <= at < count:
            raise OutOfBoundsError(
                f"coordinate {at} on axis {n} of {self!r}",
                rule=f"the axis has {count}",
                fix=f"use a coordinate in 0..{count - 1}",
            )
        start = axis.start + at * axis.step
        size = min(axis.step, axis.start + axis.size - start)
        return axis._replace(start=start, size=size, open=False)

    def _no_index(self, k: object, rule: str) -> IndexingError:
        return IndexingError(
            f"index {k!r} on {self!r}", rule=rule, fix="write grid[i, j] or grid[i, :]"
        )

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}(shape={self.shape}, tile_shape={self.tile_shape}, "
            f"element_shape={self.element_shape})"
        )


class NkiTileGrid(NkiGrid):
    """A view of a tensor in tiles, which `nl.tiles` and `nl.alloc_tiles` give. New in NKI 0.7."""

    __slots__ = ()


class NkiBlockGrid(NkiGrid):
    """A view of a tensor in blocks of tiles, which `nl.blocks` and `nl.alloc_blocks` give. New in
    NKI 0.7.

    Attributes:
        block_shape: tiles of a whole block.
    """

    __slots__ = ()

    @property
    def block_shape(self) -> Ints:
        return tuple(a.step // a.tile for a in self._axes if a.tile)


def tiles(source: NkiTensor | NkiGrid, *, tile_shape: tuple[int, ...] | None = None) -> NkiTileGrid:
    """A tensor as a grid of tiles. New in NKI 0.7.

    Args:
        source: a tensor; or a grid, whose selection is opened into tiles.
        tile_shape: elements of a tile on the last axes of a tensor, two or more. Axes in front of
            them, in HBM, are walked one by one. Of a grid it is the grid's own.

    Returns:
        The grid. Tiles at the edges are as long as the tensor is there.

    Raises:
        ParameterError: no tile_shape for a tensor, or another than the grid's.
        ShapeError: a tile_shape that is none, or that the tensor does not take.
    """
    return _tiles_of("nl.tiles", source, tile_shape)


def _tiles_of(call: str, source: NkiTensor | NkiGrid, tile_shape: Ints | None) -> NkiTileGrid:
    if isinstance(source, NkiGrid):
        if tile_shape is not None and tuple(tile_shape) != source.tile_shape:
            raise ParameterError(
                f"{call}(grid, tile_shape={tile_shape})",
                rule=f"a grid has the tiles that it was made with, {source.tile_shape}",
                fix="leave tile_shape out, or make tiles of the tensor, grid.data",
            )
        axes = tuple(a._replace(step=a.tile, open=True) if a.tile else a for a in source._axes)
        return NkiTileGrid(source._source, axes, source._folded)
    return NkiTileGrid(source, _axes(call, source.shape, source.buffer, tile_shape))


def blocks(
    source: NkiTensor | NkiGrid,
    *,
    tile_shape: tuple[int, ...] | None = None,
    block_shape: tuple[int, ...],
) -> NkiBlockGrid:
    """A tensor as a grid of blocks of tiles: a coarser step for transfers than for instructions.
    New in NKI 0.7.

    Args:
        source: a tensor, or a grid of tiles.
        tile_shape: as for `nl.tiles`.
        block_shape: tiles of a block, on each axis of tile_shape.

    Returns:
        The grid. `nl.tiles(grid[i, j])` gives the tiles of a block.

    Raises:
        ParameterError: as for `nl.tiles`.
        ShapeError: as for `nl.tiles`; or a block_shape that does not go with tile_shape.
    """
    return _blocks_of("nl.blocks", _tiles_of("nl.blocks", source, tile_shape), block_shape)


def alloc_tiles(
    *,
    tile_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: str,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiTileGrid:
    """A new tensor, with nothing in it, as a grid of tiles. New in NKI 0.7.

    On chip, rows of tiles beyond the first lie behind it in the same partitions.

    Args:
        tile_shape: elements of a tile, on the last axes of element_shape, two or more.
        element_shape: extents of the whole.
        buffer: the memory.
        dtype: element type.
        address: (start partition, byte) on chip, as for `nl.ndarray`.
        name: of the tensor.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that does not fit.
        ParameterError: no memory region.
        TileSizeError: more elements than the memory has.
    """
    given = tile_shape, element_shape, buffer, dtype, address, name
    return _allocated("nl.alloc_tiles", *given)


def _allocated(
    call: str,
    tile_shape: Ints,
    element_shape: Ints,
    buffer: MemoryRegion,
    dtype: str,
    address: tuple[int, int] | None,
    name: str,
) -> NkiTileGrid:
    axes = _axes(call, _shape(call, "element_shape", element_shape), buffer, tile_shape)
    shape, folded = tuple(a.size for a in axes), 0
    if isinstance(buffer, MemoryRegion) and buffer.space.on_chip:
        if len(axes) > 2:
            raise ShapeError(
                f"{call}: element_shape={element_shape} in {buffer!r}",
                rule="AWS's page gives tensors on chip a layout of two axes",
                fix="allocate a grid of two axes for each of those in front",
            )
        rows, columns = axes
        if rows.count > 1:
            shape, folded = (rows.tile, rows.count, columns.size), rows.tile
    return NkiTileGrid(declare.make(shape, dtype, buffer, name, address), axes, folded)


def alloc_blocks(
    *,
    tile_shape: tuple[int, ...],
    block_shape: tuple[int, ...],
    element_shape: tuple[int, ...],
    buffer: MemoryRegion,
    dtype: str,
    address: tuple[int, int] | None = None,
    name: str = "",
) -> NkiBlockGrid:
    """A new tensor, with nothing in it, as a grid of blocks of tiles. New in NKI 0.7.

    Args:
        block_shape: tiles of a block, on each axis of tile_shape.
        tile_shape, element_shape, buffer, dtype, address, name: as for `nl.alloc_tiles`.

    Raises:
        ShapeError, ParameterError, TileSizeError: as for `nl.alloc_tiles` and `nl.blocks`.
    """
    given = tile_shape, element_shape, buffer, dtype, address, name
    return _blocks_of("nl.alloc_blocks", _allocated("nl.alloc_blocks", *given), block_shape)


def _blocks_of(call: str, grid: NkiTileGrid, block_shape: object) -> NkiBlockGrid:
    sizes = _shape(call, "block_shape", block_shape)
    if len(sizes) != len(grid.tile_shape):
        raise ShapeError(
            f"{call}: block_shape={block_shape} of tiles {grid.tile_shape}",
            rule="it counts tiles on each axis of tile_shape",
            fix=f"give it {len(grid.tile_shape)} numbers",
        )
    free = iter(sizes)
    axes = tuple(a._replace(step=a.tile * next(free)) if a.tile else a for a in grid._axes)
    return NkiBlockGrid(grid._source, axes, grid._folded)


def _shape(call: str, which: str, given: Any) -> Ints:
    if not isinstance(given, tuple) or not all(type(n) is int and n > 0 for n in given):
        raise ShapeError(
            f"{call}: {which}={given!r}",
            rule="a shape is a tuple of positive integers known while tracing",
            fix=f"pass {which}=(128, 512), say",
        )
    return given


def _axes(call: str, extents: Ints, buffer: Any, tile_shape: Any) -> tuple[_Axis, ...]:
    """The axes of a tensor as tiles."""
    if tile_shape is None:
        raise ParameterError(
            f"{call} of a tensor without tile_shape",
            rule="it is left out where a grid gives it",
            fix="pass tile_shape=(128, 512), say",
        )
    tile = _shape(call, "tile_shape", tile_shape)
    before = len(extents) - len(tile)
    if len(tile) < 2 or before < 0:
        raise ShapeError(
            f"{call}: tile_shape={tile} of {list(extents)}",
            rule="a tile has two axes or more, and no more than the tensor",
            fix={1: "reshape it first", 2: "give it 2 numbers"}.get(
                len(extents), f"give it 2 to {len(extents)} numbers"
            ),
        )
    if before and isinstance(buffer, MemoryRegion) and buffer.space.on_chip:
        raise ShapeError(
            f"{call}: tile_shape={tile} of {list(extents)} in {buffer!r}",
            rule="axes in front of the tiles are HBM's: on chip, axis 0 is laid over partitions",
            fix=f"give tile_shape {len(extents)} numbers",
        )
    front = tuple(_Axis(0, n, 0, 1) for n in extents[:before])
    return front + tuple(
        _Axis(0, n, size, size) for n, size in zip(extents[before:], tile, strict=True)
    )
