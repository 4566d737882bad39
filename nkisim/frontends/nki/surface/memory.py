"""Tensors that a kernel declares: their memory, and what they begin with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from nkisim.frontends.nki import declare
from nkisim.frontends.nki.dtypes import type_of
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface import isa
from nkisim.frontends.nki.surface.constants import sbuf, uint8
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor

__all__ = [
    "empty_like",
    "full",
    "ndarray",
    "ones",
    "rand",
    "shared_constant",
    "shared_identity_matrix",
    "zeros",
    "zeros_like",
]


class _Tensors(type):
    """`nl.ndarray` makes a tensor, and stands for the type of tensors in annotations."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, NkiTensor)

    def __call__(
        cls,
        shape: tuple[int, ...],
        dtype: str,
        buffer: MemoryRegion = MemoryRegion.sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> NkiTensor:
        return declare.make(shape, dtype, buffer, name, address)


class ndarray(metaclass=_Tensors):
    """`nl.ndarray(shape, dtype, buffer=nl.sbuf, name="", address=None)`: a new tensor, with nothing
    in it.

    Args:
        shape: extents; on chip, axis 0 is laid over partitions.
        dtype: element type.
        buffer: the memory.
        name: for messages. Tensors in shared HBM with one name are one tensor for all cores.
        address: (start partition, byte) on chip. A kernel gives addresses to all of its tensors on
            chip, or to none.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dtype: str,
        buffer: MemoryRegion = sbuf,
        name: str = "",
        address: tuple[int, int] | None = None,
    ) -> None: ...


def _filled(
    shape: Sequence[int], value: float, dtype: Any, buffer: Any, name: str = ""
) -> NkiTensor:
    """A new tensor that holds one value."""
    made = declare.make(shape, dtype, buffer, name)
    if made._layout.on_chip:
        isa.memset(made, value)
        return made
    size = made.size
    lanes = next(n for n in range(128, 0, -1) if size % n == 0)
    tile = declare.make((lanes, 1), dtype, MemoryRegion.sbuf)
    isa.memset(tile, value)
    isa.dma_copy(made.reshape((lanes, size // lanes)), tile.broadcast(1, size // lanes))
    return made


def zeros(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of zeros.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, 0.0, dtype, buffer, name)


def ones(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """A new tensor of ones.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, 1.0, dtype, buffer, name)


def full(
    shape: tuple, fill_value: float, dtype: str, buffer: MemoryRegion = sbuf, name: str = ""
) -> NkiTensor:
    """A new tensor of one value.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(shape, fill_value, dtype, buffer, name)


def zeros_like(
    x: NkiTensor, dtype: str | None = None, buffer: MemoryRegion | None = None, name: str = ""
) -> NkiTensor:
    """A new tensor of zeros with the shape of x, in SBUF unless `buffer` says otherwise.

    Raises:
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return _filled(x.shape, 0.0, dtype or x.dtype, buffer or sbuf, name)


def empty_like(
    x: NkiTensor, dtype: str | None = None, buffer: MemoryRegion | None = None, name: str = ""
) -> NkiTensor:
    """A new tensor with the shape, type and memory of x, with nothing in it.

    Raises:
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    return declare.make(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def shared_constant(constant: Any) -> NkiTensor:
    """Data known when the kernel is compiled, in shared HBM.

    Args:
        constant: a NumPy array, or the path of a .npy file.

    Raises:
        DTypeError: a type that the NeuronCore does not have.
        FileNotFoundError: there is no such file.
        ParameterError: neither an array nor a path.
    """
    return declare.constant(constant)


def shared_identity_matrix(n: int, dtype: str = uint8, dst: NkiTensor | None = None) -> NkiTensor:
    """The (n, n) identity matrix in SBUF, one for each type.

    Args:
        n: rows.
        dtype: element type.
        dst: an SBUF tile to write it to.

    Raises:
        TileSizeError: n is above 128.
        DTypeError: a type that the NeuronCore does not have.
    """
    session = current()
    kind = type_of(dtype)
    key = (session.program, "identity", n, kind.name)
    found = session.state.get(key)
    if dst is None and found is not None:
        return found
    made = declare.make((n, n), kind.name, sbuf) if dst is None else dst
    isa.dma_copy(
        made, session.fixed(np.identity(n, np.uint8).astype(kind.stored), kind, "identity")
    )
    if dst is None:
        session.state[key] = made
    return made


def rand(shape: tuple, dtype: str, buffer: MemoryRegion = sbuf, name: str = "") -> NkiTensor:
    """Uniform numbers in [0, 1), in a new tensor.

    Raises:
        ShapeError: a shape that is no tuple of positive integers, or that the memory does not take.
        TileSizeError: more partitions or bytes than the memory has.
        DTypeError: a type that the NeuronCore does not have.
        ParameterError: no memory region.
    """
    dst = declare.make(shape, dtype, buffer, name)
    isa.uniform(dst, 0.0, 1.0)
    return dst
