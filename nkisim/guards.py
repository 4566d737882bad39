"""What a trace assumed about the world outside its arguments.

A kernel may read module constants and closure variables while it is traced. A cached trace is
valid only as long as those have the same values, so they are written down and compared before the
trace is used again.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

_MISSING = object()
_BY_VALUE = (bool, int, float, complex, str, bytes, type(None))


class Guards:
    """The globals and closure variables that `func`, and the functions it calls, read."""

    def __init__(self, func: Callable) -> None:
        self._watched: list[tuple[dict, str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._seen: set[int] = set()
        self._visit(func)

    def hold(self) -> bool:
        """Whether every watched variable still has the value it had."""
        return all(
            _same(space.get(name, _MISSING), value) for space, name, value in self._watched
        ) and (all(_same(_content(cell), value) for cell, value in self._cells))

    def _visit(self, func: Callable) -> None:
        func = getattr(func, "func", func)  # a Kernel, or functools.partial
        if not isinstance(func, FunctionType) or id(func) in self._seen:
            return
        self._seen.add(id(func))
        for cell in func.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, value))
            self._visit(value)
        for name in _names(func.__code__):
            if name in func.__globals__:
                value = func.__globals__[name]
                if isinstance(value, ModuleType):
                    continue
                self._watched.append((func.__globals__, name, value))
                self._visit(value)


def _names(code: CodeType) -> set[str]:
    """Names that a function and the functions defined in it look up."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def _same(now: Any, then: Any) -> bool:
    if now is then:
        return True
    return type(now) is type(then) and isinstance(now, _BY_VALUE) and now == then
