"""Registers and scalars."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import DTypeError, MemorySpaceError, ParameterError, ShapeError, UnsupportedError
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.registers import WIDTHS, Assumed, NkiScalar, VirtualRegister
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface.isa.copies import memset
from nkisim.frontends.nki.surface.isa.dma import dma_copy
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space


def register_alloc(x: int | None = None) -> VirtualRegister:
    """A new register.

    Args:
        x: its value; None for none yet. A (1, 1) tensor is loaded.

    Raises:
        ParameterError: a scalar; a tensor of more than one element, or of more than 32 bits.
    """
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        register_load(register, x)
    elif isinstance(x, VirtualRegister):
        register.state = x.state
    elif x is not None:
        _no_scalar("nisa.register_alloc", x, "pass the scalar where the register is used")
        register.state = int(x)
    current()
    return register


def _writable(call: str, register: Any) -> None:
    if not isinstance(register, VirtualRegister) or register.frozen:
        raise ParameterError(
            f"{call} into {register!r}",
            rule="a register of nisa.register_alloc is written; the variable of a loop is not",
            fix="allocate a register",
        )


def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """dst = src.

    Args:
        dst: a register.
        src: an int, or a register.

    Raises:
        ParameterError: dst is the variable of a loop or no register, or src a tensor or a scalar.
    """
    _writable("nisa.register_move", dst)
    if isinstance(src, NkiTensor):
        raise ParameterError(
            f"nisa.register_move from {src.describe()}",
            rule="it moves an integer or a register",
            fix="load a tensor of one element with nisa.register_load",
        )
    _no_scalar("nisa.register_move", src, "pass the scalar where the register is used")
    dst.state = src.state if isinstance(src, VirtualRegister) else int(src)


def _no_scalar(call: str, src: Any, instead: str) -> None:
    if isinstance(src, NkiScalar):
        raise ParameterError(
            f"{call} of a scalar",
            rule="it takes an integer or a register; the variable of nl.fori_loop is a scalar "
            "since NKI 0.7, unless a bound is a register",
            fix=instead,
        )


def _single(call: str, t: NkiTensor) -> None:
    if not isinstance(t, NkiTensor) or t.size != 1 or t._layout.type.itemsize > 4:
        given = t.describe() if isinstance(t, NkiTensor) else repr(t)
        raise ParameterError(
            f"{call}: {given}",
            rule="it takes a tensor of one element, of up to 32 bits",
            fix="slice it to one element",
        )


def register_load(dst: VirtualRegister, src: NkiTensor) -> None:
    """dst = the element of a tensor in HBM or SBUF, when the kernel runs.

    Args:
        dst: a register.
        src: a tensor of one element, of up to 32 bits.

    Raises:
        ParameterError: dst is the variable of a loop or no register, or src is another tensor.
    """
    _writable("nisa.register_load", dst)
    _single("nisa.register_load", src)
    session = current()
    if src._indirect is not None:
        src = session.settled(src)
    dst.state = session.element(src)


def register_store(dst: NkiTensor, src: VirtualRegister) -> None:
    """The element of a tensor in HBM or SBUF = src.

    Args:
        dst: a tensor of one element, of up to 32 bits.
        src: a register.

    Raises:
        ParameterError: dst is another tensor, or src a scalar.
        IndexingError: nothing has written the register.
    """
    _single("nisa.register_store", dst)
    _no_scalar("nisa.register_store", src, "use nisa.scalar_store(dst, scalar)")
    session = current()
    _write(dst, int(session.number_of(src) if isinstance(src, VirtualRegister) else src))


def _write(dst: NkiTensor, value: int) -> None:
    kind = dst._layout.type
    if dst._layout.on_chip and kind.itemsize <= 4:
        memset(dst, value)
        return
    fixed = np.array([value]).astype(kind.stored).reshape(dst.shape)
    dma_copy(dst, current().fixed(fixed, kind))


def _check_one(call: str, which: str, t: NkiTensor) -> None:
    """A tensor of 1x1 in SBUF or HBM, of a type that scalars have."""
    if not releases.tracing():
        raise UnsupportedError(
            f"{call} with {releases.FRONT_END}=custom",
            rule="scalars need a kernel that is run as Python",
            fix=f"unset {releases.FRONT_END}, or use nisa.register_load and register_store",
        )
    if t._layout.space is Space.PSUM:
        raise MemorySpaceError(
            f"{call}: {which} is {t.describe()}",
            rule="the element is in SBUF or in HBM",
            fix="copy it to SBUF first, with nisa.tensor_copy",
        )
    if t.shape != (1, 1):
        raise ShapeError(
            f"{call}: {which} is {t.describe()}",
            rule="it takes a tensor of 1x1",
            fix=f"write {which}.reshape((1, 1))" if t.size == 1 else "slice it to t[0:1, 0:1]",
        )
    if t.dtype not in WIDTHS:
        raise DTypeError(
            f"{call}: {which} is {t.describe()}",
            rule="a scalar is int32 or int64, and is not converted",
            fix="convert the tensor, with nisa.tensor_copy into one of nl.int32",
        )


def scalar_load(src: NkiTensor) -> NkiScalar:
    """The element of a tensor as an integer that computes on the device. New in NKI 0.7.

    Args:
        src: 1x1 in SBUF or HBM, int32 or int64.

    Returns:
        A scalar of the type of src.

    Raises:
        DTypeError, ShapeError, MemorySpaceError: another tensor.
        UnsupportedError: the front end before tracing is chosen.
    """
    session = current()
    _check_one("nisa.scalar_load", "src", src)
    if src._indirect is not None:
        src = session.settled(src)
    return NkiScalar(session.element(src), src.dtype)


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """The element of a tensor = a scalar. New in NKI 0.7.

    Args:
        dst: 1x1 in SBUF or HBM, of the type of the scalar.
        value: a scalar.

    Raises:
        DTypeError: another type than the scalar's, which is not converted.
        ShapeError, MemorySpaceError: another tensor.
        ParameterError: an integer, which no instruction would store on the device.
        UnsupportedError: the front end before tracing is chosen.
    """
    call = "nisa.scalar_store"
    session = current()
    _check_one(call, "dst", dst)
    if not isinstance(value, NkiScalar):
        known = isinstance(value, int)
        raise ParameterError(
            f"{call} of {value!r}",
            rule="it stores what nisa.scalar_load, arithmetic of scalars or nl.fori_loop gives"
            + ("; a device stores nothing for an integer" if known else ""),
            fix=f"use nisa.memset(dst, {value})" if known else "use nisa.register_store",
        )
    if dst.dtype != value.dtype:
        raise DTypeError(
            f"{call} of a scalar of {value.dtype} into {dst.describe()}",
            rule="dst is as wide as the scalar: nothing is converted",
            fix=f"declare dst with dtype nl.{value.dtype}",
        )
    number = session.number_of(value)
    _write(dst, 0 if isinstance(number, Assumed) else number)


__all__ = [
    "register_alloc",
    "register_load",
    "register_move",
    "register_store",
    "scalar_load",
    "scalar_store",
]
