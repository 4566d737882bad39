"""An exercise: a specification, the data it is checked on, and a check that explains.

The check runs an answer and the specification on the same data. It never raises for a wrong
answer: an exercise that is not solved yet is not an error. With nkisim it also draws who reads what
around the first wrong element, and models the latency; a Neuron device keeps no such record.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import linecache
import sys
import textwrap
import warnings
import zlib
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

import kernels
from kernels.arrays import Framework, from_numpy, to_numpy, tolerance
from nkibook.exercises.comparing import Difference, Mismatch, compare, number
from nkibook.exercises.running import (
    compiled,
    framework_of,
    is_kernel,
    is_of_the_machine,
    latency,
    launches,
    only,
)
from nkibook.exercises.verdict import Verdict

if TYPE_CHECKING:
    from nkisim.numerics.program import Program

_MOST_LINES = 8  # of an error message
_NOT_LAUNCHED = (
    "the kernel is still wrong where the page says so. The simulator would refuse it. A device "
    "would run it, with undefined results, so it was not launched."
)


class Exercise:
    """One exercise of a page.

    Displays as its specification. `solution` is the answer of the book, found by name.

    Attributes:
        name: of the specification, the skeleton and the solution.
        page: the page that it is on; "" for a specification that no page has.
        lines: about how many lines are to be written or changed.
        cases: the arguments of each check; see `exercise`.
        breaks: what keeps the skeleton from a device; see `exercise`.
    """

    def __init__(
        self,
        spec: Callable[..., Any],
        cases: Sequence[tuple[Any, ...]],
        *,
        lines: int,
        data: Callable[..., tuple[Any, ...]] | None,
        grid: Callable[..., Any] | None,
        framework: Framework,
        rtol: float | None,
        atol: float | None,
        cost: tuple[Any, ...] | None,
        at_most: float | None,
        reveal: bool,
        run: Callable[..., Any] | None,
        breaks: str | None,
    ) -> None:
        self.name = spec.__name__
        package, _, page = spec.__module__.rpartition(".")
        self.page = page if package == "nkibook.exercises.puzzles" else ""
        self.lines = lines
        self.cases = tuple(cases)
        self.rtol, self.atol = rtol, atol
        self._spec = spec
        self._data = data
        self._grid = grid
        self._framework = framework
        self._cost = cost
        self._at_most = at_most
        self._reveal = reveal
        self._runner = run
        self.breaks = breaks

    # -- what is asked --------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """The specification on NumPy arrays."""
        return self._spec(*args)

    @property
    def source(self) -> str:
        """The specification's source, without the decorator."""
        text = textwrap.dedent(inspect.getsource(self._spec))
        return text[text.index("def ") :].rstrip()

    def arguments(self, case: tuple[Any, ...]) -> tuple[Any, ...]:
        """The data of a case: NumPy arrays, the same every time, and constants.

        A tuple in a case is the shape of a float32 array of standard normal numbers; anything else
        is a constant. An exercise with `data` makes its own.
        """
        rng = np.random.default_rng(zlib.crc32(f"{self.page}.{self.name}".encode()))
        if self._data is not None:
            return self._data(rng, *case)
        return tuple(
            rng.standard_normal(x, dtype=np.float32) if isinstance(x, tuple) else x for x in case
        )

    @property
    def solution(self) -> Callable[..., Any]:
        """The book's answer.

        Raises:
            ModuleNotFoundError, AttributeError: there is none.
        """
        module = importlib.import_module(f"nkibook.exercises.solutions.{self.page}")
        return getattr(module, self.name)

    @property
    def _has_solution(self) -> bool:
        return self.page != ""

    def __repr__(self) -> str:
        return f"{self.name}, {self._size}\n{self.source}"

    def _repr_markdown_(self) -> str:
        return f"**{self.name}**, {self._size}\n\n```python\n{self.source}\n```"

    @property
    def _size(self) -> str:
        return f"about {self.lines} line{'s' * (self.lines != 1)}"

    # -- the check ------------------------------------------------------------------------------

    def check(self, answer: Callable[..., Any]) -> Verdict:
        """Run an answer on every case and say whether it is right, or what is wrong first.

        Args:
            answer: a kernel, or a function that calls one; without a launch grid where the
                specification says which grid is launched.

        Returns:
            A Verdict. An answer that raises, returns None, or another shape or dtype than the
            specification is not right yet.

        Raises:
            ImportError, MemoryError, OSError, RuntimeError: something is wrong that is not the
                answer: a module or the NeuronCores are not there, say.
        """
        if self._is_unchanged():
            return Verdict(False, _NOT_LAUNCHED)
        for case in self.cases:
            args = self.arguments(case)
            found = self._check_case(answer, args)
            if not found.right:
                if len(self.cases) > 1:
                    found.details = (*found.details, f"The data: {_described(args)}.")
                return found
        return self._right(answer, args)

    def _check_case(self, answer: Callable[..., Any], args: tuple[Any, ...]) -> Verdict:
        expected = self._spec(*copy.deepcopy(args))
        try:
            got, launched = self._run(answer, args)
        except Exception as error:  # whatever the reader's code does wrong is the answer's problem
            if is_of_the_machine(error):
                raise
            return self._refused(answer, args, expected, error)
        cost = self._modelled(answer, args, launched)[0]
        try:
            difference = compare(got, expected, *self._tolerance(args, expected))
        except Mismatch as mismatch:
            return Verdict(False, str(mismatch), cost=cost)
        if difference is None:
            return Verdict(True, "")
        several = isinstance(got, tuple) and len(got) > 1
        return self._wrong(answer, args, launched, difference, several, cost)

    def _tolerance(self, args: tuple[Any, ...], expected: Any) -> tuple[float, float]:
        """The exercise's own, at least; by default and on a device, that of the dtypes."""
        several = expected if isinstance(expected, tuple | list) else (expected,)
        arrays = [a for a in (*args, *several) if isinstance(a, np.ndarray)]
        rtol, atol = tolerance(a.dtype for a in arrays)
        if kernels.backend != "nkisim":
            return max(self.rtol or 0.0, rtol), max(self.atol or 0.0, atol)
        return rtol if self.rtol is None else self.rtol, atol if self.atol is None else self.atol

    def _is_unchanged(self) -> bool:
        """Whether to keep an answer from a device: it still has what the page's skeleton breaks."""
        if kernels.backend == "nkisim" or self.breaks is None:
            return False
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__", "").startswith("nkibook."):
            frame = frame.f_back
        cell = linecache.getlines(frame.f_code.co_filename) if frame is not None else []
        return self.breaks in "".join(cell)

    def _wrong(
        self,
        answer: Callable[..., Any],
        args: tuple[Any, ...],
        launched: list[Program],
        difference: Difference,
        several: bool,
        cost: str,
    ) -> Verdict:
        if not difference.index:
            said = difference.values if self._reveal else number(difference.got)
            which = f"your output {difference.output}" if several else "your answer"
            return Verdict(False, f"{which} is {said}.", cost=cost)
        message = f"{_first(difference)}."
        if kernels.backend != "nkisim":
            return Verdict(False, message, cost=cost, index=difference.index)
        from nkibook.exercises import picture, reads

        program = only(launched) if is_kernel(answer) else None
        if program is not None:
            solution = only(self._run_solution(args))
            seen = reads.access(
                program, solution, difference.output, difference.index, difference.wrong
            )
        else:
            seen = reads.output_only("the result", difference.index, difference.wrong)
        details = tuple(seen.sentences)
        alt = " ".join((f"Who reads what. {message[0].upper()}{message[1:]}", *details))
        figure = picture.draw(seen, alt)
        return Verdict(False, message, details, cost, difference.index, figure)

    def _refused(
        self, answer: Callable[..., Any], args: tuple[Any, ...], expected: Any, error: Exception
    ) -> Verdict:
        """What an error says; with nkisim, also what happens when its checks are off."""
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
                got, _ = self._run(answer, args)
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
                difference = compare(got, expected, *self._tolerance(args, expected))
                details = (_without_checks(difference),)
        if difference is not None and program is not None:
            at, wrong = difference.index, difference.wrong
            seen = reads.access(program, None, difference.output, at, wrong)
        else:
            seen = reads.refused(trace, None if program is not None else stopped.instruction)
        details = (*details, *seen.sentences)
        figure = None
        if seen.panels:
            alt = " ".join((f"Who reads and writes what. {lines[0]}.", *details))
            figure = picture.draw(seen, alt)
        index = difference.index if difference else None
        return Verdict(False, message, details, index=index, picture=figure)

    def _right(self, answer: Callable[..., Any], args: tuple[Any, ...]) -> Verdict:
        _, launched = self._run(answer, args)
        cost, yours, theirs = self._modelled(answer, args, launched)
        cases = len(self.cases)
        message = "the answer agrees." if cases == 1 else f"all {cases} cases agree."
        if self._at_most is not None and yours is not None and theirs is not None:
            limit = theirs * self._at_most
            if yours > limit:
                slow = (
                    f"the numbers are right; the time should be at most {limit:.0f} µs, modelled."
                )
                return Verdict(False, slow, cost=cost)
        return Verdict(True, message, cost=cost)

    # -- running --------------------------------------------------------------------------------

    def _bound(self, answer: Any, args: tuple[Any, ...]) -> Any:
        return answer if self._grid is None else answer[self._grid(*args)]

    def _run(self, answer: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[Program]]:
        """The result of an answer, and the kernels that it launched."""
        framework = self._framework
        if kernels.backend != "nkisim" and framework == "numpy":
            framework = framework_of(self.page)
        given = tuple(from_numpy(a, framework) for a in copy.deepcopy(args))
        with launches() as found, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the difference that they warn of is shown
            if self._runner is not None:
                got = self._runner(answer, *given)
            else:
                got = self._bound(answer, args)(*given)
        if kernels.backend == "nkisim" and self._framework == "jax":
            return got, compiled(answer, given)
        return got, [special.program for special in found]

    def _run_solution(self, args: tuple[Any, ...]) -> list[Program]:
        return self._run(self.solution, args)[1] if self._has_solution else []

    def _modelled(
        self, answer: Any, args: tuple[Any, ...], launched: list[Program]
    ) -> tuple[str, float | None, float | None]:
        """A sentence on the modelled cost; the answer's latency and the solution's, in µs."""
        if kernels.backend != "nkisim":
            why = f"No picture and no modelled time: they need nkisim, and {kernels.backend} runs."
            return why, None, None
        if self._cost is not None:
            yours, theirs = (self._profiled(f) for f in (answer, self.solution))
            where = f" for {_shapes(self._cost)}"
        else:
            yours, theirs = (latency(found) for found in (launched, self._run_solution(args)))
            where = ""
        if not yours:
            return "", None, None
        if not theirs:
            return f"Time{where}: {yours:.0f} µs (modelled).", yours, None
        return (
            f"Time{where}: {yours:.0f} µs, the solution {theirs:.0f} µs (modelled).",
            yours,
            theirs,
        )

    def _profiled(self, answer: Any) -> float:
        import nkisim

        assert self._cost is not None
        specs = [
            nkisim.TensorSpec(x, np.dtype(np.float32)) if isinstance(x, tuple) else x
            for x in self._cost
        ]
        return nkisim.profile(self._bound(answer, tuple(specs)), *specs).latency_us


