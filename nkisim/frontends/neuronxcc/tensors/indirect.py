"""Indirect access: a tensor indexed with integers that a tile holds.

Addresses are then known only when the kernel runs. The tensor's part that may be touched is still
an access pattern (the region); the tile picks coordinates in it. Instructions that gather or
scatter take region and tile as operands of their own, so everything else stays affine.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkisim.errors import DTypeError, IndexingError, MemorySpaceError, ShapeError
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, broadcast_shapes
from nkisim.frontends.neuronxcc.tensors.ranges import DynSlice
from nkisim.frontends.neuronxcc.tensors.reshaping import as_tile
from nkisim.frontends.neuronxcc.tensors.slices import bounds_of
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import BOOL, INTEGERS
from nkisim.ir.integers import as_int
from nkisim.ir.memory import Space


@dataclass(frozen=True)
class DynamicIndex:
    """Index values held in a tile, plus an affine expression.

    Attributes:
        tile: integers, on chip.
        affine: added to them; an index of the shape that both broadcast to.
        extent: for `nl.ds(tile, extent)`, the size of the range that starts at the tile's value.
    """

    tile: AccessPattern
    affine: IndexTensor
    extent: int | None = None

    __array_ufunc__ = None

    @classmethod
    def of(cls, tile: AccessPattern, affine: IndexTensor | int = 0) -> DynamicIndex:
        """`tile + affine`. Raises DTypeError, MemorySpaceError when a tile cannot be an index."""
        if tile.dtype not in INTEGERS:
            raise DTypeError(
                f"{tile.describe()} of {tile.dtype} is used as an index",
                rule="indices are integers",
                fix="choose by values with nl.where(condition, x, y)"
                if tile.dtype == BOOL
                else "load the indices as int32 or uint32, or convert the tile with dtype=",
            )
        if tile.space is not Space.SBUF:
            raise MemorySpaceError(
                f"{tile.describe()} is used as an index",
                rule="index tiles are in SBUF",
                fix="copy the indices there with nisa.tensor_copy"
                if tile.space.on_chip
                else "nl.load the indices first",
            )
        if tile.ndim < 2 <= getattr(affine, "ndim", 0):
            tile = as_tile(tile)
        # A single number acts as an integer would: it has no axes of its own.
        shape = () if tile.size == 1 else tile.shape
        if isinstance(affine, IndexTensor):
            return cls(tile, affine.expand(_broadcast(shape, affine.shape)))
        return cls(tile, IndexTensor(shape, (0,) * len(shape), affine))

    @classmethod
    def of_slice(cls, k: DynSlice) -> DynamicIndex:
        """`nl.ds(start, size)` whose start is a tile of one number."""
        size = as_int(k.size)
        if size is None or k.start.size != 1:
            raise IndexingError(
                f"nl.ds({k.start!r}, {k.size!r})",
                rule="a range starts at one number and has a size known while tracing",
                fix="take one element of the tile, e.g. nl.ds(t[0, i], 64)",
            )
        start = cls.of(k.start)
        return cls(start.tile, start.affine, size)

    def beside(self, ndim: int) -> DynamicIndex:
        """This index broadcast beside index tensors of several axes, as a column of a tile."""
        if ndim < 2 or self.tile.ndim != 1 or self.affine.ndim != 1:
            return self
        return DynamicIndex(as_tile(self.tile), self.affine[:, None], self.extent)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.affine.shape

    def _plus(self, other: object, sign: int) -> DynamicIndex:
        if self.extent is not None or (
            as_int(other) is None and not isinstance(other, IndexTensor)
        ):
            return NotImplemented
        affine = self.affine + other if sign > 0 else self.affine - other
        return DynamicIndex(self.tile, affine)

    def __add__(self, other: object) -> DynamicIndex:
        return self._plus(other, 1)

    __radd__ = __add__

    def __sub__(self, other: object) -> DynamicIndex:
        return self._plus(other, -1)


class IndirectTensor:
    """A tensor indexed with tiles: what gather and scatter operations take.

    Attributes:
        region: every element that may be touched. Its axes are those view axes that the affine
            indices walk (`walked`), then one for each dynamic index, spanning the indexed axis.
        walked: the view axis behind each of the region's leading axes.
        tiles: for each dynamic index, the tile, with as many axes as the view; an axis is as long
            as the view's or 1.
        affines: for each dynamic index, what is added to the tile, in the same form.
        shape: extents of the view.
        free: whether an index tile picks along a free axis: an axis before the one it indexes
            varies too, or its own index spans the free axis, as one made with nl.mgrid does.
    """

    __array_ufunc__ = None

    def __init__(
        self,
        region: AccessPattern,
        walked: tuple[int, ...],
        tiles: tuple[AccessPattern, ...],
        affines: tuple[IndexTensor, ...],
        shape: tuple[int, ...],
        free: bool,
    ) -> None:
        self.region = region
        self.walked = walked
        self.tiles = tiles
        self.affines = affines
        self.shape = shape
        self.free = free

    @property
    def dtype(self) -> np.dtype:
        return self.region.dtype

    @property
    def space(self) -> Space:
        return self.region.space

    @property
    def name(self) -> str:
        return self.region.name

    def restrict(self, box: tuple[tuple[int, int], ...]) -> IndirectTensor:
        """The part inside `box`, a (low, high) range for each view axis."""
        shape = tuple(hi - lo for lo, hi in box)
        if shape == self.shape:
            return self
        dynamic = self.region.shape[len(self.walked) :]
        region = self.region.restrict(
            tuple(box[d] for d in self.walked) + tuple((0, n) for n in dynamic)
        )
        tiles, affines = [], []
        for tile, affine in zip(self.tiles, self.affines, strict=True):
            own = tuple(b if n > 1 else (0, 1) for b, n in zip(box, tile.shape, strict=True))
            tiles.append(tile.restrict(own))
            low = tuple(b[0] if n > 1 else 0 for b, n in zip(box, affine.shape, strict=True))
            start = affine.offset + sum(c * lo for c, lo in zip(affine.coefs, low, strict=True))
            sizes = tuple(
                hi - lo if n > 1 else 1 for (lo, hi), n in zip(box, affine.shape, strict=True)
            )
            affines.append(IndexTensor(sizes, affine.coefs, start))
        return IndirectTensor(region, self.walked, tuple(tiles), tuple(affines), shape, self.free)

    def describe(self) -> str:
        """For messages."""
        by = " and ".join(t.describe() for t in self.tiles)
        return f"{self.region.describe()} indexed with {by}"

    __repr__ = describe

    def _refuse(self, *_: object) -> None:
        raise IndexingError(
            f"{self.describe()} is indexed, assigned or computed on",
            rule="indirect access is an operand of nl.load, nl.store, nl.atomic_rmw, "
            "nisa.dma_copy and nisa.tensor_copy_dynamic_src / _dst only",
            fix="gather into a tile first, then use the tile",
            code="err_indirect_indices_are_not_supported_with_nki_api",
        )

    __getitem__ = __setitem__ = __add__ = __radd__ = __mul__ = __rmul__ = _refuse
    __sub__ = __rsub__ = __truediv__ = __rtruediv__ = __neg__ = _refuse


def indirect_view(target: AccessPattern, axes: list) -> IndirectTensor:
    """`target` indexed with at least one DynamicIndex, by NumPy's rules for index arrays."""
    ndim = max([k.ndim for k in axes if isinstance(k, IndexTensor)], default=0)
    axes = [k.beside(ndim) if isinstance(k, DynamicIndex) else k for k in axes]
    arrays = [
        k
        for k in axes
        if isinstance(k, IndexTensor) or (isinstance(k, DynamicIndex) and k.extent is None)
    ]
    block: tuple[int, ...] = ()
    for k in arrays:
        block = _broadcast(block, k.shape)
    kept = [
        d
        for d, k in enumerate(axes)
        if k is None
        or isinstance(k, slice | DynSlice)
        or (isinstance(k, DynamicIndex) and k.extent is not None)
    ]
    fixed = [d for d in range(len(axes)) if d not in kept]
    together = not fixed or fixed == list(range(fixed[0], fixed[-1] + 1))
    at = sum(d < fixed[0] for d in kept) if fixed and together else 0
    # What has one axis, or none, is a column, as it is with numbers in place of the tiles.
    ndim = max(len(block) + len(kept), 2)
    places = {d: i if i < at else i + len(block) for i, d in enumerate(kept)}
    shape = [1] * ndim
    shape[at : at + len(block)] = block

    static: list[tuple[int, list[int]]] = []  # for each own axis: start and growth along the view
    dynamic: list[tuple[int, AccessPattern, IndexTensor]] = []
    dense = False
    axis = 0
    for d, k in enumerate(axes):
        if k is None:
            shape[places[d]] = 1
            continue
        start, row = 0, [0] * ndim
        if isinstance(k, DynamicIndex):
            if k.extent is not None:
                shape[places[d]] = k.extent
                row[places[d]] = int(k.extent > 1)
                affine = IndexTensor(tuple(shape), tuple(row), k.affine.offset)
            else:
                affine = _placed_index(k.affine.expand(block), at, ndim)
                dense |= k.tile.size > max(k.tile.shape[:1], default=1) and not any(
                    row[-1] for row in k.tile.coefs
                )
            dynamic.append((axis, _placed_tile(k, block, at, ndim), affine))
            row = [0] * ndim
        elif isinstance(k, IndexTensor):
            wide = k.expand(block)
            start = wide.offset
            row[at : at + len(block)] = wide.coefs
        else:
            start, (size, step) = bounds_of(target, k, axis)
            if size is not None:
                shape[places[d]] = size
                row[places[d]] = step
        static.append((start, row))
        axis += 1
    return _assemble(target, tuple(shape), static, dynamic, dense)


