"""A tile that a loop makes has one shape: the compiler traces the body of the loop once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from nkisim.errors import Location, ShapeError
from nkisim.loops import Loop, Path
from nkisim.memory import Buffer, Role

if TYPE_CHECKING:
    from nkisim.trace import Trace


def check_shapes(trace: Trace) -> Iterator[ShapeError]:
    """Tiles that a kernel line makes in iterations of a loop that is not unrolled.

    What a function makes that the loop calls is left out: it may be called in several places.
    """
    bodies = _Bodies(trace)
    first: dict[tuple, Buffer] = {}  # by the declaration, as the compiler sees it
    reported: set[Location] = set()  # loops: what is wrong is mostly the same of all tiles
    for b in trace.buffers[: trace.copies]:
        if not b.loops or b.role is not Role.LOCAL or not b.space.on_chip:
            continue
        name = bodies.name(b)
        if name is None:
            continue
        other = first.setdefault(name, b)
        if other.shape != b.shape:
            loop, *iterations = _apart(b, other, trace)
            if loop.location not in reported:
                reported.add(loop.location)
                yield _error(b, other, loop, *iterations)


class _Bodies:
    """Names for what the bodies of loops declare: the same in all of their iterations.

    A declaration goes by its line, and by how many of its line precede it in the iteration; so do
    loops in loops. Iterations of unrolled loops are told apart.
    """

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._names: dict[tuple, tuple | None] = {}
        self._executions: dict[int, int] = {}  # of a loop, by number: how many precede it
        self._counts: dict[tuple, int] = defaultdict(int)

    def name(self, b: Buffer) -> tuple | None:
        """That of what made a buffer; None if no loop around it is traced once, or one of them is
        in another function."""
        function = _function(b.location)
        where = b.loops, function
        if where in self._names:
            body = self._names[where]
        else:
            body = self._names[where] = self._body(b.loops, function)
        if body is None:
            return None
        at = b.loops, b.location
        self._counts[at] += 1
        return body, b.location, self._counts[at]

    def _body(self, path: Path, function: tuple[str, str] | None) -> tuple | None:
        name: list[tuple] = []
        once = False
        for depth, (number, iteration) in enumerate(path):
            loop = self.trace.loops[number]
            if function is None or _function(loop.location) != function:
                return None
            if not once:
                name.append((number, iteration if loop.is_unrolled else None))
                once = not loop.is_unrolled
                continue
            before = self._executions.get(number)
            if before is None:
                around = path[:depth], loop.location
                before = self._executions[number] = self._counts[around]
                self._counts[around] += 1
            name.append((loop.location, before, iteration if loop.is_unrolled else None))
        return tuple(name) if once else None


def _function(line: Location | None) -> tuple[str, str] | None:
    return None if line is None else (line.filename, line.function)


def _apart(b: Buffer, other: Buffer, trace: Trace) -> tuple[Loop, int, int]:
    """The outermost loop that two tiles are in different iterations of, and which these are."""
    return next(
        (trace.loops[mine[0]], mine[1], theirs[1])
        for mine, theirs in zip(b.loops, other.loops, strict=True)
        if mine[1] != theirs[1] and not trace.loops[mine[0]].is_unrolled
    )


def _error(b: Buffer, other: Buffer, loop: Loop, iteration: int, before: int) -> ShapeError:
    kind = loop.kind
    return ShapeError(
        f"a tile of shape {list(b.shape)}, made in iteration {iteration} of an nl.{kind} loop, has "
        f"shape {list(other.shape)} in iteration {before}",
        rule=f"the compiler traces the body of nl.{kind} once, for all iterations: a tile has "
        "one shape in all of them",
        fix="make a whole tile each time and mask what is outside (mask=), or loop over "
        "nl.static_range, which is unrolled",
        location=b.location,
    )
