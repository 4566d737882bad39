"""Functions and classes that read nothing but their arguments, by name.

Only what stands here is taken to be so; see nkisim.trace.guards. A function is known by identity:
one that is put in the place of it is another function.
"""

from __future__ import annotations

import builtins
import cmath
import collections
import dataclasses
import functools
import itertools
import math
import operator
import sys
import types
import typing
from collections import namedtuple
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import ml_dtypes
import numpy as np

FIELD = type(vars(namedtuple("_Pair", "x"))["x"])  # what reads a field of a named tuple

_NAMES: dict[ModuleType, str] = {
    builtins: """abs all any ascii bin bool bytearray bytes callable chr classmethod complex delattr
        dict divmod enumerate filter float format frozenset hash hex int isinstance issubclass iter
        len list map max min next object oct ord pow print property range repr reversed round set
        setattr slice sorted staticmethod str sum super tuple type zip""",
    collections: "OrderedDict defaultdict deque namedtuple",
    dataclasses: "is_dataclass",
    functools: "partial reduce",
    types: "BuiltinFunctionType GenericAlias MappingProxyType MethodType SimpleNamespace",
    typing: "cast",
    np: """abs all allclose amax amin any arange argmax argmin argsort array array_equal
        ascontiguousarray asarray atleast_1d atleast_2d broadcast_shapes broadcast_to ceil clip
        concatenate copy cumprod cumsum diag diff dot dtype einsum empty empty_like expand_dims eye
        finfo flip full full_like identity iinfo indices isclose isscalar issubdtype kron linspace
        matmul max mean median meshgrid min moveaxis nan_to_num ndarray ndim ndindex nonzero ones
        ones_like outer pad prod promote_types ravel repeat reshape result_type roll round shape
        sign size sort split squeeze stack std sum swapaxes take tensordot tile transpose tri tril
        triu unique unravel_index ravel_multi_index var where zeros zeros_like""",
    ml_dtypes: "finfo iinfo",
}
_WHOLE = (math, cmath, itertools, operator)
# But for these: they look up computed names, and compare identities.
_ASKING = (operator.attrgetter, operator.methodcaller, operator.is_, operator.is_not)
_NUMBERS = (np.number, np.bool_, np.character)  # and not datetime64("now")
# Modules whose functions and classes do what they do by their arguments, and by what they hold.
_LIBRARY = frozenset(
    {"_collections_abc", "abc", "collections", "collections.abc", "contextlib", "enum", "numbers"}
    | {"reprlib", "types", "typing", "typing_extensions"}
)


def _listed() -> Iterator[Any]:
    for module, names in _NAMES.items():
        yield from [getattr(module, name) for name in names.split() if hasattr(module, name)]
    for value in vars(builtins).values():
        if isinstance(value, type) and issubclass(value, BaseException):
            yield value
    for module in _WHOLE:
        for name, value in vars(module).items():
            if isinstance(value, (BuiltinFunctionType, type)) and not name.startswith("_"):
                yield from [value] * (value not in _ASKING)
    for module in (np, ml_dtypes):
        for value in vars(module).values():
            number = isinstance(value, type) and issubclass(value, np.generic)
            if type(value) is np.ufunc or (
                number and (module is ml_dtypes or issubclass(value, _NUMBERS))
            ):
                yield value


_LISTED = {id(value): value for value in _listed()}


def is_listed(value: Any) -> bool:
    """Whether a function or class reads nothing but its arguments, and is what it is."""
    return id(value) in _LISTED


def is_own(value: FunctionType | type) -> bool:
    """Whether a function or class is the simulator's."""
    module = _module_of(value)
    return module.partition(".")[0] in ("nkisim", "neuronxcc") and _is_of(module, value)


def is_library(value: FunctionType | type) -> bool:
    """Whether what a function or class of Python's library reads are its arguments and what it
    holds. Functions are those of its classes and those that it makes, for dataclasses, too."""
    module = _module_of(value)
    known = module in _LIBRARY
    if isinstance(value, FunctionType):
        made = "<locals>" if module == "dataclasses" else "."
        known = made in value.__code__.co_qualname and (known or module == "dataclasses")
    return known and _is_of(module, value)


def compares_values(equals: FunctionType) -> bool:
    """Whether an `__eq__` compares what objects consist of, and nothing else."""
    made = equals.__code__.co_qualname.startswith("__create_fn__.")  # for a dataclass
    return made or is_own(equals) or is_library(equals)


def _module_of(value: FunctionType | type) -> str:
    if isinstance(value, FunctionType):  # a decorator may have copied `__module__`
        return str(value.__globals__.get("__name__"))
    return str(value.__module__)


def _is_of(module: str, value: FunctionType | type) -> bool:
    """Whether a module has a function or class that says so: anyone may write a name."""
    found: Any = sys.modules.get(module)
    if isinstance(value, FunctionType):
        return found is not None and vars(found) is value.__globals__
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value
