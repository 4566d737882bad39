"""Arguments of a kernel, with the tensors in their tuples, lists, dicts and dataclasses."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from nkisim.numerics.program import TensorSpec
from nkisim.trace.guards import token

TENSOR_TYPES = (np.ndarray, TensorSpec)
_CONTAINERS = (tuple, list, dict)


def map_leaves(fn: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `fn` applied to everything inside its tuples, lists, dicts and dataclasses."""
    if isinstance(value, TensorSpec):
        return fn(value)
    if isinstance(value, tuple):
        items = [map_leaves(fn, v) for v in value]
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    if isinstance(value, list):
        return [map_leaves(fn, v) for v in value]
    if isinstance(value, dict):
        return {k: map_leaves(fn, v) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {
            f.name: map_leaves(fn, getattr(value, f.name))
            for f in dataclasses.fields(value)
            if f.init
        }
        return dataclasses.replace(value, **changes)
    return fn(value)


def leaves(value: Any) -> list[Any]:
    """Everything inside the tuples, lists, dicts and dataclasses of `value`, in order."""
    found: list[Any] = []
    _collect(value, found)
    return found


def _collect(value: Any, found: list[Any]) -> None:
    if isinstance(value, np.ndarray):  # the common case, on the path of every launch
        found.append(value)
        return
    if isinstance(value, TensorSpec) or not isinstance(value, _CONTAINERS):
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            for f in dataclasses.fields(value):
                _collect(getattr(value, f.name), found)
        else:
            found.append(value)
        return
    for item in value.values() if isinstance(value, dict) else value:
        _collect(item, found)


def besides_tensors(value: Any) -> list[Any]:
    """The constants among a kernel's arguments, and the classes of the containers of tensors."""
    if isinstance(value, TENSOR_TYPES):
        return []
    if not holds_tensors(value):
        return [value]
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, (tuple, list)):
        parts = [*value]
    else:
        parts = [getattr(value, f.name) for f in dataclasses.fields(value)]
    return [type(value), *(x for part in parts for x in besides_tensors(part))]


def holds_tensors(value: Any) -> bool:
    """Whether an argument is a tensor, or a container with a tensor in it."""
    return any(isinstance(v, TENSOR_TYPES) for v in leaves(value))


def leaf_names(arguments: dict[str, Any]) -> list[str]:
    """A name for each tensor leaf: the parameter's, with a number when it holds several."""
    names: list[str] = []
    for name, value in arguments.items():
        count = sum(isinstance(v, TENSOR_TYPES) for v in leaves(value))
        names += [name] if count == 1 else [f"{name}[{i}]" for i in range(count)]
    return names


def signature(value: Any) -> Any:
    """A hashable description of arguments: shapes and dtypes of tensors, values of the rest."""
    if isinstance(value, TENSOR_TYPES):
        # Packed elements of two types are stored as the same integers.
        return getattr(value, "nki_type", "tensor"), tuple(value.shape), value.dtype
    if holds_tensors(value):
        if isinstance(value, dict):
            parts = [(token(k), signature(v)) for k, v in value.items()]
        elif isinstance(value, (tuple, list)):
            parts = [signature(v) for v in value]
        else:  # a dataclass
            fields = dataclasses.fields(value)
            parts = [(f.name, signature(getattr(value, f.name))) for f in fields]
        return type(value), tuple(parts)
    return token(value)
