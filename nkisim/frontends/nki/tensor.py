"""NkiTensor: what `nl.ndarray`, kernel arguments and views of them are in `import nki`.

A tensor is memory, an offset into it, and a layout (shape and strides). Every method below gives
another tensor on the same memory; none of them copies.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from nkisim.errors import (
    ControlFlowError,
    DTypeError,
    IndexingError,
    KernelError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedError,
    warn,
)
from nkisim.frontends.nki import layout as layouts
from nkisim.frontends.nki.dtypes import Type, type_of
from nkisim.frontends.nki.indexing import DynamicSlice, part_of
from nkisim.frontends.nki.layout import Ints, Layout
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.ir.access import AccessPattern, Form, _Blank
from nkisim.ir.memory import Space, c_strides

if TYPE_CHECKING:
    pass


class MemoryRegion(Enum):
    """Where a tensor lives."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    def __init__(self, value: str) -> None:
        self.space = Space(value)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"nl.{self.value}"


REGIONS = {region.space: region for region in MemoryRegion}


class Indirect(NamedTuple):
    """What a dynamic view takes from memory: where it starts.

    Attributes:
        index: a register or a one-element tensor; or, with `by_row`, a (P, 1) tensor with a row
            number for each partition.
        unit: elements that one step of the index moves the view.
        dim: the axis of the tensor that the index counts on.
        size: extent of that axis.
        by_row: whether there is an index for each partition.
    """

    index: Any
    unit: int
    dim: int
    size: int
    by_row: bool


