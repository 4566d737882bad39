"""Errors for an argument of another type than its function takes.

Instructions do not look at what kind their tensors are: one that is wrong ends in an error of
Python somewhere in the simulator, and here its arguments are held against the annotations of the
function. Only settings (integers and members of enumerations) are looked at in each call, once, at
the edge of the dialect.
"""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from enum import Enum
from textwrap import shorten
from types import ModuleType, TracebackType
from typing import Any

import numpy as np

from nkisim.errors import Location, ParameterError
from nkisim.frontends import settings
from nkisim.frontends.nki import releases
from nkisim.frontends.nki.registers import NkiScalar, RunTimeInteger, VirtualRegister
from nkisim.frontends.nki.tensors.tensor import MemoryRegion, NkiTensor
from nkisim.trace.frames import is_ours, line_of

DIALECT = "nkisim.frontends.nki."
SURFACE = DIALECT + "surface."


class _Type:
    """The type of elements, in an annotation."""


# What the parameters are that are annotated with Any; None, too, where that is the default.
_OPERATION = Callable | str
_NUMBERS = NkiTensor | float
_BY_NAME: dict[str, Any] = {
    **dict.fromkeys(("dtype", "compute_dtype"), _Type),
    **dict.fromkeys(("op", "op0", "op1", "reduce_op"), _OPERATION),
    **dict.fromkeys(("cmp_op", "comp_op0", "comp_op1"), _OPERATION),
    **dict.fromkeys(("x", "y", "operand0", "operand1", "rate"), _NUMBERS),
    **dict.fromkeys(("start", "stop", "lower", "upper"), int | RunTimeInteger),
    "axis": int | tuple[int, ...],
    "constant": np.ndarray | list | tuple | str | float,
    "channel_ids": list[int],
    "source_target_pairs": list[list[int]],
    "groups": list[list[int]],
}


_APART = frozenset({MemoryRegion})  # nkisim.frontends.nki.declare


def public(short: str, *families: ModuleType) -> dict[str, Any]:
    """The names of a module of `nki`: what each of its families lists in `__all__`. Functions that
    have settings are made to check these.

    A word stands for the member of an enumeration with that value, as public kernels pass
    perf_mode="double_row". An integer does, too, with a warning: AWS's migration guide to NKI 0.3
    has "raw integer values are no longer accepted", and AWS's nki-library passes one. Names of
    memory regions are refused.

    Args:
        short: what kernels call the module, as "nl".
        *families: the modules that have its names.
    """
    found = {name: vars(family)[name] for family in families for name in family.__all__}
    for name, function in found.items():
        if inspect.isfunction(function):
            call = f"{short}.{name}"
            found[name] = settings.checked(function, call, str, _BY_NAME, _APART, _before)
    return found


def check_methods(tensor: type) -> None:
    """Make the methods of the class of tensors check their arguments, as functions do."""
    for name, function in list(vars(tensor).items()):
        if inspect.isfunction(function) and not name.startswith("_"):
            found = settings.checked(function, f"tensor.{name}", (), _BY_NAME, _APART)
            setattr(tensor, name, found)


def wrong_argument(error: BaseException) -> ParameterError | None:
    """The first argument, of a function of `nki` that failed, that its annotation does not allow;
    None where all are right."""
    called = _called(error.__traceback__)
    if called is None:
        return None
    function, given, line = called
    return _first_wrong(function, given, line)


def _before(function: Callable, setting: str, given: dict[str, Any]) -> ParameterError | None:
    """The first wrong argument, if it comes before a wrong setting."""
    names = list(inspect.signature(function).parameters)
    first = {n: given[n] for n in names[: names.index(setting)] if n in given}
    return _first_wrong(inspect.unwrap(function), first, None)


def _first_wrong(
    function: Callable, given: dict[str, Any], line: Location | None
) -> ParameterError | None:
    hints = typing.get_type_hints(function)
    for name, parameter in inspect.signature(function).parameters.items():
        if name not in given:
            continue
        hint = hints.get(name, Any)
        if hint in (Any, object):
            hint = _BY_NAME.get(name, Any)
            if parameter.default is None:
                hint = hint | None
        value = given[name]
        if not _fits(value, hint):
            wanted = " or ".join(dict.fromkeys(_told(kind) for kind in _kinds(hint)))
            return ParameterError(
                f"{_name(function)}: {name} is {_described(value)}",
                rule=f"{name} is {wanted}",
                fix=_fix(value, hint, f"pass {name} as {wanted}"),
                location=line,
            )
    return None


def _called(trace: TracebackType | None) -> tuple[Callable, dict[str, Any], Location] | None:
    """The function of `nki` that failed, its arguments, and the kernel's line that calls it."""
    found = line = None
    while trace is not None:
        frame, code = trace.tb_frame, trace.tb_frame.f_code
        if not is_ours(frame):
            line = line_of(trace)
        elif line is not None and not code.co_name.startswith("_"):
            # A function that another one made has itself among its variables.
            given = frame.f_locals
            function = frame.f_globals.get(code.co_name) or given.get(code.co_name)
            inner = inspect.unwrap(function) if inspect.isfunction(function) else None
            if (
                inner is not None
                and inner.__code__ is code
                and inner.__module__.startswith(DIALECT)
            ):
                found, line = (inner, given, line), None
        trace = trace.tb_next
    return found


