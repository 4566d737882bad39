"""Settings of a call, held against the annotations of its function: numbers, integers, booleans and
members of an enumeration. Both dialects look at theirs here, before a call does anything with them.

A float where an integer is documented would be cut off on the way, and a word that names no member
would count as none; nothing in the simulator would notice.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import types
import typing
from collections.abc import Callable, Sequence
from enum import Enum
from textwrap import shorten
from typing import Any

import numpy as np

from nkisim.errors import ParameterError, warn

Check = Callable[[str, Any], Any]
_FLOATS = (float, np.floating)


def checks_of(
    function: Callable,
    by_value: type | tuple,
    others: dict[str, Any] | None = None,
    apart: frozenset[type[Enum]] = frozenset(),
) -> dict[str, Check]:
    """Checks of the arguments of a function: `check(name of the call, argument)`, by parameter,
    which gives the argument to pass on.

    Args:
        function: with annotations.
        by_value: types of values that stand for a member of an enumeration with that value.
            Integers of the others do with a warning.
        others: annotations for parameters that have none, or Any.
        apart: enumerations that are checked elsewhere.

    Returns:
        One for each parameter that is a number, a boolean, integers, or a member of an enumeration.
    """
    inner = inspect.unwrap(function)
    checks: dict[str, Check] = {}
    for name, parameter in inspect.signature(inner).parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL or name == "shape":
            continue  # shapes are checked where tensors are made, with an error of their own
        hint = _hint(inner, parameter.annotation)
        if hint in (Any, parameter.empty) and others:
            hint = others.get(name, Any)
        kinds = _kinds(hint)
        classes = [k for k in kinds if inspect.isclass(k) and k not in apart]
        members = [k for k in classes if issubclass(k, Enum)]
        if members:
            none = type(None) in kinds
            checks[name] = functools.partial(_member, name, members[0], by_value, none)
        elif float in kinds:
            # Where only `others` says so the function is an operator, which stands for itself.
            if float in _kinds(_hint(inner, parameter.annotation)):
                checks[name] = functools.partial(check_number, name)
        elif bool in kinds:
            checks[name] = functools.partial(_flag, name)
        elif any(_of_integers(k) for k in kinds):
            checks[name] = functools.partial(_whole, name, int in kinds)
    return checks


def checked(
    function: Callable,
    call: str,
    by_value: type | tuple,
    others: dict[str, Any] | None = None,
    apart: frozenset[type[Enum]] = frozenset(),
    before: Callable[[Callable, str, dict[str, Any]], ParameterError | None] | None = None,
) -> Callable:
    """`function`, whose settings are checked. Itself if it has none.

    Args:
        function, by_value, others, apart: as for `checks_of`.
        call: what kernels write, such as "nisa.tensor_copy".
        before: given the function, a setting that is wrong and all arguments, what is wrong with an
            argument in front of it: that is what to tell.

    Raises (when called):
        ParameterError: a float in place of an integer, or what is no member of an enumeration.
    """
    checks = checks_of(function, by_value, others, apart)
    if not checks:
        return function
    names = list(inspect.signature(function).parameters)
    at = [(n, checks[name]) for n, name in enumerate(names) if name in checks]

    @functools.wraps(function)
    def with_settings(*args: Any, **kwargs: Any) -> Any:
        count, name = len(args), ""
        try:
            for n, check in at:
                if n < count:
                    name = names[n]
                    given = check(call, args[n])
                    if given is not args[n]:
                        args = (*args[:n], given, *args[n + 1 :])
            for name in kwargs:
                check = checks.get(name)
                if check is not None:
                    kwargs[name] = check(call, kwargs[name])
        except ParameterError:
            given = dict(zip(names, args, strict=False)) | kwargs
            earlier = before and before(function, name, given)
            if earlier:
                raise earlier from None
            raise
        return function(*args, **kwargs)

    return with_settings


def _hint(function: Callable, annotation: Any) -> Any:
    """An annotation; Any for one that only type checkers can read."""
    if not isinstance(annotation, str):
        return annotation
    try:
        return eval(annotation, function.__globals__)
    except (NameError, TypeError, AttributeError):
        return Any


def _kinds(hint: Any) -> tuple:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.get_args(hint)
    return (hint,)


def _of_integers(kind: Any) -> bool:
    """Whether an annotation is int, or a sequence of those, however deep."""
    if kind is int:
        return True
    origin = typing.get_origin(kind)
    if not inspect.isclass(origin) or not issubclass(origin, Sequence):
        return False
    return all(part is Ellipsis or _of_integers(part) for part in typing.get_args(kind))


def _whole(name: str, one: bool, call: str, value: Any) -> Any:
    if type(value) is not int:
        found = _float_in(value)
        if found is not None:
            raise ParameterError(
                f"{call}: {name}={shorten(repr(value), 60)}",
                rule=f"{name} is an integer" if one else f"{name} holds integers",
                fix="divide with //, which gives an integer"
                if float(found) != found // 1
                else f"write {int(found)}; // divides into an integer",
            )
    return value


def _float_in(value: Any) -> float | None:
    """The first float in a number, or in sequences of them."""
    if isinstance(value, _FLOATS):
        return value
    if isinstance(value, list | tuple):
        for x in value:
            if type(x) is not int and (found := _float_in(x)) is not None:
                return found
    return None


_MOST = float(np.finfo(np.float32).max)


def check_number(name: str, call: str, value: Any) -> Any:
    """`value`, for a setting that is a number. Raises ParameterError for a string, or an integer
    that is larger than any float32."""
    if type(value) is float:  # mostly
        return value
    if isinstance(value, str | bytes):  # float("1") is a number to Python
        raise ParameterError(
            f"{call}: {name} is {shorten(repr(value), 60)}",
            rule=f"{name} is a number",
            fix=f"pass float({name}), a number",
        )
    if type(value) is int and abs(value) > _MOST:
        raise ParameterError(
            f"{call}: {name} is an integer of {value.bit_length()} bits",
            rule=f"a number is at most that of float32: {_MOST}",
            fix="pass a smaller number, or float('inf')",
        )
    return value


def _flag(name: str, call: str, value: Any) -> Any:
    if isinstance(value, str | bytes):
        raise ParameterError(
            f"{call}: {name}={shorten(repr(value), 60)}",
            rule=f"{name} is a boolean",
            fix="write True or False",
        )
    return value


def _member(
    name: str, members: type[Enum], by_value: type | tuple, none: bool, call: str, value: Any
) -> Any:
    if type(value) is members or (value is None and none):
        return value
    if isinstance(value, by_value) and not isinstance(value, bool | Enum):
        for member in members:
            if member.value == value:
                return member
    short = members.__name__
    if type(value) is int:
        for member in members:
            if member.value == value:
                warn(
                    ParameterError(
                        f"{call}: {name}={value}",
                        rule="raw integers are not accepted by AWS's migration guide to NKI 0.3; "
                        "AWS's nki-library passes dge_mode=3 all the same",
                        fix=f"write {short}.{member.name}",
                    )
                )
                return member
    words = [m.name for m in members]
    given = value.name if isinstance(value, Enum) else shorten(str(value), 60)
    near = difflib.get_close_matches(given, words, 1)
    meant = (near or [words[0]])[0]
    raise ParameterError(
        f"{call}: {name}={shorten(repr(value), 60)}",
        rule=f"{name} is one of {short}." + f", {short}.".join(words),
        fix=f"write {short}.{meant}" + ("" if near else ", or another one of these"),
    )
