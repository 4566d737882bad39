"""`python -m nkisim translate-check`: two programs, the same data, the first difference.

Both programs run unmodified. The kernels that they launch are paired in order, and of each pair the
data, the results and the modelled timelines are compared. What the programs are written in does not
matter: it serves a kernel that moves from `neuronxcc.nki` to `import nki`, and two versions of one.
"""

from __future__ import annotations

import functools
import os
import random
import runpy
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

import numpy as np

from nkisim.machine import target as targets
from nkisim.numerics.program import Program
from nkisim.report.modelled import timeline
from nkisim.runtime.provenance import origin
from nkisim.trace.tracer import tracing

_CHIP = "trn2"  # runs both dialects

RELATIVE = {4: 1e-5, 2: 2e-2, 1: 0.25}
"""What counts as rounding, by the bytes of an element: a difference of at most this part of the
value, or of the median of all values, where a sum may have cancelled. Some units in the last place
of float32, bfloat16 and float8."""


@dataclass(frozen=True)
class Launch:
    """A kernel that ran, and the arrays before and after.

    Attributes:
        program: the traced kernel.
        inputs, outputs: copies, in the order of the program's.
    """

    program: Program
    inputs: tuple[np.ndarray, ...]
    outputs: tuple[np.ndarray, ...]

    def __str__(self) -> str:
        trace = self.program.trace
        grid = f"[{trace.grid}]" if trace.grid.shape else ""
        given = ", ".join(f"{x.name} {x.dtype}{list(x.shape)}" for x in self.program.inputs)
        return f"{trace.name}{grid}({given})"


@contextmanager
def recorded() -> Iterator[list[Launch]]:
    """While open, every launch on data enters the list, whichever framework the data is of."""
    found: list[Launch] = []
    original = Program.run

    @functools.wraps(original)
    def run(self: Program, inputs: Sequence[np.ndarray], outputs: Any = None) -> tuple:
        if tracing():  # a part of a kernel, for the value of a register
            return original(self, inputs, outputs)
        before = tuple(np.array(x) for x in inputs)
        results = original(self, inputs, outputs)
        found.append(Launch(self, before, tuple(np.array(x) for x in results)))
        return results

    Program.run = run  # type: ignore[method-assign]
    try:
        yield found
    finally:
        Program.run = original  # type: ignore[method-assign]


def launches_of(script: str) -> list[Launch]:
    """The kernel launches of a program. It runs with `__name__ == "__main__"`, no arguments,
    NumPy's and Python's global random numbers from seed 0, and for trn2 unless the environment
    names a chip. What it sets in the environment ends with it.

    Raises:
        Exception: what the program raises.
    """
    folder = os.path.dirname(os.path.abspath(script))
    path, words, modules = list(sys.path), list(sys.argv), set(sys.modules)
    environment = dict(os.environ)
    if targets.target().source == "":  # the dialects have defaults that differ
        os.environ[targets.OVERRIDE] = _CHIP
    sys.path.insert(0, folder)
    sys.argv = [script]
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002  the global state, for programs that use it
    try:
        with recorded() as found:
            runpy.run_path(script, run_name="__main__")
    finally:
        sys.path[:], sys.argv = path, words
        os.environ.clear()
        os.environ.update(environment)
        # The other program may have modules of these names in its own folder.
        for name in set(sys.modules) - modules:
            file = getattr(sys.modules[name], "__file__", None)
            if file and os.path.dirname(os.path.abspath(file)) == folder:
                del sys.modules[name]
    return found


def check(old: str, new: str) -> tuple[bool, str]:
    """Run two programs and compare what they launch.

    Args:
        old, new: the paths of the programs.

    Returns:
        Whether the programs launch as many kernels, on the same data, with the same results up to
        rounding; and the report.

    Raises:
        Exception: what a program raises.
    """
    before, after = launches_of(old), launches_of(new)
    names = _names(old, new)
    lines = []
    good = len(before) == len(after) > 0
    if not good:
        counts = f"{names[0]} launched {len(before)} kernels, {names[1]} {len(after)}"
        lines += [
            counts,
            "Launches are paired in order: make both programs launch as many, on data.",
        ]
    for number, pair in enumerate(zip(before, after, strict=False), 1):
        agrees, told = _compare(pair, names)
        good &= agrees
        lines += [f"launch {number}: {names[0]}: {pair[0]}"]
        lines += [f"{'':{len(str(number))}}         {names[1]}: {pair[1]}", *told]
        times = [timeline(launch.program.trace) for launch in pair]
        for name, modelled in zip(names, times, strict=True):
            modelled.kernel = name
        if times[0].machine is not times[1].machine:
            lines += ["", f"The times below are of two chips: set {targets.OVERRIDE} for both."]
        lines += ["", times[0].compare(times[1]), ""]
    lines.append("The programs agree." if good else "The programs do not agree.")
    return good, "\n".join(lines)


