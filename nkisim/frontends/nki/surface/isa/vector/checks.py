"""Checks of instructions on the operands that are tiles, and the order of a tile's elements."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import (
    DTypeError,
    MemorySpaceError,
    ParameterError,
    ShapeError,
)
from nkisim.frontends.nki import dtypes
from nkisim.frontends.nki.operands import (
    free_of,
)
from nkisim.frontends.nki.ops import BITS
from nkisim.frontends.nki.session import Recipe
from nkisim.frontends.nki.tensors.layout import merged
from nkisim.frontends.nki.tensors.tensor import NkiTensor
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.numerics.alu import bits_dtype


def constant(x: float) -> Any:
    """A number as a part of a key: 0.0 and -0.0, 1 and True are equal."""
    return x or str(x)


def one_psum(call: str, **tensors: NkiTensor) -> None:
    """Raises MemorySpaceError when all of some operands are in PSUM."""
    if all(t._layout.space is Space.PSUM for t in tensors.values()):
        names = " and ".join(tensors)
        raise MemorySpaceError(
            f"{call}: {names} in PSUM",
            rule=f"{names} are not all in PSUM",
            fix="copy one of them to SBUF",
        )


def check_bits(call: str, names: list[str], **tensors: NkiTensor) -> None:
    """Raises DTypeError for bit operators on what is no integer."""
    if not any(n in BITS for n in names):
        return
    for which, t in tensors.items():
        if t.dtype not in dtypes.INTEGERS and t.dtype != "bool":
            raise DTypeError(
                f"{call}: nl.{names[0]} with {which} {t.describe()}",
                rule="bit operators take integer types, and do not convert",
                fix=dtypes.as_integers(t.dtype),
            )
    read = [np.dtype(t.dtype) for which, t in tensors.items() if which != "dst"]
    if bits_dtype(*read) == np.float32:
        raise DTypeError(
            f"{call}: nl.{names[0]} of " + " and ".join(map(str, read)),
            rule="bit operators take integer types, and do not convert: no integer type holds both",
            fix="convert one of them to the other's type with nisa.tensor_copy",
        )


def no_packed(call: str, **tensors: NkiTensor) -> None:
    """Raises DTypeError for a packed type, which no arithmetic is defined on."""
    for which, t in tensors.items():
        if t.dtype in dtypes.PACKED:
            raise DTypeError(
                f"{call}: {which} is {t.describe()}",
                rule="packed types are moved, quantised to, and multiplied by nc_matmul_mx",
                fix="use an unpacked type",
            )


def is_tensor(x: object) -> bool:
    return type(x) is NkiTensor


def axes_of(call: str, data: NkiTensor, axis: Any) -> tuple[int, ...]:
    """The axes that are reduced. Raises ParameterError unless they are the last ones."""
    given = tuple(axis) if isinstance(axis, (list, tuple)) else (axis,)
    n = data.ndim
    axes = tuple(sorted(a % n if isinstance(a, int) and -n <= a < n else -1 for a in given))
    if not axes or axes != tuple(range(n - len(axes), n)) or axes[0] <= 0:
        raise ParameterError(
            f"{call}: axis={axis!r} of {data.describe()}",
            rule=f"only adjacent axes that end with the last one, {n - 1}, can be reduced; "
            "axis 0 is laid over partitions",
            fix=_other_axes(axes, n),
        )
    return axes


def _other_axes(axes: tuple[int, ...], n: int) -> str:
    """The fix for a reduction over unsupported axes of a tile of `n`; -1 stands for none of
    them."""
    if not axes or axes[0] < 0 or len(set(axes)) < len(axes):
        return f"name axes from 1 to {n - 1}"
    if axes[0] == 0:
        return "reduce over partitions with nisa.tensor_partition_reduce"
    kept = [a for a in range(n) if a not in axes]
    last = tuple(range(n - len(axes), n))
    return f"reduce data.permute({(*kept, *axes)}) over axis={last}"


def rows_of(t: NkiTensor) -> tuple:
    """The walk of a tile with its free axes as they come."""
    shape, strides = merged(t._layout.shape[1:], t._layout.strides[1:])
    own = t._layout
    if not shape:
        shape, strides = (1,), (1,)
    return (own.shape[0], *shape), (own.strides[0], *strides)


def per_partition(call: str, opcode: str, dst: NkiTensor, data: NkiTensor, count: int) -> Recipe:
    """An instruction that gives some elements a partition."""
    no_packed(call, dst=dst, data=data)
    if dst.shape[0] != data.shape[0] or free_of(dst) != count:
        raise ShapeError(
            f"{call}: dst is {dst.describe()}, data {data.describe()}",
            rule=f"dst has as many partitions, and {count} elements in each",
            fix=f"declare dst ({data.shape[0]}, {count})",
        )
    return Recipe(opcode, Engine.VECTOR, [rows_of(dst)], [rows_of(data)])
