"""Numbers that a loop counts in Python: to the compiler each iteration begins with the same ones.

It traces the body of an `nl.affine_range` or `nl.sequential_range` loop once. Here the body runs
for each iteration, so what the iteration before has counted is taken back in front of the next one.
An address that a kernel counts up to place its tiles is that of the first iteration then, as it
means to be; a row that it counts up is, too, which it hardly means, and is reported.
"""

from __future__ import annotations

from types import FrameType

import numpy as np

from nkisim.carried import names_set, used_besides_placing
from nkisim.errors import CounterError
from nkisim.frames import set_local
from nkisim.loop_index import LoopIndex
from nkisim.loops import Loop

_NUMBERS = (int, float, np.number, LoopIndex)


class Counters:
    """The numbers that a function has in front of a loop, of which an iteration may read what the
    one before has left.

    Args:
        frame: of the function that loops.
        loop: one that the compiler does not unroll.
    """

    def __init__(self, frame: FrameType, loop: Loop) -> None:
        self._frame = frame
        self._loop = loop
        self._at = frame.f_code, frame.f_lineno
        names = names_set(*self._at)
        handed_on = names.handed_on if names is not None else ()
        values = frame.f_locals if handed_on else {}
        self._before = {
            name: values[name] for name in handed_on if isinstance(values.get(name), _NUMBERS)
        }

    def take_back(self) -> CounterError | None:
        """Set the numbers to what they were in front of the loop.

        Returns:
            An error if one of them was another, and the kernel does more with it than to place
            tiles.
        """
        if not self._before:
            return None
        values = self._frame.f_locals
        counted = {
            name: values[name]
            for name, before in self._before.items()
            if isinstance(values.get(name), _NUMBERS) and +values[name] != +before
        }
        for name in counted:
            set_local(self._frame, name, self._before[name])
        used = [name for name in counted if name in used_besides_placing(*self._at)]
        if not used:
            return None
        name, kind = used[0], self._loop.kind
        before, after = [
            +x if isinstance(x, LoopIndex) else x for x in (self._before[name], counted[name])
        ]
        return CounterError(
            f"{name} is {before} in front of an nl.{kind} loop, and an iteration makes it "
            f"{after}: the next one does not see that",
            rule=f"the compiler traces the body of nl.{kind} once, for all iterations, "
            "with the numbers that Python has in front of the loop",
            fix=f"compute {name} from the loop index, or loop over nl.static_range, "
            "which is unrolled",
            location=self._loop.location,
        )
