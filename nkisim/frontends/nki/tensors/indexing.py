"""`tensor[...]` of `import nki`: integers, slices, `...` and `nl.ds`."""

from __future__ import annotations

from typing import Any

from nkisim.errors import DTypeError, IndexingError, OutOfBoundsError
from nkisim.frontends.nki.registers import NkiScalar, RunTimeInteger
from nkisim.frontends.nki.tensors.layout import Layout
from nkisim.frontends.nki.tensors.views import Indirect, Views


class DynamicSlice:
    """`nl.ds(register, size)`: as many elements, from where a register tells."""

    __slots__ = ("size", "start")

    def __init__(self, start: Any, size: int) -> None:
        self.start = start
        self.size = size


def part_of(tensor: Views, key: tuple) -> tuple[Layout, int] | Views:
    """A part of a tensor: its layout, and how many elements it begins behind the tensor. A dynamic
    view for an index that a register holds.

    Raises:
        IndexingError: an index that is none of this dialect's.
        OutOfBoundsError: an index that leaves the tensor.
    """
    own = tensor._layout
    key = _expanded(tensor, key)
    shape: list[int] = []
    strides: list[int] = []
    step = 0
    moved = None
    for axis, k in enumerate(key):
        n, stride = own.shape[axis], own.strides[axis]
        if type(k) is slice:
            start, count, every = _range(tensor, axis, n, k)
        elif isinstance(k, (DynamicSlice, RunTimeInteger)) or _is_tensor(k):
            count = k.size if isinstance(k, DynamicSlice) else 1
            register = k.start if isinstance(k, DynamicSlice) else k
            if moved is not None:
                raise IndexingError(
                    f"two dynamic indices on {tensor.describe()}",
                    rule="a view takes one dynamic offset",
                    fix="compute one offset, and use .ap(scalar_offset=...)",
                )
            check_offset(tensor, register)
            moved = Indirect(register, stride, axis, n, by_row=False, taken=count)
            if isinstance(k, DynamicSlice) or (axis == 0 and own.on_chip):
                shape.append(count)
                strides.append(stride)
            continue
        else:
            at = _integer(tensor, axis, n, k)
            step += at * stride
            if axis == 0 and own.on_chip:
                shape.append(1)
                strides.append(stride)
            continue
        step += start * stride
        shape.append(count)
        strides.append(stride * every)
    if len(shape) < 1 + own.on_chip:
        shape.append(1)
        strides.append(1)
    part = own.with_(tuple(shape), tuple(strides))
    if moved is None:
        return part, step

    tensor._check_direct("indexing")
    return tensor._at(part, tensor.offset + step, moved)


def check_offset(tensor: Views, index: object) -> None:
    """Raises DTypeError for a scalar of 64 bits that moves a view of memory on chip."""
    if isinstance(index, NkiScalar) and index.dtype == "int64" and tensor._layout.on_chip:
        raise DTypeError(
            f"a scalar of int64 moves a view of {tensor.describe()}",
            rule="addresses in SBUF and PSUM have 32 bits; in HBM an offset may be int64",
            fix="load the offset from an nl.int32 tensor",
        )


def _is_tensor(k: object) -> bool:

    return isinstance(k, Views) and k.size == 1


def _expanded(tensor: Views, key: tuple) -> tuple:
    n = len(tensor._layout.shape)
    dots = [i for i, k in enumerate(key) if k is Ellipsis]
    if any(k is None for k in key):
        raise _no_index(tensor, None)
    if len(dots) > 1 or len(key) - len(dots) > n:
        raise IndexingError(
            f"{len(key)} indices on {tensor.describe()}",
            rule=f"it has {n} axes; `...` stands for those in between, once",
            fix="give each axis one index, at most"
            if len(dots) < 2
            else "write `...` once, and `:` for each other axis",
        )
    if dots:
        at = dots[0]
        return (*key[:at], *[slice(None)] * (n - len(key) + 1), *key[at + 1 :])
    return (*key, *[slice(None)] * (n - len(key)))


def _index(value: object) -> int | None:
    if value.__class__ is int:
        return value
    if isinstance(value, (bool, RunTimeInteger)):
        return None
    try:
        return int(value.__index__())
    except (AttributeError, TypeError):
        return None


def _integer(tensor: Views, axis: int, n: int, k: object) -> int:
    at = _index(k)
    if at is None:
        raise _no_index(tensor, k)
    if not -n <= at < n:
        raise OutOfBoundsError(
            f"index {at} on axis {axis} of {tensor.describe()}",
            rule=f"the axis has {n} elements",
            fix=f"use an index in 0..{n - 1}",
        )
    return at % n


def _range(tensor: Views, axis: int, n: int, k: slice) -> tuple[int, int, int]:
    """(start, count, step) of a slice."""
    given = (k.start, k.stop, k.step)
    start, stop, step = bounds = tuple(None if v is None else _index(v) for v in given)
    if [b is None for b in bounds] != [v is None for v in given]:
        if any(isinstance(v, RunTimeInteger) for v in given):
            raise IndexingError(
                f"a slice from a register on axis {axis} of {tensor.describe()}",
                rule="the size of a view is known while tracing; its start may be a register or a "
                "scalar",
                fix="write nl.ds(register, size)",
            )
        raise _no_index(tensor, k)
    step = 1 if step is None else step
    if step < 1:
        raise IndexingError(
            f"a slice with step {step} on axis {axis} of {tensor.describe()}",
            rule="a slice walks forward",
            fix="use a step of 1 or more",
        )
    low = 0 if start is None else start + n if start < 0 else start
    high = n if stop is None else stop + n if stop < 0 else stop
    if 0 <= high < low <= n:
        raise OutOfBoundsError(
            f"slice {_spelled(k)} on axis {axis} of {tensor.describe()}",
            rule="a slice walks forward, from its start to its end",
            fix=f"write {high}:{low}, if that is meant",
        )
    if not (0 <= low <= high <= n):
        raise OutOfBoundsError(
            f"slice {_spelled(k)} on axis {axis} of {tensor.describe()}",
            rule=f"the axis has {n} elements; a slice that extends beyond the axis is an "
            "error, where NumPy would shorten it",
            fix=f"write min({high}, {n}) for the end" if 0 <= low < n else f"begin in 0..{n - 1}",
        )
    return low, -(-(high - low) // step), step


def _spelled(k: slice) -> str:
    text = f"{'' if k.start is None else k.start}:{'' if k.stop is None else k.stop}"
    return text if k.step is None else f"{text}:{k.step}"


def _no_index(tensor: Views, k: object) -> IndexingError:
    if k is None:
        return IndexingError(
            f"a new axis in an index of {tensor.describe()}",
            rule="an index of `import nki` adds no axes",
            fix="use t.expand_dim(dim)",
        )
    return IndexingError(
        f"index {k!r} on {tensor.describe()}",
        rule="an index is made of integers, slices, `...` and nl.ds(start, size), known while "
        "tracing; index tensors (nl.arange, nl.mgrid) and masks are `neuronxcc.nki`",
        fix="slice with t[0:128, 0:512], shorten the last slice with min(), or give strides "
        "with t.ap(...)",
    )