def _names(old: str, new: str) -> tuple[str, str]:
    """The files' names; their paths when these are one."""
    first, second = Path(old).name, Path(new).name
    return (first, second) if first != second else (old, new)


def _compare(pair: tuple[Launch, Launch], names: tuple[str, str]) -> tuple[bool, list[str]]:
    """Whether data and results of two launches agree, and what to say of them."""
    old, new = pair
    missing = _not_given(new, old)
    if missing:
        return False, [
            f"  data: {', '.join(missing)} of {names[1]} is no argument of {names[0]}'s kernel",
            "  Give both the same data, for example from np.random.default_rng(0).",
        ]
    if len(old.outputs) != len(new.outputs):
        counts = f"{len(old.outputs)} in {names[0]}, {len(new.outputs)} in {names[1]}"
        return False, [f"  results: {counts}"]
    good, lines = True, []
    for at, (a, b) in enumerate(zip(old.outputs, new.outputs, strict=True)):
        what = f"  result {at}, {a.dtype}{list(a.shape)}:"
        if a.shape != b.shape or a.dtype != b.dtype:
            lines.append(f"{what} {b.dtype}{list(b.shape)} in {names[1]}")
            good = False
            continue
        differs, said = _difference(a, b)
        lines.append(f"{what} {said}")
        if differs is not None:
            good = False
            for launch, name, value in zip(pair, names, (a, b), strict=True):
                lines.append(f"    {name}: {value[differs]:.7g}, {_written(launch, at, differs)}")
    return good, lines


def _not_given(new: Launch, old: Launch) -> list[str]:
    """The arguments that `new` was given and `old` was not, by their values. `neuronxcc.nki` has
    arguments more: those that are written."""
    left = list(old.inputs)
    missing = []
    for spec, array in zip(new.program.inputs, new.inputs, strict=True):
        for at, other in enumerate(left):
            if other.dtype == array.dtype and array.tobytes() == other.tobytes():
                del left[at]
                break
        else:
            missing.append(spec.name or "an argument")
    return missing


def _difference(a: np.ndarray, b: np.ndarray) -> tuple[tuple[int, ...] | None, str]:
    """The first element that differs by more than rounding, if there is one, and what to say."""
    if a.tobytes() == b.tobytes():
        return None, "equal to the last bit"
    if a.dtype.kind in "biu":
        far, limit = a != b, "differ"
    else:
        wide, other = a.astype(np.float64), b.astype(np.float64)
        relative = RELATIVE[min(a.itemsize, 4)]
        finite = np.abs(wide[np.isfinite(wide)])
        floor = relative * float(np.median(finite)) if finite.size else 0.0
        with np.errstate(invalid="ignore"):
            near = np.abs(wide - other) <= relative * np.abs(wide) + floor
        far = ~(near | (wide == other) | (np.isnan(wide) & np.isnan(other)))
        limit = f"differ by more than rounding ({relative:g} of the value)"
        if not far.any():
            with np.errstate(invalid="ignore"):
                most = np.nanmax(np.abs(wide - other))
            return None, f"equal up to rounding: the largest difference is {most:.3g}"
    if not far.any():  # -0.0 and 0.0, or the bits of a NaN
        return None, "equal"
    first = tuple(int(n) for n in np.argwhere(far)[0])
    return first, f"{far.sum():,} of {far.size:,} elements {limit}; the first at {list(first)}"


def _written(launch: Launch, output: int, index: tuple[int, ...]) -> str:
    """The kernel line that writes an element of a result."""
    writer = origin(launch.program, output, index).writer
    if writer is None:
        return "which no instruction writes"
    where = writer.location
    line = f" at line {where.lineno}: {shorten(where.text, 60)}" if where else ""
    return f"written by {writer.label}{line}"
