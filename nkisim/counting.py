"""What a kernel counts in Python: rolled traces have to know (nkisim.rolling)."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import NamedTuple

from nkisim.errors import NotUniform
from nkisim.frames import is_ours, value_of
from nkisim.loop_index import LoopIndex

_SHORT = 8  # items of a list that may count something

# Numbers of the kernel's Python code, by function (calls up the stack) and name.
Numbers = dict[tuple[int, str], int | float]


def numbers(frame: FrameType | None, attributes: Mapping[str, ast.Attribute]) -> Numbers:
    """What the kernel's functions count in Python: their numbers, those in short lists, and lengths
    of lists.

    Args:
        frame: of the function that loops, called by others of the kernel.
        attributes: those that the loop sets, as names of its function, by their text.

    Raises:
        NotUniform: the function has an iterator, whose items are not known.
    """
    found: Numbers = {}
    for text, attribute in attributes.items():
        value = value_of(attribute, frame)
        if _kind(type(value)) == "number":
            found[0, text] = +value
    depth = 0
    while frame is not None and not is_ours(frame):
        for name, value in frame.f_locals.items():
            kind = _kind(type(value))
            if kind == "number":
                found[depth, name] = +value
            elif kind == "iterator":
                if depth == 0 and name[0] != "." and not _is_loop(value):
                    raise NotUniform(f"{name} may give other items in each iteration")
            elif kind == "items":
                found[depth, f"len({name})"] = len(value)
                if len(value) <= _SHORT and not isinstance(value, set):
                    items = value.items() if isinstance(value, dict) else enumerate(value)
                    for at, x in items:
                        if _kind(type(x)) == "number":
                            found[depth, f"{name}[{at!r}]"] = +x
        frame, depth = frame.f_back, depth + 1
    return found


@functools.lru_cache(maxsize=1024)
def _kind(of: type) -> str | None:
    """What a type's values may count with."""
    if issubclass(of, int | float | LoopIndex):
        return "number"
    if issubclass(of, Iterator):
        return "iterator"
    return "items" if issubclass(of, list | dict | set) else None


def _is_loop(iterator: Iterator) -> bool:
    """Whether it is one of the simulator's own loops, such as `nl.affine_range(8)`."""
    frame = getattr(iterator, "gi_frame", None)
    return frame is not None and is_ours(frame)


class Counts(NamedTuple):
    """What an iteration does to the numbers of the kernel's Python code.

    Attributes:
        before: at the end of the iteration that was traced before. For the first one, in front of
            the loop; None where that was not looked at.
        after: at its end.
    """

    before: Numbers | None
    after: Numbers

    def changed(self) -> set[tuple[int, str]]:
        """The numbers that are others than before."""
        before = self.before
        if before is None:
            return set()
        return {name for name, value in self.after.items() if before.get(name) != value}
