"""Accumulation of matmuls in PSUM: the elements that one overwrites, and those that it adds to.

With accumulate=None the first matmul that writes an element overwrites it, and later ones add, by
element. The trace knows all writes, so each matmul is settled when it is written down: it
overwrites, it adds, or (where windows overlap) it does one on some elements and the other on the
rest. A write of another instruction starts over.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from nkisim.checking import Checker
from nkisim.errors import AccumulationError, TileSizeError
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space
from nkisim.ir.trace import Trace


class Recording(Protocol):
    """The part of a Session that accumulation groups need.

    Attributes:
        psum: what matmuls wrote, by the number of a buffer: tiles, or a map of flags.
        checker: reports what is refused.
        trace: what is recorded, for its NeuronCore generation.
    """

    psum: dict[Any, Any]
    checker: Checker
    trace: Trace


def opened(
    session: Recording, dst: NkiTensor, accumulate: bool | None, call: str
) -> tuple[str, np.ndarray | None]:
    """The effect of a matmul on `dst`: "overwrite" or "add"; with the latter, the elements that it
    overwrites all the same, as a boolean array of the shape of `dst`'s walk, or None for none.

    Raises:
        TileSizeError: `dst` crosses a bank of PSUM.
        AccumulationError: it adds to elements that no matmul wrote.
    """
    own = dst._layout
    if own.space is not Space.PSUM:
        return "overwrite", None  # which is refused
    _one_bank(session, dst, call)
    state: dict[Any, Any] = session.psum
    key = (own, dst.offset)
    number = dst._buffer.number
    known = state.get(number)
    if known is None:
        known = state[number] = {}
    if accumulate is False:
        if key not in known:
            _add(known, dst)
        return "overwrite", None
    if key in known:
        return "add", None
    mask = _mask(known, dst)
    _add(known, dst)
    if mask is None or not mask.any():
        if accumulate:
            session.checker.report("accumulation", _nothing(dst, call), mild=True)
            return "add", None
        return "overwrite", None
    if mask.all() or accumulate:
        return "add", None
    return "add", ~mask


def closed(psum: dict[Any, Any], dst: NkiTensor) -> None:
    """Something else than a matmul writes `dst`: what follows starts over there."""
    known = psum.get(dst._buffer.number)
    if not known:
        return
    if (dst._layout, dst.offset) in known and len(known) == 1:
        known.clear()
        return
    written = _whole(known, dst)
    _window(written, dst)[...] = False
    known.clear()
    known["map"] = written


def _add(known: dict, dst: NkiTensor) -> None:
    if "map" in known:
        _window(known["map"], dst)[...] = True
    else:
        known[dst._layout, dst.offset] = dst


def _whole(known: dict, dst: NkiTensor) -> np.ndarray:
    """A flag for each byte of the buffer, set where matmuls wrote last."""
    written = known.get("map")
    if written is None:
        buffer = dst._buffer
        written = np.zeros(buffer.size * buffer.dtype.itemsize, bool)
        for t in known.values():
            _window(written, t)[...] = True
    return written


def _mask(known: dict, dst: NkiTensor) -> np.ndarray | None:
    if not known:
        return None
    written = _whole(known, dst)
    if len(known) > 8 or "map" in known:
        known.clear()
        known["map"] = written
    return _window(written, dst).copy().reshape(dst._layout.shape[0], -1)


def _window(flags: np.ndarray, dst: NkiTensor) -> np.ndarray:
    own = dst._layout
    item = own.type.itemsize
    return np.ndarray(
        own.shape, bool, flags, dst.offset * item, tuple(s * item for s in own.strides)
    )


def _one_bank(session: Recording, dst: NkiTensor, call: str) -> None:
    machine = session.trace.machine
    own = dst._layout
    if machine.abilities.products_cross_banks or not own.row:
        return
    item = own.type.itemsize
    first = dst.offset % own.row
    last = first + sum(s * (n - 1) for s, n in zip(own.strides[1:], own.shape[1:], strict=True))
    bank = machine.psum_bank_bytes
    start = dst._buffer.placed[0].address if dst._buffer.placed else 0
    if (start + first * item) // bank != (start + last * item) // bank:
        raise TileSizeError(
            f"{call}: dst is {dst.describe()}, from byte {first * item} to {last * item}",
            rule=f"a product is written to one bank of PSUM, {bank:,} bytes a partition",
            fix="cut it so that each part lies in one bank",
        )


def _nothing(dst: NkiTensor, call: str) -> AccumulationError:
    return AccumulationError(
        f"{call}: accumulate=True on {dst.describe()}, which no matmul wrote",
        rule="a matmul adds to what another one wrote; on what memset or a copy left in PSUM that "
        "is undefined on NeuronCore-v2 and v3",
        fix="pass accumulate=False, or leave it out, for the first product",
    )
