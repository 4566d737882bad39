"""What loops do with tensors that their iterations share.

Of iterations that are copies of one that was traced (see nkisim.rolling), and that use a tensor as
it does, one step further on each time, the last one tells with it what all of them do.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nkisim.instruction import Instruction
from nkisim.loops import Copied
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
    copied = {} if all_of_them else _copied(trace, found)
    known: dict[int, Set[int]] = {}  # by identity of the loops, tensors to leave out there
    for instr in trace.instructions:
        loops = instr.loops
        between = known.get(id(loops))
        if between is None:
            between = known[id(loops)] = _between(loops, copied)
        if len(between) == len(found):
            continue
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                buffer = t.buffer
                outermost = tensors.get(buffer.number)
                if outermost is None or buffer.number in between:
                    continue
                depth = len(buffer.loops)
                if (
                    depth < len(loops)
                    and loops[depth][0] in outermost
                    and t.dtype.itemsize == buffer.dtype.itemsize
                    and "walked" not in instr.attrs  # else data decides which elements it touches
                ):
                    found[buffer.number].uses.append((instr, t, writes))
    return found


def _copied(trace: Trace, found: Mapping[int, Uses]) -> dict[int, Copied]:
    """The copied iterations of loops of which some need not be looked at, with the tensors of which
    that holds: noted with these."""
    copied: dict[int, Copied] = {}
    for loop, (indices, last, slopes) in trace.copied.items():
        numbers = slopes.keys() & found.keys()
        copied[loop] = Copied(indices, last, dict.fromkeys(numbers, ()))
        for number in numbers:
            found[number].slopes[loop] = slopes[number]
            found[number].left_out |= len(last) < len(indices)
    return copied


def _between(loops: Path, copied: Mapping[int, Copied]) -> Set[int]:
    """The tensors of which iterations before and behind these tell what they do."""
    alike: Set[int] | None = None  # in the copies around
    for n, index in loops:
        if n in copied and index in copied[n].indices:
            here = copied[n].slopes.keys()
            alike = here if alike is None else alike & here
            if index not in copied[n].last:
                return alike
    return frozenset()
