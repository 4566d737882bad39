"""Run-time loops as the model takes them: their bodies one after the other, so many times.

How often a loop runs is known where its bounds are numbers; elsewhere the region says what to
expect. Each iteration has the instructions that read and advance the loop's registers.
"""

from __future__ import annotations

from collections.abc import Sequence

from nkisim.ir.instruction import Instruction
from nkisim.ir.limits import exceeded, limit
from nkisim.ir.regions import ends

ASSUMED = "iterations of a run-time loop assumed"  # a choice, and how many


def unrolled(instructions: Sequence[Instruction]) -> tuple[Sequence[Instruction], int]:
    """The instructions with the bodies of run-time loops as often as they are taken to run.

    Args:
        instructions: of one core, in program order.

    Returns:
        The instructions; and how many iterations rest on what is expected, not on numbers.
    """
    closing = ends(instructions)
    if not closing:
        return instructions, 0
    out: list[Instruction] = []
    assumed = _unroll(instructions, 0, len(instructions), closing, out)
    return out, assumed


def _unroll(
    instructions: Sequence[Instruction],
    at: int,
    end: int,
    closing: dict[int, int],
    out: list[Instruction],
) -> int:
    """Add what stands from one position to another. Returns iterations that are assumed."""
    assumed = 0
    while at < end:
        out.append(instructions[at])
        if at in closing:
            times, is_known = _times(instructions[at])
            last = closing[at]
            if len(out) + times * (last - at) > limit("instructions"):
                raise exceeded(
                    "instructions",
                    f"a run-time loop of {times:,} iterations takes the kernel to "
                    f"{len(out) + times * (last - at):,} instructions",
                    rule=f"at most {limit('instructions'):,} are modelled",
                    location=instructions[at].location,
                )
            for _ in range(times):
                inner = _unroll(instructions, at + 1, last, closing, out)
                out.append(instructions[last])
                assumed += inner + (not is_known)
            at = last
        at += 1
    return assumed


def _times(begin: Instruction) -> tuple[int, bool]:
    """The trip count of a loop, and whether its bounds determine it."""
    region = begin.settings.region
    if region.step is not None and all(isinstance(x, int) for x in begin.ins):
        return len(range(*begin.ins, region.step)), True
    return region.expected, False
