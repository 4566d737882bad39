"""What loops do with tensors that their iterations share.

Of iterations that are copies of one that was traced (see nkisim.trace.rolling), and that use a
tensor as it does, one step further on each time, the last one tells with it what all of them do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Instruction
from nkisim.ir.loops import Path

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

# An instruction, the part of the tensor that it uses, and whether it writes it.
Use = tuple[Instruction, Tensor, bool]

# An instruction that tells what those left out do, and the tensors of which it does; None for all.
_Telling = tuple[Instruction, Set[int] | None]

_NOTHING: Set[int] = frozenset()


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


class LoopUses:
    """The uses of tensors in some loops of a trace, which share them.

    Args:
        trace: the trace.
        loops: numbers of the loops.

    Attributes:
        shared: the tensors that are written in one of the loops outside of which they were made, by
            number. Of the loops around such writes, the outermost ones in which the tensor does not
            get made anew: uses in different ones are never in different iterations of one loop.
    """

    def __init__(self, trace: Trace, loops: Set[int]) -> None:
        self.trace = trace
        self._telling: list[_Telling] = []
        self.shared = self._shared(loops)

    def _place(self, loops: Path) -> tuple[bool, Set[int] | None]:
        """Where an instruction is, given the loops around it: whether one of the iterations is a
        copy; and, if others before and behind it tell what it does, the tensors of which they do
        not. Else None."""
        copied, is_copy, mixed = self.trace.copied, False, _NOTHING
        for n, index in loops:
            here = copied.get(n)
            if here is not None and index in here.indices:
                is_copy = True
                if here.mixed:
                    mixed = mixed | here.mixed
                if index not in here.last:
                    return True, mixed
        return is_copy, None

    def _shared(self, wanted: Set[int]) -> dict[int, set[int]]:
        trace, telling = self.trace, self._telling
        found: dict[int, set[int]] = {}
        copies, echoes = trace.copies, trace.echoes
        local: set[int] = set()  # instructions that write what their iteration has made
        places: dict[int, tuple[bool, Set[int] | None]] = {}  # by identity of the loops
        for instr in trace.instructions:
            loops = instr.loops
            place = places.get(id(loops))
            if place is None:
                place = places[id(loops)] = self._place(loops)
            is_copy, mixed = place
            if mixed or mixed is None:
                telling.append((instr, mixed))
            if is_copy:  # the loops are those of the iteration that it is a copy of
                continue
            if instr.origin is not None:
                if id(instr.origin) in local:
                    continue
            elif all([len(t.buffer.loops) == len(loops) for t in instr.outs]):
                local.add(id(instr))
                continue
            for t in instr.outs:
                buffer = t.buffer
                number = buffer.number
                if number >= copies or number in echoes:
                    continue
                inner = loops[len(buffer.loops) :]
                if inner and any([n in wanted for n, _ in inner]):
                    found.setdefault(number, set()).add(inner[0][0])
        for number in trace.hidden:
            found.pop(number, None)
        return found

    def telling(self) -> dict[int, Uses]:
        """The uses of the shared tensors in the iterations that tell what all of them do."""
        found = _uses(self._telling, self.shared)
        for loop, copied in self.trace.copied.items():
            for number in copied.slopes.keys() & found.keys():
                found[number].slopes[loop] = copied.slopes[number]
                found[number].left_out |= len(copied.last) < len(copied.indices)
        return found

    def whole(self, numbers: Collection[int]) -> dict[int, Uses]:
        """All uses of some of the tensors."""
        if not numbers:
            return {}
        everything = ((instr, None) for instr in self.trace.instructions)
        return _uses(everything, {number: self.shared[number] for number in numbers})


def _uses(instructions: Iterable[_Telling], tensors: dict[int, set[int]]) -> dict[int, Uses]:
    """The uses of tensors, given with the outermost loops to look at."""
    found = {number: Uses() for number in tensors}
    for instr, only in instructions:
        loops = instr.loops
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                buffer = t.buffer
                outermost = tensors.get(buffer.number)
                if outermost is None or (only is not None and buffer.number not in only):
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
