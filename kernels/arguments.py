"""What the checks of arguments of all operators share. Needs no NKI and no framework."""

from __future__ import annotations

from typing import Any

from kernels.installed import check_alone

check_alone()  # the `__init__` may be the other package's


def dtype_name(array: Any) -> str:
    """The name of an array's dtype: ``torch.bfloat16`` and NumPy's ``bfloat16`` are "bfloat16"."""
    return str(array.dtype).removeprefix("torch.")


def require_array(name: str, value: Any) -> None:
    """Refuse what has no shape or no dtype.

    Args:
        name: of the argument, for the message.
        value: the argument.

    Raises:
        TypeError: it is no array of NumPy, PyTorch or JAX.
    """
    if not hasattr(value, "shape") or not hasattr(value, "dtype"):
        raise TypeError(
            f"{name} is a {type(value).__name__}. Pass a NumPy array, a PyTorch tensor or a JAX "
            "array."
        )


FLOATS = ("float32", "bfloat16", "float16")
"""Element types that the kernels of every operator take. Engines compute in float32."""


def require_dtype(name: str, value: Any, kernels: str) -> None:
    """Refuse an argument whose dtype the kernels do not take.

    Args:
        name: of the argument, for the message.
        value: the argument.
        kernels: what to call the kernels: "add".

    Raises:
        TypeError: it is no array, or none of FLOATS.
    """
    require_array(name, value)
    if dtype_name(value) not in FLOATS:
        raise TypeError(
            f"{name} is {dtype_name(value)}. The {kernels} kernels take {', '.join(FLOATS)}: "
            "engines compute in float32. Cast it first."
        )


def require_like(name: str, value: Any, shape: tuple[int, ...], dtype: str) -> None:
    """Refuse an argument of a backward pass that is not as the forward pass had it.

    Args:
        name: of the argument, for the message.
        value: the argument.
        shape, dtype: what it must have.

    Raises:
        TypeError: it is no array.
        ValueError: another shape or dtype.
    """
    require_array(name, value)
    if tuple(value.shape) != shape or dtype_name(value) != dtype:
        raise ValueError(
            f"{name} is {dtype_name(value)} of shape {tuple(value.shape)}, and should be {dtype} "
            f"of shape {shape}, as in the forward pass. Pass what it returned."
        )


def require_elements(name: str, value: Any) -> None:
    """Refuse an array of no elements, with ValueError: a launch has at least one."""
    if 0 in tuple(value.shape):
        raise ValueError(
            f"{name} has shape {tuple(value.shape)}: no elements. A launch has at least one. Skip "
            "the call for empty arrays."
        )
