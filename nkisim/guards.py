"""What a trace assumed about the world outside its arguments.

A kernel may read module constants and closure variables while it is traced. A cached trace is valid
only as long as those have the same values, so they are written down and compared before the trace
is used again; so is what objects hold that are arguments. Numbers, strings, small arrays, and small
containers, classes and objects with such in them are compared by value; what is large, and objects
of libraries, by identity. Looking has bounds, or a closure over one object of a large library would
cost more than the launch: _MANY functions and classes, nearest first, and _MOST entries of a value.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Mapping
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

_MISSING = object()
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_BY_VALUE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_LARGE = 256  # entries; larger containers and objects are compared by identity
_LONG = 4096  # entries of one that holds numbers and text only
_MOST = 2**13  # entries of one value and of what it holds
_DEPTH = 8  # of containers in one another; a dict and an object count as two
_MANY = 256  # functions and classes that are looked at
_LARGE_ARRAY = 2**16  # bytes; the same of arrays

# Whose attributes do not change: the kernel's vocabulary.
_LIBRARIES = frozenset({"nkisim", "neuronxcc", "numpy", "math", "ml_dtypes"})

# Objects of these are not looked into, but for those that are made to hold settings.
_OPAQUE = _LIBRARIES | sys.stdlib_module_names | {"jax", "jaxlib", "torch", "torch_xla"}
_SETTINGS = (SimpleNamespace, Namespace)


class Guards:
    """The globals, closure variables, defaults and attributes that `func`, and the functions it
    calls, read."""

    def __init__(self, func: Callable) -> None:
        self._watched: dict[tuple[int, str], tuple[dict, str, Any]] = {}  # by namespace, and name
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []  # what may change and stay the same object
        self._seen: set[int] = set()
        self._next = deque([func])  # the nearest to the kernel first
        self._visit_all()

    def hold(self) -> bool:
        """Whether every watched variable still has the value it had."""
        return all(
            _same(space.get(name, _MISSING), then) for space, name, then in self._watched.values()
        ) and (
            all(_same(_content(cell), then) for cell, then in self._cells)
            and all(_same(value, then) for value, then in self._held)
        )

    def watch(self, value: Any) -> None:
        """Watch an argument, such as an object with settings, and the functions in it."""
        if not isinstance(value, _BY_VALUE):
            self._held.append((value, _frozen(value)))
            self._next.append(value)
            self._visit_all()

    def settle(self) -> None:
        """After tracing: what the trace itself changed is its state, not an assumption."""
        self._watched = {
            key: (space, name, _settled(space.get(name, _MISSING), then))
            for key, (space, name, then) in self._watched.items()
        }
        self._cells = [(cell, _settled(_content(cell), then)) for cell, then in self._cells]
        self._held = [(value, _settled(value, then)) for value, then in self._held]

    def _visit_all(self) -> None:
        while self._next and len(self._seen) < _MANY:
            self._visit(self._next.popleft())

    def _visit(self, func: Callable) -> None:
        func = getattr(func, "func", func)  # a Kernel, or functools.partial
        func = getattr(func, "__func__", func)  # a method
        if isinstance(func, property):
            func = func.fget
        if isinstance(func, _BY_VALUE) or id(func) in self._seen:
            return
        self._seen.add(id(func))
        if isinstance(func, (list, tuple, dict)):
            self._next.extend(filter(callable, func.values() if isinstance(func, dict) else func))
            return
        if isinstance(func, type):
            if _is_looked_into(func):
                self._held.append((vars(func), _frozen(vars(func))))
                self._next.extend(filter(_is_code, vars(func).values()))
                self._next.extend(func.__bases__)
            return
        if not isinstance(func, FunctionType):
            self._next.append(type(func))
            self._next.extend(filter(_is_code, (_attributes(func) or {}).values()))
            return
        if _package(func) in _LIBRARIES:
            return
        names = _names(func.__code__)
        passed: set[int] = set()  # modules that these names were looked up in
        for cell in func.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, _frozen(value)))
            self._follow(value, names, passed)
        for value in (func.__defaults__, func.__kwdefaults__, func.__dict__ or None):
            if value is not None:
                self._held.append((value, _frozen(value)))
        self._watch(func.__globals__, names, passed)

    def _watch(self, space: dict, names: set[str], passed: set[int]) -> None:
        """Watch the variables of a namespace that are among `names`."""
        for name in sorted(names & space.keys()):
            value = space[name]
            key = id(space), name
            if key not in self._watched:
                self._watched[key] = space, name, _frozen(value)
            self._follow(value, names, passed)

    def _follow(self, value: Any, names: set[str], passed: set[int]) -> None:
        """Go on from the value of a variable, of a module to those that are among `names`."""
        if not isinstance(value, ModuleType):
            self._next.append(value)
        elif _package(value) not in _LIBRARIES and id(value) not in passed:
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


def _package(value: FunctionType | ModuleType | type) -> str:
    """The package, or module that is in none, that a function, class or module belongs to."""
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return (name or "").partition(".")[0]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING


def _is_looked_into(cls: type) -> bool:
    """Whether a class, and what its objects hold, is the reader's."""
    return cls in _SETTINGS or _package(cls) not in _OPAQUE


