"""The decisions of a dialect of NKI on which modules below the front ends depend."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from nkisim.ir.access import AccessPattern
from nkisim.ir.loops import Loop
from nkisim.ir.memory import Buffer
from nkisim.ir.restriction import Restriction

if TYPE_CHECKING:
    from nkisim.errors import KernelError
    from nkisim.ir.instruction import Instruction


class LoopWatch(Protocol):
    """Follows what Python does across the iterations of a loop."""

    def take_back(self) -> KernelError | None:
        """To be called before each iteration but the first one; an error to report, if any."""


class Declared(Protocol):
    """Follows the tiles that loops make."""

    def compare(self, declaration: tuple, buffer: Buffer) -> KernelError | None:
        """An error if a declaration gives another tile than in an earlier iteration."""


@dataclass(frozen=True)
class Words:
    """Words of a dialect in messages that both share. The defaults are those of one without masks.

    Attributes:
        within: where coordinates have to lie in their tensor, after the range.
        edge: how to stay below `{size}` on an axis.
        tail: how to read the last elements of an axis, too.
        everywhere: what to look at when parts of an output stay unwritten.
        written_only: how to read only what was written.
        of_each: how a matmul reads only what was written of its operands.
        to_sbuf: how a tile gets into SBUF.
        by_dma: how data gets from HBM and back.
        between: what makes instances wait for each other's use of HBM.
    """

    within: str = ""
    edge: str = "shorten the last tile, e.g. n = min(128, {size} - start), or loop over fewer tiles"
    tail: str = (
        "loop (n + size - 1) // size times, the last time over what is left, min(size, n - start); "
        "look at the launch grid, too; or pass the part that is meant"
    )
    everywhere: str = "check the launch grid and the slices that are written"
    written_only: str = "slice what was written"
    of_each: str = "slice what was written of each operand"
    to_sbuf: str = "copy the tile into SBUF first, with nisa.tensor_copy"
    by_dma: str = "move the data with nisa.dma_copy: into SBUF before computing, and back"
    between: str = ""


@dataclass(frozen=True)
class Rules:
    """The rules of a dialect. Those left at their defaults do not exist in it. A trace, in their
    arguments, is a nkisim.ir.trace.Trace.

    Attributes:
        dialect: the module that kernels import.
        tensor: makes what a kernel gets for a buffer: an access pattern, or a subclass.
        parallel: kinds of loops whose iterations do not depend on each other.
        restriction: `f(mask, shape)`, what is left of an iteration domain by what the kernel gave
            as its mask.
        checks: by the name of the check, `f(instruction, tiles, trace)`: an error in one
            instruction, or None.
        checks_at_end: by the name of the check, `f(trace)`: the errors in a whole trace, each with
            whether nothing but the order of iterations makes it right.
        one_bank: whether a tile in PSUM fits a bank, by AWS's pages; a larger one is taken, with a
            warning, where the machine's abilities say so.
        places_all: whether a kernel that places tiles places all of them: the compiler refuses
            others, and instructions that need a tile of its own.
        alike_is_harmless: whether instances that all do the same may read what others write: it is
            what they wrote themselves.
        results_decide: whether several instances may write an element if all write the same, and
            one may read what another one writes if results do not depend on which comes first.
        destinations: whether an instruction on chip writes where the kernel says, and not to a
            result that is assigned.
        declared: `f(trace)` for `Declared`.
        watch_loop: `f(frame, loop)` for `LoopWatch`; the frame is that of the function that loops.
        explain: `f(error)`, what to say of an attribute that does not exist, or of a call that does
            not fit its function; None for nothing.
        words: what messages say of its ways.
    """

    dialect: str = ""
    tensor: Callable[[Buffer], AccessPattern] = AccessPattern
    parallel: frozenset[str] = frozenset()
    restriction: Callable[[Any, tuple[int, ...]], Restriction] | None = None
    checks: Mapping[str, Callable[[Instruction, tuple, Any], KernelError | None]] = field(
        default_factory=dict
    )
    checks_at_end: Mapping[str, Callable[[Any], Iterator[tuple[KernelError, bool]]]] = field(
        default_factory=dict
    )
    one_bank: bool = False
    places_all: bool = False
    alike_is_harmless: bool = False
    results_decide: bool = False
    destinations: bool = False
    declared: Callable[[Any], Declared] | None = None
    watch_loop: Callable[[FrameType, Loop], LoopWatch] | None = None
    explain: Callable[[Exception], KernelError | None] | None = None
    words: Words = field(default_factory=Words)
