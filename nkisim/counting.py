"""What a kernel counts in Python: rolled traces have to know (nkisim.rolling)."""

from __future__ import annotations

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
            if isinstance(value, (int, float)):  # a union takes twice the time
                found[depth, name] = +value
            elif isinstance(value, (list, dict, set)):
                found[depth, f"len({name})"] = len(value)
                if len(value) <= _SHORT and not isinstance(value, set):
                    items = value.items() if isinstance(value, dict) else enumerate(value)
                    for at, x in items:
                        if isinstance(x, (int, float)):
                            found[depth, f"{name}[{at!r}]"] = +x
        frame, depth = frame.f_back, depth + 1
    return found


class Counts(NamedTuple):
    """What an iteration does to the numbers of the kernel's Python code.

    Attributes:
        before: at the end of the iteration that was traced before; None for the first one.
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
