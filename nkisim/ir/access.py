"""Access patterns: a buffer and the affine map from view coordinates into it.

What an instruction receives is an offset and, for each view axis, a (stride, size) pair: what the
hardware's address generators use, and what NumPy can view at no cost. Coordinates are kept for
each declared axis (the base), so bounds are checked against those and not against flat addresses.
"""

from __future__ import annotations

import functools
from math import prod
from operator import mul
from typing import NamedTuple
from weakref import WeakValueDictionary

import numpy as np

from nkisim.ir.memo import Memo
from nkisim.ir.memory import Buffer, Space, c_strides

Coefs = tuple[tuple[int, ...], ...]

# Shapes and coefficients repeat across the thousands of instructions of a trace: keep one copy of
# each, for good, and of what follows from them, as long as something has that form.
_interned: dict = {}
_identities: dict[int, Coefs] = {}
_forms: WeakValueDictionary[tuple, Form] = WeakValueDictionary()
_wholes: Memo[tuple[int, ...], Form] = Memo(4096)


def intern(value: tuple) -> tuple:
    """The interned copy of `value`: one object for all equal values."""
    return _interned.setdefault(value, value)


def identity(n: int) -> Coefs:
    """The coefficients of a view that is its base."""
    found = _identities.get(n)
    if found is None:
        rows = (tuple(int(i == j) for j in range(n)) for i in range(n))
        found = _identities[n] = intern(tuple(rows))
    return found


@functools.lru_cache(maxsize=4096)
def _product(outer: Coefs, inner: Coefs, ndim: int) -> Coefs:
    """The coefficients of a view, with `ndim` axes, of a view."""
    return tuple(
        tuple(sum(c * own[d] for c, own in zip(row, inner, strict=True)) for d in range(ndim))
        for row in outer
    )


class Form:
    """The common part of access patterns that differ in buffer and start only: their shape, and how
    they walk the axes of the base. Forms are interned: `Form.of` gives one object for each.

    Attributes:
        shape, base_shape, coefs: as of an AccessPattern.
        size: number of elements.
        start: zero on each base axis.
        aligned: whether a view has the axes of the base, in order, with unit steps.
        whole: whether a view that starts at zero is all of its base: each base axis, in order.
        inside: for each base axis, the lowest and the highest offset with which a view stays in it;
            nothing for views without elements.
        reach: for each base axis, how far a view goes below its offset, and above.
        box: whether a view is a box of base coordinates, axis for axis, with unit steps.
        strides: for each view axis, the distance between neighbours, in elements.
        base_strides: the same for the base axes.
    """

    __slots__ = (
        "__weakref__",
        "aligned",
        "base_shape",
        "base_strides",
        "box",
        "coefs",
        "inside",
        "reach",
        "shape",
        "size",
        "start",
        "strides",
        "whole",
    )

    def __init__(self, shape: tuple[int, ...], base_shape: tuple[int, ...], coefs: Coefs) -> None:
        self.shape = intern(shape)
        self.base_shape = intern(base_shape)
        self.coefs = intern(coefs)
        self.size = prod(shape)
        self.start = intern((0,) * len(base_shape))
        self.aligned = coefs == identity(len(shape))
        self.whole = shape == base_shape and self.aligned
        steps = [[c * (extent - 1) for c, extent in zip(row, shape, strict=True)] for row in coefs]
        self.reach = tuple(
            [(sum(s for s in row if s < 0), sum(s for s in row if s > 0)) for row in steps]
        )
        self.inside = tuple(
            [(-down, n - 1 - up) for n, (down, up) in zip(base_shape, self.reach, strict=True)]
            if self.size
            else []
        )
        self.box = len(shape) == len(base_shape) and all(
            c == (axis == d) or extent == 1
            for axis, row in enumerate(coefs)
            for d, (c, extent) in enumerate(zip(row, shape, strict=True))
        )
        self.base_strides = base = c_strides(base_shape)
        self.strides = tuple(
            [sum(row[d] * s for row, s in zip(coefs, base, strict=True)) for d in range(len(shape))]
        )

    @classmethod
    def of(cls, shape: tuple[int, ...], base_shape: tuple[int, ...], coefs: Coefs) -> Form:
        """The form of these shapes and coefficients."""
        key = (shape, base_shape, coefs)
        found = _forms.get(key)
        if found is None:
            found = _forms.setdefault(key, cls(shape, base_shape, coefs))
        return found

    @classmethod
    def whole_of(cls, shape: tuple[int, ...]) -> Form:
        """The form of a view that is its base."""
        found = _wholes.get(shape)
        if found is None:
            found = _wholes[shape] = cls.of(shape, shape, identity(len(shape)))
        return found

    def holds(self, offsets: tuple[int, ...]) -> bool:
        """Whether a view that starts there stays in its base."""
        for axis, (lowest, highest) in enumerate(self.inside):
            if not lowest <= offsets[axis] <= highest:
                return False
        return True

    def bounds(self, offsets: tuple[int, ...]) -> list[tuple[int, int]]:
        """For each base axis, the lowest and highest coordinate of a view that starts there."""
        return [(o + down, o + up) for o, (down, up) in zip(offsets, self.reach, strict=True)]


