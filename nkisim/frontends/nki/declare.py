"""Declaring tensors: shape, type, memory and address."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from nkisim.errors import KernelError, ParameterError, PlacementError, ShapeError, TileSizeError
from nkisim.frontends.nki.dtypes import type_of
from nkisim.frontends.nki.session import Session, current
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.ir.memory import Space

_RANK = 5


def make(
    shape: Sequence[int],
    dtype: Any,
    buffer: Any = MemoryRegion.sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """A new tensor.

    Raises:
        ShapeError, TileSizeError: a shape that the memory does not take.
        ParameterError: no memory region.
        PlacementError: an address that the hardware does not reach, or that not all tiles have.
    """
    session = current()
    if not isinstance(buffer, MemoryRegion):
        raise ParameterError(
            f"buffer={buffer!r}",
            rule="a tensor is in nl.sbuf, nl.psum, nl.private_hbm (nl.hbm) or nl.shared_hbm",
            fix="pass one of these objects, not its name",
        )
    kind = type_of(dtype)
    sizes = tuple(shape) if isinstance(shape, (list, tuple)) else (shape,)
    try:
        sizes = tuple([int(n.__index__()) for n in sizes])
    except (AttributeError, TypeError):
        raise _bad_shape(shape) from None
    if any(n <= 0 for n in sizes):
        raise _bad_shape(shape)
    space = buffer.space
    if space.on_chip:
        _check_tile(session, sizes, kind, space, name)
    if address is not None:
        address = _address(session, address, sizes, kind, space, name)
    return session.tensor(sizes, kind, space, name or "", address)


def _bad_shape(shape: object) -> KernelError:
    return ShapeError(
        f"shape {shape!r}",
        rule="a shape is a tuple of positive integers known while tracing",
        fix="compute it from the shapes of the arguments",
    )


def _check_tile(session: Session, sizes: tuple, kind: Any, space: Space, name: str) -> None:
    machine = session.trace.machine
    what = f"{name + ': ' if name else ''}a {kind.name}{list(sizes)} tensor in {space.label}"
    if len(sizes) < 2:
        raise ShapeError(
            f"{what} has {len(sizes)} axis",
            rule="a tensor on chip has a partition axis and at least one free axis",
            fix=f"declare ({sizes[0]}, 1), or (1, {sizes[0]})",
        )
    if len(sizes) > _RANK:
        raise ShapeError(
            f"{what} has {len(sizes)} axes",
            rule=f"a tensor on chip has at most {_RANK}",
            fix="join axes",
        )
    rows, most = sizes[0], machine.partitions
    if rows > most:
        folded = f", or put the rest on a free axis: ({most}, {rows // most}, ...)"
        raise TileSizeError(
            f"{what}: partition dimension {rows} exceeds maximum {most}",
            rule=f"axis 0 is laid over the {most} partitions",
            fix=f"loop over tiles, for first in range(0, {rows}, {most}), of the rows from first "
            f"to min(first + {most}, {rows})" + folded * (rows % most == 0),
        )
    need = prod(sizes[1:]) * kind.itemsize
    room = machine.psum_bytes if space is Space.PSUM else machine.sbuf_usable_bytes
    if need > room:
        raise TileSizeError(
            f"{what} needs {need:,} bytes a partition",
            rule=f"{space.label} of {machine.name} has {room:,} bytes a partition for kernels",
            fix="divide the free axes into smaller tensors, or use a narrower dtype",
        )


def _address(
    session: Session, address: Any, sizes: tuple, kind: Any, space: Space, name: str
) -> tuple[int, int]:
    machine = session.trace.machine
    what = f"{name + ': ' if name else ''}address={address!r} of a {kind.name}{list(sizes)} tensor"
    try:
        start, at = (v.__index__() for v in address)
    except (TypeError, ValueError, AttributeError):
        raise PlacementError(
            what,
            rule="an address is (start partition, byte in the partition)",
            fix="pass two integers",
        ) from None
    if not space.on_chip:
        raise PlacementError(
            what, rule="tensors in SBUF and PSUM have addresses", fix="leave the address out"
        )
    lanes = sizes[0]
    if start % 32 or start + lanes > machine.partitions:
        raise PlacementError(
            what,
            rule=f"it starts at partition 0, 32, 64 or 96, and {lanes} partitions fit from there",
            fix="choose another start partition",
        )
    need = prod(sizes[1:]) * kind.itemsize
    room = machine.psum_bytes if space is Space.PSUM else machine.sbuf_usable_bytes
    if at < 0 or at + need > room:
        raise PlacementError(
            f"{what}, which ends at byte {at + need:,}",
            rule=f"{space.label} of {machine.name} gives kernels bytes 0..{room - 1:,}",
            fix="use a lower address",
        )
    bank = machine.psum_bank_bytes
    if space is Space.PSUM and at % bank:
        raise PlacementError(
            what,
            rule=f"an address in PSUM is the start of a bank: a multiple of {bank}",
            fix=f"use {at // bank * bank}",
        )
    return start, at


def constant(values: Any) -> NkiTensor:
    """Data known when the kernel is compiled, in shared HBM."""
    if isinstance(values, (str, bytes)) or hasattr(values, "__fspath__"):
        values = np.load(values)
    array = np.ascontiguousarray(values)
    narrower = {"float64": np.float32, "int64": np.int32, "uint64": np.uint32}
    if array.dtype.name in narrower:
        array = array.astype(narrower[array.dtype.name])
    return current().fixed(array, type_of(array.dtype))
