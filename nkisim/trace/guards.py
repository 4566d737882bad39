"""Guards: what a kernel can read besides its tensors, to tell whether its trace is still valid.

A trace is replayed on positive evidence only. All that a kernel can reach has to be of a kind that
is compared whole:

- numbers, text, None, dtypes; tuples, lists, sets, dicts; arrays of numbers;
- functions of Python: code, defaults, attributes, closure, and what the code names (see
  nkisim.trace.reads); bound methods, properties, functools.partial;
- classes of Python and their instances: all attributes;
- modules: by the attributes that code asks them for. A module in a variable, in a container or in
  an argument could be asked for anything;
- functions and classes of Python, NumPy and nkisim whose results follow from their arguments: they
  are listed in nkisim.trace.listed.

Whatever else there is, an iterator, a file, the clock, a cache, a random generator, an object of a
C extension, means that the kernel is traced at each call. So does a trace that changes what it
reads.

What a kernel reaches is compared by identity: each object refers to the same objects as it did. The
constants among its arguments may be other objects, if they are equal.
"""

from __future__ import annotations

import abc
import enum
import functools
import hashlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from types import (
    BuiltinFunctionType,
    CellType,
    EllipsisType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    NotImplementedType,
    SimpleNamespace,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from nkisim.trace.listed import FIELD, is_library, is_listed, is_own
from nkisim.trace.reads import ENCLOSED, reads_of

_MISSING = object()
_MOST = 100_000  # references that are compared at each call; of more, the kernel is traced again
_HASHED = 2**12  # bytes from which an array is compared by a hash

# Of these the value is all there is. Their types are compared as well: 1, 1.0 and True are equal.
_EXACT = frozenset({bool, int, str, bytes, NoneType, EllipsisType, NotImplementedType})
_BY_TEXT = frozenset({float, complex, range})  # 0.0 equals -0.0, and nan nothing
_LISTS = frozenset({tuple, list, set, frozenset})
_DICTS = frozenset({dict, MappingProxyType})
_UNCHANGING = frozenset({tuple, frozenset, slice, MethodType, property, staticmethod, classmethod})
_WRAPPERS = (property, staticmethod, classmethod, functools.cached_property)
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, FIELD)
_IN_C = (WrapperDescriptorType, MethodDescriptorType, BuiltinFunctionType)
_ONE_OF_A_KIND = (type, FunctionType, enum.Enum, NoneType, bool, EllipsisType)
# Classes of the reader's may add attributes to these, and nothing else to what is compared.
_LAYOUTS = (tuple, list, set, frozenset, dict, int, float, str, bytes, object)
# Entries of a class that its statement makes, and that say nothing to a kernel.
_OF_CLASSES = frozenset(
    {"__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__"}
    | {"__dict__", "__weakref__", "__slots__", "__hash__", "__match_args__", "__abstractmethods__"}
    | {"__dataclass_fields__", "__dataclass_params__", "__orig_bases__", "__parameters__"}
    | {"__static_attributes__", "__firstlineno__", "__type_params__", "__protocol_attrs__"}
    | {"__annotations_cache__", "__non_callable_proto_members__", "_abc_impl"}
)


class NotComparable(Exception):
    """A value of a kind that no guard compares whole."""


