"""Errors for a name that does not exist, and for a call that does not fit its function: most are
of `import nki`."""

from __future__ import annotations

import inspect
import re

from nkisim.errors import KernelError, Location, ParameterError
from nkisim.frontends.neuronxcc.names import MODULES, unknown_name
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.frontends.python_values import asking_line, function_called, value_asked
from nkisim.trace.frames import kernel_line

_COUNT = re.compile(
    r"(?:(\w+)\.)?(\w+)\(\) "
    r"(?:(?:missing|takes|got multiple values for) .*|got an unexpected keyword )argument"
)


def explain(error: Exception) -> KernelError | None:
    """An error of Python at a kernel's line, in words; None for any that is not of this dialect."""
    if isinstance(error, AttributeError):
        line = asking_line(error)
        return line and unknown_name(error, line)
    if (told := value_asked(error, Tensor, MODULES["nl"])) is not None:
        return told
    line = kernel_line(error.__traceback__)
    return _wrong_count(error, line) if isinstance(error, TypeError) and line else None


def _wrong_count(error: TypeError, line: Location) -> ParameterError | None:
    """A call at a kernel's line that has other arguments than its function; None for any other
    error."""
    found = _COUNT.match(str(error))
    if found is None:
        return None
    of, short = found.groups()
    if of == Tensor.__name__:
        called = f"tile.{short}", getattr(Tensor, short)
    else:
        called = function_called(short, error, {n: MODULES[n] for n in ("nisa", "nl")})
    if called is None:
        return None
    name, function = called
    what = name + str(error)[found.end(2) + 2 :]
    parameters = [
        p
        for p in inspect.signature(function).parameters.values()
        if p.kind is not p.VAR_KEYWORD and p.name != "self"
    ]
    if short.endswith("_range"):  # (*args), as Python's range takes them
        return ParameterError(
            what,
            rule="it takes start, stop and step in this order, without their names, as Python's "
            "range does",
            fix=f"write {name}(start, stop, step)",
            location=line,
        )
    names = [p.name for p in parameters]
    needed = [f"{p.name}={p.name}" for p in parameters if p.default is p.empty]
    call = f"{name}({', '.join(needed)})"
    returns = name.startswith("nisa.") and "dst" not in names
    return ParameterError(
        what,
        rule=f"its arguments in `neuronxcc.nki` are {', '.join(names)}",
        fix=f"take the result, tile = {call}: a destination that comes first is `import nki`"
        if returns
        else f"write {call}",
        location=line,
    )
