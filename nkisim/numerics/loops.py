"""Running the calls of a program: straight on, and as often as a run-time loop says."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.instruction import Instruction

# (a function or a RuntimeLoop, the positions of its operands in the table of views)
Call = tuple["Callable | RuntimeLoop", tuple[int, ...]]

_MOST = 10_000_000  # iterations of one `while` loop


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
            ParameterError: a `while` loop does not come to an end.
        """
        if self._step is None:
            condition = table[places[0]]
            for _ in range(_MOST):
                if not condition.any():
                    return
                execute(self.body, table)
            raise ParameterError(
                f"a loop ran {_MOST:,} times, and its condition still holds",
                rule="a while loop ends when its register is zero after an iteration",
                fix="write the register in the body of the loop",
                location=self._instr.location,
            )
        index, *registers = [table[p] for p in places]
        rest = iter(registers)
        lower, upper = (
            x if isinstance(x, int) else int(next(rest).item()) for x in self._instr.ins
        )
        for value in range(lower, upper, self._step):
            index[...] = value
            execute(self.body, table)


def execute(calls: Sequence[Call], table: Sequence[np.ndarray]) -> None:
    """Run calls in order on a table of views."""
    for fn, places in calls:
        if type(fn) is RuntimeLoop:
            fn.run(table, places)
        else:
            fn(*[table[p] for p in places])
