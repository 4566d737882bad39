"""Errors for a name that does not exist, and for a call that does not fit its function: most are
of `import nki`."""

from __future__ import annotations

import enum
import inspect
import re
import sys
from types import TracebackType

from nkisim.errors import KernelError, Location, ParameterError
from nkisim.frontends.neuronxcc.names import MODULES, unknown_name
from nkisim.trace.frames import is_ours, kernel_line, line_of

_COUNT = re.compile(r"(\w+)\(\) (?:(?:missing|takes) .*|got an unexpected keyword )argument")


def explain(error: Exception) -> KernelError | None:
    """An error of Python at a kernel's line, in words; None for any that is not of this dialect."""
    if isinstance(error, AttributeError):
        line = _last_line(error.__traceback__)
        return line and unknown_name(error, line)
    line = kernel_line(error.__traceback__)
    return _wrong_count(error, line) if isinstance(error, TypeError) and line else None


def _wrong_count(error: TypeError, line: Location) -> ParameterError | None:
    """A call at a kernel's line that has other arguments than its function; None for any other
    error."""
    found = _COUNT.match(str(error))
    if found is None:
        return None
    for short in ("nisa", "nl"):
        function = getattr(sys.modules.get(MODULES[short]), found[1], None)
        if inspect.isfunction(function) and f"{short}.{found[1]}" in line.text:
            break
    else:
        return None
    parameters = [
        p for p in inspect.signature(function).parameters.values() if p.kind is not p.VAR_KEYWORD
    ]
    if found[1].endswith("_range"):  # (*args), as Python's range takes them
        return ParameterError(
            str(error).replace(f"{found[1]}()", f"{short}.{found[1]}", 1),
            rule="it takes start, stop and step in this order, without their names, as Python's "
            "range does",
            fix=f"write {short}.{found[1]}(start, stop, step)",
            location=line,
        )
    names = [p.name for p in parameters]
    needed = [f"{p.name}={p.name}" for p in parameters if p.default is p.empty]
    call = f"{short}.{found[1]}({', '.join(needed)})"
    returns = short == "nisa" and "dst" not in names
    return ParameterError(
        str(error).replace(f"{found[1]}()", f"{short}.{found[1]}", 1),
        rule=f"its arguments in `neuronxcc.nki` are {', '.join(names)}",
        fix=f"take the result, tile = {call}: a destination that comes first is `import nki`"
        if returns
        else f"write {call}",
        location=line,
    )


def _last_line(trace: TracebackType | None) -> Location | None:
    """The line that raised an error; None when that is in the simulator."""
    found = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename != enum.__file__:
            found = trace
        trace = trace.tb_next
    return None if found is None or is_ours(found.tb_frame) else line_of(found)
