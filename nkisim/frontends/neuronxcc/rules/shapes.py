"""A tile that a loop makes has one shape: the compiler traces the body of the loop once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nkisim.errors import Location, ShapeError
from nkisim.ir.loops import Loop
from nkisim.ir.memory import Buffer

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


class Shapes:
    """The shapes of the tiles that loops make, by their declarations
    (nkisim.ir.loops.Declarations).

    What a function makes that a loop of another one calls is left out: it may be called in several
    places.
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._first: dict[tuple, Buffer] = {}
        self._reported: set[Location | None] = set()  # loops: mostly one thing is wrong in each

    def compare(self, declaration: tuple, buffer: Buffer) -> ShapeError | None:
        """An error if the tile has another shape than in an earlier iteration."""
        first = self._first.setdefault(declaration, buffer)
        if first.shape == buffer.shape or not self._in_one_function(buffer):
            return None
        loop, iteration, before = self._apart(buffer, first)
        if loop.location in self._reported:
            return None
        self._reported.add(loop.location)
        kind = loop.kind
        return ShapeError(
            f"a tile of shape {list(buffer.shape)}, made in iteration {iteration} of an nl.{kind} "
            f"loop, has shape {list(first.shape)} in iteration {before}",
            rule=f"the compiler traces the body of nl.{kind} once, for all iterations: a tile has "
            "one shape in all of them",
            fix="make a whole tile each time and mask what is outside (mask=), or loop over "
            "nl.static_range, which is unrolled",
        )

    def _in_one_function(self, b: Buffer) -> bool:
        """Whether the loops around are of the function that makes the tile."""
        lines = [b.location, *(self._trace.loops[number].location for number, _ in b.loops)]
        return None not in lines and len({(at.filename, at.function) for at in lines}) == 1

    def _apart(self, b: Buffer, first: Buffer) -> tuple[Loop, int, int]:
        """The outermost loop that two tiles are in different iterations of, and which these are."""
        return next(
            (self._trace.loops[number], iteration, before)
            for (number, iteration), (_, before) in zip(b.loops, first.loops, strict=True)
            if iteration != before
        )
