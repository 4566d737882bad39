"""Types that stand for tensors, in annotations and among the arguments of a profile."""

from __future__ import annotations

from typing import Any


def is_tensor_type(x: Any) -> bool:
    """Whether `x` is nki.typing.tensor or mutable_tensor, or one of these with a shape."""
    return (
        isinstance(x, type)
        and getattr(x, "__module__", "").startswith("nkisim.")
        and hasattr(x, "mutable")
    )
