"""How a view walks its memory: shape and strides, in elements, and what follows from them.

On chip, memory is a row of elements in each partition, and the first axis of every view walks
partitions. HBM is one row. There is one `Layout` object for each way to walk, so that what is
worked out for it is worked out once: its parts by index, its forms as an operand.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod

from nkisim.errors import ShapeError
from nkisim.frontends.nki.dtypes import Type
from nkisim.ir.access import Form
from nkisim.ir.integers import as_int, fix_of_integers
from nkisim.ir.memo import Memo
from nkisim.ir.memory import Space, c_strides

Ints = tuple[int, ...]


class Layout:
    """A way to walk a buffer.

    Attributes:
        shape: extents.
        strides: for each axis, the distance between neighbours, in elements of `type`. On chip, a
            partition is as far from the next as its row is long.
        type: of the elements.
        space: the memory.
        base: what offsets count in: (partitions, elements of a row) on chip; the shape of the
            buffer in HBM, or its number of elements where its axes do not fit.
    """

    __slots__ = ("_forms", "base", "on_chip", "row", "shape", "space", "strides", "type")

    def __init__(self, shape: Ints, strides: Ints, type_: Type, space: Space, base: Ints) -> None:
        self.shape, self.strides, self.type, self.space = shape, strides, type_, space
        self.base = base
        self.on_chip = space.on_chip
        self.row = base[1] if space.on_chip else 0
        self._forms: dict = {}

    @property
    def size(self) -> int:
        return prod(self.shape)

    def with_(self, shape: Ints, strides: Ints) -> Layout:
        """Another walk over the same memory."""
        return layout(shape, strides, self.type, self.space, self.base)

    def operand(self, offset: int, shape: Ints, strides: Ints) -> tuple[Form, Ints]:
        """The form of a view of this memory, and where it starts on each axis of the base.

        Args:
            offset: of its first element, in elements.
            shape, strides: of the view, which may be this layout's, merged or split.
        """
        if self.on_chip:
            row = self.row
            found = self._forms.get((shape, strides))
            if found is None:
                found = self._forms[shape, strides] = _form(shape, strides, self.base)
            return found, divmod(offset, row) if row else (0, 0)
        at = _unravel(offset, self.base)
        found = self._forms.get((shape, strides))
        if found is None:
            found = self._forms[shape, strides] = _form(shape, strides, self.base)
        if found.holds(at):
            return found, at
        flat = (prod(self.base),)
        found = self._forms.get((shape, strides, flat))
        if found is None:
            found = self._forms[shape, strides, flat] = _form(shape, strides, flat)
        return found, (offset,)

    def __repr__(self) -> str:
        return f"{self.type.name}{list(self.shape)} in {self.space.label}, strides {self.strides}"


_layouts: Memo[tuple, Layout] = Memo(4096)
parts: Memo[tuple, tuple[Layout, int]] = Memo(65536)
"""By a layout and what an index is: the layout of the part, and how far on it begins."""


def layout(shape: Ints, strides: Ints, type_: Type, space: Space, base: Ints) -> Layout:
    """The layout of these shapes and strides."""
    key = (shape, strides, type_.name, space, base)
    found = _layouts.get(key)
    if found is None:
        found = _layouts[key] = Layout(shape, strides, type_, space, base)
    return found


def whole(shape: Ints, type_: Type, space: Space) -> Layout:
    """The layout of a tensor as it is declared."""
    if space.on_chip:
        row = prod(shape[1:])
        return layout(shape, (row, *c_strides(shape[1:])), type_, space, (shape[0], row))
    return layout(shape, c_strides(shape), type_, space, shape)


@lru_cache(maxsize=16384)
def _unravel(offset: int, base: Ints) -> Ints:
    at = []
    for stride in c_strides(base):
        if stride:
            n, offset = divmod(offset, stride)
        else:
            n = 0
        at.append(n)
    if at and offset:
        at[-1] += offset
    return tuple(at)


def _form(shape: Ints, strides: Ints, base: Ints) -> Form:
    """The form of a view: how many steps on each base axis make up each of its strides."""
    base_strides = c_strides(base)
    columns = []
    for n, stride in zip(shape, strides, strict=True):
        column = [0] * len(base)
        left = abs(stride) if n > 1 else 0
        sign = -1 if stride < 0 else 1
        for axis, step in enumerate(base_strides):
            if step and base[axis] > 1 and left >= step:
                count, left = divmod(left, step)
                column[axis] = sign * count
        if left and column:  # past what the base has: bounds are checked on this axis
            column[-1] += sign * left
        columns.append(column)
    coefs = tuple(tuple(c[axis] for c in columns) for axis in range(len(base)))
    return Form.of(shape, base, coefs)


@lru_cache(maxsize=16384)
def merged(shape: Ints, strides: Ints) -> tuple[Ints, Ints]:
    """Axes without those of extent 1, neighbours merged where one stride walks both."""
    sizes: list[int] = []
    steps: list[int] = []
    for n, step in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if sizes and steps[-1] == n * step:
            sizes[-1] *= n
            steps[-1] = step
        else:
            sizes.append(n)
            steps.append(step)
    return tuple(sizes), tuple(steps)


@lru_cache(maxsize=16384)
def refined(walks: tuple[tuple[Ints, Ints], ...]) -> tuple[Ints, tuple[Ints, ...]] | None:
    """One shape for several walks over as many elements, and the strides of each; None when their
    axes do not divide each other. The walks are merged."""
    left = [(list(shape), list(strides)) for shape, strides in walks]
    sizes: list[int] = []
    steps: list[list[int]] = [[] for _ in walks]
    while any(shape for shape, _ in left):
        if not all(shape for shape, _ in left):
            return None
        n = min(shape[-1] for shape, _ in left)
        if any(shape[-1] % n for shape, _ in left):
            return None
        sizes.append(n)
        for (shape, strides), own in zip(left, steps, strict=True):
            own.append(strides[-1])
            if shape[-1] == n:
                shape.pop()
                strides.pop()
            else:
                shape[-1] //= n
                strides[-1] *= n
    return tuple(reversed(sizes)), tuple(tuple(reversed(own)) for own in steps)


def without(own: Layout, dim: int) -> tuple[Ints, Ints]:
    """Shape and strides without an axis; on chip two are left, and one in HBM."""
    shape = (*own.shape[:dim], *own.shape[dim + 1 :])
    strides = (*own.strides[:dim], *own.strides[dim + 1 :])
    if own.on_chip and len(shape) < 2:
        return (*shape, 1), (*strides, 1)
    return (shape, strides) if shape else ((1,), (1,))


def filled(sizes: Ints, total: int, what: str) -> Ints:
    """`sizes` with the one that is -1 computed. Raises ShapeError if they do not make `total`."""
    if None in map(as_int, sizes):
        raise ShapeError(
            f"{what} to {list(sizes)}",
            rule="extents are integers",
            fix=fix_of_integers(sizes, "compute them from the shapes of the arguments"),
        )
    unknown = [n for n, size in enumerate(sizes) if size == -1]
    known = prod([s for s in sizes if s != -1])
    if len(unknown) == 1 and known and total % known == 0:
        at = unknown[0]
        return (*sizes[:at], total // known, *sizes[at + 1 :])
    if unknown or known != total:
        raise ShapeError(
            f"{what} to {list(sizes)}",
            rule=f"the extents multiply to {total}; one may be -1",
            fix="correct the extents",
        )
    return sizes


def restride(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """Strides of the same elements in another shape; None when there are none."""
    sizes, steps = merged(shape, strides)
    groups = list(zip(sizes, steps, strict=True))
    out: list[int] = []
    left, step = (1, 1) if not groups else groups.pop()
    for n in reversed(new):
        if n == 1:
            out.append(step)
            continue
        if left == 1:
            if not groups:
                return None
            left, step = groups.pop()
        if left % n:
            return None
        out.append(step)
        left //= n
        step *= n
    return tuple(reversed(out)) if left == 1 and not groups else None
