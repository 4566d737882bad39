"""Views of a tensor: slices, rows by number, and the same elements in other shapes and types."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, Self

from nkisim.errors import (
    DTypeError,
    IndexingError,
    OutOfBoundsError,
    ShapeError,
    UnsupportedError,
)
from nkisim.frontends.nki.dtypes import Type, type_of
from nkisim.frontends.nki.tensors import layout as layouts
from nkisim.frontends.nki.tensors.layout import Ints, Layout
from nkisim.ir.memory import c_strides


class Indirect(NamedTuple):
    """The start of a dynamic view, which it reads from memory.

    Attributes:
        index: a register or a one-element tensor; or, with `by_row`, a (P, 1) tensor with a row
            number for each partition.
        unit: elements that one step of the index moves the view.
        dim: the axis of the tensor that the index counts on.
        size: extent of that axis.
        by_row: whether there is an index for each partition.
        taken: elements of the axis that the view has, from the index on.
    """

    index: Any
    unit: int
    dim: int
    size: int
    by_row: bool
    taken: int = 1


class Views:
    """The methods of a tensor that give another one on the same memory. None copies.

    Attributes:
        offset: the element that it begins at.
        _layout: shape, strides and type.
        _indirect: where it starts, when that is known at run time only.
    """

    offset: int
    _layout: Layout
    _indirect: Indirect | None

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

    def slice(self, dim: int, start: int, end: int, step: int = 1) -> Self:
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
                fix="keep the bounds inside; shorten the last slice with min(end, size)",
            )
        shape = (*own.shape[:dim], -(-(end - start) // step), *own.shape[dim + 1 :])
        strides = (*own.strides[:dim], own.strides[dim] * step, *own.strides[dim + 1 :])
        return self._walk(shape, strides, self.offset + start * own.strides[dim])

    def select(self, dim: int, index: int | Views) -> Self:
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
        shape, strides = layouts.without(own, dim)
        moved = Indirect(index, own.strides[dim], dim, own.shape[dim], by_row=False)
        return self._at(own.with_(shape, strides), self.offset, moved)

    def vector_select(self, dim: int, vector_offset: Views) -> Self:
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

    def indirect(self, index: Views, num_elem: int | None = None) -> Self:
        """A view whose free elements an index tensor picks, for instructions of NeuronCore-v4.

        AWS's docstring says that offset i is `index[i % 16, i // 16]`. It does not say what the
        partitions after the first 16 read, and where there are any, its default of `num_elem` is
        more offsets than that formula has.

        Raises:
            UnsupportedError: always; the simulator has no such operands.
        """
        raise UnsupportedError(
            f"indirect view of {self.describe()}",
            rule="this simulator has no tensor indirection, which NeuronCore-v4 (trn3) has: the "
            "documentation does not say which offsets each partition reads",
            fix="to gather, declare a tile as large as the offsets and pass it in place of the "
            "view, after nisa.nc_n_gather(dst=tile, data=..., indices=...): uint32 offsets, for "
            "each partition its own. To scatter, write rows of HBM with nisa.dma_copy and "
            "vector_offset",
        )

    def _check_direct(self, method: str) -> None:
        if self._indirect is not None:
            raise IndexingError(
                f"{method} of {self.describe()}, which is dynamic",
                rule="a view takes one dynamic offset",
                fix="compute one offset, and use it on the tensor itself",
            )

    def permute(self, dims: Sequence[int]) -> Self:
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

    def broadcast(self, dim: int, size: int) -> Self:
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

    def expand_dim(self, dim: int) -> Self:
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

    def squeeze_dim(self, dim: int) -> Self:
        """The view without an axis of extent 1."""
        dim = self._axis(dim, "squeeze_dim", free=True)
        own = self._layout
        if own.shape[dim] != 1:
            raise ShapeError(
                f"squeeze_dim({dim}) of {self.describe()}",
                rule="the axis that goes has extent 1",
                fix="select one element of it",
            )
        return self._walk(*layouts.without(own, dim))

    def reshape_dim(self, dim: int, shape: Sequence[int]) -> Self:
        """One axis as several. One of the extents may be -1."""
        dim = self._axis(dim, "reshape_dim", free=len(shape) > 1)
        own = self._layout
        sizes = layouts.filled(tuple(shape), own.shape[dim], f"reshape_dim of {self.describe()}")
        steps = tuple([s * own.strides[dim] for s in c_strides(sizes)])
        return self._walk(
            (*own.shape[:dim], *sizes, *own.shape[dim + 1 :]),
            (*own.strides[:dim], *steps, *own.strides[dim + 1 :]),
        )

    def flatten_dims(self, start_dim: int, end_dim: int) -> Self:
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

    def reshape(self, shape: Sequence[int]) -> Self:
        """The elements in another shape; on chip those of each partition.

        Raises:
            ShapeError: another number of elements or partitions, or strides that do not allow it.
        """
        own = self._layout
        shape = tuple(shape) if isinstance(shape, Sequence) else (shape,)
        sizes = layouts.filled(shape, self.size, f"reshape of {self.describe()}")
        skip = 1 if own.on_chip else 0
        if skip and (not sizes or sizes[0] != own.shape[0]):
            raise ShapeError(
                f"reshape of {self.describe()} to {list(sizes)}",
                rule="axis 0 of a tensor on chip is laid over partitions and keeps its extent",
                fix=f"use a shape that begins with {own.shape[0]}",
            )
        steps = layouts.restride(own.shape[skip:], own.strides[skip:], sizes[skip:])
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
    ) -> Self:
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

    def view(self, dtype: str) -> Self:
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
