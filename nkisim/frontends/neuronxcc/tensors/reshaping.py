"""Views of the same bytes with other axes or another element type."""

from __future__ import annotations

import functools
import itertools
from math import prod

import numpy as np

from nkisim.errors import DTypeError, OutOfBoundsError, ShapeError
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.memory import c_strides


def expand_dims(view: AccessPattern, axis: int) -> AccessPattern:
    """A view with a size-1 axis inserted at `axis`, which is one of 0..ndim."""
    return view.view_of(_expanded(view.form, axis), view.offsets)


@functools.lru_cache(maxsize=4096)
def _expanded(form: Form, axis: int) -> Form:
    shape = (*form.shape[:axis], 1, *form.shape[axis:])
    coefs = tuple((*row[:axis], 0, *row[axis:]) for row in form.coefs)
    return Form.of(shape, form.base_shape, coefs)


def as_tile(view: AccessPattern) -> AccessPattern:
    """`view` with at least a partition and a free axis.

    `t[:, 3]` is a column, (partitions, 1), and `t[0]` of a two-dimensional tile a row, (1, free):
    the axis of a view that has one is its partition axis, unless the view says that it is a row.
    """
    while len(view.shape) < 2:
        view = expand_dims(view, 0 if view.is_row else view.ndim)
    return view


def once(view: AccessPattern) -> AccessPattern:
    """`view` without its repeats: a free axis that does not move in memory has size 1. The first
    axis, that of partitions, stays: one value for all of them is one value for each.

    `i_p, i_f = nl.mgrid[0:128, 0:64]` are dense indices: `t[i_p, 3]` is a column, 64 times.
    """
    form = once_of(view.form)
    return view if form is view.form else view.view_of(form, view.offsets)


@functools.lru_cache(maxsize=4096)
def once_of(form: Form) -> Form:
    """The form of what `once` makes of a view."""
    if not form.size:
        return form
    columns = zip(*form.coefs, strict=True)
    shape = [
        n if any(column) or d == 0 else 1
        for d, (n, column) in enumerate(zip(form.shape, columns, strict=False))
    ]
    return Form.of(tuple(shape), form.base_shape, form.coefs)


@functools.lru_cache(maxsize=4096)
def broadcast(form: Form, shape: tuple[int, ...]) -> Form | None:
    """The form of a view broadcast to `shape` by NumPy's rule; None if it does not fit."""
    extra = len(shape) - len(form.shape)
    tail = shape[max(extra, 0) :]
    if extra < 0 or any(s not in (1, t) for s, t in zip(form.shape, tail, strict=True)):
        return None
    coefs = tuple(
        (0,) * extra
        + tuple(c if s == t else 0 for c, s, t in zip(row, form.shape, tail, strict=True))
        for row in form.coefs
    )
    return Form.of(shape, form.base_shape, coefs)


def reshape(view: AccessPattern, shape: tuple[int, ...]) -> AccessPattern:
    """A view of the same elements, in the same order, with the axes `shape`.

    One entry may be -1. Axes of a part can be split, and merged where the part walks memory
    evenly. On chip the partition axis stays first and keeps its size.

    Raises:
        ShapeError: another number of elements, a changed partition axis, or axes that no access
            pattern joins.
        OutOfBoundsError: the view leaves its tensor.
    """
    shape = _filled(view, shape)
    if shape == view.shape:
        return view
    if view.size == 0:
        return view.view_as(shape, view.offsets, tuple((0,) * len(shape) for _ in view.coefs))
    partition = view.buffer.par_axis
    fixed = partition + 1 if view.space.on_chip else 0
    if view.covers_buffer and shape[:fixed] == view.shape[:fixed]:
        return type(view)(view.buffer, shape, shape, dtype=view.dtype)
    if view.space.on_chip and not _keeps_partitions(view, shape):
        raise ShapeError(
            f"{view.describe()} is reshaped to {shape}",
            rule="the partition axis is laid over physical partitions and keeps its size",
            fix="reshape the free axes only, or load the tensor again in the other shape",
        )
    if not view.ndim:  # one element: every axis of the new shape has size 1
        return view.view_as(shape, view.offsets, ((0,) * len(shape),) * len(view.coefs))
    columns = _split(view.shape, _columns(view.coefs, view.ndim), shape)
    if columns is not None:
        coefs = tuple(tuple(c[r] for c in columns) for r in range(len(view.coefs)))
        return view.view_as(shape, view.offsets, coefs)
    if view.escape() is not None:
        raise OutOfBoundsError(
            f"{view.describe()} is reshaped, but reaches outside of its tensor",
            rule="a reshape may join axes, after which their bounds could not be checked",
            fix="index inside the tensor before reshaping",
        )
    flat = _with_flat_base(view, fixed)
    columns = _split(flat.shape, _columns(flat.coefs, flat.ndim), shape)
    if columns is None:
        raise ShapeError(
            f"{view.describe()} has no view of shape {shape}",
            rule="axes can be joined only where the elements are evenly spaced in memory",
            fix="copy the part into a tile of its own first",
        )
    coefs = tuple(tuple(c[r] for c in columns) for r in range(len(flat.coefs)))
    return flat.view_as(shape, flat.offsets, coefs)