def _is_code(member: Any) -> bool:
    return callable(member) or isinstance(member, (property, staticmethod, classmethod))


def _attributes(value: Any) -> dict[str, Any] | None:
    """Attributes of what is looked into; None of other objects."""
    classes = [cls for cls in type(value).__mro__ if _is_looked_into(cls)]
    if not classes:
        return None
    found = dict(getattr(value, "__dict__", {}))
    for cls in classes:
        for name, member in vars(cls).items():
            if not name.startswith("__"):
                found.setdefault(name, member)
        for name in getattr(cls, "__slots__", ()):
            if hasattr(value, name):
                found[name] = getattr(value, name)
    return found


class _Frozen(tuple):
    """The value of a container or a number, as it was."""


class _Copier:
    """Copies one value: what it holds several times once, and not more than _MOST entries."""

    def __init__(self) -> None:
        self._left = _MOST
        self._made: dict[tuple[int, int], tuple[Any, Any]] = {}

    def copy(self, value: Any, depth: int) -> Any:
        """`value`, or for plain data a copy that later changes do not reach."""
        if isinstance(value, _BY_VALUE):
            return _Frozen((type(value), repr(value)))  # which tells 0.0 from -0.0
        key = id(value), depth
        if key not in self._made:
            # With the value, so that no other one gets its id meanwhile.
            self._made[key] = value, self._copy(value, depth)
        return self._made[key][1]

    def _copy(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            if value.nbytes <= _LARGE_ARRAY and not value.dtype.hasobject:
                return _Frozen((type(value), value.dtype.str, value.shape, value.tobytes()))
            return _Identity(value)
        parts = _parts(value) if depth > 0 else None
        if parts is None or len(parts[1]) > self._left:
            return _Identity(value)
        kind, entries, deeper = parts
        self._left -= len(entries)
        return _Frozen((kind, *[self.copy(entry, depth - deeper) for entry in entries]))


def _parts(value: Any) -> tuple[Any, Collection, int] | None:
    """What a value is besides its entries, those, and how much deeper they are; None of a value
    that is not looked into."""
    if isinstance(value, (FunctionType, ModuleType, type)):
        return None  # functions and classes are looked at by themselves
    if isinstance(value, dict):
        return (type(value), [*value, *value.values()], 2) if _may_be_copied(value) else None
    if isinstance(value, _CONTAINERS):
        return (type(value), value, 1) if _may_be_copied(value) else None
    if isinstance(value, Mapping):  # such as os.environ
        return _parts(dict(value)) if len(value) <= _LARGE else None
    attributes = _attributes(value)
    if attributes is None or len(attributes) > _LARGE:
        return None
    return _Identity(value), [*attributes, *attributes.values()], 2


def _frozen(value: Any) -> Any:
    """`value`, or for plain data a copy that later changes do not reach."""
    return _Copier().copy(value, _DEPTH)


def _may_be_copied(value: Collection) -> bool:
    """Whether a container is short, or holds numbers and text only and is not very long."""
    if len(value) <= _LARGE:
        return True
    entries = value.values() if isinstance(value, dict) else value
    return len(value) <= _LONG and all([isinstance(x, _BY_VALUE) for x in entries])


class _Identity:
    """Equal for one and the same object only, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and self.value is other.value

    __hash__ = None


def _settled(now: Any, then: Any) -> Any:
    return then if _same(now, then) else _Identity(now)


def _same(now: Any, then: Any) -> bool:
    if isinstance(then, _Identity):
        return now is then.value
    return _frozen(now) == then
