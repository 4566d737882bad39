"""What a kernel counts in Python: rolled traces have to know (nkisim.rolling)."""

from __future__ import annotations

import functools
from types import FrameType
from typing import NamedTuple

from nkisim.loop_index import is_ours

_SHORT = 8  # items of a list that may count something

# Numbers of the kernel's Python code, by function (calls up the stack) and name.
Numbers = dict[tuple[int, str], int | float]


def numbers(frame: FrameType | None) -> Numbers:
    """What the kernel's functions count in Python: their numbers, those in short lists, and lengths
    of lists."""
    found: Numbers = {}
    depth = 0
    while frame is not None and not is_ours(frame):
        for name, value in frame.f_locals.items():
            kind = _kind(type(value))
            if kind == "number":
                found[depth, name] = +value
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
    if issubclass(of, int | float):
        return "number"
    return "items" if issubclass(of, list | dict | set) else None


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
