"""Errors for Python and NumPy that ask a tensor for values while a kernel is traced."""

from __future__ import annotations

import functools
import re
import sys
from typing import Any

from nkisim.errors import LIBRARIES, ControlFlowError, KernelError, Location
from nkisim.trace.frames import is_ours, kernel_line, kernel_names, line_of

_CALLED = frozenset({*LIBRARIES, "enum"})  # whose functions a kernel's line may call
_ALIASES = "np|numpy|jnp|jax|lax|nn|torch|F"
_NUMPY = "Could not convert object to sequence"  # of an array from what is none


def value_asked(error: Exception, tensor: type, language: str) -> KernelError | None:
    """A tensor where a kernel's line needs a number or an array, as `float(t)`, `range(t)`,
    `values[t]` and `np.exp(t)` do; None for any other error.

    Args:
        error: what Python or NumPy raised.
        tensor: the class of tensors of the dialect.
        language: the module that is its nki.language.
    """
    text, line = str(error), asking_line(error)
    name = tensor.__name__
    named = re.search(rf"\b{name}\b(?!\.\w+\(\))", text) and "not callable" not in text
    who = _who(error, _NUMPY in text)
    of_values = isinstance(error, TypeError) or (isinstance(error, ValueError) and who != "Python")
    if line is None or not of_values or not (named or _NUMPY in text):
        return None
    called = re.findall(rf"\b(?:{_ALIASES})\.(?:\w+\.)*(\w+)\(", line.text)
    known = [f"nl.{name}" for name in called if hasattr(sys.modules.get(language), name)]
    return ControlFlowError(
        f"{who} is given a tensor for its values: " + text.partition("\n")[0],
        rule="a kernel is traced before it runs: what is in a tensor is not known then",
        fix=f"use the function of nki.language: {', '.join(known)}"
        if known
        else "compute with the functions of nki.language and nki.isa; what Python has to know is "
        "an argument of the kernel, a number",
        location=line,
    )


def _who(error: Exception, numpy: bool) -> str:
    """Who raised an error, in words."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    module = "" if trace is None else trace.tb_frame.f_globals.get("__name__", "")
    library = "numpy" if numpy else module.partition(".")[0]
    return {"numpy": "NumPy", "jax": "JAX", "torch": "PyTorch"}.get(library, "Python")


def asking_line(error: Exception) -> Location | None:
    """The kernel's line that an error of Python or of NumPy comes from; None where the simulator
    raised it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if is_ours(trace.tb_frame):
            line = None
        elif trace.tb_frame.f_globals.get("__name__", "").partition(".")[0] not in _CALLED:
            line = line_of(trace)
        trace = trace.tb_next
    return line


def function_called(name: str, error: Exception, modules: dict[str, str]) -> tuple[str, Any] | None:
    """The function of `modules`, by their short names, that a kernel's line calls by a name of its
    own, `nl.exp` or `exp`, and what to name it; None where the kernel's own has that name."""
    line, names = kernel_line(error.__traceback__), kernel_names(error.__traceback__)
    for dotted in re.findall(rf"((?:\w+\.)*{name})\s*\(", "" if line is None else line.text):
        first, *rest = dotted.split(".")
        found = functools.reduce(lambda x, n: getattr(x, n, None), rest, names.get(first))
        for short, module in modules.items():
            if found is not None and found is getattr(sys.modules.get(module), name, None):
                return f"{short}.{name}", found
    return None
