"""What loops do with tensors that their iterations share.

Of iterations that are copies of one that was traced (see nkisim.rolling), and that use a tensor as
it does, one step further on each time, the last one tells with it what all of them do.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nkisim.instruction import Instruction
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.trace import Trace

Path = tuple[tuple[int, int], ...]

# An instruction, the part of the tensor that it uses, and whether it writes it.
Use = tuple[Instruction, Tensor, bool]


@dataclass(slots=True)
class Uses:
    """The uses of a tensor in some loops.

    Attributes:
        uses: in program order.
        left_out: whether there are more, of iterations between others that are here.
        slopes: for the loops of which some may be left out, how far on each axis of the tensor all
            that these use of it moves, from one loop index to the next.
    """

    uses: list[Use] = field(default_factory=list)
    left_out: bool = False
    slopes: dict[int, tuple[int, ...]] = field(default_factory=dict)


def shared_tensors(trace: Trace, loops: Set[int]) -> dict[int, set[int]]:
    """The tensors that are written in one of some loops outside of which they were made, by number.

    Of the loops around such a write, the outermost one in which the tensor does not get made anew
    tells uses apart: those in different ones are never in different iterations of one loop.

    Returns:
        For each tensor, these outermost loops.
    """
    found: dict[int, set[int]] = {}
    copies, echoes = trace.copies, trace.echoes
    local: set[int] = set()  # instructions that write what their iteration has made; so do copies
    for instr in trace.instructions:
        if instr.origin is not None:
            if id(instr.origin) in local:
                continue
        elif all([len(t.buffer.loops) == len(instr.loops) for t in instr.outs]):
            local.add(id(instr))
            continue
        for t in instr.outs:
            buffer = t.buffer
            number = buffer.number
            if number >= copies or number in echoes:
                continue
            inner = instr.loops[len(buffer.loops) :]
            if inner and any([n in loops for n, _ in inner]):
                found.setdefault(number, set()).add(inner[0][0])
    for number in trace.hidden:
        found.pop(number, None)
    return found


def uses_of(
    trace: Trace, tensors: Mapping[int, set[int]], all_of_them: bool = False
) -> dict[int, Uses]:
    """The uses of tensors, given with the outermost loops to look at.

    Args:
        trace: the trace.
        tensors: as `shared_tensors` gives them.
        all_of_them: whether none is to be left out.
    """
    found = {number: Uses() for number in tensors}
    if not found:
        return found
    if not all_of_them:
        for loop, copied in trace.copied.items():
            for number in copied.slopes.keys() & found.keys():
                found[number].slopes[loop] = copied.slopes[number]
    known: dict[int, list[_Copied]] = {}  # by identity of the loops
    for instr in trace.instructions:
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                buffer = t.buffer
                number, depth, loops = buffer.number, len(buffer.loops), instr.loops
                if (
                    number not in tensors
                    or depth >= len(loops)
                    or loops[depth][0] not in tensors[number]
                    or t.dtype.itemsize != buffer.dtype.itemsize
                    or "walked" in instr.attrs  # data decides which elements it touches
                ):
                    continue
                if not all_of_them:
                    copies = known.get(id(loops))
                    if copies is None:
                        copies = known[id(loops)] = _copies(trace, loops)
                    if copies and _is_between(number, copies):
                        found[number].left_out = True
                        continue
                found[number].uses.append((instr, t, writes))
    return found


# Of an iteration that is a copy: what moves alike in it, and whether it is the last one.
_Copied = tuple[dict[int, tuple[int, ...]], bool]


def _copies(trace: Trace, loops: Path) -> list[_Copied]:
    """The iterations that are copies, of those that something is in, outermost first."""
    return [
        (copied.slopes, index in copied.last)
        for n, index in loops
        if (copied := trace.copied.get(n)) is not None and index in copied.indices
    ]


def _is_between(number: int, copies: list[_Copied]) -> bool:
    """Whether other iterations tell what one does with a tensor."""
    for slopes, last in copies:
        if number not in slopes:
            return False
        if not last:
            return True
    return False
