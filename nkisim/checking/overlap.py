"""Instructions that write into data that they read, elsewhere than they read it."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from nkisim.errors import PlacementError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.ir.views import overlap

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def check_overlaps(trace: Trace) -> Iterator[PlacementError]:
    """Each instruction whose result depends on whether it reads an element before or after it
    writes there. `tile[a] = f(tile[b])` assigns a result, which has been made by then."""
    for instr in trace.instructions:
        if instr.spec.on_chip and not trace.rules.destinations:
            continue
        for t in instr.tiles_in:
            for out in instr.outs:
                if t.buffer is out.buffer and _in_doubt(instr, out, t):
                    yield _error(instr, out, t)


def _in_doubt(instr: Instruction, out: AccessPattern, data: AccessPattern) -> bool:
    if out.same_elements(data):  # in place, element by element
        return False
    if not instr.spec.elementwise and out.shape[0] == data.shape[0] and prod(out.shape[1:]) == 1:
        return False  # one number of a partition, which comes of all of them
    return overlap(out, data)


def _error(instr: Instruction, out: AccessPattern, data: AccessPattern) -> PlacementError:
    return PlacementError(
        f"{instr.label} writes {out.describe()}, of which it reads elements for other results",
        rule="an instruction may write over what it reads element by element, or its reduction; "
        "in which order it reads and writes otherwise, AWS's documentation does not say. The "
        "simulator reads all elements first; a device may not do so",
        fix="write into another tile, and copy from there",
        location=instr.location,
    )
