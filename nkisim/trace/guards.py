"""Guards: all that a trace read of Python besides tensors, to tell whether it is still valid.

A kernel may read module constants, closure variables, objects and functions while it is traced,
and a later call may replay the trace only if all of that is unchanged. So everything that the
kernel and the functions it reaches may read is compared: plain data by value and at its full size
(large arrays by a hash), functions, classes and modules by identity together with what they read
in turn.

It fails closed. Where something cannot be compared (an iterator, the clock, a file, an object of a
C extension), where the trace itself changed what it read, or where there is too much of it, the
trace is not replayed: each call traces the kernel anew.
"""

from __future__ import annotations

import builtins
import enum
import functools
import hashlib
import logging
import operator
import sys
from collections import OrderedDict, deque, namedtuple
from collections.abc import Callable, Collection, Iterable, Mapping
from types import (
    BuiltinFunctionType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np

from nkisim.trace.names import names_in

_MISSING = object()
_MOST = 100_000  # values that are compared at each call; of more, the kernel is traced again
_HASHED = 2**12  # bytes from which an array is compared by a hash

# Of these the value is all there is. Their types are compared as well: 1, 1.0 and True are equal.
_EXACT = frozenset({bool, int, str, bytes, NoneType, EllipsisType})
_BY_TEXT = frozenset({float, complex, slice, range, np.dtype})  # 0.0 equals -0.0, and nan nothing
_QUICK = frozenset({int, str, NoneType})  # no two of these types are equal
_LISTS = frozenset({tuple, list, set, frozenset, deque})
_DICTS = frozenset({dict, OrderedDict, MappingProxyType})
# Classes of the reader's may add attributes to these, and nothing else to what is compared.
_LAYOUTS = (tuple, list, set, frozenset, dict, int, float, str, bytes, object)

# Whose functions and classes are what they are: what a call gives follows from its arguments.
_PURE = frozenset(
    {"nkisim", "neuronxcc", "numpy", "ml_dtypes", "math", "cmath", "builtins", "logging"}
    | {"operator", "_operator", "itertools", "functools", "_functools", "collections", "numbers"}
    | {"_collections", "_collections_abc", "abc", "_abc", "enum", "dataclasses", "types", "typing"}
)
_OPAQUE = frozenset({"nkisim", "neuronxcc", "ml_dtypes"})  # whose objects nobody changes
# What is not: it reads what is not compared.
_IMPURE = frozenset(
    {"open", "input", "eval", "exec", "compile", "globals", "locals", "vars", "dir", "id"}
    | {"__import__", "breakpoint", "memoryview"}
)
# Attributes by which a function gets at what belongs to others.
_INDIRECT = frozenset(
    {"__globals__", "__builtins__", "__closure__", "cell_contents", "__subclasses__"}
    | {"f_globals", "f_locals", "f_builtins", "f_back"}
)
# What looks up names that need not stand in the code: any variable of a module, in the worst case.
_ASKING = (getattr, hasattr, operator.attrgetter, operator.methodcaller)
_LOGS = frozenset(  # functions of logging that give nothing
    {"debug", "info", "warning", "warn", "error", "critical", "exception", "log", "basicConfig"}
)
_IMPURE_NUMPY = frozenset(
    {"load", "loadtxt", "genfromtxt", "fromfile", "memmap", "random", "save", "geterr", "lib"}
)
_CACHED = type(functools.lru_cache(repr))
_FIELD = type(vars(namedtuple("_Pair", "x"))["x"])
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, _FIELD)
# Entries of a class that its statement makes, and that say nothing to a kernel.
_OF_CLASSES = frozenset(
    {"__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__"}
    | {"__dict__", "__weakref__", "__slots__", "__hash__", "__match_args__", "__abstractmethods__"}
    | {"__dataclass_fields__", "__dataclass_params__", "__orig_bases__", "__parameters__"}
    | {"__static_attributes__", "__firstlineno__", "__type_params__", "__protocol_attrs__"}
)
_AROUND_FUNCTIONS = (property, staticmethod, classmethod, functools.cached_property)