class NkiTensor:
    """A view of memory.

    Args:
        shape: extents.
        dtype: element type, a string of `nki.language`.
        storage: the memory.
        buffer: the memory region.
        name: for messages.

    Attributes:
        shape, strides, offset: the element at index i is at `offset + sum(strides * i)`, in
            elements. On chip the row of a partition is the stride of axis 0.
        dtype, buffer, name, ndim, size: what their names say.
    """

    __slots__ = ("_buffer", "_declared", "_indirect", "_layout", "_pattern", "offset")

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        storage: Any,
        buffer: MemoryRegion | str = MemoryRegion.sbuf,
        name: str = "",
    ) -> None:
        region = MemoryRegion(buffer) if isinstance(buffer, str) else buffer
        self._buffer = storage
        self._declared = tuple(shape)
        self._layout = layouts.whole(self._declared, type_of(dtype), region.space)
        self.offset = 0
        self._indirect = None
        self._pattern = None

    # -- what it is -----------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, ...]:
        return self._layout.shape

    @property
    def strides(self) -> tuple[int, ...]:
        return self._layout.strides

    @property
    def dtype(self) -> str:
        return self._layout.type.name

    @property
    def buffer(self) -> MemoryRegion:
        return REGIONS[self._layout.space]

    @property
    def name(self) -> str:
        return getattr(self._buffer, "name", "")

    @property
    def ndim(self) -> int:
        return len(self._layout.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self._layout.shape)

    @property
    def _storage_shape(self) -> tuple[int, ...]:
        """The extents that the memory was declared with, or reshaped to as a whole."""
        return self._declared

    def describe(self) -> str:
        """For messages: name, type, shape and memory, and which part when it is a part."""
        name = self.name
        own = self._layout
        kind = f"{own.type.name}{list(own.shape)}"
        whole = (
            f"'{name}' ({kind} in {own.space.label})" if name else f"{kind} in {own.space.label}"
        )
        return whole if own.shape == self._declared else f"a view {whole}"

    def __repr__(self) -> str:
        return f"NkiTensor({self.describe()})"

    def is_contiguous(self) -> bool:
        """Whether its elements, on chip those of each partition, follow each other."""
        own = self._layout
        free = slice(1, None) if own.on_chip else slice(None)
        sizes, steps = layouts.merged(own.shape[free], own.strides[free])
        return not sizes or (len(sizes) == 1 and steps == (1,))

    def is_indirect(self) -> bool:
        """Whether memory or a register tells where it starts."""
        return self._indirect is not None

    def get_pattern(self) -> list[list[int]]:
        """[stride, extent] of each axis, as `.ap` takes them."""
        own = self._layout
        return [[s, n] for s, n in zip(own.strides, own.shape, strict=True)]

    # -- the operand it stands for --------------------------------------------------------------

    def pattern(self, form: Form, at: Ints) -> AccessPattern:
        """The access pattern of an instruction that walks it as `form`, from `at` on."""
        known = self._pattern
        if known is not None and known.form is form:
            return known
        new = _Blank()
        new.buffer = self._buffer
        new.dtype = self._layout.type.stored
        new.offsets = at
        new.form = form
        new.shape = form.shape
        new.base_shape = form.base_shape
        new.coefs = form.coefs
        new.__class__ = AccessPattern
        self._pattern = new
        return new

    def as_is(self) -> AccessPattern:
        """The access pattern with its own axes."""
        own = self._layout
        return self.pattern(*own.operand(self.offset, own.shape, own.strides))

    # -- views ----------------------------------------------------------------------------------

    def _at(self, new_layout: Layout, offset: int, indirect: Indirect | None = None) -> NkiTensor:
        new = object.__new__(NkiTensor)
        new._buffer = self._buffer
        new._declared = self._declared
        new._layout = new_layout
        new.offset = offset
        new._indirect = self._indirect if indirect is None else indirect
        new._pattern = None
        return new

    def _walk(self, shape: Ints, strides: Ints, offset: int | None = None) -> NkiTensor:
        at = self.offset if offset is None else offset
        return self._at(self._layout.with_(shape, strides), at)

    def _copy(self, shape: Sequence[int] | None = None, strides: Sequence[int] | None = None):
        """The view with another shape or other strides, unchecked."""
        own = self._layout
        return self._walk(
            own.shape if shape is None else tuple(shape),
            own.strides if strides is None else tuple(strides),
        )

    def __getitem__(self, key: object) -> NkiTensor:
        own = self._layout
        if type(key) is not tuple:
            key = (key,)
        try:
            name = tuple([(slice, k.start, k.stop, k.step) if type(k) is slice else k for k in key])
            found = own.parts.get(name)
        except TypeError:
            found = name = None
        if found is None:
            found = part_of(self, key)
            if type(found) is NkiTensor:  # a dynamic view
                return found
            own.parts[name] = found
        part, step = found
        new = object.__new__(NkiTensor)
        new._buffer = self._buffer
        new._declared = self._declared
        new._layout = part
        new.offset = self.offset + step
        new._indirect = self._indirect
        new._pattern = None
        return new

    def __setitem__(self, key: object, value: object) -> None:
        from nkisim.frontends.nki.surface.isa.dma import assign

        if isinstance(value, NkiTensor) and value is self:
            return
        assign(self if key is Ellipsis else self[key], value)

    def _axis(self, dim: int, method: str, *, free: bool = False) -> int:
        """`dim` as a position; the partition axis is refused where only free axes will do."""
        own = self._layout
        n = len(own.shape)
        if not isinstance(dim, int) or not -n <= dim < n:
            raise ShapeError(
                f"{method}: axis {dim!r} of {self.describe()}",
                rule=f"it has axes 0 to {n - 1}",
                fix="name one of these",
            )
        dim %= n
        if free and dim == 0 and own.on_chip:
            raise ShapeError(
                f"{method} of axis 0 of {self.describe()}",
                rule="axis 0 of a tensor on chip is laid over partitions; views leave it as it is",
                fix="work on a free axis, or move data between partitions with nisa.nc_transpose "
                "or a DMA",
            )
        return dim

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> NkiTensor:
        """Elements start, start + step, ... below end of one axis.

        Raises:
            OutOfBoundsError: not 0 <= start < end <= the extent of the axis.
        """
        dim = self._axis(dim, "slice")
        own = self._layout
        n = own.shape[dim]
        if not 0 <= start < end <= n or step < 1:
            raise OutOfBoundsError(
                f"slice({dim}, {start}, {end}, {step}) of {self.describe()}",
                rule=f"0 <= start < end <= {n}, the extent of the axis, and step >= 1",
                fix="keep the bounds inside; cut the last one with min(end, size)",
            )
        shape = (*own.shape[:dim], -(-(end - start) // step), *own.shape[dim + 1 :])
        strides = (*own.strides[:dim], own.strides[dim] * step, *own.strides[dim + 1 :])
        return self._walk(shape, strides, self.offset + start * own.strides[dim])

    def select(self, dim: int, index: int | NkiTensor) -> NkiTensor:
        """One element of an axis, which goes. With a tensor or register, the axis's element that
        it tells when the kernel runs."""
        dim = self._axis(dim, "select", free=not isinstance(index, int))
        own = self._layout
        if isinstance(index, int):
            n = own.shape[dim]
            if not -n <= index < n:
                raise OutOfBoundsError(
                    f"select({dim}, {index}) of {self.describe()}",
                    rule=f"the axis has {n} elements",
                    fix=f"use an index in 0..{n - 1}",
                )
            key = (*[slice(None)] * dim, index)
            return self[key]
        self._check_direct("select")
        shape, strides = _without(own, dim)
        moved = Indirect(index, own.strides[dim], dim, own.shape[dim], by_row=False)
        return self._at(own.with_(shape, strides), self.offset, moved)

    def vector_select(self, dim: int, vector_offset: NkiTensor) -> NkiTensor:
        """For each partition of `vector_offset`, a (P, 1) tensor, the row of axis 0 that it tells.

        Returns:
            A view of shape (P, *rest), for a DMA.
        """
        if dim != 0:
            raise IndexingError(
                f"vector_select({dim}, ...) of {self.describe()}",
                rule="an index for each partition counts on axis 0",
                fix="use dim 0, of a reshape if need be",
            )
        self._check_direct("vector_select")
        own = self._layout
        count = vector_offset.shape[0]
        shape, strides = (count, *own.shape[1:]), (0, *own.strides[1:])
        moved = Indirect(vector_offset, own.strides[0], 0, own.shape[0], by_row=True)
        return self._at(own.with_(shape, strides), self.offset, moved)

    def indirect(self, index: NkiTensor, num_elem: int | None = None) -> NkiTensor:
        """A view whose free elements an index tensor picks (NeuronCore-v4).

        Raises:
            UnsupportedError: always; the simulator has no such operands.
        """
        raise UnsupportedError(
            f"indirect view of {self.describe()}",
            rule="this simulator has no tensor indirection of NeuronCore-v4",
            fix="gather with nisa.nc_n_gather or nisa.local_gather, or with a DMA",
        )

    def _check_direct(self, method: str) -> None:
        if self._indirect is not None:
            raise IndexingError(
                f"{method} of {self.describe()}, which is dynamic",
                rule="a view takes one dynamic offset",
                fix="compute one offset, and use it on the tensor itself",
            )

    def permute(self, dims: Sequence[int]) -> NkiTensor:
        """The axes in another order. On chip axis 0 stays first."""
        own = self._layout
        dims = tuple(dims)
        if sorted(dims) != list(range(len(own.shape))):
            raise ShapeError(
                f"permute{dims} of {self.describe()}",
                rule=f"it names each of the axes 0..{len(own.shape) - 1} once",
                fix="name all of them",
            )
        if own.on_chip and dims[0] != 0:
            self._axis(0, "permute", free=True)
        return self._walk(
            tuple([own.shape[d] for d in dims]), tuple([own.strides[d] for d in dims])
        )

    def broadcast(self, dim: int, size: int) -> NkiTensor:
        """A free axis of extent 1, `size` times."""
        dim = self._axis(dim, "broadcast", free=True)
        own = self._layout
        if own.shape[dim] != 1:
            raise ShapeError(
                f"broadcast({dim}, {size}) of {self.describe()}",
                rule="an axis of extent 1 is repeated",
                fix="add one with expand_dim",
            )
        shape = (*own.shape[:dim], size, *own.shape[dim + 1 :])
        return self._walk(shape, (*own.strides[:dim], 0, *own.strides[dim + 1 :]))

    def expand_dim(self, dim: int) -> NkiTensor:
        """A new axis of extent 1 at position `dim`."""
        own = self._layout
        n = len(own.shape)
        if not -n - 1 <= dim <= n or (own.on_chip and dim % (n + 1) == 0):
            raise ShapeError(
                f"expand_dim({dim}) of {self.describe()}",
                rule=f"a new axis goes to a position in {int(own.on_chip)}..{n}",
                fix="name one of these",
            )
        dim %= n + 1
        step = own.strides[dim] * own.shape[dim] if dim < n else 1
        shape = (*own.shape[:dim], 1, *own.shape[dim:])
        return self._walk(shape, (*own.strides[:dim], step, *own.strides[dim:]))

    def squeeze_dim(self, dim: int) -> NkiTensor:
        """The view without an axis of extent 1."""
        dim = self._axis(dim, "squeeze_dim", free=True)
        own = self._layout
        if own.shape[dim] != 1:
            raise ShapeError(
                f"squeeze_dim({dim}) of {self.describe()}",
                rule="the axis that goes has extent 1",
                fix="select one element of it",
            )
        return self._walk(*_without(own, dim))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> NkiTensor:
        """One axis as several. One of the extents may be -1."""
        dim = self._axis(dim, "reshape_dim", free=len(shape) > 1)
        own = self._layout
        sizes = _filled(tuple(shape), own.shape[dim], f"reshape_dim of {self.describe()}")
        steps = tuple([s * own.strides[dim] for s in c_strides(sizes)])
        return self._walk(
            (*own.shape[:dim], *sizes, *own.shape[dim + 1 :]),
            (*own.strides[:dim], *steps, *own.strides[dim + 1 :]),
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> NkiTensor:
        """Axes start_dim to end_dim, both included, as one. Raises ShapeError if they do not walk
        as one."""
        start = self._axis(start_dim, "flatten_dims")
        end = self._axis(end_dim, "flatten_dims")
        if start < end:
            start = self._axis(start, "flatten_dims", free=True)
        own = self._layout
        sizes, steps = layouts.merged(own.shape[start : end + 1], own.strides[start : end + 1])
        if len(sizes) > 1:
            raise ShapeError(
                f"flatten_dims({start_dim}, {end_dim}) of {self.describe()}",
                rule=f"axes join where they walk as one; these have the strides "
                f"{own.strides[start : end + 1]}",
                fix="copy the view into a tensor of its own first",
            )
        size = prod(own.shape[start : end + 1])
        step = steps[0] if steps else own.strides[end]
        return self._walk(
            (*own.shape[:start], size, *own.shape[end + 1 :]),
            (*own.strides[:start], step, *own.strides[end + 1 :]),
        )

    def reshape(self, shape: Sequence[int]) -> NkiTensor:
        """The elements in another shape; on chip those of each partition.

        Raises:
            ShapeError: another number of elements or partitions, or strides that do not allow it.
        """
        own = self._layout
        shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        sizes = _filled(shape, self.size, f"reshape of {self.describe()}")
        skip = 1 if own.on_chip else 0
        if skip and (not sizes or sizes[0] != own.shape[0]):
            raise ShapeError(
                f"reshape of {self.describe()} to {list(sizes)}",
                rule="axis 0 of a tensor on chip is laid over partitions and keeps its extent",
                fix=f"use a shape that begins with {own.shape[0]}",
            )
        steps = _restride(own.shape[skip:], own.strides[skip:], sizes[skip:])
        if steps is None:
            raise ShapeError(
                f"reshape of {self.describe()}, whose strides are {own.strides}, to {list(sizes)}",
                rule="a reshape is a view: elements that it joins on an axis have one stride",
                fix="copy the view into a tensor of its own first",
            )
        new = self._walk(sizes, (*own.strides[:skip], *steps))
        if own.size == prod(own.base) and self.is_contiguous():
            new._declared = sizes
        return new

    def rearrange(
        self,
        src_pattern: tuple,
        dst_pattern: tuple,
        fixed_sizes: dict[str, int] | None = None,
    ) -> NkiTensor:
        """Axes split, permuted and joined by name.

        Args:
            src_pattern: a name for each axis, or a tuple of names for one that is split.
            dst_pattern: the same names; a tuple of them is joined.
            fixed_sizes: extents of names; of each split axis one may be left out.
        """
        fixed = dict(fixed_sizes or {})
        view, names = self, []
        for name in src_pattern:
            if isinstance(name, str):
                names.append(name)
                continue
            sizes = [fixed.get(n, -1) for n in name]
            view = view.reshape_dim(len(names), sizes)
            names += name
        flat = [n for part in dst_pattern for n in ([part] if isinstance(part, str) else part)]
        if sorted(flat) != sorted(names) or len(names) != len(view.shape):
            raise ShapeError(
                f"rearrange of {self.describe()} from {src_pattern} to {dst_pattern}",
                rule="both patterns have the same names, one for each axis",
                fix="name each axis once on both sides",
            )
        view = view.permute([names.index(n) for n in flat])
        for at, part in enumerate(dst_pattern):
            if not isinstance(part, str) and len(part) > 1:
                view = view.flatten_dims(at, at + len(part) - 1)
        return view

    def view(self, dtype: str) -> NkiTensor:
        """The bits as another type; the last axis grows or shrinks with its size.

        Raises:
            ShapeError: the last axis is not contiguous, or does not divide.
        """
        own = self._layout
        kind = type_of(dtype)
        old, new = own.type.itemsize, kind.itemsize
        last = own.shape[-1] * old
        aligned = last % new == 0 and (self.offset * old) % new == 0
        outer = [s * old % new == 0 for s in own.strides[:-1]]
        if old != new and (own.strides[-1] != 1 or not aligned or not all(outer)):
            raise ShapeError(
                f"view of {self.describe()} as {kind.name}",
                rule=f"elements of {old} bytes become elements of {new} bytes where the last axis "
                "is contiguous and whole elements come out",
                fix="view a tensor whose last axis is contiguous, and a multiple long",
            )
        if old == new:
            return self._at(self._of_type(kind, own.shape, own.strides), self.offset)
        shape = (*own.shape[:-1], last // new)
        strides = (*[s * old // new for s in own.strides[:-1]], 1)
        cast = self._at(self._of_type(kind, shape, strides), self.offset * old // new)
        cast._declared = (*self._declared[:-1], self._declared[-1] * old // new)
        return cast

    reinterpret_cast = view

    def _of_type(self, kind: Type, shape: Ints, strides: Ints) -> Layout:
        """A layout of this memory as elements of another type."""
        own = self._layout
        old, new = own.type.itemsize, kind.itemsize
        base = own.base
        if old != new:
            scaled = base[-1] * old
            if scaled % new:
                if own.on_chip:
                    raise DTypeError(
                        f"{self.describe()} as {kind.name}",
                        rule=f"a row of {scaled} bytes holds whole elements of {new} bytes",
                        fix="declare the tensor with a free size that divides",
                    )
                base = (prod(base) * old // new,)
            else:
                base = (*base[:-1], scaled // new)
        return layouts.layout(shape, strides, kind, own.space, base)

    def ap(
        self,
        pattern: Sequence[Sequence[int]],
        offset: int | None = None,
        scalar_offset: NkiTensor | None = None,
        vector_offset: NkiTensor | None = None,
        indirect_dim: int = 0,
        dtype: str | None = None,
    ) -> NkiTensor:
        """An access pattern over the memory behind the tensor, whatever view it is called on.

        Args:
            pattern: [stride, count] of each axis, outermost first, in elements. On chip the first
                stride is the elements of a partition.
            offset: of the first element; None for that of the view. In elements.
            scalar_offset: a register or a one-element tensor in SBUF: how many rows of
                `indirect_dim` the view moves.
            vector_offset: a (P, 1) tensor in SBUF with a row number for each partition, for DMA.
            indirect_dim: the axis of the declared tensor that these count on.
            dtype: reinterpret the bits; pattern and offset then count in its elements.

        Returns:
            A view whose shape are the counts.
        """
        own = self._layout
        try:
            steps = tuple([step for step, _ in pattern])
            shape = tuple([count for _, count in pattern])
        except (TypeError, ValueError):
            raise IndexingError(
                f"access pattern {pattern!r}",
                rule="a pattern is a list of [stride, count] pairs, outermost first",
                fix="write e.g. t.ap([[512, 128], [1, 512]])",
            ) from None
        if dtype is not None:
            kind = type_of(dtype)
            at = self.offset * own.type.itemsize // kind.itemsize
            new = self._of_type(kind, shape, steps)
        else:
            kind = own.type
            at = self.offset
            new = own.with_(shape, steps)
        if offset is not None:
            if at:
                warn(_two_offsets(self, offset))
            at += offset
        if own.on_chip and shape and shape[0] > 1 and steps[0] != new.row:
            raise IndexingError(
                f"access pattern {list(map(list, pattern))} on {self.describe()}",
                rule=f"on chip the first pair walks partitions, one after the other: its stride is "
                f"the {new.row} elements that the tensor has in each",
                fix=f"begin the pattern with [{new.row}, partitions]",
            )
        moved = None
        if scalar_offset is not None or vector_offset is not None:
            self._check_direct("ap")
            moved = self._moved(new, scalar_offset, vector_offset, indirect_dim)
            if moved.by_row:
                new = new.with_(shape, (0, *steps[1:]))
        elif shape and min(shape) > 0:
            _check_inside(self, new, at, pattern)
        return self._at(new, at, moved)

    def _moved(self, new: Layout, scalar: Any, vector: Any, dim: int) -> Indirect:
        """The dynamic offset that `ap` was given."""
        declared = self._declared
        if scalar is not None and vector is not None:
            raise IndexingError(
                f"a pattern on {self.describe()} with scalar_offset and vector_offset",
                rule="a view takes one dynamic offset",
                fix="pass one of them",
            )
        if not 0 <= dim < len(declared):
            raise IndexingError(
                f"indirect_dim={dim} of {self.describe()}",
                rule=f"the tensor has axes 0..{len(declared) - 1}",
                fix="name one of these",
            )
        own_strides = (new.row, *c_strides(declared[1:])) if new.on_chip else c_strides(declared)
        if vector is not None:
            if dim or new.on_chip:
                raise IndexingError(
                    f"vector_offset on {self.describe()} with indirect_dim={dim}",
                    rule="a row number for each partition counts on axis 0 of a tensor in HBM",
                    fix="use indirect_dim=0 of a tensor in HBM",
                )
            return Indirect(vector, own_strides[0], 0, declared[0], by_row=True)
        return Indirect(scalar, own_strides[dim], dim, declared[dim], by_row=False)

    # -- what it is not -------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._layout.shape[0]

    def __bool__(self) -> bool:
        """Whether all elements are true: known where the kernel runs on data."""
        from nkisim.frontends.nki.session import current

        return bool(current().values_of(self).all())

    def __iter__(self):
        raise ControlFlowError(
            f"a loop over {self.describe()}",
            rule="a tensor has no values while the kernel is traced",
            fix="loop over range(n) and take slices",
        )

    __hash__ = object.__hash__


def _no_operator(symbol: str, function: str):
    def operate(self: NkiTensor, *other: object) -> Any:
        raise _operator_error(self, symbol, function)

    return operate


def _operator_error(tensor: NkiTensor, symbol: str, function: str) -> KernelError:
    return IndexingError(
        f"the operator {symbol} on {tensor.describe()}",
        rule="tensors of `import nki` have no operators; `neuronxcc.nki`'s tiles have them",
        fix=f"write nisa.{function}, or nl.{_WRAPPERS.get(symbol, 'add')}(x, y), which makes a "
        "new tile",
    )


_WRAPPERS = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "/": "divide",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "**": "power",
    "&": "bitwise_and",
    "|": "bitwise_or",
    "^": "bitwise_xor",
    "~": "invert",
}
_DUNDERS = {
    "+": ("add", "radd", "iadd"),
    "-": ("sub", "rsub", "isub", "neg"),
    "*": ("mul", "rmul", "imul"),
    "/": ("truediv", "rtruediv", "itruediv"),
    "**": ("pow", "rpow"),
    "<": ("lt",),
    "<=": ("le",),
    ">": ("gt",),
    ">=": ("ge",),
    "&": ("and", "rand"),
    "|": ("or", "ror"),
    "^": ("xor", "rxor"),
    "~": ("invert",),
    "@": ("matmul", "rmatmul"),
}
_ISA = {"@": "nc_matmul(dst, stationary, moving)", "~": "tensor_scalar(dst, data, op0, operand0)"}
for _symbol, _names in _DUNDERS.items():
    _instead = _ISA.get(_symbol, "tensor_tensor(dst, x, y, op)")
    for _name in _names:
        setattr(NkiTensor, f"__{_name}__", _no_operator(_symbol, _instead))


def _without(own: Layout, dim: int) -> tuple[Ints, Ints]:
    shape = (*own.shape[:dim], *own.shape[dim + 1 :])
    strides = (*own.strides[:dim], *own.strides[dim + 1 :])
    if own.on_chip and len(shape) < 2:
        return (*shape, 1), (*strides, 1)
    return (shape, strides) if shape else ((1,), (1,))


def _filled(sizes: Ints, total: int, what: str) -> Ints:
    """`sizes` with the one that is -1 computed. Raises ShapeError if they do not make `total`."""
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


def _restride(shape: Ints, strides: Ints, new: Ints) -> Ints | None:
    """Strides of the same elements in another shape; None when there are none."""
    sizes, steps = layouts.merged(shape, strides)
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


def _check_inside(tensor: NkiTensor, new: Layout, at: int, pattern: Sequence) -> None:
    low = at + sum(s * (n - 1) for s, n in zip(new.strides, new.shape, strict=True) if s < 0)
    high = at + sum(s * (n - 1) for s, n in zip(new.strides, new.shape, strict=True) if s > 0)
    total = prod(new.base)
    free = 0
    if new.on_chip and new.row:
        free = at % new.row + sum(
            s * (n - 1) for s, n in zip(new.strides[1:], new.shape[1:], strict=True)
        )
    if low < 0 or high >= total or (free > max(new.row - 1, 0) and new.on_chip):
        what = f"reaches elements {low}..{high}"
        limit = f"the tensor has {total} elements"
        if new.on_chip:
            limit += f", {new.row} in each partition"
        raise OutOfBoundsError(
            f"access pattern {[list(p) for p in pattern]} from element {at} on "
            f"{tensor.describe()} {what}",
            rule=limit
            + ", and a pattern stays inside"
            + (", its free axes in their partition" if new.on_chip else ""),
            fix="correct the counts, the strides or the offset",
        )


def _two_offsets(tensor: NkiTensor, offset: int) -> KernelError:
    return IndexingError(
        f".ap(offset={offset}) on {tensor.describe()}, which begins at element {tensor.offset}",
        rule="AWS's pages differ in whether the offset of the view counts as well; here they are "
        "added, as the API reference has it",
        fix="call .ap on the tensor itself, with the whole offset",
    )


__all__ = ["DynamicSlice", "Indirect", "MemoryRegion", "NkiTensor", "VirtualRegister"]
