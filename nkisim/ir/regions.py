"""Run-time loops: loops whose number of iterations is known only when the kernel runs.

A run-time loop is written down once. In the list of instructions its body stands between a
`loop_begin` and a `loop_end` instruction, which share one `Region` as their attribute "region".
Regions nest; they do not overlap, and each one belongs to one instance.

Values that the loop needs at run time are operands of these two instructions. A register is a view
of a one-element integer buffer, which other instructions write and read as they do any tile:

=========  =====================  ===================  ============================================
loop       `loop_begin`           `loop_end`           runs the body
=========  =====================  ===================  ============================================
counted    ins (lower, upper)     ins (index,)         with index = lower, lower + step, ..., as
           outs (index,)          outs (index,)        long as that is less than upper (greater,
                                                       for a negative step)
while      ins (condition,)       ins (condition,)     while condition is not zero
           outs ()                outs ()
=========  =====================  ===================  ============================================

`lower` and `upper` are integers or registers, and are read once, before the first iteration.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nkisim.ir.instruction import Instruction

BEGIN, END = "loop_begin", "loop_end"


@dataclass(frozen=True)
class Region:
    """The settings of a run-time loop, which are not operands.

    Attributes:
        number: position of the loop's execution in `Trace.loops`.
        step: what a counted loop adds to its index after each iteration, not zero; None for a
            `while` loop.
        expected: iterations that the cost model assumes where the operands do not tell; times that
            rest on it say so.
    """

    number: int
    step: int | None = 1
    expected: int = 1


def ends(instructions: Iterable[Instruction]) -> dict[int, int]:
    """Position of each `loop_begin` -> position of its `loop_end`.

    Raises:
        ValueError: a region is not closed, or closed before one inside of it.
    """
    found: dict[int, int] = {}
    opened: list[tuple[int, Region]] = []
    for at, instr in enumerate(instructions):
        if instr.opcode == BEGIN:
            opened.append((at, instr.settings.region))
        elif instr.opcode == END:
            begin, region = opened.pop() if opened else (-1, None)
            if region != instr.settings.region:
                raise ValueError(f"the loop_end at position {at} closes {region}, not its own loop")
            found[begin] = at
    if opened:
        raise ValueError(f"the loop_begin at position {opened[-1][0]} has no loop_end")
    return found
