"""Annotations for kernel parameters: `nki.typing.tensor` and `nki.typing.mutable_tensor`."""

from __future__ import annotations

from typing import Any

from nkisim.errors import UnsupportedError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor


class mutable:
    """As `tensor[mutable]`, the same as `mutable_tensor`. The documentation has the latter only;
    published kernels use both."""


class _TensorType(type):
    """The type of `tensor`: `isinstance(x, tensor)` holds for the tensors of a kernel."""

    def __instancecheck__(cls, x: object) -> bool:
        return isinstance(x, Tensor)


class tensor(metaclass=_TensorType):
    """A tensor parameter. `tensor[128, 512]` states its shape, which each call of the kernel
    checks; `tensor[[128, 512], nl.float32]` states its dtype too."""

    shape: tuple[int, ...] | None = None
    dtype: Any = None
    mutable = False

    def __class_getitem__(cls, item: Any) -> type:
        if item is mutable:
            return mutable_tensor
        if isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], list | tuple):
            shape, dtype = tuple(item[0]), item[1]
        else:
            shape, dtype = item if isinstance(item, tuple) else (item,), None
        return _TensorType(cls.__name__, (cls,), {"shape": shape, "dtype": dtype})


class mutable_tensor(tensor):
    """A tensor parameter that the kernel may write. It must be among the returned values."""

    mutable = True


class scalar:
    """A number that the device computes, for `while` loops that it ends.

    Raises:
        UnsupportedError: always; the name is there so that kernels which may use it import.
    """

    def __init__(self, value: Any) -> None:
        raise UnsupportedError(
            "nki.typing.scalar",
            rule="this simulator traces a kernel before it runs, so that no loop or branch depends "
            "on a value that the device computes",
            fix="loop a number of times that is known while tracing, and mask what is too much",
        )
