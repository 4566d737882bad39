"""Arguments of a kernel, with the tensors in their tuples, lists, dicts and dataclasses.

A kernel gets its arguments as they are. Where a container holds tensors of the caller's, the kernel
gets a copy that has its own tensors in their places and is the same in all else: of the same class,
with the same attributes, and made without a constructor.
"""

from __future__ import annotations

import dataclasses
import functools
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from types import MemberDescriptorType
from typing import Any

import numpy as np

from nkisim.numerics.program import TensorSpec
from nkisim.trace.guards import NotComparable, Same, attributes_of, held_by, parts, token
from nkisim.trace.listed import is_listed

TENSOR_TYPES = (np.ndarray, TensorSpec)
_CONTAINERS = (tuple, list, dict)
_DICTS = (OrderedDict, defaultdict, dict)


def _may_hold(kind: type) -> bool:
    """Whether objects of a class may hold tensors."""
    if issubclass(kind, _CONTAINERS):
        return not issubclass(kind, TensorSpec)
    return dataclasses.is_dataclass(kind)


_is_container: Callable[[Any], bool] = functools.lru_cache(maxsize=1024)(_may_hold)


def _inside(container: Any) -> list[Any]:
    """What a container holds."""
    if isinstance(container, tuple):
        return [*tuple.__iter__(container)]
    if isinstance(container, list):
        return [*list.__iter__(container)]
    if isinstance(container, dict):
        return [*dict.values(container)]
    return [getattr(container, f.name, None) for f in dataclasses.fields(container)]


def _walk(value: Any, left: list[Any]) -> Iterator[tuple[Any, int, Any]]:
    """The leaves of a container, in order, each as (container, position in it, leaf).

    Args:
        value: a container.
        left: receives each container once all that it holds was walked over.
    """
    seen = {id(value)}
    stack = [(value, enumerate(_inside(value)))]
    while stack:
        holder, rest = stack[-1]
        for at, child in rest:
            if not _is_container(type(child)):
                yield holder, at, child
            elif id(child) not in seen:
                seen.add(id(child))
                stack.append((child, enumerate(_inside(child))))
                break
        else:
            left.append(holder)
            stack.pop()


def leaves(value: Any) -> list[Any]:
    """Everything inside the tuples, lists, dicts and dataclasses of `value`, in order. What a
    container holds that occurs several times is there once."""
    return _leaves(value, set())


def _leaves(value: Any, seen: set[int]) -> list[Any]:
    """Leaves, but for those in containers that were seen before, by identity."""
    found: list[Any] = []
    left = [value]
    while left:
        item = left.pop()
        if not _is_container(type(item)):
            found.append(item)
        elif id(item) not in seen:
            seen.add(id(item))
            left += reversed(_inside(item))
    return found


def map_leaves(fn: Callable[[Any], Any], value: Any, *, fresh: bool = False) -> Any:
    """`value` with `fn` applied to each of its leaves.

    Args:
        fn: what gives another object for a leaf, or the leaf itself.
        value: a leaf, or a container of leaves. A container in which all leaves stay as they are is
            handed over itself, and of the others a copy: see the module.
        fresh: copy each container in any case, since others will change it.
    """
    if not _is_container(type(value)):
        return fn(value)
    changes: dict[int, dict[int, Any]] = {}
    left: list[Any] = []
    for holder, at, leaf in _walk(value, left):
        other = fn(leaf)
        if other is not leaf:
            changes.setdefault(id(holder), {})[at] = other
    if not (changes or fresh):
        return value
    copies: dict[int, Any] = {}
    for holder in left:
        new_ones = changes.get(id(holder), {})
        for at, child in enumerate(_inside(holder)):
            if id(child) in copies:
                new_ones[at] = copies[id(child)]
        if new_ones or fresh:
            copies[id(holder)] = _with(holder, new_ones)
    return copies.get(id(value), value)