class NotComparable(Exception):
    """A value whose changes cannot be detected: no guard can compare it."""


class Same:
    """An identity key: equal for one and the same object only, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def token(value: Any, referred: list[Any] | None = None) -> Any:
    """A hashable object that is equal for values of which a trace would be the same.

    Args:
        value: anything.
        referred: receives the functions, classes and modules inside, which the token names by
            identity only.

    Raises:
        NotComparable: there is no such object.
    """
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    return _Tokens([] if referred is None else referred).of(value)


class _Tokens:
    """Makes the token of one value. What occurs in it several times is looked at once."""

    def __init__(self, referred: list[Any]) -> None:
        self._referred = referred
        self._seen: dict[int, tuple[int, Any]] = {}  # with the values, which keeps their ids
        self._left = _MOST

    def of(self, value: Any) -> Any:
        kind = type(value)
        if kind in _EXACT:
            return kind, value
        if kind in _BY_TEXT or isinstance(value, np.dtype):
            return kind, repr(value)
        if isinstance(value, np.generic):
            return kind, str(value.dtype), value.tobytes()
        if _is_referred(value):
            self._referred.append(value)
            return Same(value)
        if isinstance(value, enum.Enum):  # there is one of each, and its own is looked at once
            self._referred.append(value)
            return Same(value)
        at = self._seen.get(id(value))
        if at is not None:
            return "seen", at[0]
        self._seen[id(value)] = len(self._seen), value
        self._left -= 1
        if self._left < 0:
            raise NotComparable("there is too much to compare")
        if kind is np.ndarray:
            return self._array(value)
        if kind in _LISTS:
            return self._list(kind, value)
        if kind in _DICTS:
            return kind, self._list(list, [*value]), self._list(list, [*value.values()])
        if kind is MethodType:
            return kind, self.of(value.__func__), self.of(value.__self__)
        if kind is functools.partial:
            return kind, self.of(value.func), self.of(value.args), self.of(value.keywords)
        if isinstance(value, BuiltinFunctionType):
            return kind, value.__name__, self.of(value.__self__)
        return self._object(value)

    def _list(self, kind: type, value: Iterable[Any]) -> Any:
        entries = tuple(value)
        if len(entries) > 8 and _QUICK.issuperset(map(type, entries)):
            return kind, entries
        self._left -= len(entries)
        return kind, tuple([self.of(x) for x in entries])

    @staticmethod
    def _array(value: np.ndarray) -> Any:
        if value.dtype.hasobject:
            raise NotComparable("an array of objects")
        data = value.tobytes()
        if len(data) > _HASHED:
            data = hashlib.blake2b(data).digest()
        return np.ndarray, str(value.dtype), value.shape, value.strides, data

    def _object(self, value: Any) -> Any:
        """The token of an instance of a class: its attributes, and what its builtin base holds."""
        cls = type(value)
        if package(cls) in _OPAQUE:
            self._referred.append(value)
            return Same(value)
        if isinstance(value, logging.Logger) and package(cls) == "logging":
            levels = value.level, value.getEffectiveLevel(), value.disabled, value.manager.disable
            return Same(value), levels, tuple([Same(h) for h in value.handlers])
        base, readers = _layout(cls.__mro__)
        self._referred.append(cls)
        held: list[Any] = []
        if issubclass(base, dict):
            held = [*dict.keys(value), *dict.values(value)]
        elif issubclass(base, (tuple, list, set, frozenset)):
            held = list(base.__iter__(value))
        elif base is not object:
            held = [base.__repr__(value)]
        for name, read in readers:
            try:
                held += [name, read(value)]
            except AttributeError:  # a slot that is empty
                held += [name, _MISSING]
        return Same(cls), self._list(list, [None if x is _MISSING else x for x in held])


def _is_referred(value: Any) -> bool:
    """Whether a value is compared by identity, and by what it reads in turn (see Guards)."""
    if isinstance(value, BuiltinFunctionType):
        return value.__self__ is None or isinstance(value.__self__, ModuleType)
    return isinstance(
        value,
        (FunctionType, ModuleType, type, np.ufunc, _CACHED, *_AROUND_FUNCTIONS, *_DESCRIPTORS),
    )


@functools.lru_cache(maxsize=1024)
def _layout(mro: tuple[type, ...]) -> tuple[type, tuple[tuple[str, Callable[[Any], Any]], ...]]:
    """The builtin type that objects of a class extend, and what reads their attributes.

    Args:
        mro: the class, and those that it derives from now.

    Raises:
        NotComparable: they hold more than that, somewhere in C.
    """
    cls = mro[0]
    base = next(b for b in _LAYOUTS if issubclass(cls, b))
    readers: list[tuple[str, Callable[[Any], Any]]] = []
    slots = 0
    for part in mro:
        for name, member in vars(part).items():
            if part in _LAYOUTS or part.__module__ == "builtins":
                continue
            if isinstance(member, MemberDescriptorType):
                readers.append((name, member.__get__))
                slots += 1
            elif name == "__dict__" and isinstance(member, GetSetDescriptorType):
                readers.append((name, member.__get__))
    extra = slots + (cls.__dictoffset__ > 0) + (cls.__weakrefoffset__ > 0)
    word = object.__basicsize__ // 2
    if cls.__basicsize__ > base.__basicsize__ + extra * word:
        raise NotComparable(f"{cls.__name__} is not a class of Python")
    return base, tuple(readers)


class Guards:
    """Everything that a function, and what it reaches, may read when it is called.

    Args:
        function: a function, or another callable.
        arguments: what it is called with, besides tensors.

    Attributes:
        reason: why that cannot be compared; None where it can.
    """

    def __init__(self, function: Callable, arguments: Iterable[Any] = ()) -> None:
        self.reason: str | None = None
        self._variables: list[tuple[Mapping, str, Any]] = []
        self._names: list[tuple[Mapping, tuple[str, ...]]] = []  # all that a namespace has
        self._bases: list[tuple[type, tuple[type, ...]]] = []
        self._absent: list[tuple[Mapping, frozenset[str]]] = []  # some that it does not have
        self._caches: list[Any] = []  # functions that remember results
        self._made: list[int] = []  # how many each of them had computed
        self._cells: list[tuple[Any, Any]] = []
        self._functions: list[tuple[FunctionType, tuple]] = []
        self._values: list[tuple[Any, Any]] = []  # what may change and stay one object: its token
        try:
            referred: list[Any] = [function]
            for value in arguments:
                token(value, referred)
            _Reach(self).visit_all(referred)
        except NotComparable as error:
            self.reason = str(error)

    def hold(self) -> bool:
        """Whether a trace made now would read what it read when the guards were made."""
        if self.reason is not None:
            return False
        for space, name, then in self._variables:
            now = space.get(name, _MISSING)
            if now is not then and not _equal(now, then):
                return False
        for cell, then in self._cells:
            now = _content(cell)
            if now is not then and not _equal(now, then):
                return False
        for function, then in self._functions:
            if any([a is not b for a, b in zip(_parts(function), then, strict=True)]):
                return False
        for space, names in self._names:
            if tuple(space) != names:
                return False
        for cls, bases in self._bases:
            if cls.__bases__ is not bases:
                return False
        for space, absent in self._absent:
            if not space.keys().isdisjoint(absent):
                return False
        for cache, made in zip(self._caches, self._made, strict=False):
            if cache.cache_info().misses < made:  # it was cleared
                return False
        try:
            return all(token(value) == then for value, then in self._values)
        except NotComparable:
            return False

    def settle(self) -> None:
        """To be called after tracing: a trace that has changed what it read is not replayed."""
        self._made = [cache.cache_info().misses for cache in self._caches]
        if self.reason is None and not self.hold():
            self.reason = "the trace has changed what it reads"


class _Reach:
    """Walks over what functions may read, and puts it into guards.

    Args:
        guards: where it goes.
    """

    def __init__(self, guards: Guards) -> None:
        self._guards = guards
        self._seen: dict[int, Any] = {}
        self._names: set[str] = {"__getattr__"}  # that any of the functions looks up
        self._modules: list[ModuleType] = []
        self._watched: set[tuple[int, str]] = set()
        self._asks_by_name = False
        self._next: deque[Any] = deque()

    def visit_all(self, values: Iterable[Any]) -> None:
        self._next.extend(values)
        while self._next:
            while self._next:
                if len(self._seen) > _MOST:
                    raise NotComparable("there is too much to compare")
                self._visit(self._next.popleft())
            for module in self._modules:  # whoever looks a name up may have got the module
                for name in self._names & vars(module).keys():
                    self._watch(vars(module), module, name)
        if self._asks_by_name and self._modules:
            raise NotComparable("a computed name may be that of any variable of a module")
        for module in self._modules:
            absent = frozenset(self._names - vars(module).keys())
            self._guards._absent.append((vars(module), absent))

    def _visit(self, value: Any) -> None:
        if type(value) in _EXACT or id(value) in self._seen:
            return
        self._seen[id(value)] = value
        if isinstance(value, FunctionType):
            if package(value) == "logging":
                _check_logging(value.__name__)
            elif package(value) not in _PURE:
                self._function(value)
            elif package(value) == "functools":  # it may call what it is made of
                self._made_of(value)
        elif isinstance(value, ModuleType):
            if package(value) not in _PURE:
                self._modules.append(value)
                self._next.append(type(value))
        elif value in _ASKING if isinstance(value, BuiltinFunctionType | type) else False:
            self._asks_by_name = True
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, BuiltinFunctionType) and _is_referred(value):
            top = (value.__module__ or "").partition(".")[0]
            if top not in _PURE or value.__name__ in _IMPURE or _is_random(value):
                raise NotComparable(f"{value.__name__} reads what is not compared")
        elif isinstance(value, _CACHED):
            self._guards._caches.append(value)
            self._next.append(value.__wrapped__)
            self._attributes(vars(value), value, {"__wrapped__"})
        elif isinstance(value, property):
            self._next += [value.fget, value.fset]
        elif isinstance(value, _AROUND_FUNCTIONS):
            self._next.append(getattr(value, "func", None) or value.__func__)
        elif isinstance(value, (np.ufunc, *_DESCRIPTORS)):
            pass
        elif package(type(value)) in _OPAQUE:
            self._next.append(getattr(value, "func", None))  # of a kernel
        elif isinstance(value, enum.Enum):
            self._attributes(vars(value), value, {"__objclass__", "_name_", "_sort_order_"})
            self._next.append(type(value))
        else:
            referred: list[Any] = []
            self._guards._values.append((value, token(value, referred)))
            self._next += referred

    def _class(self, cls: type) -> None:
        if package(cls) in _PURE:
            if _is_random(cls):
                raise NotComparable(f"{cls.__name__} reads what is not compared")
            return
        members = {
            name: member
            for name, member in vars(cls).items()
            if _is_referred(member) or (name not in _OF_CLASSES and not _is_wrapper(name, member))
        }
        members.pop("_abc_impl", None)  # which remembers answers of isinstance
        if isinstance(cls, enum.EnumType):
            self._next += cls.__members__.values()
            members = {k: v for k, v in members.items() if not _is_of_enum(k, v, cls)}
        self._guards._names.append((vars(cls), tuple(vars(cls))))
        self._guards._bases.append((cls, cls.__bases__))
        for name, member in members.items():
            if isinstance(member, BuiltinFunctionType) or not _is_python(member):
                raise NotComparable(f"{cls.__name__}.{name} is not a function of Python")
            self._watch(vars(cls), cls, name)
        self._next += [*cls.__bases__, type(cls)]

    def _attributes(self, space: Mapping, owner: Any, but: Collection[str] = ()) -> None:
        """Watch all that a namespace has, and that it gets no more."""
        self._guards._names.append((space, tuple(space)))
        for name in [name for name in space if name not in but]:
            self._watch(space, owner, name)

    def _made_of(self, function: FunctionType) -> None:
        """Watch what a function has of its own: defaults, attributes and closure."""
        self._guards._functions.append((function, _parts(function)))
        self._next += [function.__defaults__, function.__kwdefaults__]
        self._attributes(function.__dict__, function)
        for cell in function.__closure__ or ():
            content = _content(cell)
            self._guards._cells.append((cell, content))
            if content is not _MISSING:
                self._next.append(content)

    def _function(self, function: FunctionType) -> None:
        code = function.__code__
        self._made_of(function)
        space = function.__globals__
        found = names_in(code)
        self._names |= found.variables | found.attributes
        if not _INDIRECT.isdisjoint(found.attributes):
            (name, *_) = _INDIRECT & found.attributes
            raise NotComparable(f"{name} leads to what is not compared")
        self._asks_by_name |= found.asks
        for name in found.variables:
            self._watch(space, space, name)
            if name not in space and hasattr(builtins, name):
                if name in _IMPURE:
                    raise NotComparable(f"{name} reads what is not compared")
                if getattr(builtins, name) not in (getattr, hasattr):  # see _Names.asks
                    self._watch(vars(builtins), builtins, name)
        for name, attribute in found.pairs:
            module = space.get(name)
            of_numpy = isinstance(module, ModuleType) and package(module) == "numpy"
            if module is logging and not attribute.isupper():
                _check_logging(attribute)
            if of_numpy and (attribute in _IMPURE_NUMPY or "random" in module.__name__):
                raise NotComparable(f"numpy.{attribute} reads what is not compared")
        for name in found.imported:
            if name.partition(".")[0] in _PURE:
                if "random" in name.split("."):
                    raise NotComparable(f"{name} reads what is not compared")
                continue
            if name not in sys.modules:
                raise NotComparable(f"{name} is not imported yet")
            for module in {name.partition(".")[0], name}:
                self._watch(sys.modules, sys.modules, module)

    def _watch(self, space: Mapping, owner: Any, name: str) -> None:
        """Watch what a name stands for in a namespace, which belongs to `owner`."""
        key = id(owner), name
        if key not in self._watched:
            self._watched.add(key)
            value = space.get(name, _MISSING)
            self._guards._variables.append((space, name, value))
            if value is not _MISSING:
                self._next.append(value)


def package(value: FunctionType | ModuleType | type) -> str:
    """The package, or the module that is in none, that a function, class or module belongs to."""
    if isinstance(value, FunctionType):
        name = value.__globals__.get("__name__")  # a decorator may have copied `__module__`
    else:
        name = value.__name__ if isinstance(value, ModuleType) else value.__module__
    return name.partition(".")[0] if isinstance(name, str) else ""


def _is_python(member: Any) -> bool:
    """Whether a member of a class is data, or code of Python."""
    return not type(member).__name__.endswith(("wrapper_descriptor", "method_descriptor"))


def _is_wrapper(name: str, member: Any) -> bool:
    """Whether a member of a class is a special method that C gives it."""
    special = name.startswith("__") and name.endswith("__")
    return special and (isinstance(member, BuiltinFunctionType) or not _is_python(member))


def _is_of_enum(name: str, member: Any, cls: enum.EnumType) -> bool:
    """Whether `enum` made an entry of a class: a member, or what it makes members with."""
    if name in cls.__members__ or isinstance(member, enum.property):
        return True
    reserved = name[:1] == name[-1:] == "_" and name[:2] != "__"
    return reserved and not isinstance(member, (FunctionType, staticmethod, classmethod))


def _check_logging(name: str) -> None:
    """A kernel may write to a log; loggers that it looks up there are not compared."""
    if name not in _LOGS:
        raise NotComparable(f"logging.{name} reads what is not compared")


def _is_random(value: Any) -> bool:
    """Whether a function or class of NumPy makes random numbers."""
    return "random" in (value.__module__ or "").split(".")


def _equal(now: Any, then: Any) -> bool:
    """Whether two objects are equal for a trace."""
    if type(now) is not type(then):
        return False
    try:
        return token(now) == token(then)
    except NotComparable:
        return False


def _parts(function: FunctionType) -> tuple:
    """The parts of a function that stay the same objects unless they are replaced."""
    return function.__code__, function.__defaults__, function.__kwdefaults__, function.__dict__


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING
