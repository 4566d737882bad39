"""Accumulation of matmuls in PSUM: the elements that one overwrites, and those that it adds to.

With accumulate=None the first matmul that writes an element overwrites it, and later ones add, by
element. The trace knows all writes, so each matmul is settled when it is written down: it
overwrites, it adds, or (where windows overlap) it does one on some elements and the other on the
rest. A write of another instruction starts over.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from nkisim.checking import Checker
from nkisim.checking.written import WrittenElements
from nkisim.errors import AccumulationError, TileSizeError
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.memory import Space
from nkisim.ir.trace import Trace


class Recording(Protocol):
    """The part of a Session that accumulation groups need.

    Attributes:
        psum: the elements that matmuls wrote last.
        checker: reports what is refused.
        trace: what is recorded, for its NeuronCore generation.
    """

    psum: WrittenElements
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
    if dst._layout.space is not Space.PSUM:
        return "overwrite", None  # which is refused
    _one_bank(session, dst, call)
    written, buffer = session.psum, dst._buffer
    if buffer.number in written.whole:  # mostly: sums take several matmuls
        return "overwrite" if accumulate is False else "add", None
    pattern = dst.as_is()
    before = accumulate is not False and (written.knows(pattern) or written.part(pattern))
    before = np.array(before)  # a copy
    if pattern.covers_buffer:
        written.add_all(buffer)
    else:
        written.note(pattern)
    if accumulate is False:
        return "overwrite", None
    if not before.any():
        if accumulate:
            session.checker.report("accumulation", _nothing(dst, call), mild=True)
            return "add", None
        return "overwrite", None
    if before.all() or accumulate:
        return "add", None
    return "add", ~before.reshape(dst.shape[0], -1)


def closed(psum: WrittenElements, dst: NkiTensor) -> None:
    """Something else than a matmul writes `dst`: what follows starts over there."""
    if psum.touched(dst._buffer):
        pattern = dst.as_is()
        if pattern.covers_buffer:
            psum.forget(dst._buffer)
        else:
            psum.add(pattern, False)


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
            fix="divide it so that each part lies in one bank",
        )


def _nothing(dst: NkiTensor, call: str) -> AccumulationError:
    return AccumulationError(
        f"{call}: accumulate=True on {dst.describe()}, which no matmul wrote",
        rule="a matmul adds to what another one wrote; on what memset or a copy left in PSUM that "
        "is undefined on NeuronCore-v2 and v3",
        fix="pass accumulate=False, or leave it out, for the first product",
    )
