"""Indexing, `tensor[key]`: integers, slices, index tensors, masks and tiles to access patterns.

Everything but a tile composes affine maps. A tile as an index is indirect access, which only some
operations take: it gives an `IndirectTensor`.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from operator import add

from nkisim.errors import IndexingError, OutOfBoundsError, ShapeError
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask, broadcast_shapes
from nkisim.frontends.neuronxcc.tensors.indirect import DynamicIndex, IndirectTensor, indirect_view
from nkisim.frontends.neuronxcc.tensors.ranges import DynSlice
from nkisim.frontends.neuronxcc.tensors.reshaping import as_tile
from nkisim.frontends.neuronxcc.tensors.slices import ONE, Stretch, bounds_of
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.integers import as_int

_PLAIN = frozenset({int, slice, DynSlice, IndexTensor})  # an axis each, as they are


def index(target: AccessPattern, key: object) -> AccessPattern | IndirectTensor:
    """The view `target[key]`.

    Raises:
        IndexingError: too many indices, or an index that has no access pattern.
        ShapeError: index tensors that do not broadcast.
    """
    view = _inside(target, key if type(key) is tuple else (key,))
    if view is not None:
        return view
    if key is Ellipsis:
        return target.view_of(target.form, target.offsets)
    if isinstance(key, Mask):
        return _masked_operand(target, key)
    several = isinstance(key, tuple) and not isinstance(key, DynSlice)
    keys = key if several else (key,)
    if target.ndim < 2 and target.space.on_chip and _named(keys) > target.ndim:
        target = as_tile(target)  # `t[:, 3]` is a column, and takes the indices of one
    kinds = set(map(type, keys))
    if kinds <= _PLAIN and len(keys) == len(target.shape) and not _dynamic(kinds, keys):
        axes = keys
    else:
        axes = _expand(target, keys)
        kinds.update(map(type, axes))
        if DynamicIndex in kinds:
            return indirect_view(target, axes)
    if IndexTensor not in kinds:
        return _basic(target, axes)
    if not {slice, DynSlice}.isdisjoint(map(type, keys)):
        raise _mixed(target)
    return _advanced(target, axes)


def is_row(target: AccessPattern, key: object) -> bool:
    """Whether `target[key]`, which has one axis, is a part of one partition of an on-chip tile."""
    if not target.space.on_chip:
        return False
    several = isinstance(key, tuple) and not isinstance(key, DynSlice)
    keys = key if several else (key,)
    if target.ndim < 2:
        if _named(keys) <= target.ndim:
            return target.is_row
        target = as_tile(target)
    axes = [k for k in _expand(target, keys) if k is not None]
    left = [d for d, k in enumerate(axes) if isinstance(k, slice | DynSlice)]
    blocks = target.coefs[: target.buffer.par_axis]
    partition = next((d for d in range(target.ndim) if not any(row[d] for row in blocks)), 0)
    return bool(left) and left[0] > partition


def _inside(target: AccessPattern, key: tuple) -> AccessPattern | None:
    """The view `target[key]` of integers and slices for the first axes, or of integers and index
    tensors for all, that are known to stay inside. None for others, which `index` looks at
    closer."""
    starts: list[int] = []
    sizes: list = []
    shape = target.shape
    if len(key) > len(shape):
        return None
    for axis, k in enumerate(key):
        kind = type(k)
        if kind is int:
            if not 0 <= k < shape[axis]:
                return None
            starts.append(k)
            sizes.append(None)
            continue
        if kind is DynSlice:
            start, size = k
            if not (type(start) is int is type(size) and size >= 0):
                return None
        elif kind is slice:
            start, stop, step = k.start, k.stop, k.step
            if start is None:
                start = 0
            if stop is None:
                stop = shape[axis]
            if not (step is None and type(start) is int is type(stop) and start <= stop):
                return None
            size = stop - start
        else:
            return _inside_by_tensors(target, key)
        if not 0 <= start <= shape[axis] - size:
            return None
        starts.append(start)
        sizes.append(size)
    left = shape[len(key) :]
    if left:
        starts += [0] * len(left)
        sizes += left
    return target.view_of(_cut(target.form, tuple(sizes)), _moved(target, starts))


def _inside_by_tensors(target: AccessPattern, key: tuple) -> AccessPattern | None:
    """The access pattern of an in-bounds key with index tensors among its indices."""
    if len(key) < len(target.shape):
        return None
    starts: list[int] = []
    stretches: list[Stretch] = []
    for axis, k in enumerate(key):
        kind = type(k)
        if kind is IndexTensor:
            starts.append(k.offset)
            stretches.append((k.shape, k.coefs))
        elif kind is int and 0 <= k < target.shape[axis]:
            starts.append(k)
            stretches.append(ONE)
        else:
            return None
    form = _arranged(target.form, tuple(stretches))
    return target.view_of(form, _moved(target, starts)) if len(form.shape) > 1 else None


@functools.lru_cache(maxsize=4096)
def _cut(form: Form, sizes: tuple[int | None, ...]) -> Form:
    """The form of a part with so many neighbours on each axis; None drops an axis."""
    return _walked(form, tuple([(size, 1) for size in sizes]))


def _mixed(target: AccessPattern) -> IndexingError:
    return IndexingError(
        f"{target.describe()} is indexed with a slice and an index tensor at once",
        rule="a tensor is indexed with slices and nl.ds, or with nl.arange and nl.mgrid "
        "expressions, not with both; integers go with either",
        fix="write the slice as an index, too: t[i_p, nl.arange(n)[None, :]]",
        code="err_unsupported_mixing_basic_advanced_tensor_indexing",
    )


def _masked_operand(target: AccessPattern, mask: Mask) -> AccessPattern:
    """`tile[mask]`: the box of the tile where the mask is true (operand masking)."""
    left = mask.restrict(target.shape)
    if left.dense is not None:
        raise IndexingError(
            f"{target.describe()} is indexed with a mask that is not a box: {mask!r}",
            rule="an operand mask bounds each axis by itself, as i_p < 64 or i_f < 256",
            fix="mask the operation instead, with mask=",
        )
    return target.restrict(left.box)


def _dynamic(kinds: set[type], keys: tuple) -> bool:
    """Whether an nl.ds among the keys starts at what a tile holds."""
    return DynSlice in kinds and any(
        [type(k) is DynSlice and isinstance(k.start, AccessPattern) for k in keys]
    )


def _named(key: tuple) -> int:
    """The number of axes that a key indexes."""
    return sum(k is not None and k is not Ellipsis for k in key)


def _expand(target: AccessPattern, key: tuple) -> list:
    """The key with `...` written out, one entry an axis (and None for each new axis)."""
    axes: list = []
    named = _named(key)
    if named > target.ndim or sum(k is Ellipsis for k in key) > 1:
        raise IndexingError(
            f"{len([k for k in key if k is not None])} indices for {target.describe()}, which has "
            f"{target.ndim} axes",
            rule="at most one index an axis, and at most one `...`",
            fix="drop the indices that are too many"
            if named > target.ndim
            else "write `...` once, and `:` for each other axis",
        )
    for k in key:
        if k is Ellipsis:
            axes += [slice(None)] * (target.ndim - named)
        else:
            axes.append(_check(target, k))
    return axes + [slice(None)] * (target.ndim - sum(k is not None for k in axes))


def _check(target: AccessPattern, k: object) -> object:
    """One entry of a key: unchanged, or an int, or a DynamicIndex."""
    if k is None or isinstance(k, IndexTensor | slice | DynamicIndex):
        return k
    if isinstance(k, DynSlice):
        return DynamicIndex.of_slice(k) if isinstance(k.start, AccessPattern) else k
    if isinstance(k, AccessPattern):
        return DynamicIndex.of(k)
    number = as_int(k)
    if number is not None:
        return number
    raise IndexingError(
        f"{target.describe()} cannot be indexed with {k!r} ({type(k).__name__})",
        rule="indices are integers, slices, nl.ds, nl.arange / nl.mgrid expressions, tiles of "
        "integers, None or ...",
        fix="convert the index to one of these",
    )


def _basic(target: AccessPattern, axes: Sequence) -> AccessPattern:
    """Integers, slices and new axes: each view axis comes from one axis, or from none."""
    starts: list[int] = []
    stretches: list[Stretch | None] = []
    inside = target.is_base
    for k in axes:
        if k is None:
            stretches.append(None)
            continue
        start, stretch = bounds_of(target, k, len(starts))
        if not inside and stretch[0] != 0:
            _check_inside(target, len(starts), start, stretch)
        starts.append(start)
        stretches.append(stretch)
    return target.view_of(_walked(target.form, tuple(stretches)), _moved(target, starts))


@functools.lru_cache(maxsize=4096)
def _walked(form: Form, stretches: tuple[Stretch | None, ...]) -> Form:
    """The form of a part, each axis of which walks an axis of the whole with a step, or none."""
    shape: list[int] = []
    sources: list[tuple[int, int] | None] = []  # for each new axis: (axis it walks, step)
    axis = 0
    for stretch in stretches:
        if stretch is None:
            shape.append(1)
            sources.append(None)
            continue
        size, step = stretch
        if size is not None:
            shape.append(size)
            sources.append((axis, step))
        axis += 1
    coefs = tuple(
        tuple(0 if src is None else row[src[0]] * src[1] for src in sources) for row in form.coefs
    )
    return Form.of(tuple(shape), form.base_shape, coefs)


def _moved(target: AccessPattern, starts: list[int]) -> tuple[int, ...]:
    """The base coordinates of the view coordinates `starts`."""
    if not any(starts):
        return target.offsets
    if target.form.aligned:
        return tuple(map(add, target.offsets, starts))
    return tuple(
        [
            o + sum([c * s for c, s in zip(row, starts, strict=True)])
            for o, row in zip(target.offsets, target.coefs, strict=True)
        ]
    )


def _extents(indices: list[tuple[tuple[int, ...], tuple[int, ...]]]) -> tuple[int, ...]:
    """The shape that index tensors, of (shape, coefs), span, by NumPy's broadcasting rule.

    Where that does not fit, an axis along which an index does not vary has any extent: those of
    nl.mgrid are dense, and of `t[i_p, i_f]` from two grids only the partition of the one and the
    free axis of the other count.

    Raises:
        ShapeError: two vary along one axis over different extents.
    """
    shapes = [shape for shape, _ in indices]
    varying = [
        tuple(n if c else 1 for n, c in zip(shape, coefs, strict=True)) for shape, coefs in indices
    ]
    for candidates in (shapes, varying):
        with contextlib.suppress(ValueError):
            return broadcast_shapes(*candidates)
    raise ShapeError(
        f"index shapes {shapes} do not broadcast",
        rule="index tensors follow NumPy's broadcasting rule",
        fix="give each its own axis: nl.arange(128)[:, None], nl.arange(512)[None, :]",
    )


def _check_inside(target: AccessPattern, axis: int, low: int, stretch: Stretch) -> None:
    """A part of a part stays in it. What leaves the whole tensor is reported when it is used,
    for a mask may still cut it off; here the elements exist, but are not the part's."""
    size = target.shape[axis]
    extent, step = stretch
    high = low if extent is None else low + (extent - 1) * step
    if low < 0 or high >= size:
        raise OutOfBoundsError(
            f"axis {axis} of {target.describe()} is indexed at {high if high >= size else low}, "
            f"but its size is {size}",
            rule=f"coordinates lie in 0..{size - 1} on this axis",
            fix="index the part inside its own shape, or the whole tensor directly",
        )


