"""What a kernel counts in Python: rolled traces have to know (nkisim.trace.rolling)."""

from __future__ import annotations

import ast
import functools
from collections import deque
from collections.abc import Iterator, Mapping
from types import FrameType, ModuleType, NoneType
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import NotUniform
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.trace.carried import Names
from nkisim.trace.frames import is_ours, is_own_loop, value_of
from nkisim.trace.loop_index import LoopIndex
from nkisim.trace.snapshots import BY_VALUE, LIBRARIES, MUTABLE, package, snapshot

FOLLOWED = (Tensor, LoopIndex)  # by itself, wherever a kernel keeps it

_SHORT = 8  # items of a list that may count something
_LARGE = 1 << 16  # bytes of an array that is taken for a table
_DEEP = 4  # containers in containers

# Numbers of the kernel's Python code, by function (calls up the stack) and name.
Numbers = dict[tuple[int, str], int | float]


def numbers(frame: FrameType | None, attributes: Mapping[str, ast.Attribute]) -> Numbers:
    """What the kernel's functions count in Python: their numbers, those in short lists, and lengths
    of lists.

    Args:
        frame: of the function that loops, called by others of the kernel.
        attributes: those that the loop sets, as names of its function, by their text.

    Raises:
        NotUniform: the function has an iterator, whose items are not known.
    """
    found: Numbers = {}
    for text, attribute in attributes.items():
        value = value_of(attribute, frame)
        if _kind(type(value)) == "number":
            found[0, text] = +value
    depth = 0
    while frame is not None and not is_ours(frame):
        for name, value in frame.f_locals.items():
            kind = _kind(type(value))
            if kind == "number":
                found[depth, name] = +value
            elif kind == "iterator":
                if depth == 0 and name[0] != "." and not is_own_loop(value):
                    raise NotUniform(f"{name} may give other items in each iteration")
            elif kind == "items":
                found[depth, f"len({name})"] = len(value)
                if len(value) <= _SHORT and not isinstance(value, set):
                    items = value.items() if isinstance(value, dict) else enumerate(value)
                    for at, x in items:
                        if _kind(type(x)) == "number":
                            found[depth, f"{name}[{at!r}]"] = +x
        frame, depth = frame.f_back, depth + 1
    return found


@functools.lru_cache(maxsize=1024)
def _kind(of: type) -> str | None:
    """What a type's values may count with."""
    if issubclass(of, int | float | LoopIndex):
        return "number"
    if issubclass(of, Iterator):
        return "iterator"
    return "items" if issubclass(of, list | dict | set) else None


def state(frame: FrameType, names: Names) -> list:
    """What an iteration leaves for the next one in Python, but for tiles and for what `numbers`
    counts: two of these are equal if it has changed nothing, as far as is looked at.

    Args:
        frame: of the function that loops.
        names: that its body sets.
    """
    values, others = frame.f_locals, frame.f_globals
    found = [_outline(values[n], True) for n in names.handed_on if n in values]
    found += [_outline(others.get(n), False) for n in names.handed_on if n not in values]
    changed = [values.get(n, others.get(n)) for n in names.changed]
    return found + [_outline(x, True) for x in changed if type(x) is not Tensor]


def found_by(frame: FrameType, names: Names | None, has_helpers: bool) -> list:
    """The functions, objects and containers of a function that loops which calls in the loop may
    change.

    Args:
        frame: of the function.
        names: that the body of the loop sets; None where the source is not known, and only what
            such a body hardly makes is looked at, functions and objects.
        has_helpers: whether the kernel has functions that may change containers.
    """
    found = []
    for name, value in frame.f_locals.items():
        kind = _watched(type(value))
        if kind is None or name[0] == "." or (names is not None and name in names.anew):
            continue
        if is_own_loop(value):  # which may have a name
            continue
        if kind == "object" or (has_helpers and names is not None and name not in names.handed_on):
            found.append(value)
    return found


@functools.lru_cache(maxsize=1024)
def _watched(of: type) -> str | None:
    """What calls may change about a type's values: "object" what they hold, "container" what is in
    them; None if nothing, or if it is told by itself."""
    if issubclass(of, (*FOLLOWED, *BY_VALUE, ModuleType, type)):
        return None
    if issubclass(of, tuple | list | dict | set | np.ndarray):
        return "container"
    return None if package(of) in LIBRARIES and not issubclass(of, MUTABLE) else "object"


def _outline(x: Any, counted: bool, depth: int = 0) -> Any:
    """Something of Python, to be compared with what it is later.

    Args:
        x: the thing.
        counted: whether numbers in it are counted: by themselves, and in short lists.
        depth: how many containers it is in.
    """
    if type(x) is Tensor:
        return None
    if _kind(type(x)) == "number":
        return None if counted and depth < 2 else +x
    if isinstance(x, str | bytes | bytearray | complex | np.generic | NoneType):
        return bytes(x) if type(x) is bytearray else x
    if isinstance(x, np.ndarray) and x.nbytes <= _LARGE:
        return x.tobytes()
    if depth == _DEEP or not isinstance(x, tuple | list | dict | set | frozenset | deque):
        return snapshot(x, FOLLOWED)
    items = [*x, *x.values()] if isinstance(x, dict) else [*x]
    short = len(items) <= _SHORT and _kind(type(x)) == "items" and not isinstance(x, set)
    return type(x), [_outline(item, counted and short, depth + 1) for item in items]


class Counts(NamedTuple):
    """What an iteration does to the numbers of the kernel's Python code.

    Attributes:
        before: at the end of the iteration that was traced before. For the first one, in front of
            the loop; None where that was not looked at.
        after: at its end.
    """

    before: Numbers | None
    after: Numbers

    def changed(self) -> set[tuple[int, str]]:
        """The numbers that are others than before."""
        before = self.before
        if before is None:
            return set()
        return {name for name, value in self.after.items() if before.get(name) != value}