def _filled(view: AccessPattern, shape: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with -1 worked out. Raises ShapeError unless it has the view's size."""
    known = prod(d for d in shape if d != -1)
    if shape.count(-1) == 1 and known and view.size % known == 0:
        shape = tuple(view.size // known if d == -1 else d for d in shape)
    if prod(shape) != view.size or any(d < 0 for d in shape):
        raise ShapeError(
            f"{view.describe()} has {view.size} elements; {shape} has {prod(shape)}",
            rule="a reshape keeps the number of elements",
            fix="correct the target shape",
        )
    return shape


def _keeps_partitions(view: AccessPattern, shape: tuple[int, ...]) -> bool:
    """Whether `shape` has an axis that falls on the view's partition axis."""
    row = view.coefs[view.buffer.par_axis]
    at = next((d for d, c in enumerate(row) if c and view.shape[d] > 1), None)
    if at is None:
        return True
    before, size = prod(view.shape[:at]), view.shape[at]
    return any(prod(shape[:d]) == before and n == size for d, n in enumerate(shape))


def _columns(coefs: tuple[tuple[int, ...], ...], ndim: int) -> list[tuple[int, ...]]:
    return [tuple(row[d] for row in coefs) for d in range(ndim)]


def _split(
    old: tuple[int, ...], steps: list[tuple[int, ...]], new: tuple[int, ...]
) -> list[tuple[int, ...]] | None:
    """The steps of the axes `new`, given that axis d of `old` walks by the vector `steps[d]`.

    Matches groups of old and new axes of equal size from the left; within a group the old axes
    must walk evenly. None when they do not.
    """
    zero = (0,) * len(steps[0])
    axes = [(n, s) for n, s in zip(old, steps, strict=True) if n != 1]
    out: list[tuple[int, ...]] = []
    at = 0
    todo = list(new)
    while todo:
        if todo[0] == 1:
            out.append(zero)
            todo.pop(0)
            continue
        if at == len(axes):
            return None
        group, want = [todo.pop(0)], [axes[at]]
        at += 1
        while prod(group) != prod(n for n, _ in want):
            if prod(group) < prod(n for n, _ in want):
                if not todo:
                    return None
                group.append(todo.pop(0))
            elif at < len(axes):
                want.append(axes[at])
                at += 1
            else:
                return None
        for (_, outer), (n, inner) in itertools.pairwise(want):
            if any(o != i * n for o, i in zip(outer, inner, strict=True)):
                return None
        step = want[-1][1]
        columns: list[tuple[int, ...]] = []
        for n in reversed(group):
            columns.append(step if n != 1 else zero)
            step = tuple(s * n for s in step)
        out += reversed(columns)
    return out


def _with_flat_base(view: AccessPattern, first: int) -> AccessPattern:
    """A view of the same elements against a base whose axes from `first` on are joined to one."""
    base = view.base_shape
    weights = c_strides(base[first:])
    joined = (
        tuple(
            sum(row[d] * w for row, w in zip(view.coefs[first:], weights, strict=True))
            for d in range(view.ndim)
        ),
    )
    offset = sum(o * w for o, w in zip(view.offsets[first:], weights, strict=True))
    return type(view)(
        view.buffer,
        view.shape,
        (*base[:first], prod(base[first:])),
        (*view.offsets[:first], offset),
        (*view.coefs[:first], *joined),
        view.dtype,
    )


def reinterpret(view: AccessPattern, dtype: np.dtype) -> AccessPattern:
    """The same bytes as elements of `dtype`; the last axis grows or shrinks to match.

    Raises:
        DTypeError: the last axis is not contiguous, or does not hold a whole number of elements.
    """
    old, new = view.dtype.itemsize, dtype.itemsize
    if old == new:
        return type(view)(view.buffer, view.shape, view.base_shape, view.offsets, view.coefs, dtype)
    last = len(view.base_shape) - 1
    rows_elsewhere = any(row[-1] for row in view.coefs[:last])
    contiguous = view.coefs[last][-1] == 1 or (view.shape[-1] == 1 and not rows_elsewhere)
    moved = [view.offsets[last], *view.coefs[last][:-1], view.shape[-1], view.base_shape[last]]
    if not contiguous or rows_elsewhere or any(m * old % new for m in moved):
        raise DTypeError(
            f"{view.describe()} is viewed as {dtype}",
            rule="a view of another element size needs a contiguous last axis that holds a whole "
            "number of its elements",
            fix="view the whole tile, then index it",
        )
    offset, *steps, size, extent = (m * old // new for m in moved)
    return type(view)(
        view.buffer,
        (*view.shape[:-1], size),
        (*view.base_shape[:last], extent),
        (*view.offsets[:last], offset),
        (*view.coefs[:last], (*steps, 1)),
        dtype,
    )
