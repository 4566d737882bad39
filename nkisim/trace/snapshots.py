"""What Python values hold at some time, to be compared with what they hold later.

Numbers, strings, small arrays, and small containers and objects with such in them are copied,
iterators and generators of random numbers as what they give next. Of what is large, and of objects
of libraries, a snapshot tells only which one it was. It is bounded: _MOST entries.
"""

from __future__ import annotations

import ctypes
import functools
import random
import sys
import threading
import warnings
from argparse import Namespace
from array import array
from collections import UserDict, UserList, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from contextvars import ContextVar
from functools import partial
from queue import Queue
from types import (
    BuiltinMethodType,
    FunctionType,
    GeneratorType,
    MethodType,
    MethodWrapperType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

BY_VALUE = (bool, int, float, complex, str, bytes, type(None), np.generic)
_CONTAINERS = (list, tuple, set, frozenset, dict, deque)
_BYTES = (bytearray, memoryview, array, ctypes.Structure, *ctypes.c_int.__mro__[1:2])
_LARGE = 256  # entries; of larger containers and objects it is told which one it was
_LONG = 4096  # entries of one that holds numbers and text only
_MOST = 2**12  # entries of values that are copied together, and of what they hold
_DEPTH = 12  # of containers in one another; a dict and an object count as two
_LARGE_ARRAY = 2**16  # bytes; the same of arrays

# Whose attributes do not change: the kernel's vocabulary.
LIBRARIES = frozenset({"nkisim", "neuronxcc", "numpy", "math", "ml_dtypes"})

# Objects of these are not looked into, but for those that are made to hold what readers put in.
_OPAQUE = LIBRARIES | sys.stdlib_module_names | {"jax", "jaxlib", "torch", "torch_xla"}
_SETTINGS = (SimpleNamespace, Namespace, UserDict, UserList, Queue, threading.local)

_CALLED = (partial, MethodType, MethodWrapperType, BuiltinMethodType)

# Calls change them; pickle knows what is in them.
_NUMPY = (np.random.Generator, np.random.BitGenerator, np.random.RandomState)
_CHANGING = (Iterator, random.Random, *_NUMPY)

# What code of the reader may change by other than an assignment to a variable or an attribute.
MUTABLE = (list, dict, set, deque, np.ndarray, ContextVar, *_BYTES, *_SETTINGS, *_CHANGING)


def entries(value: Any) -> Collection:
    """What a container, or an object that is looked into, holds; nothing of others."""
    if isinstance(value, np.ndarray):
        return value.tolist() if value.dtype.hasobject and value.size <= _LARGE else ()
    read = _reader(type(value))
    parts = None if read is None else read(value)
    return () if parts is None else parts[1]


def snapshot(value: Any, ignored: tuple[type, ...] = ()) -> Any:
    """`value`, or for plain data a copy that later changes do not reach.

    Args:
        value: anything.
        ignored: types whose values are all taken for the same.
    """
    return Copier(ignored).copy(value)


def is_unchanged(now: Any, then: Any, ignored: tuple[type, ...] = ()) -> bool:
    """Whether a value is what a snapshot says that was taken with the same types ignored."""
    if isinstance(then, Identity):
        return now is then.value
    return snapshot(now, ignored) == then


class Identity:
    """Equal for one and the same object only, which it keeps alive."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Identity) and self.value is other.value

    __hash__ = None


def package(value: FunctionType | ModuleType | type) -> str:
    """The package, or module that is in none, that a function, class or module belongs to."""
    name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return (name or "").partition(".")[0]


def is_looked_into(cls: type) -> bool:
    """Whether a class, and what its objects hold, is the reader's."""
    return issubclass(cls, _SETTINGS) or package(cls) not in _OPAQUE


def attributes(value: Any) -> dict[str, Any] | None:
    """Attributes of what is looked into; None of other objects."""
    classes = [cls for cls in type(value).__mro__ if is_looked_into(cls)]
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


def called_with(value: Any) -> tuple | None:
    """What a function is called with besides its arguments: the object of a method, and what
    `functools.partial` has filled in. None of others, and of functions of a module."""
    if isinstance(value, partial):
        return value.args, value.keywords
    if isinstance(value, _CALLED):
        owner = value.__self__
        return None if isinstance(owner, (ModuleType, type(None))) else (owner,)
    return None


class _Frozen(tuple):
    """The value of a container or a number, as it was."""


class Copier:
    """Copies values: what they hold several times once, and not more than _MOST entries in all.

    Args:
        ignored: types whose values are all taken for the same.
    """

    def __init__(self, ignored: tuple[type, ...] = ()) -> None:
        self._ignored = ignored
        self._left = _MOST
        self._made: dict[tuple[int, int], tuple[Any, Any]] = {}

    def copy(self, value: Any, depth: int = _DEPTH) -> Any:
        """As snapshot, of what may be in so many containers more."""
        if isinstance(value, self._ignored):
            return None
        if isinstance(value, BY_VALUE):
            return _Frozen((type(value), repr(value)))  # which tells 0.0 from -0.0
        key = id(value), depth
        if key not in self._made:
            # With the value, so that no other one gets its id meanwhile.
            self._made[key] = value, self._copy(value, depth)
        return self._made[key][1]

    def _copy(self, value: Any, depth: int) -> Any:
        if isinstance(value, np.ndarray):
            if value.dtype.hasobject and value.size <= _LARGE:
                return self.copy(value.tolist(), depth)
            if value.nbytes <= _LARGE_ARRAY and not value.dtype.hasobject:
                return _Frozen((type(value), value.dtype.str, value.shape, value.tobytes()))
            return Identity(value)
        if isinstance(value, _BYTES):
            return _Frozen((type(value), bytes(memoryview(value))[:_LARGE_ARRAY]))
        read = _reader(type(value)) if depth > 0 else None
        parts = None if read is None else read(value)
        if parts is None or len(parts[1]) > self._left:
            return Identity(value)
        kind, entries, deeper = parts
        self._left -= len(entries)
        return _Frozen((kind, *[self.copy(entry, depth - deeper) for entry in entries]))


# What a value is besides its entries, those, and how much deeper they are; None of a value that is
# not looked into.
_Parts = tuple[Any, Collection, int] | None


@functools.lru_cache(maxsize=1024)
def _reader(cls: type) -> Callable[[Any], _Parts] | None:
    """What tells the parts of a class's values; None where they are not looked into."""
    if issubclass(cls, (FunctionType, ModuleType, type)):
        return None  # functions and classes are looked at by themselves
    if issubclass(cls, Mapping):  # some are not dicts, such as os.environ
        return _parts_of_mapping
    if issubclass(cls, _CONTAINERS):
        return _parts_of_container
    if issubclass(cls, _CHANGING):
        return _parts_of_iterator
    if issubclass(cls, ContextVar):
        return _parts_of_variable
    if issubclass(cls, _CALLED):
        return _parts_of_callable
    return _parts_of_object if any(map(is_looked_into, cls.__mro__)) else None


def _parts_of_mapping(value: Mapping) -> _Parts:
    if len(value) > _LARGE and not (type(value) is dict and _may_be_copied(value.values())):
        return None
    return type(value), [*value, *value.values()], 2


def _parts_of_container(value: Collection) -> _Parts:
    if len(value) > _LARGE and not _may_be_copied(value):
        return None
    return type(value), value, 1


def _parts_of_iterator(value: Any) -> _Parts:
    return Identity(value), _what_comes_next(value), 1


def _parts_of_variable(value: ContextVar) -> _Parts:
    return Identity(value), (value.get(None),), 1


def _parts_of_callable(value: Any) -> _Parts:
    given = called_with(value)
    if given is None:
        return None
    return getattr(value, "func", getattr(value, "__name__", None)), given, 1


def _parts_of_object(value: Any) -> _Parts:
    held = attributes(value)
    if len(held) > _LARGE:
        return None
    return Identity(value), [*held, *held.values()], 2


def _what_comes_next(value: Any) -> tuple:
    """What an iterator, or a generator of random numbers, gives from now on. Never equal where that
    cannot be told."""
    if isinstance(value, GeneratorType):
        frame = value.gi_frame
        return () if frame is None else (frame.f_lasti, dict(frame.f_locals))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # for itertools, as of 3.12
            return tuple(value.__reduce_ex__(2))
    except Exception:  # whatever the class of the reader does there
        return (object(),)


def _may_be_copied(entries: Collection) -> bool:
    """Whether a large container holds numbers and text only, and is not very long."""
    return len(entries) <= _LONG and all([isinstance(x, BY_VALUE) for x in entries])
