"""Annotations for kernel parameters: `nki.typing.tensor` and `nki.typing.mutable_tensor`."""

from __future__ import annotations

from typing import Any


class tensor:
    """A tensor parameter. `tensor[128, 512]` says its shape, for the reader."""

    def __class_getitem__(cls, shape: Any) -> type:
        return cls


class mutable_tensor(tensor):
    """A tensor parameter that the kernel may write. It must be among the returned values."""
