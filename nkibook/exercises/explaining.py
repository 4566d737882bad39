"""What a check says of an answer that is not right: values that differ, and errors.

With nkisim it also says, and draws, who reads and writes what around the first wrong element.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

import kernels
from nkibook.exercises.comparing import Difference, Mismatch, compare, number
from nkibook.exercises.running import is_kernel, launches, only
from nkibook.exercises.verdict import Verdict

if TYPE_CHECKING:
    from nkisim.numerics.program import Program

_MOST_LINES = 8  # of an error message

NOTHING_ISSUED = (
    "no kernel instruction was issued. The result was computed outside of a kernel, or is an "
    "argument as it came"
)


def wrong_number(difference: Difference, which: str, unit: str, hint: str, reveal: bool) -> Verdict:
    """A single number that is not the one asked for.

    Args:
        which: how to call it: "your answer".
        unit, hint: see `Exercise`; "" for none.
        reveal: whether the right one is shown.
    """
    of = f" {unit}" if unit else ""
    if reveal:
        said = f"{difference.values}{of}."
    else:
        said = f"{number(difference.got)}{of}{_side(difference)}."
    return Verdict(False, f"{which} is {said}{f' Hint: {hint}' if hint else ''}")


def _side(difference: Difference) -> str:
    """On which side of the right number a wrong one is; "" for text."""
    got, expected = np.asarray(difference.got), np.asarray(difference.expected)
    if got.dtype.kind not in "biuf" or expected.dtype.kind not in "biuf" or got == expected:
        return ""
    return f", which is too {'small' if got < expected else 'large'}"


def wrong_values(
    answer: Callable[..., Any],
    launched: list[Program],
    difference: Difference,
    solution: Callable[[], list[Program]],
    cost: str,
) -> Verdict:
    """Arrays that differ.

    Args:
        launched: the kernels that the answer launched.
        solution: runs the book's answer on the same data, and returns what it launched.
        cost: the sentence on the modelled time.
    """
    message = f"{_first(difference)}."
    if kernels.backend != "nkisim":
        return Verdict(False, message, cost=cost, index=difference.index)
    from nkibook.exercises import picture, reads

    program = only(launched) if is_kernel(answer) else None
    if program is not None:
        seen = reads.access(
            program, only(solution()), difference.output, difference.index, difference.wrong
        )
    else:
        seen = reads.output_only("the result", difference.index, difference.wrong)
    details = tuple(seen.sentences)
    alt = " ".join((f"Who reads what. {message[0].upper()}{message[1:]}", *details))
    figure = picture.draw(seen, alt)
    return Verdict(False, message, details, cost, difference.index, figure)


def refused(
    answer: Callable[..., Any],
    run: Callable[[], Any],
    expected: Any,
    tolerance: tuple[float, float],
    error: Exception,
) -> Verdict:
    """What an error says; with nkisim, also what happens when its checks are off.

    Args:
        run: runs the answer on the same data.
        expected: the result that it should have.
        tolerance: relative and absolute.
    """
    # MLIR adds where in JAX and in this module it happened, which is not the reader's concern.
    lines = [line for line in str(error).splitlines() if not line.lstrip().startswith("at loc")]
    lines = lines[:_MOST_LINES]
    message = f"{type(error).__name__}: " + "\n".join(lines)
    if kernels.backend != "nkisim":
        return Verdict(False, message)
    import nkisim

    if not isinstance(error, nkisim.KernelError):
        return Verdict(False, message)
    from nkibook.exercises import picture, reads

    got: Any = None
    stopped = error
    silent: dict[str, Any] = dict.fromkeys(nkisim.CHECKS, "off")
    with nkisim.checks(**silent), launches() as launched:
        try:
            got = run()
        except Exception as again:  # there are no values, and the trace may be shorter
            stopped = again if isinstance(again, nkisim.KernelError) else error
    program = only([special.program for special in launched]) if is_kernel(answer) else None
    trace = stopped.trace if program is None else program.trace
    if trace is None or not trace.instructions:
        return Verdict(False, message)
    details: tuple[str, ...] = ()
    difference: Difference | None = None
    if program is not None and isinstance(error, nkisim.errors.UninitializedReadError):
        difference = _undefined(program, expected)
        details = _from_unwritten(difference)
    elif program is not None and got is not None:
        with contextlib.suppress(Mismatch):
            difference = compare(got, expected, *tolerance)
            details = (_without_checks(difference),)
    if difference is not None and program is not None:
        at, wrong = difference.index, difference.wrong
        seen = reads.access(program, None, difference.output, at, wrong)
    else:
        seen = reads.refused(trace, None if program is not None else stopped.instruction)
    details = (*details, *seen.sentences)
    figure = None
    if any(panel.tells for panel in seen.panels):
        alt = " ".join((f"Who reads and writes what. {lines[0]}.", *details))
        figure = picture.draw(seen, alt)
    index = difference.index if difference else None
    return Verdict(False, message, details, index=index, picture=figure)


def _first(difference: Difference) -> str:
    which = f"In output {difference.output}, " if difference.output else ""
    return f"{which}{difference.counts}. The first is {list(difference.index)}: {difference.values}"


def _without_checks(difference: Difference | None) -> str:
    if difference is None:
        return "With the checks off, the numbers are right here. A device does not guarantee that."
    return f"With the checks off, {_first(difference)}."


def _undefined(program: Program, expected: Any) -> Difference | None:
    """The output elements that come from memory nothing wrote; their values are anything."""
    from nkibook.exercises import reads

    wrong = reads.undefined_elements(program, 0)
    values = np.asarray(expected[0] if isinstance(expected, tuple | list) else expected)
    if wrong is None or not wrong.any() or wrong.shape != values.shape:
        return None
    index = tuple(int(i) for i in np.argwhere(wrong)[0])
    return Difference(wrong, index, float("nan"), values[index])


def _from_unwritten(difference: Difference | None) -> tuple[str, ...]:
    if difference is None:
        return ()
    count, size = int(difference.wrong.sum()), difference.wrong.size
    return (
        f"{count:,} of {size:,} elements of the output come from memory that nothing wrote. The "
        f"first is {list(difference.index)}: its value is whatever was in memory before, and "
        f"should be {number(difference.expected)}.",
    )
