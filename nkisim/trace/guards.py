"""What a trace assumed about the world outside its arguments.

A kernel may read module constants and closure variables while it is traced. A cached trace is valid
only as long as those have the same values, so they are written down and compared before the trace
is used again; so is what objects hold that are arguments (nkisim.trace.snapshots tells how values
are
compared). Looking has bounds, or a closure over one object of a large library would cost more than
the launch: _MANY functions, classes, objects and containers, nearest first.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

from nkisim.trace.effects import changes_variables, defines_functions
from nkisim.trace.snapshots import (
    BY_VALUE,
    LIBRARIES,
    MUTABLE,
    Copier,
    Identity,
    called_with,
    entries,
    is_looked_into,
    is_unchanged,
    package,
)

_MISSING = object()
_CACHED = type(functools.lru_cache(repr))
_MANY = 256  # functions, classes, objects and containers that are looked at


class Guards:
    """The globals, closure variables, defaults and attributes that functions, and those that they
    call, read.

    Attributes:
        may_change: whether the functions may change any of it themselves.
        has_helpers: whether there is more than one function.

    Args:
        functions: the functions.
        ignored: types whose values are all taken for the same.
    """

    def __init__(self, *functions: Callable, ignored: tuple[type, ...] = ()) -> None:
        self.may_change = self.has_helpers = False
        self._roots: list[Callable] = list(functions)
        self._arguments: list[Any] = []
        self._code: set[CodeType] = set()
        self._watched: dict[tuple[int, str], tuple[dict, str, Any]] = {}  # by namespace, and name
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []  # what may change and stay the same object
        self._made_of: list[tuple[FunctionType, tuple]] = []  # code and defaults of functions
        self._seen: dict[int, Any] = {}  # with the values, so that no other one gets their ids
        self._ignored = ignored
        self._copier = Copier(ignored)
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
            and all(
                now is part
                for func, parts in self._made_of
                for now, part in zip(_made_of(func), parts, strict=True)
            )
        )

    def watch(self, value: Any) -> None:
        """Watch an argument, such as an object with settings, and the functions in it."""
        if not isinstance(value, BY_VALUE):
            self._arguments.append(value)
            # By a copier of its own: what functions reach may have used up the other one.
            self._held.append((value, Copier(self._ignored).copy(value)))
            self._next.append(value)
            self._visit_all()

    def settle(self) -> None:
        """After tracing: what the trace itself changed is its state, not an assumption."""

        def settled(now: Any, then: Any) -> Any:
            return then if self._is_unchanged(now, then) else Identity(now)

        self._watched = {
            key: (space, name, settled(space.get(name, _MISSING), then))
            for key, (space, name, then) in self._watched.items()
        }
        self._cells = [(cell, settled(_content(cell), then)) for cell, then in self._cells]
        self._held = [(value, settled(value, then)) for value, then in self._held]

    def again(self) -> Guards:
        """The same, as it is now."""
        new = Guards(*self._roots, ignored=self._ignored)
        for value in self._arguments:
            new.watch(value)
        return new

    def _is_unchanged(self, now: Any, then: Any) -> bool:
        return is_unchanged(now, then, self._ignored)

    def _visit_all(self) -> None:
        while self._next and len(self._seen) < _MANY:
            self._visit(self._next.popleft())
        self.may_change |= bool(self._next)  # as far as is known

    def _visit(self, func: Callable) -> None:
        given = called_with(func)
        if given is not None:
            self._held.append((func, self._copier.copy(func)))
            self._next.extend(given)
        if isinstance(func, functools.partial) or package(type(func)) in LIBRARIES:
            func = getattr(func, "func", func)  # a Kernel
        if isinstance(func, _CACHED):
            func = func.__wrapped__
        func = getattr(func, "__func__", func)  # a method
        if isinstance(func, property):
            func = func.fget
        if isinstance(func, (*BY_VALUE, *self._ignored)) or id(func) in self._seen:
            return
        self._seen[id(func)] = func
        if isinstance(func, type):
            if is_looked_into(func):
                self._held.append((vars(func), self._copier.copy(vars(func))))
                self._next.extend([x for name, x in vars(func).items() if _is_member(name, x)])
                self._next += [*func.__bases__, type(func)]
            return
        if not isinstance(func, FunctionType):
            self.may_change |= isinstance(func, MUTABLE)
            self._next.extend(x for x in entries(func) if not isinstance(x, BY_VALUE))
            if is_looked_into(type(func)):
                self._next.append(type(func))
            return
        if package(func) in LIBRARIES:
            return
        self._made_of.append((func, _made_of(func)))
        self._code.add(func.__code__)
        self.has_helpers = len(self._code) > 1 or defines_functions(func.__code__)
        self.may_change |= changes_variables(func.__code__)
        names = _names(func.__code__)
        passed: set[int] = set()  # modules that these names were looked up in
        for cell in func.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, self._copier.copy(value)))
            self._follow(value, names, passed)
        for value in (func.__defaults__, func.__kwdefaults__, func.__dict__ or None):
            if value is not None:
                self._held.append((value, self._copier.copy(value)))
                self._next.extend(value.values() if isinstance(value, dict) else value)
        self._watch(func.__globals__, names, passed)

    def _watch(self, space: dict, names: set[str], passed: set[int]) -> None:
        """Watch the variables of a namespace that are among `names`."""
        for name in sorted(names & space.keys()):
            value = space[name]
            key = id(space), name
            if key not in self._watched:
                self._watched[key] = space, name, self._copier.copy(value)
            self._follow(value, names, passed)

    def _follow(self, value: Any, names: set[str], passed: set[int]) -> None:
        """Go on from the value of a variable, of a module to those that are among `names`."""
        if not isinstance(value, ModuleType):
            self._next.append(value)
        elif package(value) not in LIBRARIES and id(value) not in passed:
            passed.add(id(value))
            self._watch(vars(value), names, passed)  # `config.TILE`, `helpers.load_rows`


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


def _made_of(func: FunctionType) -> tuple:
    """What stays the same object unless it is replaced."""
    return func.__code__, func.__defaults__, func.__kwdefaults__


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def _is_member(name: str, x: Any) -> bool:
    """Whether it is what a reader has put into a class."""
    if name.startswith("_") and (name.endswith("_") or name == "_field_defaults"):
        return isinstance(x, (FunctionType, staticmethod, classmethod))
    return True
