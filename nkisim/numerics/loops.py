"""Running the calls of a program: straight on, and as often as a run-time loop says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import numpy as np

from nkisim.ir.instruction import Instruction
from nkisim.ir.limits import limit, too_many_iterations

# (a function or a RuntimeLoop, the positions of its operands in the table of views)
Call = tuple["Callable | RuntimeLoop", tuple[int, ...]]

_ran = threading.local()  # `iterations` of all loops of the launch that runs in this thread


class RuntimeLoop:
    """A loop whose number of iterations is read from registers when it begins.

    Args:
        instr: its `loop_begin`.

    Attributes:
        body: the calls of one iteration.
    """

    def __init__(self, instr: Instruction) -> None:
        self.body: list[Call] = []
        self._instr = instr
        self._step: int | None = instr.settings.region.step

    def run(self, table: Sequence[np.ndarray], places: tuple[int, ...]) -> None:
        """Run all iterations.

        Args:
            table: the views that calls work on.
            places: where the operands of `loop_begin` are in it, first those that it writes.

        Raises:
            LimitError: the loops of the launch run more often than the limit says.
        """
        if self._step is None:
            condition = table[places[0]]
            while condition.any():
                self._count(1, "and its condition still holds")
                execute(self.body, table)
            return
        index, *registers = [table[p] for p in places]
        rest = iter(registers)
        lower, upper = (
            x if isinstance(x, int) else int(next(rest).item()) for x in self._instr.ins
        )
        values = range(lower, upper, self._step)
        self._count(len(values), f"from {lower:,} to {upper:,}")
        for value in values:
            index[...] = value
            execute(self.body, table)

    def _count(self, times: int, how: str) -> None:
        """Note that the body runs so many times more."""
        _ran.iterations += times
        if _ran.iterations > limit("iterations"):
            raise too_many_iterations(_ran.iterations, f"one, {how}", location=self._instr.location)


def run(calls: Sequence[Call], table: Sequence[np.ndarray]) -> None:
    """Run the calls of a launch, in order, on a table of views.

    Raises:
        LimitError: its loops run too often.
    """
    _ran.iterations = 0
    execute(calls, table)


def execute(calls: Sequence[Call], table: Sequence[np.ndarray]) -> None:
    """Run calls in order on a table of views."""
    for fn, places in calls:
        if type(fn) is RuntimeLoop:
            fn.run(table, places)
        else:
            fn(*[table[p] for p in places])