def _advanced(target: AccessPattern, axes: Sequence) -> AccessPattern:
    """Index tensors, with integers and slices beside them, by NumPy's rules."""
    starts: list[int] = []
    stretches: list[Stretch | None] = []
    for k in axes:
        if k is None:
            stretches.append(None)
        elif type(k) is IndexTensor:
            starts.append(k.offset)
            stretches.append((k.shape, k.coefs))
        else:
            start, stretch = bounds_of(target, k, len(starts))
            starts.append(start)
            stretches.append(stretch)
    form = _arranged(target.form, tuple(stretches))
    if len(form.shape) < 2:
        raise IndexingError(
            f"{target.describe()} is indexed with 1-D nl.arange",
            rule="a tile has at least two axes: partition and free",
            fix="add an axis, e.g. nl.arange(64)[:, None], or slice: t[0:64, 0]",
            code="err_1d_arange_not_supported",
        )
    return target.view_of(form, _moved(target, starts))


@functools.lru_cache(maxsize=4096)
def _arranged(whole: Form, stretches: tuple[Stretch | None, ...]) -> Form:
    """The form of the view that index tensors make, with integers, slices and new axes."""
    indices = [s for s in stretches if s is not None and isinstance(s[0], tuple)]
    block = _extents(indices)
    fixed = [d for d, s in enumerate(stretches) if s in indices or (s is not None and s[0] is None)]
    kept = [d for d in range(len(stretches)) if d not in fixed]
    # NumPy puts the broadcast block where the index tensors stand if they stand together,
    # and in front if a slice parts them.
    together = fixed == list(range(fixed[0], fixed[-1] + 1))
    at = sum(d < fixed[0] for d in kept) if together else 0
    shape = [0] * (len(block) + len(kept))
    shape[at : at + len(block)] = block
    growth: list[tuple[int, ...]] = []  # for each own axis, its growth along each view axis
    for d, stretch in enumerate(stretches):
        row = [0] * len(shape)
        if d in kept:
            place = kept.index(d)
            place += len(block) if place >= at else 0
            shape[place], row[place] = (1, 0) if stretch is None else stretch
        elif stretch in indices:
            own = stretch[1]
            row[at : at + len(block)] = (0,) * (len(block) - len(own)) + own
        if stretch is not None:
            growth.append(tuple(row))
    grown = tuple(
        tuple(
            sum(c * g[v] for c, g in zip(row, growth, strict=True)) if n > 1 else 0
            for v, n in enumerate(shape)
        )
        for row in whole.coefs
    )
    return Form.of(tuple(shape), whole.base_shape, grown)
