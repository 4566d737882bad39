"""Parts of an input that a kernel never reads: often a tail that a division of its size dropped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.access import AccessPattern
from nkisim.ir.boxes import covered
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Role
from nkisim.ir.restriction import bounding_box
from nkisim.ir.views import view_of

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

_MOST = 1 << 24  # elements that are looked at one by one

_Read = tuple[Instruction, AccessPattern]


def check_inputs(trace: Trace) -> Iterator[ParameterError]:
    """Each argument that is read in part. One of which nothing is read may be there for its shape,
    and one that is written too is an output."""
    reads: dict[int, list[_Read]] = {}
    for instr in trace.instructions:
        if instr.spec.on_chip:
            continue
        for t in instr.tiles_in:
            if t.buffer.role is Role.ARGUMENT and t.form.size:
                reads.setdefault(t.buffer.number, []).append((instr, t))
    for number, of in reads.items():
        if number in trace.written_arguments:
            continue
        error = _unread(of, trace.rules.words.tail)
        if error is not None:
            yield error


def _unread(reads: list[_Read], tail: str) -> ParameterError | None:
    """The error for an argument that is not read whole, given all reads of it; None when it is, or
    when that is hard to tell. `tail` is the fix that reads all of an axis."""
    instr, first = reads[-1]
    buffer = first.buffer
    plain = all([i.where_of(t) is None and t.dtype is buffer.dtype for i, t in reads])
    if plain and covered(buffer.shape, {(t.form, t.offsets) for _, t in reads}):
        return None
    if buffer.size > _MOST or any([t.itemsize != buffer.dtype.itemsize for _, t in reads]):
        return None
    unread = np.ones(buffer.size, bool)
    for i, t in reads:
        where = i.where_of(t)
        np.copyto(view_of(unread, t), False, where=True if where is None else where)
    count = int(unread.sum())
    if not count:
        return None
    box, _ = bounding_box(unread.reshape(buffer.shape))
    part = ", ".join([f"{low}:{high}" for low, high in box])
    return ParameterError(
        f"{count:,} of {buffer.size:,} elements of the input {AccessPattern(buffer).describe()} "
        f"are never read, in [{part}]",
        rule="what a kernel does not read cannot be in its result; n // size tiles leave out the "
        "last elements of an n that size does not divide",
        fix=tail,
        location=instr.location,
    )