class Same:
    """An identity key: equal for one and the same object only, which it keeps alive."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def token(value: Any) -> Any:
    """A hashable object for a value that has no parts, or is named by identity; None for others."""
    kind = type(value)
    if kind in _EXACT:
        return kind, value
    if kind in _BY_TEXT or isinstance(value, np.dtype):
        return kind, repr(value)
    if isinstance(value, np.generic) and kind is value.dtype.type and kind is not np.void:
        return kind, str(value.dtype), value.tobytes()
    if isinstance(value, (FunctionType, type, enum.Enum)) or is_listed(value):
        return Same(value)
    return None


def parts(value: Any) -> tuple[Any, list[Any]]:
    """What an object consists of: what is compared by value, and is hashable, and the objects that
    it refers to.

    Raises:
        NotComparable: it is of no kind that is compared whole.
    """
    kind = type(value)
    if kind is FunctionType:
        own, cells = value.__dict__, _held_by_function(value)
        names = value.__name__, value.__qualname__
        given = value.__code__, value.__defaults__, value.__kwdefaults__
        return None, [*given, *names, *cells, *own, *own.values()]
    if kind in _LISTS:
        return None, [*value]
    if kind in _DICTS:
        return None, [*value, *value.values()]
    if kind is np.ndarray:
        return _array(value)
    if kind is MethodType:
        return None, [value.__func__, value.__self__]
    if kind is functools.partial:
        own = vars(value)
        return None, [value.func, value.args, value.keywords, *own, *own.values()]
    if kind is slice:
        return None, [value.start, value.stop, value.step]
    if kind is property:
        return None, [value.fget, value.fset, value.fdel]
    if kind in _WRAPPERS:
        return None, [getattr(value, "func", None) or value.__func__]
    if kind in _DESCRIPTORS:
        return None, []
    if kind is BuiltinFunctionType and not isinstance(value.__self__, ModuleType):
        return value.__name__, [value.__self__]
    if kind is SimpleNamespace:
        return None, [kind, *vars(value), *vars(value).values()]
    if isinstance(value, type):
        own = vars(value)
        return None, [value.__name__, value.__qualname__, *value.__bases__, *own, *own.values()]
    if isinstance(value, ModuleType):
        raise NotComparable(f"module {value.__name__} may be asked for anything")
    fixed, held = held_by(value)
    attributes = attributes_of(value)
    return fixed, [kind, *held, *attributes, *attributes.values()]


def _array(value: np.ndarray) -> tuple[Any, list[Any]]:
    if value.dtype.hasobject:
        raise NotComparable("an array of objects")
    data = value.tobytes()
    if len(data) > _HASHED:
        data = hashlib.blake2b(data).digest()
    fixed = repr(value.dtype), value.shape, value.strides, value.flags.num, data
    return fixed, [value.base]


def held_by(value: Any) -> tuple[Any, list[Any]]:
    """What the builtin base of an instance holds: the value of a number or text, and a list."""
    base, _ = _layout(type(value).__mro__)
    if base is object:
        return None, []
    if base is dict:
        return None, [*dict.keys(value), *dict.values(value)]
    return (None, [*base.__iter__(value)]) if base in _LISTS else (base.__repr__(value), [])


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an instance, by name."""
    cls = type(value)
    attributes: dict[str, Any] = {}
    for name, read in _layout(cls.__mro__)[1]:
        try:
            found = read(value)
        except AttributeError:  # a slot that is empty
            continue
        if name == "__dict__":
            attributes.update(found)
        else:
            attributes[name] = found
    for name in getattr(cls, "follows_from_others", ()) if is_own(cls) else ():
        attributes.pop(name, None)
    return attributes


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
    extra = slots + (cls.__dictoffset__ != 0) + (cls.__weakrefoffset__ > 0)
    word = object.__basicsize__ // 2
    if cls.__basicsize__ > base.__basicsize__ + extra * word:
        raise NotComparable(f"a {cls.__module__}.{cls.__qualname__} is not compared")
    return base, tuple(readers)


