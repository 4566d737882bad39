"""What a trace assumed about the world outside its arguments, and whether it has changed any of it.

A kernel may read module constants and closure variables while it is traced. A cached trace is valid
only as long as those have the same values, so they are written down and compared before the trace
is used again; so is what objects hold that are arguments (nkisim.snapshots tells how values are
compared). Looking has bounds, or a closure over one object of a large library would cost more than
the launch: _MANY functions and classes, nearest first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nkisim.snapshots import (
    BY_VALUE,
    LIBRARIES,
    Identity,
    attributes,
    called_with,
    is_looked_into,
    is_unchanged,
    package,
    snapshot,
)

_MISSING = object()
_MANY = 256  # functions and classes that are looked at


class Guards:
    """The globals, closure variables, defaults and attributes that functions, and those that they
    call, read.

    Args:
        functions: the functions.
        ignored: types whose values are all taken for the same.
    """

    def __init__(self, *functions: Callable, ignored: tuple[type, ...] = ()) -> None:
        self._watched: dict[tuple[int, str], tuple[dict, str, Any]] = {}  # by namespace, and name
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []  # what may change and stay the same object
        self._seen: set[int] = set()
        self._ignored = ignored
        self._next = deque(functions)  # the nearest to the kernel first
        self._visit_all()

    def hold(self) -> bool:
        """Whether every watched variable still has the value it had."""
        return all(
            self._is_unchanged(space.get(name, _MISSING), then)
            for space, name, then in self._watched.values()
        ) and (
            all(self._is_unchanged(_content(cell), then) for cell, then in self._cells)
            and all(self._is_unchanged(value, then) for value, then in self._held)
        )

    def watch(self, value: Any) -> None:
        """Watch an argument, such as an object with settings, and the functions in it."""
        if not isinstance(value, BY_VALUE):
            self._held.append((value, self._snapshot(value)))
            self._next.append(value)
            self._visit_all()

    def settle(self) -> bool:
        """After tracing: what the trace itself changed is its state, not an assumption.

        Returns:
            Whether it has changed anything.
        """
        changed = False

        def settled(now: Any, then: Any) -> Any:
            nonlocal changed
            if self._is_unchanged(now, then):
                return then
            changed = True
            return Identity(now)

        self._watched = {
            key: (space, name, settled(space.get(name, _MISSING), then))
            for key, (space, name, then) in self._watched.items()
        }
        self._cells = [(cell, settled(_content(cell), then)) for cell, then in self._cells]
        self._held = [(value, settled(value, then)) for value, then in self._held]
        return changed

    def snapshots(self) -> list:
        """What all of it was: two of these are equal where nothing has changed in between."""
        watched = [then for _, _, then in self._watched.values()]
        return watched + [then for _, then in self._cells + self._held]

    def _snapshot(self, value: Any) -> Any:
        return snapshot(value, self._ignored)

    def _is_unchanged(self, now: Any, then: Any) -> bool:
        return is_unchanged(now, then, self._ignored)

    def _visit_all(self) -> None:
        while self._next and len(self._seen) < _MANY:
            self._visit(self._next.popleft())

    def _visit(self, func: Callable) -> None:
        given = called_with(func)
        if given is not None:
            self._held.append((func, self._snapshot(func)))
            self._next.extend(given)
        func = getattr(func, "func", func)  # a Kernel, or functools.partial
        func = getattr(func, "__func__", func)  # a method
        if isinstance(func, property):
            func = func.fget
        if isinstance(func, BY_VALUE) or id(func) in self._seen:
            return
        self._seen.add(id(func))
        if isinstance(func, (list, tuple, dict)):
            self._next.extend(filter(callable, func.values() if isinstance(func, dict) else func))
            return
        if isinstance(func, type):
            if is_looked_into(func):
                self._held.append((vars(func), self._snapshot(vars(func))))
                self._next.extend(filter(_is_code, vars(func).values()))
                self._next.extend(func.__bases__)
            return
        if not isinstance(func, FunctionType):
            self._next.append(type(func))
            self._next.extend(filter(_is_code, (attributes(func) or {}).values()))
            return
        if package(func) in LIBRARIES:
            return
        names = _names(func.__code__)
        passed: set[int] = set()  # modules that these names were looked up in
        for cell in func.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, self._snapshot(value)))
            self._follow(value, names, passed)
        for value in (func.__defaults__, func.__kwdefaults__, func.__dict__ or None):
            if value is not None:
                self._held.append((value, self._snapshot(value)))
        self._watch(func.__globals__, names, passed)

    def _watch(self, space: dict, names: set[str], passed: set[int]) -> None:
        """Watch the variables of a namespace that are among `names`."""
        for name in sorted(names & space.keys()):
            value = space[name]
            key = id(space), name
            if key not in self._watched:
                self._watched[key] = space, name, self._snapshot(value)
            self._follow(value, names, passed)

    def _follow(self, value: Any, names: set[str], passed: set[int]) -> None:
        """Go on from the value of a variable, of a module to those that are among `names`."""
        if not isinstance(value, ModuleType):
            self._next.append(value)
        elif package(value) not in LIBRARIES and id(value) not in passed:
            passed.add(id(value))
            self._watch(vars(value), names, passed)  # `config.TILE`, `helpers.load_rows`


def contents(values: Iterable[Any], ignored: tuple[type, ...]) -> list:
    """What some values, and the functions and objects in them, hold: two of these are equal if
    nothing has changed in between.

    Args:
        values: the values.
        ignored: types whose values are all taken for the same.
    """
    guards = Guards(ignored=ignored)
    for value in values:
        guards.watch(value)
    return guards.snapshots()


def _names(code: CodeType) -> set[str]:
    """Names that a function and the functions defined in it look up, or may: by their text, as
    `globals()["TILE"]` and `getattr(config, "TILE")` do."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, str):
            names.add(constant)
        elif isinstance(constant, CodeType):
            names |= _names(constant)
    return names


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def _is_code(member: Any) -> bool:
    return callable(member) or isinstance(member, (property, staticmethod, classmethod))
