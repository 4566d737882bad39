"""An exercise: a specification, the data it is checked on, and a check that explains.

The check runs an answer and the specification on the same data. It never raises for a wrong
answer: an exercise that is not solved yet is not an error. With nkisim it also draws who reads what
around the first wrong element, and models the latency; a Neuron device keeps no such record.
"""

from __future__ import annotations

import copy
import importlib
import inspect
import linecache
import sys
import textwrap
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from types import FrameType
from typing import TYPE_CHECKING, Any

import numpy as np

import kernels
from kernels.arrays import Framework, from_numpy, to_numpy, tolerance
from nkibook.exercises import explaining
from nkibook.exercises.comparing import Mismatch, compare
from nkibook.exercises.running import (
    compiled,
    framework_of,
    is_kernel,
    is_of_the_machine,
    latency,
    launches,
)
from nkibook.exercises.verdict import Verdict

if TYPE_CHECKING:
    from nkisim.numerics.program import Program

_NOT_LAUNCHED = (
    "the kernel is still wrong where the page says so. The simulator would refuse it. A device "
    "would run it, with undefined results, so it was not launched."
)


@dataclass(frozen=True, eq=False, repr=False)
class Exercise:
    """One exercise of a page.

    Displays as its specification. `solution` is the answer of the book, found by name.

    Attributes:
        spec: the specification: a function on NumPy arrays.
        cases: the arguments of each check. A tuple stands for a float32 array of that shape with
            standard normal numbers, anything else for itself.
        lines: about how many lines are to be written or changed, in `neuronxcc.nki`.
        data: makes the arguments instead: `data(rng, *case)`.
        grid: the launch grid, from the arguments; none by default. Of an exercise in both dialects
            that in `neuronxcc.nki`; `import nki` has no grid.
        framework: whose arrays the answer gets. "numpy" means those of the page's framework where
            the Neuron SDK runs the kernels: a process has the NeuronCores once.
        rtol, atol: allowed differences, relative and absolute; by default those of the dtypes.
            Integers must agree.
        cost: arguments to model the time for, instead of the data's: shapes and constants. For
            kernels only.
        at_most: how many times the modelled time of the solution an answer may take.
        reveal: whether a wrong number is shown beside the right one.
        unit: of the answer, where it is one number.
        hint: what to think of, for who answers with a wrong number.
        run: gives the result in another way than by calling the answer: `run(answer, *args)`.
        breaks: a part of the skeleton's text that the simulator refuses and a device would run,
            with undefined results. Where it is still in the cell, nothing is launched on a device.
            Of an exercise in both dialects, the parts of both skeletons.
    """

    spec: Callable[..., Any]
    cases: tuple[tuple[Any, ...], ...]
    lines: int
    data: Callable[..., tuple[Any, ...]] | None = None
    grid: Callable[..., Any] | None = None
    framework: Framework = "numpy"
    rtol: float | None = None
    atol: float | None = None
    cost: tuple[Any, ...] | None = None
    at_most: float | None = None
    reveal: bool = True
    unit: str = ""
    hint: str = ""
    run: Callable[..., Any] | None = None
    breaks: str | tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Of the specification, the skeleton and the solution."""
        return self.spec.__name__

    @property
    def page(self) -> str:
        """The page that it is on; "" for a specification that no page has."""
        package, _, page = self.spec.__module__.rpartition(".")
        return page if package == "nkibook.exercises.puzzles" else ""

    # -- what is asked --------------------------------------------------------------------------

    def __call__(self, *args: Any) -> Any:
        """The specification on NumPy arrays."""
        return self.spec(*args)

    @property
    def source(self) -> str:
        """The specification's source, without the decorator."""
        text = textwrap.dedent(inspect.getsource(self.spec))
        return text[text.index("def ") :].rstrip()

    def arguments(self, case: tuple[Any, ...]) -> tuple[Any, ...]:
        """The data of a case: NumPy arrays, the same every time, and constants.

        A tuple in a case is the shape of a float32 array of standard normal numbers; anything else
        is a constant. An exercise with `data` makes its own.
        """
        rng = np.random.default_rng(zlib.crc32(f"{self.page}.{self.name}".encode()))
        if self.data is not None:
            return self.data(rng, *case)
        return tuple(
            rng.standard_normal(x, dtype=np.float32) if isinstance(x, tuple) else x for x in case
        )

    @property
    def solution(self) -> Callable[..., Any]:
        """The book's answer: that of the dialect of `kernels`, else the one that both share.

        Raises:
            ModuleNotFoundError, AttributeError: there is none.
        """
        module = self._solutions(kernels.dialect) if self._is_in_dialects else self._solutions()
        return getattr(module, self.name)

    def _solutions(self, dialect: str = "") -> Any:
        """The module of the page's answers: those of a dialect, or those that both share."""
        folder = f"{dialect}." if dialect else ""
        return importlib.import_module(f"nkibook.exercises.solutions.{folder}{self.page}")

    @property
    def _is_in_dialects(self) -> bool:
        """Whether each dialect has an answer of its own."""
        name = f"nkibook.exercises.solutions.{kernels.dialect}.{self.page}"
        there = self.page and find_spec(name)
        return bool(there) and hasattr(self._solutions(kernels.dialect), self.name)

    @property
    def _has_solution(self) -> bool:
        return self.page != ""

    def __repr__(self) -> str:
        return f"{self.name}{self._size}\n{self.source}"

    def _repr_markdown_(self) -> str:
        return f"**{self.name}**{self._size}\n\n```python\n{self.source}\n```"

    @property
    def _size(self) -> str:
        """How many lines; in `import nki` a kernel has others, and its skeleton says so."""
        return (
            ""
            if kernels.dialect == "nki"
            else f", about {self.lines} line{'s' * (self.lines != 1)}"
        )

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
        expected = self.spec(*copy.deepcopy(args))
        try:
            got, launched = self._run(answer, args)
        except Exception as error:  # whatever the reader's code does wrong is the answer's problem
            if is_of_the_machine(error):
                raise
            return explaining.refused(
                answer,
                lambda: self._run(answer, args)[0],
                expected,
                self._tolerance(args, expected),
                error,
            )
        cost = self._modelled(answer, args, launched)[0]
        try:
            difference = compare(got, expected, *self._tolerance(args, expected))
        except Mismatch as mismatch:
            return Verdict(False, str(mismatch), cost=cost)
        if difference is None:
            return Verdict(True, "")
        if not difference.index:
            several = isinstance(got, tuple) and len(got) > 1
            which = f"your output {difference.output}" if several else "your answer"
            return explaining.wrong_number(difference, which, self.unit, self.hint, self.reveal)
        return explaining.wrong_values(
            answer, launched, difference, lambda: self._run_solution(args), cost
        )

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
        if kernels.backend == "nkisim" or not self.breaks:
            return False
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__", "").startswith("nkibook."):
            frame = frame.f_back
        cell = linecache.getlines(frame.f_code.co_filename) if frame is not None else []
        parts = (self.breaks,) if isinstance(self.breaks, str) else self.breaks
        return any(part in "".join(cell) for part in parts)

    def _right(self, answer: Callable[..., Any], args: tuple[Any, ...]) -> Verdict:
        _, launched = self._run(answer, args)
        cost, yours, theirs = self._modelled(answer, args, launched)
        cases = len(self.cases)
        message = "the answer agrees." if cases == 1 else f"all {cases} cases agree."
        if self.at_most is not None and yours is not None and theirs is not None:
            limit = theirs * self.at_most
            if yours > limit:
                slow = (
                    f"the numbers are right; the time should be at most {limit:.0f} µs, modelled."
                )
                return Verdict(False, slow, cost=cost)
        if kernels.backend == "nkisim" and not _issues(launched):
            if is_kernel(answer) or _issues(self._run_solution(args)):
                return Verdict(False, f"the numbers are right, but {explaining.NOTHING_ISSUED}.")
            if not self._has_solution:
                message = f"{message[:-1]}, but {explaining.NOTHING_ISSUED}."
        return Verdict(True, message, cost=cost)

    # -- running --------------------------------------------------------------------------------

    def _bound(self, answer: Any, args: tuple[Any, ...]) -> Any:
        if self.grid is None or (kernels.dialect == "nki" and self._is_in_dialects):
            return answer
        return answer[self.grid(*args)]

    def _run(self, answer: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, list[Program]]:
        """The result of an answer, and the kernels that it launched."""
        framework = self.framework
        if kernels.backend != "nkisim" and framework == "numpy":
            framework = framework_of(self.page)
        given = tuple(from_numpy(a, framework) for a in copy.deepcopy(args))
        with launches() as found, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the difference that they warn of is shown
            if self.run is not None:
                got = self.run(answer, *given)
            else:
                got = self._bound(answer, args)(*given)
        if kernels.backend == "nkisim" and self.framework == "jax":
            in_hlo = compiled(answer, given)
            return got, in_hlo if in_hlo is not None else [s.program for s in found]
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
        if self.cost is not None:
            yours, theirs = (self._profiled(f) for f in (answer, self.solution))
            where = f" for {_shapes(self.cost)}"
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

        assert self.cost is not None
        specs = [
            nkisim.TensorSpec(x, np.dtype(np.float32)) if isinstance(x, tuple) else x
            for x in self.cost
        ]
        return nkisim.profile(self._bound(answer, tuple(specs)), *specs).latency_us


def exercise(*cases: tuple[Any, ...], **options: Any) -> Callable[[Callable[..., Any]], Exercise]:
    """Make an exercise of a specification, a function on NumPy arrays: a decorator.

    Args:
        *cases: the arguments of each check.
        **options: what else an :class:`Exercise` has, `lines` at least.
    """
    return lambda spec: Exercise(spec, cases, **options)


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


def _issues(programs: list[Program]) -> bool:
    """Whether kernels have an instruction at all."""
    return any(program.instructions for program in programs)


def _described(args: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{a.dtype}{list(a.shape)}" if isinstance(a, np.ndarray) else _shortened(repr(a))
        for a in args
    )


def _shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:58]}…{text[-1]}"


def _shapes(case: tuple[Any, ...]) -> str:
    return ", ".join(str(list(x)) if isinstance(x, tuple) else repr(x) for x in case)