class Guards:
    """Everything that a function, and what it reaches, may read when it is called.

    Args:
        function: a function, or another callable.
        constants: what it is called with, besides tensors, part by part.

    Attributes:
        reason: why that is not known to be compared whole; None where it is.
    """

    def __init__(self, function: Callable, constants: Iterable[Any] = ()) -> None:
        self.reason: str | None = None
        self._spaces: dict[int, tuple[Mapping, dict[str, Any]]] = {}  # variables, by namespace
        self._objects: list[tuple[Any, Any, list[Any]]] = []
        self._same: list[tuple[int, Any]] = []  # constants that are to be the same objects
        self._identity = False
        self._function, self._annotations = function, _annotations(function)
        self._abstract = False  # whether an abstract class is reached
        constants = [*constants]
        try:
            self._reach([function, *_named_by(constants)])
        except NotComparable as error:
            self.reason = str(error)
        self._world = self._now()
        for at, value in enumerate(constants):
            if self._identity or _is_equal_to_itself_only(value):
                self._same.append((at, value))

    def hold(self, constants: list[Any]) -> bool:
        """Whether a trace made now would read what it read when the guards were made."""
        if self.reason is not None or self._world != self._now():
            return False
        if not _are(_annotations(self._function), self._annotations):
            return False
        if self._same and any([constants[at] is not value for at, value in self._same]):
            return False
        for space, then in self._spaces.values():
            if not all(map(operator.is_, map(space.get, then, repeat(_MISSING)), then.values())):
                return False
        try:
            for value, fixed, references in self._objects:
                fixed_now, now = parts(value)
                if fixed_now != fixed or not _are(now, references):
                    return False
        except NotComparable:
            return False
        return True

    def settle(self, constants: list[Any]) -> None:
        """To be called after tracing: a trace that has changed what it read is not replayed."""
        self._world = self._now()  # a module that was imported on the way may register classes
        if self.reason is None and not self.hold(constants):
            self.reason = "the trace has changed what it reads"

    def _now(self) -> tuple[Any, ...]:
        """How arrays are printed, and which classes are registered with abstract ones."""
        return np.get_printoptions(), abc.get_cache_token() if self._abstract else 0

    def _reach(self, values: list[Any]) -> None:
        """Note all that is reached from some values."""
        seen: dict[int, Any] = {}
        left = _MOST
        while values:
            value = values.pop()
            self._abstract |= issubclass(type(value), abc.ABCMeta)
            if type(value) in _EXACT or id(value) in seen or is_listed(value):
                continue
            if _is_taken_as_it_is(value):
                continue
            seen[id(value)] = value
            known = token(value)
            if known is not None and type(known) is not Same:  # a number, or the like
                continue
            fixed, references = parts(value)
            left -= len(references)
            if left < 0:
                raise NotComparable("there is too much to compare")
            if type(value) not in _UNCHANGING:
                self._objects.append((value, fixed, references))
            if isinstance(value, type):
                values += [*_members(value), *value.__bases__, type(value)]
            elif isinstance(value, FunctionType):
                values += [x for x in _held_by_function(value) if not isinstance(x, ModuleType)]
                values += [value.__defaults__, value.__kwdefaults__, *value.__dict__.values()]
                values += () if is_library(value) else self._named(value)
            else:
                values += references

    def _named(self, function: FunctionType) -> Iterator[Any]:
        """What the code of a function names, which is noted."""
        reads = reads_of(function.__code__)
        if reads.doubt:
            raise NotComparable(reads.doubt)
        self._identity |= reads.identity
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for chain in reads.chains:
            where, name, *attributes = chain
            if where == ENCLOSED:  # by this function, or one that is defined in it
                value = _content(cells[name]) if name in cells else _MISSING
            else:
                value = self._look_up(function.__globals__, name)
                if value is _MISSING:
                    value = self._look_up(function.__builtins__, name)
                    if (value is getattr or value is hasattr) and value.__name__ == name:
                        continue  # with a name that stands in the code
            while isinstance(value, ModuleType) and attributes:
                value = self._attribute(value, attributes.pop(0))
            if chain in reads.compared and not isinstance(value, _ONE_OF_A_KIND):
                self._identity = True
            if value is not _MISSING:
                yield value

    def _attribute(self, module: ModuleType, name: str) -> Any:
        """What a module has, which is noted. A module may compute what it lacks."""
        own, kind = vars(module), type(module)
        plain = kind.__getattribute__ is ModuleType.__getattribute__ and not hasattr(kind, name)
        lacks = name not in own and not is_own(kind)
        if lacks and kind is ModuleType:
            plain &= self._look_up(own, "__getattr__") is _MISSING
        if not plain or (lacks and kind is not ModuleType):
            raise NotComparable(f"module {module.__name__} computes its attribute {name}")
        return self._look_up(own, name)

    def _look_up(self, space: Mapping, name: str) -> Any:
        """What a name stands for in a namespace, which is noted."""
        _, names = self._spaces.setdefault(id(space), (space, {}))
        return names.setdefault(name, space.get(name, _MISSING))


def _are(now: list[Any], then: list[Any]) -> bool:
    """Whether two lists hold the same objects."""
    return len(now) == len(then) and all(map(operator.is_, now, then))


def _annotations(function: Callable) -> list[Any]:
    """The annotations of a kernel, which the simulator reads: they may be shapes of its tensors."""
    found = getattr(function, "__annotations__", {})
    return [*found, *found.values()]


def _named_by(constants: Iterable[Any]) -> Iterator[Any]:
    """Functions, classes and the like among constants: what they are is not in their values."""
    for value in constants:
        if type(token(value)) is Same:
            yield value
        elif type(value) not in _EXACT:
            yield type(value)


def _is_taken_as_it_is(value: Any) -> bool:
    """Whether an object is the simulator's, and not to be changed, or a class of the library."""
    if isinstance(value, FunctionType):
        return is_own(value)
    if isinstance(value, type):
        return is_own(value) or is_library(value)
    return isinstance(value, enum.Enum) and is_own(type(value))


def _is_equal_to_itself_only(value: Any) -> bool:
    """Whether `==` compares the identity of an object."""
    return type(value).__eq__ is object.__eq__ and token(value) is None


def _members(cls: type) -> Iterator[Any]:
    """The entries of a class that are of use to a kernel."""
    for name, member in vars(cls).items():
        special = name.startswith("__") and name.endswith("__")
        if name in _OF_CLASSES or (special and isinstance(member, _IN_C)):
            continue
        if not (isinstance(cls, enum.EnumType) and _is_of_enum(name, member, cls)):
            yield member
    if isinstance(cls, enum.EnumType):
        yield from cls.__members__.values()


def _is_of_enum(name: str, member: Any, cls: enum.EnumType) -> bool:
    """Whether `enum` made an entry of a class: a member, or what it makes members with."""
    if name in cls.__members__ or isinstance(member, enum.property):
        return True
    reserved = name[:1] == name[-1:] == "_" and name[:2] != "__"
    return reserved and not isinstance(member, (FunctionType, staticmethod, classmethod))


def _held_by_function(function: FunctionType) -> list[Any]:
    """What the variables hold that a function has of those around it."""
    return [_content(cell) for cell in function.__closure__ or ()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING
