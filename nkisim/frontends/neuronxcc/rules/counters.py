"""What a loop counts in Python: to the compiler each iteration begins with the same numbers.

It traces the body of an `nl.affine_range` or `nl.sequential_range` loop once. Here the body runs
for each iteration, so what the iteration before has counted is taken back in front of the next one.
An address that a kernel counts up to place its tiles is that of the first iteration then, as it
means to be; a row that it counts up is, too, which it hardly means, and is reported.
"""

from __future__ import annotations

from types import FrameType, NoneType
from typing import Any

import numpy as np

from nkisim.errors import CounterError
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.ir.loops import Loop
from nkisim.trace.carried import counted, used_besides_placing
from nkisim.trace.frames import set_local
from nkisim.trace.loop_index import LoopIndex

_NUMBERS = (int, float, np.number, LoopIndex)
_KNOWN = (*_NUMBERS, Mask)  # while tracing, which tiles are not


class Counters:
    """What a function has in front of a loop, of which iterations read what others have left.

    Numbers and masks are meant, which are known while tracing; also None, in place of a mask.

    Args:
        frame: of the function that loops.
        loop: one that the compiler does not unroll.
    """

    def __init__(self, frame: FrameType, loop: Loop) -> None:
        self._frame = frame
        self._loop = loop
        self._at = frame.f_code, frame.f_lineno
        names = counted(*self._at)
        values = {} if names == () else frame.f_locals
        # Where the source is not known, those that are set anew are among them, which is no harm.
        self._before = {
            name: values[name]
            for name in (values if names is None else names)
            if name in values and isinstance(values[name], (*_KNOWN, NoneType))
        }

    def take_back(self) -> CounterError | None:
        """Set all to what it was in front of the loop.

        Returns:
            An error if one is a number, and the kernel does more with it than to place tiles.
        """
        if not self._before:
            return None
        values = self._frame.f_locals
        changed = {
            name: values[name]
            for name, before in self._before.items()
            if isinstance(values.get(name), _KNOWN) and _differ(before, values[name])
        }
        for name in changed:
            set_local(self._frame, name, self._before[name])
        used = [
            name
            for name in changed
            if isinstance(self._before[name], _NUMBERS) and name in used_besides_placing(*self._at)
        ]
        if not used:
            return None
        name, kind = used[0], self._loop.kind
        before, after = [
            +x if isinstance(x, LoopIndex) else x for x in (self._before[name], changed[name])
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


def _differ(before: Any, after: Any) -> bool:
    if isinstance(before, _NUMBERS) and isinstance(after, _NUMBERS):
        return bool(+before != +after)
    return before is not after