def exercise(
    *cases: tuple[Any, ...],
    lines: int,
    data: Callable[..., tuple[Any, ...]] | None = None,
    grid: Callable[..., Any] | None = None,
    framework: Framework = "numpy",
    rtol: float | None = None,
    atol: float | None = None,
    cost: tuple[Any, ...] | None = None,
    at_most: float | None = None,
    reveal: bool = True,
    run: Callable[..., Any] | None = None,
    breaks: str | None = None,
) -> Callable[[Callable[..., Any]], Exercise]:
    """Make an exercise of a specification: a function on NumPy arrays.

    Args:
        *cases: the arguments of each check. A tuple stands for a float32 array of that shape with
            standard normal numbers, anything else for itself.
        lines: about how many lines an answer takes.
        data: makes the arguments instead: `data(rng, *case)`.
        grid: the launch grid, from the arguments; none by default.
        framework: whose arrays the answer gets. "numpy" means those of the page's framework where
            the Neuron SDK runs the kernels: a process has the NeuronCores once.
        rtol, atol: allowed differences, relative and absolute; by default those of the dtypes.
            Integers must agree.
        cost: arguments to model the time for, instead of the data's: shapes and constants. For
            kernels only.
        at_most: how many times the modelled time of the solution an answer may take.
        reveal: whether a wrong number is shown beside the right one.
        run: gives the result in another way than by calling the answer: `run(answer, *args)`.
        breaks: a part of the skeleton's text that the simulator refuses and a device would run,
            with undefined results. Where it is still in the cell, nothing is launched on a device.
    """

    def make(spec: Callable[..., Any]) -> Exercise:
        return Exercise(
            spec,
            cases,
            lines=lines,
            data=data,
            grid=grid,
            framework=framework,
            rtol=rtol,
            atol=atol,
            cost=cost,
            at_most=at_most,
            reveal=reveal,
            run=run,
            breaks=breaks,
        )

    return make


