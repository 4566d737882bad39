"""What a trace assumed about the world outside its arguments.

A kernel may read module constants and closure variables while it is traced. A cached trace is valid
only as long as those have the same values, so they are written down and compared before the trace
is used again; so is what objects hold that are arguments. Numbers, strings, small arrays, and small
containers, classes and objects with such in them are compared by value; what is large, and objects
of libraries, by identity.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import numpy as np

_MISSING = object()
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_BY_VALUE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_LARGE = 256  # entries; larger containers and objects are compared by identity
_LONG = 4096  # entries of one that holds numbers and text only
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
        self._watched: list[tuple[dict, str, Any]] = []
        self._cells: list[tuple[Any, Any]] = []
        self._held: list[tuple[Any, Any]] = []  # what may change and stay the same object
        self._seen: set[int] = set()
        self._visit(func)

    def hold(self) -> bool:
        """Whether every watched variable still has the value it had."""
        return all(
            _same(space.get(name, _MISSING), then) for space, name, then in self._watched
        ) and (
            all(_same(_content(cell), then) for cell, then in self._cells)
            and all(_same(value, then) for value, then in self._held)
        )

    def watch(self, value: Any) -> None:
        """Watch an argument, such as an object with settings, and the functions in it."""
        if not isinstance(value, _BY_VALUE):
            self._held.append((value, _frozen(value)))
            self._visit(value)

    def settle(self) -> None:
        """After tracing: what the trace itself changed is its state, not an assumption."""
        self._watched = [
            (space, name, _settled(space.get(name, _MISSING), then))
            for space, name, then in self._watched
        ]
        self._cells = [(cell, _settled(_content(cell), then)) for cell, then in self._cells]
        self._held = [(value, _settled(value, then)) for value, then in self._held]

    def _visit(self, func: Callable) -> None:
        func = getattr(func, "func", func)  # a Kernel, or functools.partial
        func = getattr(func, "__func__", func)  # a method
        if isinstance(func, property):
            func = func.fget
        if id(func) in self._seen:
            return
        self._seen.add(id(func))
        if isinstance(func, (list, tuple, dict)):
            for member in func.values() if isinstance(func, dict) else func:
                if callable(member):
                    self._visit(member)
            return
        if not isinstance(func, FunctionType):
            for cls in _classes(func):
                for member in vars(cls).values():
                    if callable(member) or isinstance(member, (property, staticmethod)):
                        self._visit(member)
            return
        for cell in func.__closure__ or ():
            value = _content(cell)
            self._cells.append((cell, _frozen(value)))
            self._visit(value)
        for value in (func.__defaults__, func.__kwdefaults__, func.__dict__ or None):
            if value is not None:
                self._held.append((value, _frozen(value)))
        self._watch(func.__globals__, _names(func.__code__))

    def _watch(self, space: dict, names: set[str]) -> None:
        """Watch the variables of a namespace that are among `names`."""
        for name in names & space.keys():
            value = space[name]
            if not isinstance(value, ModuleType):
                self._watched.append((space, name, _frozen(value)))
                self._visit(value)
            elif value.__name__.partition(".")[0] not in _LIBRARIES and id(value) not in self._seen:
                self._seen.add(id(value))
                self._watch(vars(value), names)  # `config.TILE`, `helpers.load_rows`


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


def _classes(value: Any) -> Iterator[type]:
    """The classes whose code and values an object has, or a class itself: those of the reader."""
    for cls in (value if isinstance(value, type) else type(value)).__mro__:
        if cls in _SETTINGS or cls.__module__.partition(".")[0] not in _OPAQUE:
            yield cls


def _attributes(value: Any) -> list[tuple[str, Any]] | None:
    """Names and values of what is looked into; None of other objects."""
    classes = list(_classes(value))
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
    return list(found.items())


class _Frozen(tuple):
    """The value of a container or a number, as it was."""


def _frozen(value: Any, depth: int = 4) -> Any:
    """`value`, or for plain data a copy that later changes do not reach."""
    if isinstance(value, _BY_VALUE):
        return _Frozen((type(value), repr(value)))  # which tells 0.0 from -0.0
    if isinstance(value, _CONTAINERS) and depth and _may_be_copied(value):
        entries = value.items() if isinstance(value, dict) else value
        return _Frozen((type(value), *(_frozen(v, depth - 1) for v in entries)))
    if isinstance(value, Mapping) and len(value) <= _LARGE and depth:  # such as os.environ
        return _frozen(dict(value), depth)
    if isinstance(value, np.ndarray) and value.nbytes <= _LARGE_ARRAY and not value.dtype.hasobject:
        return _Frozen((type(value), value.dtype.str, value.shape, value.tobytes()))
    if depth and not isinstance(value, (FunctionType, ModuleType)):
        attributes = _attributes(value)
        if attributes is not None and len(attributes) <= _LARGE:
            held = (_frozen(pair, depth - 1) for pair in attributes)
            return _Frozen((_Identity(value), *held))
    return _Identity(value)


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
