"""The loops of a kernel: their executions, and names for what is declared in them."""

from __future__ import annotations

from typing import NamedTuple

from nkisim.errors import Location

# The loop iterations that something is in, outermost first: (loop, iteration, from 0 on).
Path = tuple[tuple[int, int], ...]


class Loop(NamedTuple):
    """One execution of a loop: which iterator it uses, and its kernel line."""

    kind: str
    location: Location | None

    @property
    def is_unrolled(self) -> bool:
        """Whether the compiler unrolls it: its iterations may differ, and it opens no scope."""
        return self.kind == "static_range"


class Declarations:
    """Names for what a kernel declares that are the same in each iteration of a loop.

    Here loops come out unrolled; the compiler traces their bodies once. A kernel that computes
    an address anew in each iteration (`address += size`) therefore means the first one. The same
    declaration is at the same kernel line, and as many of its line precede it in the iteration.
    static_range unrolls for the compiler too: its iterations differ.

    Args:
        around: the name of the loop that these are in the body of.
        repeat: whether there are several of a name: whether that loop, or one around it, is not
            unrolled.

    Attributes:
        repeat: the same.
    """

    __slots__ = ("_around", "_path", "_seen", "repeat")

    def __init__(self, around: tuple = (), repeat: bool = False) -> None:
        self._around = self._path = around
        self.repeat = repeat
        self._seen: dict[Location | None, int] = {}

    def name(self, location: Location | None) -> tuple:
        """The name of the next declaration at a kernel line."""
        before = self._seen.get(location, 0)
        self._seen[location] = before + 1
        return (*self._path, location, before)

    def body(self, location: Location | None, is_unrolled: bool) -> Declarations:
        """The declarations in the body of a loop at a kernel line."""
        return Declarations(self.name(location), self.repeat or not is_unrolled)

    def begin(self, unrolled: int | None) -> None:
        """The next iteration of this body begins; `unrolled` tells iterations apart that differ."""
        self._path = (*self._around, unrolled)
        if self._seen:
            self._seen = {}