def map_arguments(
    fn: Callable[[Any], Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with `fn` applied to each of their leaves, as :func:`map_leaves`."""
    if any(_is_container(type(x)) for x in (*args, *kwargs.values())):
        return map_leaves(fn, (tuple(args), dict(kwargs)))
    return tuple(map(fn, args)), {name: fn(x) for name, x in kwargs.items()}


def _with(container: Any, changes: dict[int, Any]) -> Any:
    """A copy of a container with other things at some positions, made without a constructor."""
    kind = type(container)
    held = [changes.get(at, x) for at, x in enumerate(_inside(container))]
    if isinstance(container, tuple):
        made: Any = tuple.__new__(kind, held)
    elif isinstance(container, list):
        made = list.__new__(kind)
        list.extend(made, held)
    elif isinstance(container, dict):
        base: Any = next(b for b in _DICTS if isinstance(container, b))
        made = base.__new__(kind)
        for key, value in zip(dict.keys(container), held, strict=True):
            base.__setitem__(made, key, value)
        if base is defaultdict:
            base.__init__(made, container.default_factory)  # type: ignore[attr-defined]
    else:
        made = object.__new__(kind)
    if kind in _CONTAINERS:
        return made
    if hasattr(container, "__dict__"):
        made.__dict__.update(container.__dict__)
    for part in kind.__mro__:
        for name, member in vars(part).items():
            if isinstance(member, MemberDescriptorType) and hasattr(container, name):
                member.__set__(made, member.__get__(container))
    if not isinstance(container, _CONTAINERS):
        for at, field in enumerate(dataclasses.fields(container)):
            if at in changes:
                object.__setattr__(made, field.name, changes[at])
    return made


def is_copied_whole(value: Any, changes: Callable[[Any], bool]) -> bool:
    """Whether a copy of `value` shares with it nothing that its owner could change.

    Args:
        value: of which `map_leaves` makes a copy that is `fresh`.
        changes: whether that puts something new in the place of a leaf.
    """
    seen: set[int] = set()
    left = [value]
    while left:
        item = left.pop()
        if not _is_container(type(item)):
            if not (_is_fixed(item) or changes(item)):
                return False
        elif id(item) not in seen:
            seen.add(id(item))
            left += _inside(item)
            if not all(map(_is_fixed, _beside(item))):
                return False
    return True


def _is_fixed(value: Any) -> bool:
    """Whether an object cannot be changed."""
    known = token(value)
    if type(known) is Same:
        return isinstance(value, Enum) or is_listed(value)
    return known is not None


def _beside(container: Any) -> list[Any]:
    """What a container has, besides what it holds: the keys of a dict, and attributes."""
    keys = [*dict.keys(container)] if isinstance(container, dict) else []
    if type(container) in _CONTAINERS:
        return keys
    try:
        attributes = attributes_of(container)
    except NotComparable:
        return [container]
    if not isinstance(container, _CONTAINERS):
        for field in dataclasses.fields(container):
            attributes.pop(field.name, None)
    return [*keys, *attributes.values()]


def holds_tensors(value: Any) -> bool:
    """Whether an argument is a tensor, or a container with a tensor in it."""
    return any(isinstance(v, TENSOR_TYPES) for v in leaves(value))


def leaf_names(arguments: dict[str, Any]) -> list[str]:
    """A name for each tensor leaf: the parameter's, with a number when it holds several."""
    names: list[str] = []
    seen: set[int] = set()
    for name, value in arguments.items():
        count = sum(isinstance(v, TENSOR_TYPES) for v in _leaves(value, seen))
        names += [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]
    return names


def signature(value: Any) -> tuple[tuple[Any, ...], list[Any]]:
    """What arguments are to a trace: shapes and dtypes of tensors, values of the rest.

    Returns:
        A hashable description, equal for arguments that are alike, and all of the arguments that
        are not tensors, part by part.

    Raises:
        NotComparable: an argument of which no kind is compared whole (see nkisim.trace.guards).
    """
    key: list[Any] = []
    constants: list[Any] = []
    seen: dict[int, int] = {}
    left = [(value, True)]  # with whether it may be a tensor: one in a plain object is a constant
    while left:
        value, open_ = left.pop()
        if open_ and isinstance(value, TENSOR_TYPES):
            # Packed elements of two types are stored as the same integers.
            key.append((getattr(value, "nki_type", "tensor"), tuple(value.shape), value.dtype))
            continue
        constants.append(value)
        known = None if type(value) in _CONTAINERS else token(value)
        if known is None and id(value) in seen:
            known = "again", seen[id(value)]
        if known is not None:
            key.append(known)
            continue
        seen[id(value)] = len(seen)
        if open_ and type(value) not in _CONTAINERS and _is_container(type(value)):
            fixed, found = _parts_of_container(value)
        else:
            fixed, references = parts(value)
            found = [(x, open_ and type(value) in _CONTAINERS) for x in references]
        key.append((type(value), fixed, len(found)))
        left += reversed(found)
    return tuple(key), constants


def _parts_of_container(container: Any) -> tuple[Any, list[tuple[Any, bool]]]:
    """The parts of a dataclass, or of an object that extends a container, each with whether it may
    be a tensor: what it holds, or has in a field."""
    fixed, held = held_by(container)
    attributes = attributes_of(container)
    fields: set[str] = set()
    if not isinstance(container, _CONTAINERS):
        fields = {f.name for f in dataclasses.fields(container)}
    inside = [(x, not fields) for x in held]
    return (fixed, *attributes), inside + [(x, name in fields) for name, x in attributes.items()]
