"""What the checks of arguments of all operators share. Needs no NKI and no framework."""

from __future__ import annotations

from typing import Any


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
