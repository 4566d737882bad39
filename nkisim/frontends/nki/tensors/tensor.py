"""NkiTensor: what `nl.ndarray`, kernel arguments and views of them are in `import nki`.

A tensor is memory, an offset into it, and a layout (shape and strides). Every method below gives
another tensor on the same memory; none of them copies.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from enum import Enum
from math import prod
from typing import Any

import numpy as np

from nkisim.errors import (
    ControlFlowError,
    DTypeError,
    IndexingError,
    KernelError,
    OutOfBoundsError,
    warn,
)
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.dtypes import type_of
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.tensors import layout as layouts
from nkisim.frontends.nki.tensors.indexing import DynamicSlice, check_offset, part_of
from nkisim.frontends.nki.tensors.layout import Ints, Layout
from nkisim.frontends.nki.tensors.missing_operators import refuse_operators
from nkisim.frontends.nki.tensors.views import Indirect, Views
from nkisim.ir.access import AccessPattern, Form, _Blank
from nkisim.ir.integers import as_int, fix_of_integers
from nkisim.ir.memory import Space, c_strides
from nkisim.trace.debugging import shown_to
from nkisim.trace.tracer import current


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


class NkiTensor(Views):
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
    def data(self) -> NkiTensor:
        """The tensor itself: what an instruction takes, as `.data` of a grid is. New in NKI 0.7."""
        if not releases.has("t.data"):
            raise releases.too_new("t.data")
        return self

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self._layout.shape)

    # Not documented, and used by AWS's kernels: this and `_copy`.
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
        return f"NkiTensor({shown_to(sys._getframe(1), self)})"

    def is_contiguous(self) -> bool:
        """Whether the tensor's elements, on chip those of each partition, are contiguous."""
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

    def _pattern_of(self, form: Form, at: Ints) -> AccessPattern:
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
        return self._pattern_of(*own.operand(self.offset, own.shape, own.strides))

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
            name = own, *[(slice, k.start, k.stop, k.step) if type(k) is slice else k for k in key]
            found = layouts.parts.get(name)
        except TypeError:
            found = name = None
        if found is None:
            found = part_of(self, key)
            if type(found) is NkiTensor:  # a dynamic view
                return found
            layouts.parts[name] = found
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
        if isinstance(value, NkiTensor) and value is self:
            return
        current().assign(self if key is Ellipsis else self[key], value)

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
            scalar_offset: an NkiScalar, a register or a one-element tensor in SBUF: how many rows
                of `indirect_dim` the view moves. On chip a scalar is of int32.
            vector_offset: a (P, 1) tensor in SBUF with a row number for each partition, for DMA.
            indirect_dim: the axis of the declared tensor that these count on.
            dtype: reinterpret the bits; pattern and offset then count in its elements.

        Returns:
            A view whose shape are the counts. One that reaches past the tensor is an
            OutOfBoundsError where an instruction uses it.
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
        numbers = (*steps, *shape, 0 if offset is None else offset, indirect_dim)
        if None in map(as_int, numbers):
            raise IndexingError(
                f"access pattern {pattern!r} with offset={offset!r}, indirect_dim={indirect_dim!r}",
                rule="strides, counts, the offset and the axis are integers",
                fix=fix_of_integers(numbers, "pass integers"),
            )
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
        view = self._at(new, at, moved)
        if moved is None and shape and min(shape) > 0:
            beyond = _beyond(self, new, at, pattern)
            if beyond is not None:  # loops make a view too many, and do not use it
                view._pattern = _Beyond(beyond)
        return view

    def _moved(self, new: Layout, scalar: Any, vector: Any, dim: int) -> Indirect:
        """The dynamic offset that `ap` was given."""
        declared = self._declared
        if scalar is not None and vector is not None:
            raise IndexingError(
                f"a pattern on {self.describe()} with scalar_offset and vector_offset",
                rule="a view takes one dynamic offset",
                fix="pass one of them",
            )
        check_offset(self, scalar)
        if isinstance(scalar, int | float | np.number):
            raise IndexingError(
                f"scalar_offset={scalar!r} on {self.describe()}",
                rule="a dynamic offset is a scalar, a register or a one-element tensor in SBUF",
                fix="pass an offset that is known as offset=, in elements",
            )
        if isinstance(scalar, NkiTensor) and scalar._layout.type.stored.kind not in "iu":
            raise DTypeError(
                f"scalar_offset is {scalar.describe()}",
                rule="row numbers are int32 or uint32",
                fix="convert it, with nisa.tensor_copy into an int32 tile",
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
        """True: `if bias:` asks whether there is a tensor, not what is in it."""
        if self.size == 1:
            warn(_truth(self))
        return True

    def __iter__(self):
        raise ControlFlowError(
            f"a loop over {self.describe()}",
            rule="a tensor has no values while the kernel is traced",
            fix="loop over range(n) and take slices",
        )

    __hash__ = object.__hash__


class _Beyond:
    """Stands for the access pattern of a view that reaches past its tensor."""

    def __init__(self, error: OutOfBoundsError) -> None:
        self.error = error

    @property
    def form(self) -> Form:
        raise self.error


def _beyond(tensor: NkiTensor, new: Layout, at: int, pattern: Sequence) -> OutOfBoundsError | None:
    """The error of a view that reaches past its tensor; None for one that stays inside."""
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
        return OutOfBoundsError(
            f"access pattern {[list(p) for p in pattern]} from element {at} on "
            f"{tensor.describe()} {what}",
            rule=limit
            + ", and a pattern stays inside"
            + (", its free axes in their partition" if new.on_chip else ""),
            fix="correct the counts, the strides or the offset",
        )
    return None


def _truth(tensor: NkiTensor) -> KernelError:
    return ControlFlowError(
        f"the truth value of {tensor.describe()}, which has one element",
        rule="a tensor is always true: what is in it is not known when the kernel is compiled",
        fix="write `is not None` to ask whether it is there; for a branch on its value, load it "
        "with nisa.scalar_load and loop with nl.fori_loop(0, scalar, body)",
    )


def _two_offsets(tensor: NkiTensor, offset: int) -> KernelError:
    return IndexingError(
        f".ap(offset={offset}) on {tensor.describe()}, which begins at element {tensor.offset}",
        rule="AWS's pages differ in whether the offset of the view counts as well; here they are "
        "added, as the API reference has it",
        fix="call .ap on the tensor itself, with the whole offset",
    )


refuse_operators(NkiTensor)

__all__ = ["DynamicSlice", "Indirect", "MemoryRegion", "NkiTensor", "VirtualRegister"]
