"""Tensors as kernels see them: a buffer and the affine map from tile coordinates into it.

Indexing a tensor never copies and never computes addresses one by one. It composes affine maps, so
that what an instruction receives is an access pattern: an offset and, for each tile axis, a
(stride, size) pair. Bounds are checked against the declared axes, not against flat addresses.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np

from nkisim.errors import ControlFlowError, IndexingError, ShapeError, UnsupportedError
from nkisim.index import DynSlice, IndexTensor, Mask, _as_int, broadcast_shapes
from nkisim.memory import Buffer, Space, c_strides

Coefs = tuple[tuple[int, ...], ...]

# Access patterns repeat across the thousands of instructions of a trace: keep one copy of each.
_interned: dict = {}


def _intern(value: tuple) -> tuple:
    return _interned.setdefault(value, value)


class Tensor:
    """A view of a buffer. `nl.ndarray`, kernel arguments and every operation's result are these.

    Attributes:
        buffer: the memory behind it.
        shape: extents of the view.
        dtype: element type.
        base_shape: the axes that `offsets` and `coefs` refer to (the buffer's, or a reshape's).
        offsets: for each base axis, the coordinate at view coordinate zero.
        coefs: for each base axis, how its coordinate grows along each view axis.
    """

    __slots__ = ("base_shape", "buffer", "coefs", "dtype", "offsets", "shape")
    __array_ufunc__ = None

    def __init__(
        self,
        buffer: Buffer,
        shape: tuple[int, ...] | None = None,
        base_shape: tuple[int, ...] | None = None,
        offsets: tuple[int, ...] | None = None,
        coefs: Coefs | None = None,
        dtype: np.dtype | None = None,
    ) -> None:
        self.buffer = buffer
        self.base_shape = buffer.shape if base_shape is None else base_shape
        self.shape = self.base_shape if shape is None else _intern(shape)
        self.dtype = buffer.dtype if dtype is None else dtype
        n = len(self.base_shape)
        self.offsets = (0,) * n if offsets is None else offsets
        self.coefs = _intern(_identity(n) if coefs is None else coefs)

    # -- what kernels may ask -------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def space(self) -> Space:
        return self.buffer.space

    @property
    def name(self) -> str:
        return self.buffer.name

    def __len__(self) -> int:
        return self.shape[0]

    def assert_shape(self, shape: tuple[int, ...]) -> Tensor:
        """Returns the tensor; raises ShapeError when its shape is not `shape`."""
        if tuple(self.shape) != tuple(shape):
            raise ShapeError(
                f"{self.describe()} does not have the shape {tuple(shape)}",
                rule="assert_shape requires equality",
                fix="correct the shape, or the tensor",
            )
        return self

    # -- access pattern -------------------------------------------------------------------------

    @property
    def offset(self) -> int:
        """Address of the first element, in elements of the buffer."""
        strides = self._base_strides()
        return sum(o * s for o, s in zip(self.offsets, strides, strict=True))

    @property
    def strides(self) -> tuple[int, ...]:
        """For each view axis, the distance between neighbours, in elements of the buffer."""
        base = self._base_strides()
        return tuple(
            sum(row[d] * s for row, s in zip(self.coefs, base, strict=True))
            for d in range(self.ndim)
        )

    def _base_strides(self) -> tuple[int, ...]:
        if self.base_shape is self.buffer.shape:
            return self.buffer.strides
        return c_strides(self.base_shape)

    @property
    def covers_buffer(self) -> bool:
        """Whether the view is the whole buffer, in order."""
        return self.size == self.buffer.size and self.is_box and not any(self.offsets)

    @property
    def is_box(self) -> bool:
        """Whether the view is a box of base coordinates, axis for axis, with unit steps."""
        n = len(self.base_shape)
        return self.ndim == n and (
            self.coefs == _identity(n)
            or all(
                c == (axis == d) or extent == 1
                for axis, row in enumerate(self.coefs)
                for d, (c, extent) in enumerate(zip(row, self.shape, strict=True))
            )
        )

    def escape(self) -> tuple[int, int, int, int] | None:
        """The first base axis whose coordinates leave it: (axis, lowest, highest, size)."""
        if 0 in self.shape:
            return None
        for axis, (size, low, row) in enumerate(
            zip(self.base_shape, self.offsets, self.coefs, strict=True)
        ):
            high = low
            for c, extent in zip(row, self.shape, strict=True):
                if c > 0:
                    high += c * (extent - 1)
                elif c < 0:
                    low += c * (extent - 1)
            if low < 0 or high >= size:
                return axis, low, high, size
        return None

    def restrict(self, box: tuple[tuple[int, int], ...]) -> Tensor:
        """The part of the view inside `box`, a (low, high) range for each view axis."""
        shape = tuple(hi - lo for lo, hi in box)
        if shape == self.shape:
            return self
        offsets = tuple(
            o + sum(c * lo for c, (lo, _) in zip(row, box, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )
        return self._view(shape, offsets, self.coefs)

    def coordinates(self, index: tuple[int, ...]) -> tuple[int, ...]:
        """The base coordinates of the view's element `index`."""
        return tuple(
            o + sum(c * int(i) for c, i in zip(row, index, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )

    def _view(self, shape: tuple[int, ...], offsets: tuple[int, ...], coefs: Coefs) -> Tensor:
        return Tensor(self.buffer, shape, self.base_shape, offsets, coefs, self.dtype)

    def compose(self, view: Tensor) -> Tensor:
        """`view` (of a box that this tensor's coordinates span) expressed in this tensor's buffer.

        `view` must have been made against base axes that are this tensor's axes.
        """
        offsets = tuple(
            o + sum(c * v for c, v in zip(row, view.offsets, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )
        coefs = tuple(
            tuple(
                sum(c * inner[d] for c, inner in zip(row, view.coefs, strict=True))
                for d in range(view.ndim)
            )
            for row in self.coefs
        )
        return Tensor(self.buffer, view.shape, self.base_shape, offsets, coefs, self.dtype)

    # -- views ----------------------------------------------------------------------------------

    def __getitem__(self, key: object) -> Tensor:
        if isinstance(key, Mask):
            raise UnsupportedError(
                "operand masking (tile[mask]) is not supported yet",
                rule="this simulator masks whole instructions",
                fix="pass mask= to the instruction",
            )
        axes = self._expand_key(key if isinstance(key, tuple) else (key,))
        advanced = [k for k in axes if isinstance(k, IndexTensor)]
        return self._advanced(axes, advanced) if advanced else self._basic(axes)

    def _expand_key(self, key: tuple) -> list:
        """The key with `...` written out, one entry an axis (and None for each new axis)."""
        axes: list = []
        named = sum(k is not None and k is not Ellipsis for k in key)
        if named > self.ndim or sum(k is Ellipsis for k in key) > 1:
            raise IndexingError(
                f"{named} indices for {self.describe()}, which has {self.ndim} axes",
                rule="at most one index an axis, and at most one `...`",
                fix="drop the indices that are too many",
            )
        for k in key:
            if k is Ellipsis:
                axes += [slice(None)] * (self.ndim - named)
            else:
                axes.append(self._check_key(k))
        return axes + [slice(None)] * (self.ndim - sum(k is not None for k in axes))

    def _check_key(self, k: object) -> object:
        if k is None or isinstance(k, IndexTensor | slice | DynSlice):
            return k
        number = _as_int(k)
        if number is not None:
            return number
        if isinstance(k, Tensor):
            raise UnsupportedError(
                f"{self.describe()} is indexed with a tile: indirect access",
                rule="this version of the simulator supports affine access patterns only",
                fix="index with nl.arange, nl.mgrid, slices and integers",
            )
        raise IndexingError(
            f"{self.describe()} cannot be indexed with {k!r} ({type(k).__name__})",
            rule="indices are integers, slices, nl.ds, nl.arange / nl.mgrid expressions, "
            "None or ...",
            fix="convert the index to one of these",
        )

    def _basic(self, axes: list) -> Tensor:
        """Integers, slices and new axes: each view axis comes from one axis, or from none."""
        shape: list[int] = []
        starts: list[int] = []
        sources: list[tuple[int, int] | None] = []  # for each new axis: (axis it walks, step)
        axis = 0
        for k in axes:
            if k is None:
                shape.append(1)
                sources.append(None)
                continue
            start, size, step = self._range(k, axis)
            starts.append(start)
            if size is not None:
                shape.append(size)
                sources.append((axis, step))
            axis += 1
        return self._affine(tuple(shape), starts, sources)

    def _affine(self, shape: tuple[int, ...], starts: list[int], sources: list) -> Tensor:
        offsets = tuple(
            o + sum(c * s for c, s in zip(row, starts, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )
        coefs = tuple(
            tuple(0 if src is None else row[src[0]] * src[1] for src in sources)
            for row in self.coefs
        )
        return self._view(shape, offsets, coefs)

    def _range(self, k: object, axis: int) -> tuple[int, int | None, int]:
        """(start, size, step) of a basic index; size None for an integer, which drops the axis."""
        extent = self.shape[axis]
        if isinstance(k, int):
            return k, None, 1
        if isinstance(k, DynSlice):
            start, size = _as_int(k.start), _as_int(k.size)
            if start is None or size is None:
                raise IndexingError(
                    f"nl.ds({k.start!r}, {k.size!r}) is not a range of known integers",
                    rule="start and size of nl.ds are integers known while tracing",
                    fix="use shapes, loop indices and constants",
                )
            return start, size, 1
        given = (k.start, k.stop, k.step)
        parts = [None if p is None else _as_int(p) for p in given]
        if any(p is None and q is not None for p, q in zip(parts, given, strict=True)):
            raise IndexingError(
                f"slice {k!r} of {self.describe()} has bounds that are not known integers",
                rule="slice bounds are integers known while tracing",
                fix="for an index expression use nl.arange: t[start + nl.arange(n)[:, None], ...]",
            )
        start, stop, step = parts[0] or 0, parts[1], 1 if parts[2] is None else parts[2]
        if step < 1:
            raise IndexingError(
                f"slice step {step} of {self.describe()}",
                rule="slice steps are positive",
                fix="walk backwards with an index: (n - 1) - nl.arange(n)[None, :]",
            )
        stop = extent if stop is None else stop
        start += extent if start < 0 else 0
        stop += extent if stop < 0 else 0
        return start, max(0, -((start - stop) // step)), step

    def _advanced(self, axes: list, advanced: list[IndexTensor]) -> Tensor:
        """Index tensors, with integers and slices beside them, by NumPy's rules."""
        try:
            block = broadcast_shapes(*(i.shape for i in advanced))
        except ValueError:
            raise ShapeError(
                f"index shapes {[i.shape for i in advanced]} do not broadcast",
                rule="index tensors follow NumPy's broadcasting rule",
                fix="give each its own axis: nl.arange(128)[:, None], nl.arange(512)[None, :]",
            ) from None
        kept = [d for d, k in enumerate(axes) if k is None or isinstance(k, slice | DynSlice)]
        if len(block) < 2 and not kept:
            raise IndexingError(
                f"{self.describe()} is indexed with 1-D nl.arange",
                rule="a tile has at least two axes: partition and free",
                fix="add an axis, e.g. nl.arange(64)[:, None], or slice: t[0:64, 0]",
                code="err_1d_arange_not_supported",
            )
        # NumPy puts the broadcast block where the index tensors stand if they stand together,
        # and in front if a slice parts them.
        fixed = [d for d in range(len(axes)) if d not in kept]
        together = fixed == list(range(fixed[0], fixed[-1] + 1))
        at = sum(d < fixed[0] for d in kept) if together else 0
        ndim = len(block) + len(kept)
        places = {d: i if i < at else i + len(block) for i, d in enumerate(kept)}

        shape = [0] * ndim
        shape[at : at + len(block)] = block
        starts: list[int] = []
        growth: list[list[int]] = []  # for each own axis, its growth along each view axis
        axis = 0
        for d, k in enumerate(axes):
            if k is None:
                shape[places[d]] = 1
                continue
            row = [0] * ndim
            if isinstance(k, IndexTensor):
                wide = k.expand(block)
                starts.append(wide.offset)
                row[at : at + len(block)] = wide.coefs
            else:
                start, size, step = self._range(k, axis)
                starts.append(start)
                if size is not None:
                    shape[places[d]] = size
                    row[places[d]] = step
            growth.append(row)
            axis += 1
        offsets = tuple(
            o + sum(c * s for c, s in zip(row, starts, strict=True))
            for o, row in zip(self.offsets, self.coefs, strict=True)
        )
        coefs = tuple(
            tuple(
                sum(c * g[v] for c, g in zip(row, growth, strict=True)) if shape[v] > 1 else 0
                for v in range(ndim)
            )
            for row in self.coefs
        )
        return self._view(tuple(shape), offsets, coefs)

    def broadcast_to(self, shape: tuple[int, ...]) -> Tensor:
        """A view of `shape` by NumPy's broadcasting rule. Raises ShapeError if it does not fit."""
        shape = tuple(shape)
        if shape == self.shape:
            return self
        extra = len(shape) - self.ndim
        tail = shape[extra:] if extra >= 0 else ()
        if extra < 0 or any(s not in (1, t) for s, t in zip(self.shape, tail, strict=True)):
            raise ShapeError(
                f"{self.describe()} does not broadcast to {shape}",
                rule="each axis must be equal or 1",
                fix="reshape the tile, or index it with new axes",
            )
        coefs = tuple(
            (0,) * extra
            + tuple(c if s == t else 0 for c, s, t in zip(row, self.shape, tail, strict=True))
            for row in self.coefs
        )
        return self._view(shape, self.offsets, coefs)

    def expand_dims(self, axis: int) -> Tensor:
        """A view with a size-1 axis inserted at `axis`."""
        axis = axis + self.ndim + 1 if axis < 0 else axis
        shape = (*self.shape[:axis], 1, *self.shape[axis:])
        coefs = tuple((*row[:axis], 0, *row[axis:]) for row in self.coefs)
        return self._view(shape, self.offsets, coefs)

    def reshape(self, *shape: int | tuple[int, ...]) -> Tensor:
        """A view of the same elements, in the same order, with other axes."""
        new = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in new and prod(d for d in new if d != -1):
            known = prod(d for d in new if d != -1)
            new = tuple(self.size // known if d == -1 else d for d in new)
        if prod(new) != self.size:
            raise ShapeError(
                f"{self.describe()} has {self.size} elements; {new} has {prod(new)}",
                rule="a reshape keeps the number of elements",
                fix="correct the target shape",
            )
        if not self.covers_buffer:
            raise UnsupportedError(
                f"reshape of {self.describe()}, which is a part of a larger tensor",
                rule="this version of the simulator reshapes whole tensors only",
                fix="reshape first, then index",
            )
        return Tensor(self.buffer, new, new, dtype=self.dtype)

    def astype(self, dtype: object) -> Tensor:
        """A copy in another type."""
        return _operation("copy")(self, dtype=dtype)

    # -- assignment -----------------------------------------------------------------------------

    def __setitem__(self, key: object, value: object) -> None:
        target = self if key is Ellipsis else self[key]
        if isinstance(value, Tensor) and _same_view(target, value):
            return  # `t[...] += x` has already written in place
        _operation("assign")(target, value)

    # -- operators ------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        raise ControlFlowError(
            f"Python control flow depends on {self.describe()}",
            rule="a kernel is traced before it runs: tile values are not known to Python",
            fix="use nl.where or mask=; test `is None` for optional arguments",
            code="err_dynamic_control_flow_not_supported",
        )

    def __iter__(self):
        return (self[i] for i in range(self.shape[0]))

    def _binary(self, op: str, other: object, swap: bool = False) -> Tensor:
        if not isinstance(other, Tensor) and not np.isscalar(other):
            return NotImplemented
        fn = _operation(op)
        return fn(other, self) if swap else fn(self, other)

    def _inplace(self, op: str, other: object) -> Tensor:
        if not isinstance(other, Tensor) and not np.isscalar(other):
            return NotImplemented
        _operation("assign_op")(op, self, other)
        return self

    def __neg__(self) -> Tensor:
        return _operation("negative")(self)

    def __invert__(self) -> Tensor:
        return _operation("invert")(self)

    def __abs__(self) -> Tensor:
        return _operation("abs")(self)

    __hash__ = object.__hash__

    def describe(self) -> str:
        """For messages: name, type, shape and memory, and which part when it is a part."""
        buffer = self.buffer
        kind = "tile" if buffer.space.on_chip else "tensor"
        name = f"'{buffer.name}'" if buffer.name else f"{kind} #{buffer.number}"
        whole = f"{name} ({buffer.dtype}{list(buffer.shape)} in {buffer.space.label})"
        return whole if self.shape == buffer.shape else f"a {list(self.shape)} part of {whole}"

    __repr__ = describe


def _same_view(a: Tensor, b: Tensor) -> bool:
    return (
        a.buffer is b.buffer
        and a.shape == b.shape
        and a.base_shape == b.base_shape
        and a.offsets == b.offsets
        and a.coefs == b.coefs
    )


def _identity(n: int) -> Coefs:
    found = _identities.get(n)
    if found is None:
        rows = (tuple(int(i == j) for j in range(n)) for i in range(n))
        found = _identities[n] = _intern(tuple(rows))
    return found


_identities: dict[int, Coefs] = {}


# Operators call the functions of `nkisim.nki.language`, which is built on this module. It hands
# them over here, by name, when it is imported.
_operations: dict[str, Callable] = {}


def provide_operations(table: dict[str, Callable]) -> None:
    """Give the functions behind Python's operators: name -> function(x, y)."""
    _operations.update(table)


def _operation(name: str) -> Callable:
    return _operations[name]


def _define_operators() -> None:
    pairs = {
        "add": "add",
        "sub": "subtract",
        "mul": "multiply",
        "truediv": "divide",
        "pow": "power",
        "mod": "mod",
        "and": "bitwise_and",
        "or": "bitwise_or",
        "xor": "bitwise_xor",
        "lshift": "left_shift",
        "rshift": "right_shift",
    }
    for dunder, op in pairs.items():
        setattr(Tensor, f"__{dunder}__", lambda s, o, op=op: s._binary(op, o))
        setattr(Tensor, f"__r{dunder}__", lambda s, o, op=op: s._binary(op, o, swap=True))
        setattr(Tensor, f"__i{dunder}__", lambda s, o, op=op: s._inplace(op, o))
    comparisons = {
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "eq": "equal",
        "ne": "not_equal",
    }
    for dunder, op in comparisons.items():
        setattr(Tensor, f"__{dunder}__", lambda s, o, op=op: s._binary(op, o))


_define_operators()
