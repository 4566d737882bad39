"""Keywords that an operation does not know.

The signatures of the SDK's operations end in `**kwargs`, so that a misspelt keyword (`maks=...`) is
no error. Here a check tells.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable
from typing import Any

from nkisim.errors import ParameterError, locate
from nkisim.frontends.neuronxcc.lowering.op_cache import wrapped
from nkisim.trace.tracer import current, tracing

# Taken without being documented: the SDK's own kernels pass them. The first five tell the compiler
# what a simulator does anyway, or has no use for.
_UNDOCUMENTED = frozenset(
    {"dge_mode", "directives", "lazy_initialization", "name", "precise_schedule"}
    | {"keepdims", "perf_mode"}
)
# Keywords of `import nki`, and what stands in their place.
_TODAYS = {
    "accumulate": "add to a tile of zeros in PSUM, tile += {}(...): accumulate= is `import nki`",
    "dst": "take the result, tile = {}(...), or tile[...] = {}(...): dst= is `import nki`",
}
_UNDOCUMENTED_OF = {"nl.load": {"mode"}, "nl.store": {"mode"}}


def checked(operations: dict[str, Any], names: list[str], module: str) -> dict[str, Callable]:
    """Those of some operations that take any keyword, made to report keywords that they ignore.

    Args:
        operations: what a module has, by name.
        names: what of it is public.
        module: what kernels call it, such as "nl".
    """
    found = {}
    for name in names:
        operation = operations[name]
        if inspect.isfunction(operation) and "kwargs" in inspect.signature(operation).parameters:
            check = functools.partial(_checked, what=f"{module}.{name}")
            found[name] = wrapped(operation, check)
    return found


def _checked(operation: Callable, what: str) -> Callable:
    *known, _ = inspect.signature(operation).parameters
    taken = _UNDOCUMENTED.union(known, _UNDOCUMENTED_OF.get(what, ()))

    @functools.wraps(operation)
    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not taken.issuperset(kwargs) and tracing():
            _report(what, known, sorted(set(kwargs) - taken))
        return operation(*args, **kwargs)

    return call


def _report(what: str, known: list[str], ignored: list[str]) -> None:
    near = [m for name in ignored for m in difflib.get_close_matches(name, known, 1)]
    todays = [_TODAYS[name].format(what, what) for name in ignored if name in _TODAYS]
    meant = f"write {' and '.join(near)}, if that is meant" if near else "leave it out"
    error = ParameterError(
        f"{what} ignores {', '.join(f'{name}=' for name in ignored)}",
        rule=f"its keywords are {', '.join(known)}; **kwargs takes any other without a word",
        fix="; ".join(todays) or meant,
        location=locate(),
    )
    current().checker.report("keyword", error)
