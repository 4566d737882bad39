"""The errors and warnings of kernels, each with its rule, its kernel line and a fix.

Every diagnosed error names the kernel line, the offending value, the rule it breaks and the fix.
`locate` finds the kernel line: the innermost stack frame that is not the simulator's own code.
"""

from __future__ import annotations

import functools
import linecache
import os
import sys
import warnings
from types import CodeType, FrameType
from typing import Any, NamedTuple

import numpy as np

# Code that kernels call.
_PACKAGES = tuple(
    [os.path.dirname(os.path.abspath(f)) + os.sep for f in (os.path.dirname(__file__), np.__file__)]
)


class Location(NamedTuple):
    """A line of user source: the kernel line that an instruction or an error comes from."""

    filename: str
    lineno: int
    function: str

    @property
    def text(self) -> str:
        """The source line, stripped; empty when the source cannot be read."""
        return linecache.getline(self.filename, self.lineno).strip()

    @property
    def short(self) -> str:
        """The line in few characters: `file.py:12`, or `cell line 3` in a notebook."""
        return f"cell line {self.lineno}" if self._in_notebook else self._in_file

    @property
    def _in_notebook(self) -> bool:
        return "ipykernel_" in os.path.dirname(self.filename)  # IPython's file for a cell

    @property
    def _in_file(self) -> str:
        return f"{os.path.basename(self.filename)}:{self.lineno}"

    def __str__(self) -> str:
        place = f"notebook cell, line {self.lineno}" if self._in_notebook else self._in_file
        return f"{place} in {self.function}"


# By the identity of the code, which has no fast hash, and the position in it: to find the line,
# Python goes through a table. The code is kept so that the identity stays.
_locations: dict[tuple[int, int], tuple[Location, CodeType]] = {}
_lines: dict[Location, Location] = {}  # one object a line
_MOST = 65_536  # places in code


LIBRARIES = ("numpy", "jax", "jaxlib", "torch", "torch_xla")
"""Packages whose lines are never the kernel's, in site-packages or dist-packages."""


@functools.cache
def _is_own(filename: str) -> bool:
    """Whether a file is of the simulator, or of a library that hands some calls on."""
    return filename.startswith(_PACKAGES) or any(
        f"-packages{os.sep}{library}{os.sep}" in filename for library in LIBRARIES
    )


def caller(depth: int = 1) -> FrameType | None:
    """The innermost frame outside `nkisim` and NumPy: the kernel's. None when there is none.

    Args:
        depth: how many frames further out to begin; those before are the simulator's own.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and _is_own(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def locate() -> Location | None:
    """The user's kernel line: that of `caller`. None when there is none.

    It takes the longer, the more of the simulator's calls lie between: Python makes an object of
    each frame that is looked at.
    """
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code, at = frame.f_code, frame.f_lasti
        found = _locations.get((id(code), at))
        if found is not None:
            return found[0]
        if not _is_own(code.co_filename):
            line = Location(code.co_filename, frame.f_lineno, code.co_name)
            if len(_locations) >= _MOST:  # kernels that are made again and again
                _locations.clear()
                _lines.clear()
            line = _lines.setdefault(line, line)
            _locations[id(code), at] = line, code
            return line
        frame = frame.f_back
    return None


class KernelError(Exception):
    """A kernel does what hardware or the compiler would reject.

    Args:
        problem: what is wrong, with the offending value.
        rule: the rule that is broken.
        fix: what to change.
        code: the name that AWS's error reference (`nki.errors`) gives it, where it has one.
        location: the kernel line; found on the stack when not given.

    Attributes:
        trace: the nkisim.ir.trace.Trace that the kernel gave before the error; None outside of
            one.
        instruction: the nkisim.ir.instruction.Instruction that was refused, when it is one.
        made: how many there were so far, whether raised, shown or dropped.
    """

    made = 0

    def __init__(
        self,
        problem: str,
        *,
        rule: str,
        fix: str,
        code: str | None = None,
        location: Location | None = None,
    ) -> None:
        KernelError.made += 1
        self.problem = problem
        self.rule = rule
        self.fix = fix
        self.code = code
        self.location = location or locate()
        self.trace: Any = None
        self.instruction: Any = None
        super().__init__(self.report())

    def report(self) -> str:
        """The whole message: problem, place, rule, fix."""
        lines = [self.problem if self.code is None else f"{self.problem} [{self.code}]"]
        if self.location is not None:
            lines.append(f"  at:   {self.location}")
            if self.location.text:
                lines.append(f"        {self.location.text}")
        lines += [f"  rule: {self.rule}", f"  fix:  {self.fix}"]
        return "\n".join(lines)

    def __reduce__(self):
        return (_rebuild, (type(self), self.problem, self.rule, self.fix, self.code, self.location))


def _rebuild(cls, problem, rule, fix, code, location):
    return cls(problem, rule=rule, fix=fix, code=code, location=location)


class OutOfBoundsError(KernelError, IndexError):
    """An access pattern leaves its tensor."""


class UninitializedReadError(KernelError):
    """An instruction reads memory that nothing wrote."""


class TileSizeError(KernelError, ValueError):
    """A tile is larger than the memory or the instruction allows."""


class MemorySpaceError(KernelError, TypeError):
    """An operand lives in a memory that the instruction cannot reach."""


class DTypeError(KernelError, TypeError):
    """A data type that the hardware or the instruction does not have."""


class ShapeError(KernelError, ValueError):
    """Operand shapes that do not fit together."""


class IndexingError(KernelError, TypeError):
    """An index expression that has no access pattern."""


class RaceError(KernelError):
    """Two kernel instances touch the same memory, and at least one writes."""


class ScopeError(KernelError):
    """A tile is used outside of the loop iteration that made it."""


class LoopError(KernelError):
    """Iterations of an affine_range loop depend on one another."""


class CounterError(KernelError):
    """A loop counts in Python, across iterations of which the compiler traces one."""


class PlacementError(KernelError, ValueError):
    """A tile placed by hand is at an illegal address, or overwrites another that is alive."""


class AccumulationError(KernelError):
    """Matmuls accumulate in PSUM in a way that the Tensor Engine does not."""


class RangeError(KernelError, ValueError):
    """An activation function is given a number for which it is not valid."""


class ParameterError(KernelError, TypeError):
    """A kernel argument is used, or passed, in a way that kernels do not allow."""


class OutputError(KernelError, ValueError):
    """A kernel output is missing, in the wrong memory, or never written."""


class ControlFlowError(KernelError, TypeError):
    """Python control flow depends on a value that is not known while tracing."""


class UnknownNameError(KernelError, AttributeError):
    """A name that a module of NKI, or a tensor, does not have."""


class ReadOnlyError(KernelError, AttributeError):
    """An attribute of a tensor is assigned to."""


class UnsupportedError(KernelError, NotImplementedError):
    """A documented feature that this simulator does not have yet."""


class LimitError(KernelError, RuntimeError):
    """A launch reaches a limit of the simulator: of time, memory, instructions or iterations."""


class TraceContextError(KernelError, RuntimeError):
    """An NKI function is called where no kernel is being traced."""


class NkiWarning(UserWarning):
    """A check that was turned down from an error, or something that is merely slow."""


def warn(error: KernelError, times: int = 1) -> None:
    """Show `error` as a warning, placed at the kernel line, which it was found in so often."""
    place = error.location or Location("<nki>", 1, "")
    text = str(error)
    if times > 1:
        first, newline, rest = text.partition("\n")
        text = f"{first} (the first of {times:,} like it in this line){newline}{rest}"
    warnings.warn_explicit(text, NkiWarning, place.filename, place.lineno)
