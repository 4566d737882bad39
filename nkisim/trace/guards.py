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
  are listed in nkisim.trace.listed. They are known by what they are, not by the names that they
  have, and compared where anyone may change them.

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
import gc
import hashlib
import operator
import struct
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, repeat
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
from typing import Any, NamedTuple

import numpy as np

from nkisim.trace.listed import FIELD, compares_values, is_library, is_listed, is_own
from nkisim.trace.reads import ENCLOSED, leads_elsewhere, reads_of

_MISSING = object()
_MOST = 100_000  # references that are compared at each call; of more, the kernel is traced again
_HASHED = 2**12  # bytes from which an array is compared by a hash

# Of these the value is all there is. Their types are compared as well: 1, 1.0 and True are equal.
_EXACT = frozenset({bool, int, str, bytes, NoneType, EllipsisType, NotImplementedType})
_LISTS = frozenset({tuple, list, set, frozenset})
_UNCHANGING = frozenset({tuple, frozenset, slice, MethodType, property, MappingProxyType})
_DESCRIPTORS = (GetSetDescriptorType, MemberDescriptorType, FIELD)
_IN_C = (WrapperDescriptorType, MethodDescriptorType, BuiltinFunctionType)
_DISPATCHER = type(np.sum)  # NumPy's, around a function of Python
_ONE_OF_A_KIND = (type, FunctionType, enum.Enum, NoneType, bool, EllipsisType)
# Classes of the reader's may add attributes to these, and nothing else to what is compared.
_LAYOUTS = (tuple, list, set, frozenset, dict, int, float, str, bytes, object)
_VALUES: dict[type, Callable[[Any], Any]] = {
    **{int: int.__int__, float: float.__float__, str: str.__str__},
    bytes: lambda value: bytes.__getitem__(value, slice(None)),
}
_bits = struct.Struct("d").pack
_IN_HEAP, _IMMUTABLE = 1 << 9, 1 << 8  # flags of a class: a statement made it, nobody changes it
_GIVEN = operator.attrgetter(
    "__code__", "__defaults__", "__kwdefaults__", "__name__", "__qualname__"
)
_ATTRIBUTES = operator.attrgetter("__dict__")
_CAUGHT = (BaseException, Exception, Warning)  # where these are named, warnings may be
_BOUND = (MethodType, BuiltinFunctionType)
# Entries of a class that its statement makes, and that say nothing to a kernel.
_OF_CLASSES = frozenset(
    {"__module__", "__qualname__", "__annotations__", "__annotate__", "__annotate_func__"}
    | {"__dict__", "__weakref__", "__slots__", "__match_args__", "__abstractmethods__"}
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
    if kind is float:  # 0.0 equals -0.0, and nan nothing
        return kind, _bits(value)
    if kind is complex:
        return kind, _bits(value.real), _bits(value.imag)
    if kind is range:
        return kind, (value.start, value.stop, value.step)
    if isinstance(value, np.dtype) and value.names is value.metadata is value.subdtype is None:
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
        own = value.__dict__
        return None, [*_GIVEN(value), *_held_by_function(value), *own, *own.values()]
    if kind in _LISTS:
        return None, [*value]
    if kind is dict:
        return None, [*value, *value.values()]
    if kind is MappingProxyType:
        return None, gc.get_referents(value)
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
    if kind is staticmethod or kind is classmethod:
        own = vars(value)
        return None, [value.__func__, *own, *own.values()]
    if kind is functools.cached_property:
        return None, [value.func, value.attrname]
    if kind is _DISPATCHER:
        own = vars(value)
        return None, [*own, *own.values()]
    if kind in _DESCRIPTORS:
        return None, []
    if kind is BuiltinFunctionType and not isinstance(value.__self__, ModuleType):
        if leads_elsewhere(value.__name__):
            raise NotComparable(f"{value.__name__} leads to what is not compared")
        return value.__name__, [value.__self__]
    if kind is SimpleNamespace:
        return None, [kind, *vars(value), *vars(value).values()]
    if isinstance(value, type):
        own = vars(value)
        names = value.__name__, value.__qualname__
        return None, [kind, *names, *value.__bases__, *own, *own.values()]
    if isinstance(value, ModuleType):
        raise NotComparable(f"module {value.__name__} may be asked for anything")
    fixed, held = held_by(value)
    attributes = attributes_of(value)
    return fixed, [kind, *held, *attributes, *attributes.values()]


def _array(value: np.ndarray) -> tuple[Any, list[Any]]:
    if token(value.dtype) is None:
        raise NotComparable(f"an array of {value.dtype}")
    if value.dtype.hasobject:
        raise NotComparable("an array of objects")
    data = value.tobytes()
    if len(data) > _HASHED:
        data = hashlib.blake2b(data).digest()
    fixed = repr(value.dtype), value.shape, value.strides, value.flags.num, data
    return fixed, [value.base]


def held_by(value: Any) -> tuple[Any, list[Any]]:
    """What the builtin base of an instance holds: the value of a number or text, and a list."""
    base = _layout(type(value).__mro__).base
    if base is object:
        return None, []
    if base is dict:
        return None, [*dict.keys(value), *dict.values(value)]
    if base in _LISTS:
        return None, [*base.__iter__(value)]
    return token(_VALUES[base](value)), []


def attributes_of(value: Any) -> dict[str, Any]:
    """The attributes of an instance, by name."""
    attributes: dict[str, Any] = {}
    layout = _layout(type(value).__mro__)
    for name, read in layout.readers:
        try:
            found = read(value)
        except AttributeError:  # a slot that is empty
            continue
        if name == "__dict__":
            attributes.update(found)
        else:
            attributes[name] = found
    for name in layout.following:
        attributes.pop(name, None)
    return attributes


class _Layout(NamedTuple):
    """Where objects of a class keep what they are.

    Attributes:
        base: the builtin type that they extend.
        readers: what reads their attributes, by name.
        following: attributes that follow from others.
    """

    base: type
    readers: tuple[tuple[str, Callable[[Any], Any]], ...]
    following: frozenset[str]


@functools.lru_cache(maxsize=1024)
def _layout(mro: tuple[type, ...]) -> _Layout:
    """The layout of objects of a class.

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
            if not part.__flags__ & _IN_HEAP:
                continue
            if isinstance(member, MemberDescriptorType):
                readers.append((name, member.__get__))
                slots += 1
            elif name == "__dict__" and isinstance(member, GetSetDescriptorType):
                readers.append((name, member.__get__))
    extra = slots + (cls.__dictoffset__ != 0) + (cls.__weakrefoffset__ > 0)
    word = object.__basicsize__ // 2
    hidden = cls.__dictoffset__ != 0 and "__dict__" not in dict(readers)
    if hidden or cls.__basicsize__ > base.__basicsize__ + extra * word:
        raise NotComparable(f"a {cls.__module__}.{cls.__qualname__} is not compared")
    following = getattr(cls, "follows_from_others", ()) if is_own(cls) else ()
    return _Layout(base, tuple(readers), frozenset(following))


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
        self._functions: list[FunctionType] = []  # with no attributes, and no variables around them
        self._given: list[Any] = []  # code, defaults and names of those
        self._modules: list[ModuleType] = []
        self._kinds: list[type] = []  # of those
        self._classes: list[type] = []
        self._namespaces = False  # whether a `__dict__` is asked for
        self._same: list[tuple[int, Any]] = []  # constants that are to be the same objects
        self._identity = False
        self._function, self._annotations = function, _annotations(function)
        self._abstract = False  # whether an abstract class is reached
        self._catches = False  # whether a warning that is an error may be caught
        constants = [*constants]
        try:
            if not {"call", "log"}.isdisjoint(np.geterr().values()):
                raise NotComparable("errors of floating point call a function")
            formatter = np.get_printoptions()["formatter"]
            self._reach([function, *_named_by(constants), formatter])
        except NotComparable as error:
            self.reason = str(error)
        self._world = self._now()
        owners = {id(value.__self__) for value in constants if type(value) in _BOUND}
        for at, value in enumerate(constants):
            if self._identity or id(value) in owners or _tells_itself_apart(value):
                self._same.append((at, value))

    def hold(self, constants: list[Any]) -> bool:
        """Whether a trace made now would read what it read when the guards were made."""
        if self.reason is not None or self._world != self._now():
            return False
        if not _are(_annotations(self._function), self._annotations):
            return False
        if self._same and any([constants[at] is not value for at, value in self._same]):
            return False
        if not all(map(operator.is_, map(type, self._modules), self._kinds)):
            return False
        for space, then in self._spaces.values():
            if not all(map(operator.is_, map(space.get, then, repeat(_MISSING)), then.values())):
                return False
        given = chain.from_iterable(map(_GIVEN, self._functions))
        if not all(map(operator.is_, given, self._given)):
            return False
        if any(map(_ATTRIBUTES, self._functions)):
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
        """What functions that are listed follow besides their arguments: how arrays are printed,
        what errors of floating point do, the limits of Python, which warnings are errors where
        something catches these, and which classes are registered with abstract ones."""
        return (
            np.get_printoptions(),
            np.geterr(),
            sys.get_int_max_str_digits(),
            sys.getrecursionlimit(),
            [*warnings.filters] if self._catches else 0,
            abc.get_cache_token() if self._abstract else 0,
        )

    def _reach(self, values: list[Any]) -> None:
        """Note all that is reached from some values."""
        seen: dict[int, Any] = {}
        left = _MOST
        while values:
            value = values.pop()
            self._abstract |= issubclass(type(value), abc.ABCMeta)
            if type(value) in _EXACT or id(value) in seen:
                continue
            seen[id(value)] = value
            if is_listed(value) or _is_taken_as_it_is(value):
                self._note_known(value)
                continue
            known = token(value)
            if known is not None and type(known) is not Same:  # a number, or the like
                continue
            fixed, references = parts(value)
            left -= len(references)
            if left < 0:
                raise NotComparable("there is too much to compare")
            self._note(value, fixed, references)
            if isinstance(value, type):
                values += [*_members(value), *value.__bases__, type(value)]
                self._classes.append(value)
            elif isinstance(value, FunctionType):
                values += [x for x in _held_by_function(value) if not isinstance(x, ModuleType)]
                values += [value.__defaults__, value.__kwdefaults__, *value.__dict__.values()]
                values += () if is_library(value) else self._named(value)
            elif isinstance(value, (staticmethod, classmethod)):
                own = vars(value)  # with copies of what the function has
                values += [value.__func__, *(own[name] for name in own if name[:2] != "__")]
            else:
                values += references

        for cls in self._classes if self._namespaces else ():
            for entry in [vars(cls).get(name) for name in _OF_CLASSES]:
                if type(entry) in (list, dict):
                    self._note(entry, *parts(entry))

    def _note(self, value: Any, fixed: Any, references: list[Any]) -> None:
        """Note what an object consists of."""
        if type(value) is FunctionType and not (value.__closure__ or value.__dict__):
            self._functions.append(value)
            self._given += references
        elif type(value) not in _UNCHANGING:
            self._objects.append((value, fixed, references))

    def _note_known(self, value: Any) -> None:
        """Note what anyone could put in the place of parts of a known function or class."""
        if type(value) is FunctionType and not is_own(value):
            self._note(value, *parts(value))
        elif type(value) is _DISPATCHER:
            self._note(value, *parts(value))
            self._note(value.__wrapped__, *parts(value.__wrapped__))
        elif isinstance(value, type) and not value.__flags__ & _IMMUTABLE:
            self._note(value, *parts(value))

    def _named(self, function: FunctionType) -> Iterator[Any]:
        """What the code of a function names, which is noted."""
        reads = reads_of(function.__code__)
        if reads.doubt:
            raise NotComparable(reads.doubt)
        for space in (function.__globals__, function.__builtins__):
            if type(space) is not dict:
                raise NotComparable("variables are kept in a class of the reader's")
        self._identity |= reads.identity
        self._catches |= reads.catches
        self._namespaces |= reads.namespaces
        cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        for asked in reads.chains:
            where, name, *attributes = asked
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
            if attributes and isinstance(value, FunctionType) and is_own(value):
                self._note(value, *parts(value))
            if asked in reads.compared and not isinstance(value, _ONE_OF_A_KIND):
                self._identity = True
            if isinstance(value, type) and issubclass(value, _CAUGHT):
                self._catches |= issubclass(value, Warning) or value in _CAUGHT
            if value is not _MISSING:
                yield value

    def _attribute(self, module: ModuleType, name: str) -> Any:
        """What a module has, which is noted. A module may compute what it lacks."""
        own, kind = vars(module), type(module)
        computes = kind is not ModuleType and not is_own(kind)
        if name not in own and kind is ModuleType:
            computes = hasattr(kind, name) or self._look_up(own, "__getattr__") is not _MISSING
        if computes:
            raise NotComparable(f"module {module.__name__} computes its attribute {name}")
        if module not in self._modules:
            self._modules.append(module)
            self._kinds.append(kind)
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


def _tells_itself_apart(value: Any) -> bool:
    """Whether an object may be told from another one that consists of the same, without `is`: by
    `==` or `in`, its hash, or its text."""
    kind = type(value)
    if token(value) is not None:
        return isinstance(value, (float, complex, np.inexact)) and bool(value != value)
    if isinstance(kind.__eq__, FunctionType) and not compares_values(kind.__eq__):
        return True
    return any(getattr(kind, n) is getattr(object, n) for n in ("__eq__", "__hash__", "__repr__"))


def _members(cls: type) -> Iterator[Any]:
    """The entries of a class that are of use to a kernel."""
    for name, member in vars(cls).items():
        special = name.startswith("__") and name.endswith("__")
        if name in _OF_CLASSES or (special and isinstance(member, _IN_C)):
            continue
        if isinstance(cls, enum.EnumType) and _is_of_enum(member):
            continue
        yield member
    if isinstance(cls, enum.EnumType):
        yield from cls.__members__.values()


def _is_of_enum(member: Any) -> bool:
    """Whether an entry of an enumeration leads to a member, or is what shows the values of all."""
    if isinstance(member, enum.property):
        return member.fget is None
    return isinstance(member, WrapperDescriptorType)


def _held_by_function(function: FunctionType) -> list[Any]:
    """What the variables hold that a function has of those around it."""
    return [_content(cell) for cell in function.__closure__ or ()]


def _content(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return _MISSING