def _assemble(
    target: AccessPattern,
    shape: tuple[int, ...],
    static: list[tuple[int, list[int]]],
    dynamic: list[tuple[int, AccessPattern, IndexTensor]],
    dense: bool,
) -> IndirectTensor:
    ndim = len(shape)
    offsets = tuple(
        o + sum(c * start for c, (start, _) in zip(row, static, strict=True))
        for o, row in zip(target.offsets, target.coefs, strict=True)
    )
    growth = [
        [
            sum(c * g[v] for c, (_, g) in zip(row, static, strict=True)) if shape[v] > 1 else 0
            for v in range(ndim)
        ]
        for row in target.coefs
    ]
    walked = tuple(
        v for v in range(ndim) if any(g[v] for g in growth) or (v == 0 and target.space.on_chip)
    )
    own = [a for a, _, _ in dynamic]
    coefs = tuple(
        tuple(g[v] for v in walked) + tuple(row[a] for a in own)
        for g, row in zip(growth, target.coefs, strict=True)
    )
    extents = tuple(shape[v] for v in walked) + tuple(target.shape[a] for a in own)
    region = target.view_as(extents, offsets, coefs)
    tiles = tuple(t for _, t, _ in dynamic)
    affines = tuple(
        IndexTensor(
            tuple(n if c else 1 for n, c in zip(shape, i.coefs, strict=True)), i.coefs, i.offset
        )
        for _, _, i in dynamic
    )
    free = dense or any(
        t.size > 1 and any(any(row) for _, row in static[:a]) for a, t, _ in dynamic
    )
    return IndirectTensor(region, walked, tiles, affines, shape, free)


def _placed_index(index: IndexTensor, at: int, ndim: int) -> IndexTensor:
    """An index over the broadcast block as one over the view's axes."""
    after = ndim - at - index.ndim
    return IndexTensor(
        (1,) * at + index.shape + (1,) * after, (0,) * at + index.coefs + (0,) * after, index.offset
    )


def _placed_tile(k: DynamicIndex, block: tuple[int, ...], at: int, ndim: int) -> AccessPattern:
    """The index tile with the view's axes, each as long as the tile's or 1."""
    tile = k.tile
    if tile.size == 1:
        return tile.view_as((1,) * ndim, tile.offsets, tuple((0,) * ndim for _ in tile.coefs))
    before, after = at + len(block) - tile.ndim, ndim - at - len(block)
    # An axis along which the tile does not move (an mgrid index) counts as one element.
    moves = [any(row[d] for row in tile.coefs) for d in range(tile.ndim)]
    shape = tuple(n if m else 1 for n, m in zip(tile.shape, moves, strict=True))
    coefs = tuple((0,) * before + row + (0,) * after for row in tile.coefs)
    return tile.view_as((1,) * before + shape + (1,) * after, tile.offsets, coefs)


def _broadcast(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    try:
        return broadcast_shapes(a, b) if a and b else a or b
    except ValueError:
        raise ShapeError(
            f"index shapes {a} and {b} do not broadcast",
            rule="index tiles and index tensors follow NumPy's broadcasting rule",
            fix="give each its own axis: an index tile of shape (n, 1) with "
            "nl.arange(512)[None, :]",
        ) from None
