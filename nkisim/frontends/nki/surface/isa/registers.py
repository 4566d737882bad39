"""Registers."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import ParameterError
from nkisim.frontends.nki.registers import VirtualRegister
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.surface.isa.copies import memset
from nkisim.frontends.nki.surface.isa.dma import dma_copy
from nkisim.frontends.nki.tensors.tensor import NkiTensor


def register_alloc(x: int | None = None) -> VirtualRegister:
    """A new register.

    Args:
        x: its value; None for none yet. A (1, 1) tensor is loaded.
    """
    register = VirtualRegister()
    if isinstance(x, NkiTensor):
        register_load(register, x)
    elif isinstance(x, VirtualRegister):
        register.state = x.state
    elif x is not None:
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
    """
    _writable("nisa.register_move", dst)
    if isinstance(src, NkiTensor):
        raise ParameterError(
            f"nisa.register_move from {src.describe()}",
            rule="it moves an integer or a register",
            fix="load a tensor of one element with nisa.register_load",
        )
    dst.state = src.state if isinstance(src, VirtualRegister) else int(src)


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
        src: a tensor of one element.
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
        dst: a tensor of one element.
        src: a register.
    """
    _single("nisa.register_store", dst)
    session = current()
    value = int(session.number_of(src) if isinstance(src, VirtualRegister) else src)
    if dst._layout.on_chip:
        memset(dst, value)
    else:
        kind = dst._layout.type
        dma_copy(dst, session.fixed(np.array([value]).astype(kind.stored), kind))


__all__ = ["register_alloc", "register_load", "register_move", "register_store"]
