"""Annotations for kernel parameters: `nki.typing.tensor` and `nki.typing.mutable_tensor`."""

from __future__ import annotations

from typing import Any


class tensor:
    """A tensor parameter. `tensor[128, 512]` says its shape, which is checked when it is called;
    `tensor[[128, 512], nl.float32]` its dtype too."""

    shape: tuple[int, ...] | None = None
    dtype: Any = None
    mutable = False

    def __class_getitem__(cls, item: Any) -> type:
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], list | tuple):
            shape, dtype = tuple(item[0]), item[1]
        else:
            shape, dtype = item if isinstance(item, tuple) else (item,), None
        return type(cls.__name__, (cls,), {"shape": shape, "dtype": dtype})


class mutable_tensor(tensor):
    """A tensor parameter that the kernel may write. It must be among the returned values."""

    mutable = True