def check(
    answer: Callable[..., Any],
    spec: Callable[..., Any],
    *args: Any,
    rtol: float | None = None,
    atol: float | None = None,
) -> Verdict:
    """Compare `answer(*args)` with `spec(*args)`, and explain the first difference.

    The check of an exercise for a kernel and a specification of your own.

    Args:
        answer: a kernel, or a function that calls one.
        spec: what it should give, on NumPy arrays.
        *args: the data: NumPy arrays and constants; arrays of a framework are given to the answer
            as they are, and to the specification as NumPy arrays.
        rtol, atol: allowed differences, relative and absolute. By default those of the coarsest
            dtype among the arrays: 1e-5 and 1e-6 in float32, 1e-3 and 1e-5 in float16, 1.6e-2 and
            1e-5 in bfloat16. Integers must agree.
    """
    framework: Framework = "numpy"
    if any(type(a).__module__.partition(".")[0] == "torch" for a in args):
        framework = "torch"
    elif any(type(a).__module__.partition(".")[0] in ("jax", "jaxlib") for a in args):
        framework = "jax"
    arrays = tuple(to_numpy(a) if hasattr(a, "shape") else a for a in args)
    asked = exercise(
        arrays, lines=1, data=lambda rng, *given: given, framework=framework, rtol=rtol, atol=atol
    )(spec)
    return asked.check(answer)


# -- sentences


def _first(difference: Difference) -> str:
    which = f"In output {difference.output}, " if difference.output else ""
    return f"{which}{difference.counts}. The first is {list(difference.index)}: {difference.values}"


def _without_checks(difference: Difference | None) -> str:
    if difference is None:
        return "With the checks off the numbers come out right here. No device promises that."
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
        f"first is {list(difference.index)}: whatever was there before, and should be "
        f"{number(difference.expected)}.",
    )


def _described(args: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else _shortened(repr(a))
        for a in args
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def _shapes(case: tuple[Any, ...]) -> str:
    return ", ".join(str(list(x)) if isinstance(x, tuple) else repr(x) for x in case)
