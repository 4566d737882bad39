"""Shapes that a kernel declares with `nki.typing.tensor[...]`: of parameters and of variables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkisim.errors import ShapeError
from nkisim.frontends.tensor_types import is_tensor_type
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import as_dtype


def parameter_hints(func: Callable) -> dict[str, Any]:
    """The parameters annotated with nki.typing.tensor or mutable_tensor."""
    hints = {}
    for name, hint in getattr(func, "__annotations__", {}).items():
        while isinstance(hint, str):  # twice where annotations are postponed, and this one quoted
            hint = _evaluated(hint, func)
        if is_tensor_type(hint):
            hints[name] = hint
    return hints


def _evaluated(text: str, func: Callable) -> Any:
    """The object behind a string annotation; None when its names are not to be found."""
    try:
        return eval(text, getattr(func, "__globals__", {}), dict(_closure(func)))
    except (NameError, AttributeError, TypeError, SyntaxError):
        return None


def _closure(func: Callable) -> list[tuple[str, Any]]:
    names = getattr(getattr(func, "__code__", None), "co_freevars", ())
    found = []
    for name, cell in zip(names, getattr(func, "__closure__", None) or (), strict=False):
        try:
            found.append((name, cell.cell_contents))
        except ValueError:  # not filled yet
            continue
    return found


def check_parameters(func: Callable, arguments: dict[str, Any]) -> None:
    """Raises ShapeError for an argument of another shape or dtype than its annotation says.

    Args:
        func: the kernel function.
        arguments: parameter name to argument; only those with a `shape` are checked.
    """
    for name, hint in parameter_hints(func).items():
        value = arguments.get(name)
        if hasattr(value, "shape") and hasattr(value, "dtype"):
            _compare(f"argument '{name}'", value, hint)


def _compare(what: str, value: Any, hint: Any) -> None:
    shape, dtype = getattr(hint, "shape", None), getattr(hint, "dtype", None)
    wrong_type = dtype is not None and as_dtype(dtype) != value.dtype
    if (shape is None or tuple(value.shape) == tuple(shape)) and not wrong_type:
        return
    kind = f" of {as_dtype(dtype)}" if dtype is not None else ""
    raise ShapeError(
        f"{what} is {value.dtype}{list(value.shape)}, but is annotated as {list(shape)}{kind}",
        rule="a tensor has the shape that its annotation says",
        fix="correct the annotation, or the shape",
        code="err_annotation_shape_mismatch",
    )


def check_variable(value: Any, hint: Callable[[], Any], name: str) -> Any:
    """`value`, once it is known to have the shape that `hint()` annotates variable `name` with."""
    if isinstance(value, AccessPattern):
        try:
            found = hint()
        except NameError:  # a name of an enclosing function that the kernel does not use itself
            return value
        if hasattr(found, "mutable"):
            _compare(f"variable '{name}'", value, found)
    return value
