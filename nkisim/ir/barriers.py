"""Instances that wait for each other.

Instances are traced one after the other. Where they exchange data they have to meet: what each
does before a barrier runs before what any does behind it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from nkisim.errors import ParameterError
from nkisim.ir.instruction import Instruction

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def meet_at_barriers(trace: Trace) -> None:
    """Reorder the instructions of a trace: all instances up to their first barrier, then all of
    them up to their second, and so on. Each instance keeps its own order.

    Raises:
        ParameterError: instances have different numbers of barriers, and would wait for ever.
    """
    if not any(i.opcode == "barrier" for i in trace.instructions):
        return
    passed = [0] * trace.grid.size
    sections: dict[int, list[Instruction]] = defaultdict(list)
    last: Instruction | None = None
    for instr in trace.instructions:
        sections[passed[instr.program]].append(instr)
        if instr.opcode == "barrier":
            passed[instr.program] += 1
            last = instr
    if len(set(passed)) > 1:
        few, many = passed.index(min(passed)), passed.index(max(passed))
        raise ParameterError(
            f"instance {trace.grid.coordinates(many)} calls nl.all_reduce {passed[many]} times, "
            f"instance {trace.grid.coordinates(few)} {passed[few]} times",
            rule="every instance takes part in every nl.all_reduce: the others wait for it",
            fix="call it outside of conditions on nl.program_id, with mask= if need be",
            location=None if last is None else last.location,
        )
    trace.instructions = [i for number in sorted(sections) for i in sections[number]]