def _name(function: Callable) -> str:
    module = function.__module__.removeprefix(SURFACE).partition(".")[0]
    return {"isa": "nisa", "collectives": "ncc"}.get(module, "nl") + f".{function.__name__}"


def _kinds(hint: Any) -> tuple:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _fits(value: Any, hint: Any) -> bool:
    return any(_is(value, kind) for kind in _kinds(hint))


def _is(value: Any, kind: Any) -> bool:
    """Whether a value is of one kind of an annotation. A tuple counts as a list."""
    origin, parts = typing.get_origin(kind) or kind, typing.get_args(kind)
    if kind is Any:
        return True
    if kind in (None, type(None)):
        return value is None
    if kind is _Type:
        return not isinstance(value, NkiTensor | np.ndarray | list | tuple | float | int)
    if kind is float:
        return isinstance(value, float | int | np.generic) or getattr(value, "ndim", None) == 0
    if kind in (int, bool):
        return isinstance(value, int | np.integer | np.bool_)
    if origin in (list, tuple):
        sequence = tuple if origin is tuple else list | tuple | range
        return isinstance(value, sequence) and all(_fits(v, parts[0]) for v in value if parts)
    if origin in (Callable, typing.get_origin(typing.Callable)):
        return callable(value)
    return isinstance(value, origin)


def _told(kind: Any) -> str:
    """A kind of an annotation in words."""
    origin, parts = typing.get_origin(kind) or kind, typing.get_args(kind)
    if origin in (list, tuple) and parts:
        return f"a {origin.__name__} of {_told(parts[0]).split(' ', 1)[1]}s"
    if isinstance(origin, type) and issubclass(origin, Enum):
        return f"one of {origin.__name__}.{', '.join(origin.__members__)}"
    words = {
        NkiTensor: "a tensor",
        VirtualRegister: "a register",
        NkiScalar: "a scalar",
        RunTimeInteger: "a scalar or a register",
        float: "a number",
        int: "an integer",
        bool: "a boolean",
        str: "a string",
        type(None): "None",
        _Type: "a type",
        tuple: "a tuple",
    }
    return words.get(origin) or (
        "a function"
        if callable(origin) and not isinstance(origin, type)
        else f"a {origin.__name__}"
    )


def _described(value: Any) -> str:
    if isinstance(value, NkiTensor):
        return value.describe()
    if type(value).__name__ == "NkiInstruction":
        return "the handle of an instruction"
    if isinstance(value, np.ndarray):
        return f"an array of NumPy, {value.dtype}{list(value.shape)}"
    if isinstance(value, RunTimeInteger):
        return value._what
    name = getattr(value, "__name__", None)
    return f"the function {name}" if callable(value) and name else shorten(repr(value), 60)


def _fix(value: Any, hint: Any, otherwise: str) -> str:
    kinds = _kinds(hint)
    if NkiTensor in kinds:
        if type(value).__name__ == "NkiInstruction":
            return "pass the tensor that the instruction writes, its dst: it returns none"
        if hasattr(value, "is_data_representable"):  # a grid of nl.tiles or nl.blocks
            return "pass the tensor of what it selects: grid[i, j].data"
        if isinstance(value, np.ndarray):
            return (
                "pass the array to the kernel as an argument, or make it a constant with "
                "nl.shared_constant(array)"
            )
        if isinstance(value, tuple | list) and all(isinstance(n, int) for n in value):
            return f"declare it: nl.ndarray({tuple(value)}, dtype=nl.float32, buffer=nl.sbuf)"
        if isinstance(value, float | int):
            return "fill a tile with nisa.memset, or use nisa.tensor_scalar, which takes numbers"
        if isinstance(value, RunTimeInteger):
            store = "register" if isinstance(value, VirtualRegister) else "scalar"
            return f"store it in a (1, 1) tile with nisa.{store}_store"
        if len(kinds) == 1:
            return "declare a tile and pass it: nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)"
    if isinstance(value, NkiTensor):
        scalars = releases.has("nisa.scalar_load")
        if scalars and (NkiScalar in kinds or RunTimeInteger in kinds):
            return "load one element of it: nisa.scalar_load(tile[0:1, 0:1])"
        if VirtualRegister in kinds or RunTimeInteger in kinds:
            return "load one element of it: nisa.register_load(register, tile[0:1, 0:1])"
        if _Type in kinds:
            return "pass tile.dtype, or a name such as nl.float32"
        if float in kinds or int in kinds:
            return "pass a number that is known while tracing"
    if kinds == _kinds(_OPERATION):
        return "pass an operation such as nl.add"
    return otherwise
