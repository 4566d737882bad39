"""What calls change in Python while a kernel is traced.

Iterations that may see such a change are not taken for alike (see nkisim.trace.rolling).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nkisim.trace.counting import FOLLOWED, found_by
from nkisim.trace.guards import Guards

if TYPE_CHECKING:
    from types import FrameType

    from nkisim.errors import Location
    from nkisim.trace.carried import Names


class Watch:
    """Counts how often something was found changed.

    Args:
        guards: what is watched.
        may_change: whether it is worth looking.
    """

    def __init__(self, guards: Guards, may_change: bool) -> None:
        self._guards = guards
        self._may_change = may_change
        self._version = 0

    def version(self) -> int:
        """A number that is another one when what is watched is not what it was."""
        if self._may_change and not self._guards.hold():
            self._guards = self._guards.again()
            self._version += 1
        return self._version


class Watches:
    """What a kernel finds outside of itself, and what its loops find inside of it.

    Args:
        guards: of the kernel.
    """

    def __init__(self, guards: Guards) -> None:
        self._kernel = guards
        self._outside = Watch(guards, guards.may_change)
        # Of loops, by the line: what they found in an earlier execution.
        self._inside: dict[Location | int, tuple[list, Watch]] = {}

    def of_loop(
        self, line: Location | int, frame: FrameType | None, names: Names | None
    ) -> Sequence[Watch]:
        """What a loop may change by calls.

        Args:
            line: the loop.
            frame: of the function that loops; None for instances.
            names: that the body of the loop sets; None where the source is not known.
        """
        values: list[Any] = []
        if frame is not None:
            values = found_by(frame, names, self._kernel.has_helpers)
        if not values:
            return (self._outside,)
        known = self._inside.get(line)
        if known is None or len(known[0]) != len(values) or any(map(_differ, known[0], values)):
            guards = Guards(ignored=FOLLOWED)
            for value in values:
                guards.watch(value)
            may_change = self._kernel.may_change or guards.may_change
            known = self._inside[line] = values, Watch(guards, may_change)
        return self._outside, known[1]


def _differ(a: Any, b: Any) -> bool:
    return a is not b