@functools.lru_cache(maxsize=4096)
def _derived(name: str) -> str:
    """A name for a part of what has a name."""
    return f"{name}_tile" if name else ""


class _Blank:
    """An access pattern in the making: a tensor's attributes cannot be set, its own can."""

    __slots__ = ("base_shape", "buffer", "coefs", "dtype", "form", "offsets", "shape")


class Affine(NamedTuple):
    """An operand that an instruction computes: `offset + sum(coefs[d] * i_d)` over the coordinates
    `i` of its tiles."""

    coefs: tuple[int, ...]
    offset: int

    def moved(self, by: int) -> Affine:
        """This expression with another constant added to its offset."""
        return Affine(self.coefs, self.offset + by)

    def __repr__(self) -> str:
        terms = [f"{c:+}*i{d}" for d, c in enumerate(self.coefs) if c]
        return " ".join([str(self.offset), *terms])


def affine_values(shape: tuple[int, ...], coefs: tuple[int, ...], offset: int) -> np.ndarray:
    """`offset + sum(coefs[d] * i_d)` over the coordinates `i` of a tile, as int64 of `shape`."""
    out = np.full(shape, offset, dtype=np.int64)
    for axis, (size, coef) in enumerate(zip(shape, coefs, strict=True)):
        if coef:
            line = np.arange(size, dtype=np.int64) * coef
            out += line.reshape((-1,) + (1,) * (len(shape) - axis - 1))
    return out


