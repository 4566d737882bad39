"""Keywords that an operation does not know.

The signatures of the SDK's operations end in `**kwargs`, so that a misspelt keyword (`maks=...`) is
no error. Here a check tells.
"""

from __future__ import annotations

import contextlib
import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.errors import ParameterError, locate
from nkisim.frontends import settings
from nkisim.frontends.neuronxcc.lowering.op_cache import wrapped
from nkisim.ir.memory import Space
from nkisim.trace.tracer import current, tracing

# Taken without being documented: the SDK's own kernels pass them. They tell the compiler what a
# simulator does anyway, or has no use for.
_UNDOCUMENTED = frozenset(
    {"dge_mode", "directives", "lazy_initialization", "name", "precise_schedule"}
)
# Those that one function takes, and looks at itself.
_UNDOCUMENTED_OF = {
    "nl.load": {"mode"},
    "nl.store": {"mode"},
    "nl.var": {"keepdims"},
    "nisa.nc_matmul": {"perf_mode"},
}
# Keywords of `import nki`, and what stands in their place.
_IN_NEURONXCC = {
    "accumulate": "add to a tile of zeros in PSUM, tile += {}(...): accumulate= is `import nki`",
    "dst": "take the result, tile = {}(...), or tile[...] = {}(...): dst= is `import nki`",
}
_APART = frozenset({Space})  # nkisim.frontends.neuronxcc.lowering.memory
_RANGE = ("start", "stop", "step")
_OF_UFUNCS = frozenset({"out", "where", "casting", "order", "subok"})


def checked(operations: dict[str, Any], names: list[str], module: str) -> dict[str, Callable]:
    """The operations of a module, made to check their settings, and to report or refuse keywords
    that they ignore.

    Args:
        operations: what a module has, by name.
        names: what of it is public.
        module: what kernels call it, such as "nl".
    """
    found = {}
    for name in names:
        operation = operations[name]
        if not inspect.isfunction(operation):
            continue
        what = f"{module}.{name}"
        if "kwargs" in inspect.signature(operation).parameters:
            operation = wrapped(operation, functools.partial(_checked, what=what))
        elif module == "nisa":
            operation = wrapped(operation, _named)
        check = functools.partial(settings.checked, call=what, by_value=int, apart=_APART)
        looks = settings.checks_of(operation, int, apart=_APART)
        found[name] = wrapped(operation, check) if looks else operation
    return found


def _named(operation: Callable) -> Callable:
    """An instruction whose documented signature ends without `**kwargs`: public kernels that ran on
    an inf2 name it all the same."""

    @functools.wraps(operation)
    def call(*args: Any, name: str = "", **kwargs: Any) -> Any:
        return operation(*args, **kwargs)

    return call


def _checked(operation: Callable, what: str) -> Callable:
    *known, _ = inspect.signature(operation).parameters
    taken = _UNDOCUMENTED.union(known, _UNDOCUMENTED_OF.get(what, ()))
    means = _meaning(what) - taken

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not taken.issuperset(kwargs) and tracing():
            if not means.isdisjoint(kwargs):
                _refuse(what, known, [name for name in kwargs if name in means], args, kwargs)
            _report(what, known, sorted(set(kwargs) - taken))
        return operation(*args, **kwargs)

    return call


def _meaning(what: str) -> frozenset[str]:
    """Keywords that say something: those of the function of Python or NumPy that the documentation
    compares one with, and those of `import nki`. To ignore one would run another program."""
    module, name = what.split(".")
    if name.endswith("_range"):
        return frozenset(_RANGE)
    meant = set(_IN_NEURONXCC)
    theirs = getattr(np, name, None) if module == "nl" else None
    if isinstance(theirs, np.ufunc):
        meant |= _OF_UFUNCS
    elif callable(theirs):
        with contextlib.suppress(ValueError):  # written in C, without a signature
            meant.update(inspect.signature(theirs).parameters)
    return frozenset(meant)


def _refuse(what: str, known: list[str], given: list[str], args: tuple, kwargs: dict) -> None:
    spelled = [_IN_NEURONXCC[name].format(what, what) for name in given if name in _IN_NEURONXCC]
    fix = "; ".join(spelled) or f"write it without {', '.join(given)}, as an operation of its own"
    if what.endswith("_range"):
        own = dict(zip(_RANGE if len(args) > 1 else ("stop",), args, strict=False)) | kwargs
        values = [own.get("start", 0), own.get("stop", "stop"), own.get("step", 1)]
        if values[2] == 1:
            values = values[:2] if values[0] else values[1:2]
        fix = f"write {what}({', '.join(map(str, values))})"
    raise ParameterError(
        f"{what} has no keyword {', '.join(f'{name}=' for name in given)}",
        rule="it takes start, stop and step in this order, as Python's range does"
        if what.endswith("_range")
        else f"its keywords are {', '.join(known)}; the SDK ignores others without a word",
        fix=fix,
        location=locate(),
    )


def _report(what: str, known: list[str], ignored: list[str]) -> None:
    near = [m for name in ignored for m in difflib.get_close_matches(name, known, 1)]
    meant = f"write {' and '.join(near)}, if that is meant" if near else "leave it out"
    error = ParameterError(
        f"{what} ignores {', '.join(f'{name}=' for name in ignored)}",
        rule=f"its keywords are {', '.join(known)}; **kwargs takes any other without a word",
        fix=meant,
        location=locate(),
    )
    current().checker.report("keyword", error)
