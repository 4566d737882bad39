"""Memories of a NeuronCore and the buffers allocated in them.

HBM is device memory, linear, reached only by DMA. SBUF and PSUM are on chip, two-dimensional: 128
partitions, each with its own stretch of bytes (the free axes). A `Buffer` is one allocation; it
holds no data. Data is bound to buffers when a traced program runs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import Location, ShapeError
from nkisim.ir.integers import fix_of_integers


class Space(Enum):
    """Where a buffer lives. `nl.sbuf`, `nl.psum`, `nl.hbm` and the rest are these."""

    SBUF = "sbuf"
    PSUM = "psum"
    PRIVATE_HBM = "private_hbm"
    SHARED_HBM = "shared_hbm"

    def __init__(self, value: str) -> None:
        self.on_chip = value in ("sbuf", "psum")

    @property
    def label(self) -> str:
        return "HBM" if not self.on_chip else self.value.upper()

    __hash__ = object.__hash__  # an Enum's own is a Python function

    def __repr__(self) -> str:
        return f"nl.{self.value}"


@dataclass(frozen=True)
class Allocation:
    """Where a tensor is to live, and how: `nl.ndarray(..., buffer=ncc.sbuf.alloc(f))`.

    Attributes:
        space: SBUF or PSUM.
        place: for direct allocation, a function of (block index, partitions, bytes a partition)
            that gives (start partition, byte address) in SBUF, or (bank, start partition, byte
            address) in PSUM. None when the compiler allocates.
    """

    space: Space
    place: Callable[[tuple[int, ...], int, int], tuple[int, ...]] | None = None


class Placed(NamedTuple):
    """Where a tile is: its first partition, how many, and bytes in each from an address on."""

    start: int
    partitions: int
    address: int
    size: int

    def __str__(self) -> str:
        return (
            f"partitions {self.start}..{self.start + self.partitions - 1}, "
            f"bytes {self.address}..{self.address + self.size - 1}"
        )


class PartitionDim(int):
    """A shape entry marked as the partition axis."""


class Role(Enum):
    """What a buffer is to the kernel: an argument, a tensor it made, data fixed in the code, or
    memory through which instances hand each other data, in an order that barriers keep."""

    ARGUMENT = "argument"
    LOCAL = "local"
    CONSTANT = "constant"
    EXCHANGE = "exchange"


class Buffer:
    """One allocation.

    Attributes:
        number: position in the program's list of buffers.
        shape: extents as declared.
        dtype: element type.
        space: memory it lives in.
        par_axis: the axis laid over partitions (on chip only).
        name: for messages.
        role: argument, local, constant or exchange.
        kind: one object for all buffers of the same shape, partition axis, type, memory and role,
            and that all have a `place` or all have none.
        program: the SPMD instance that made it; None for memory that all instances share.
        loops: the loop iterations it was made in, outermost first.
        location: the kernel line that made it.
        data: the values of a CONSTANT.
        declared: whether the kernel asked for it by itself; else it is an operation's result.
        place: where the kernel puts its tiles, when it allocates directly (see Allocation).
        placed: for each tile, where that is.
        stored: the type that running keeps the elements in, when it is not `dtype` (see
            nkisim.frontends.neuronxcc.rules.compatibility).
    """

    __slots__ = (
        "data",
        "declared",
        "dtype",
        "kind",
        "location",
        "loops",
        "name",
        "number",
        "par_axis",
        "place",
        "placed",
        "program",
        "role",
        "shape",
        "space",
        "stored",
        "strides",
    )

    def __init__(
        self,
        number: int,
        shape: tuple[int, ...],
        dtype: np.dtype,
        space: Space,
        *,
        name: str = "",
        par_axis: int = 0,
        role: Role = Role.LOCAL,
        program: int | None = None,
        loops: tuple = (),
        location: Location | None = None,
        data: np.ndarray | None = None,
        place: Callable | None = None,
    ) -> None:
        self.number = number
        self.shape = shape
        self.dtype = self.stored = dtype
        self.space = space
        self.par_axis = par_axis
        self.name = name
        self.role = role
        self.kind = _kind(shape, par_axis, dtype, space, role, place is not None)
        self.program = program
        self.loops = loops
        self.location = location
        self.data = data
        self.declared = False
        self.place = place
        self.placed: tuple[Placed, ...] = ()
        self.strides = c_strides(shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize

    @property
    def tiles(self) -> int:
        """Number of tiles (on chip): the product of the block axes."""
        return prod(self.shape[: self.par_axis])

    @property
    def partition_bytes(self) -> int:
        """Bytes a partition of one tile takes (on chip): the axes behind the partition axis."""
        return prod(self.shape[self.par_axis + 1 :]) * self.dtype.itemsize

    def again(self, number: int, program: int | None, loops: tuple) -> Buffer:
        """A buffer like this one, made by another instance or in another iteration."""
        new = object.__new__(Buffer)
        new.number, new.program, new.loops = number, program, loops
        new.shape, new.strides, new.par_axis = self.shape, self.strides, self.par_axis
        new.dtype, new.stored, new.space = self.dtype, self.stored, self.space
        new.name, new.role, new.location = self.name, self.role, self.location
        new.kind = self.kind
        new.data, new.declared = self.data, self.declared
        new.place, new.placed = self.place, self.placed
        return new

    def __repr__(self) -> str:
        name = self.name or f"#{self.number}"
        return f"{self.space.label} {name} {self.dtype}{list(self.shape)}"


class BufferKind:
    """The common properties of many buffers, interned: kinds are compared by identity."""

    __slots__ = ()


@functools.lru_cache(maxsize=4096)
def _kind(*what: Any) -> BufferKind:
    """The interned BufferKind of all buffers with these properties."""
    return BufferKind()


@functools.lru_cache(maxsize=4096)
def c_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides of `shape`, in elements."""
    strides = [1] * len(shape)
    for axis in range(len(shape) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]
    return tuple(strides)


_INTS = frozenset({int})


def check_shapes(shape: Any) -> tuple[int, ...]:
    """`shape` as a tuple of non-negative ints: itself, if it is one. Raises ShapeError."""
    if type(shape) is tuple and _INTS.issuperset(map(type, shape)) and min(shape, default=0) >= 0:
        return shape
    entries = shape if isinstance(shape, tuple | list) else (shape,)
    try:
        sizes = tuple(int(s.__index__()) for s in entries)
    except (AttributeError, TypeError):
        sizes = (-1,)
    if any(s < 0 for s in sizes):
        raise ShapeError(
            f"shape {shape!r}",
            rule="a shape is a tuple of non-negative integers known while tracing",
            fix=fix_of_integers(entries, "compute it from the shapes of the arguments"),
        )
    return sizes