class AccessPattern(_Blank):
    """A view of a buffer.

    Attributes:
        buffer: the memory behind it.
        shape: extents of the view.
        dtype: element type.
        base_shape: the axes that `offsets` and `coefs` refer to: the buffer's, or those of a
            reshape or a reinterpretation. On chip, the block axes and the partition axis of the
            buffer stay as they are; only free axes are recast.
        offsets: for each base axis, the coordinate at view coordinate zero.
        coefs: for each base axis, how its coordinate grows along each view axis.
        form: the shapes and the coefficients, as one object.
    """

    __slots__ = ()

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...] | None = None,
        base_shape: tuple[int, ...] | None = None,
        offsets: tuple[int, ...] | None = None,
        coefs: Coefs | None = None,
        dtype: np.dtype | None = None,
    ) -> None:
        base = buffer.shape if base_shape is None else base_shape
        if shape is coefs is None:
            form = Form.whole_of(base)
        else:
            n = len(base)
            form = Form.of(
                base if shape is None else shape, base, identity(n) if coefs is None else coefs
            )
        self.buffer = buffer
        self.dtype = buffer.dtype if dtype is None else dtype
        self.offsets = form.start if offsets is None else offsets
        self.form = form
        self.shape, self.base_shape, self.coefs = form.shape, form.base_shape, form.coefs

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes an element."""
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.form.size

    @property
    def space(self) -> Space:
        """The memory it is in."""
        return self.buffer.space

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def derived_name(self) -> str:
        """A name for a tile that holds part of it, for messages."""
        return _derived(self.buffer.name)

    @property
    def offset(self) -> int:
        """Address of the first element, in elements from the start of the buffer."""
        at = 0
        for o, s in zip(self.offsets, self.form.base_strides, strict=True):
            if o:
                at += o * s
        return at

    @property
    def strides(self) -> tuple[int, ...]:
        """For each view axis, the distance between neighbours, in elements."""
        return self.form.strides

    @property
    def covers_buffer(self) -> bool:
        """Whether the view is the whole buffer, in order."""
        if any(self.offsets):
            return False
        form, buffer = self.form, self.buffer
        return (form.whole and form.base_shape is buffer.shape) or (
            form.size == buffer.size and form.box
        )

    @property
    def is_base(self) -> bool:
        """Whether the view is all of its base: each base axis, whole and in order."""
        return self.form.whole and not any(self.offsets)

    @property
    def is_box(self) -> bool:
        """Whether the view is a box of base coordinates, axis for axis, with unit steps."""
        return self.form.box

    def bounds(self) -> list[tuple[int, int]]:
        """For each base axis, the lowest and highest coordinate. The view is not empty."""
        return self.form.bounds(self.offsets)

    def escape(self) -> tuple[int, int, int, int] | None:
        """The first base axis whose coordinates leave it: (axis, lowest, highest, size)."""
        if self.form.holds(self.offsets):
            return None
        return next(
            (axis, low, high, size)
            for axis, (size, (low, high)) in enumerate(
                zip(self.base_shape, self.bounds(), strict=True)
            )
            if low < 0 or high >= size
        )

    def coordinates(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The base coordinates of the view's element `index`."""
        return tuple(
            o + sum(c * int(i) for c, i in zip(row, index, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )

    # -- views of views -------------------------------------------------------------------------

    def view_as(self, shape: tuple[int, ...], offsets: tuple[int, ...], coefs: Coefs):
        """Another view of the same base."""
        return self.view_of(Form.of(shape, self.base_shape, coefs), offsets)

    def view_of(self, form: Form, offsets: tuple[int, ...]):
        """A view of another form, of the same base."""
        new = _Blank()
        new.buffer = self.buffer
        new.dtype = self.dtype
        new.offsets = offsets
        new.form = form
        new.shape = form.shape
        new.base_shape = form.base_shape
        new.coefs = form.coefs
        new.__class__ = type(self)
        return new

    def moved(self, buffer: Buffer, offsets: tuple[int, ...]):
        """This pattern elsewhere: in another buffer of the same shape, or from another place.

        Args:
            buffer: the memory.
            offsets: for each base axis, where it starts.
        """
        new = _Blank()
        new.buffer = buffer
        new.offsets = offsets
        new.shape = self.shape
        new.base_shape = self.base_shape
        new.coefs = self.coefs
        new.dtype = self.dtype
        new.form = self.form
        new.__class__ = type(self)
        return new

    def restrict(self, box: tuple[tuple[int, int], ...]):
        """The part of the view inside `box`, a (low, high) range for each view axis."""
        shape = tuple([hi - lo for lo, hi in box])
        if shape == self.shape:
            return self
        offsets = tuple(
            o + sum(c * lo for c, (lo, _) in zip(row, box, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )
        return self.view_as(shape, offsets, self.coefs)

    def compose(self, view: AccessPattern):
        """`view` (of a box that this pattern's coordinates span) expressed in this buffer.

        `view` must have been made against base axes that are this pattern's axes.
        """
        if not any(view.offsets):
            offsets = self.offsets
        else:
            offsets = tuple(
                o + sum(c * v for c, v in zip(row, view.offsets, strict=True))
                for o, row in zip(self.offsets, self.coefs, strict=True)
            )
        return self.view_as(view.shape, offsets, _product(self.coefs, view.coefs, view.ndim))

    def same_elements(self, other: AccessPattern) -> bool:
        """Whether two access patterns have the same elements, of one type, in the same order."""
        return self is other or (
            self.buffer is other.buffer
            and self.dtype == other.dtype
            and self.shape == other.shape
            and self.base_shape == other.base_shape
            and self.offsets == other.offsets
            and self.coefs == other.coefs
        )

    def describe(self) -> str:
        """For messages: name, type, shape and memory, and which part when it is a part."""
        buffer = self.buffer
        kind = "tile" if buffer.space.on_chip else "tensor"
        name = f"'{buffer.name}'" if buffer.name else f"{kind} #{buffer.number}"
        whole = f"{name} ({buffer.dtype}{list(buffer.shape)} in {buffer.space.label})"
        return whole if self.shape == buffer.shape else f"a {list(self.shape)} part of {whole}"


def block_of(view: AccessPattern) -> int:
    """The tile of an on-chip tensor that a view is in: its block index, counted row-major."""
    buffer = view.buffer
    blocks = buffer.par_axis
    if blocks < 2:
        return view.offsets[0] if blocks else 0
    strides = buffer.strides[:blocks]
    return sum(map(mul, view.offsets, strides)) // (strides[-1] or 1)
