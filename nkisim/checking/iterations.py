"""Iterations of loops that use parts of a tensor of their own.

Most loops walk over the tiles of a tensor. That is told here with arrays over all of its uses at
once, so that uses need not be looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

import numpy as np

from nkisim.checking.uses import Path
from nkisim.memory import Buffer
from nkisim.tensor import Tensor


def have_own_parts(
    buffer: Buffer,
    tensors: Sequence[Tensor],
    paths: Sequence[Path],
    writes: Sequence[bool],
    accumulates: Sequence[bool],
    loops: Set[int],
    slopes: Mapping[int, tuple[int, ...]],
) -> bool:
    """Whether iterations of each of some loops are easily seen to keep out of each other's way:
    on some axis of the tensor they use ranges that do not overlap, or they only read it, or only
    add to it.

    Args:
        buffer: the tensor.
        tensors: views of it: a use each.
        paths: for each, the loop iterations that it is in, inside of those that `buffer` was made
            in.
        writes: for each, whether it is written.
        accumulates: for each, whether it is added to, which may be done in any order.
        loops: numbers of the loops in question.
        slopes: for the loops of which only some iterations are given: how far on each axis what
            the others use moves, from one loop index to the next, between two that are given.
    """
    if any([t.base_shape != buffer.shape or not t.size for t in tensors]):
        return False
    lows, highs = _bounds(tensors)
    changes, ordered = np.array(writes), ~np.array(accumulates)
    inside, known = _places(paths)  # of each use, which of the different paths
    part = np.zeros(len(known), np.int64)  # of each path, as far as `level`
    for level in range(known.shape[1]):
        numbers, indices = known[:, level].T
        # Of the uses in loops of this level, those whose loop has to be looked at.
        loop = _numbered(part, numbers)
        part = _numbered(loop, indices)
        count = int(loop.max()) + 1
        mine = loop[inside]
        keep = np.bincount(mine, changes, count).astype(bool)
        keep &= np.bincount(mine, ordered, count).astype(bool)
        keep[loop[numbers < 0]] = False
        keep = keep[mine]
        lows, highs, changes, ordered, inside = (
            x[keep] for x in (lows, highs, changes, ordered, inside)
        )
        if not len(inside):
            return True
        asked = np.isin(numbers, list(loops))[inside]
        slope = np.zeros((len(known), lows.shape[1]), np.int64)
        for n in slopes.keys() & set(numbers.tolist()):
            slope[numbers == n] = slopes[n]
        at = inside[asked]
        ranges = lows[asked], highs[asked]
        if not _disjoint(*ranges, loop[at], part[at], indices[at], slope[at]):
            return False
    return True


def _bounds(tensors: Sequence[Tensor]) -> tuple[np.ndarray, np.ndarray]:
    """The lowest and the highest coordinate of each view on each axis of its base."""
    forms = {id(t.form): t.form for t in tensors}
    at = {form: n for n, form in enumerate(forms)}
    reach = np.array([form.reach for form in forms.values()])
    reach = reach[[at[id(t.form)] for t in tensors]]
    offsets = np.array([t.offsets for t in tensors])
    return offsets + reach[:, :, 0], offsets + reach[:, :, 1]


def _places(paths: Sequence[Path]) -> tuple[np.ndarray, np.ndarray]:
    """For each path the position of the first one like it among the different ones, and of these
    the (loop, iteration) at each level; -1 where there is none."""
    at: dict[Path, int] = {}
    inside = np.array([at.setdefault(path, len(at)) for path in paths])
    known = np.full((len(at), max(map(len, at)), 2), -1)
    for n, path in enumerate(at):
        if path:
            known[n, : len(path)] = path
    return inside, known


def _numbered(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pairs of integers from -1 on, as numbers from 0 on."""
    return np.unique((a + 1) * (int(b.max()) + 2) + b + 1, return_inverse=True)[1]


def _disjoint(
    lows: np.ndarray,
    highs: np.ndarray,
    loop: np.ndarray,
    part: np.ndarray,
    index: np.ndarray,
    slope: np.ndarray,
) -> bool:
    """Whether the iterations of each loop use ranges that do not overlap on one of the axes.

    Args:
        lows, highs: of each use, on each axis.
        loop, part, index: its loop, its iteration as a number in the order of loops, and the index
            of that.
        slope: how far the uses of the loop move with the index on each axis; zero where all
            iterations are given.
    """
    if not len(loop):
        return True
    order = np.argsort(part, kind="stable")
    starts = np.flatnonzero(np.diff(part[order], prepend=-1))
    first = order[starts]  # a use of each iteration
    loop, index, slope = loop[first], index[first], slope[first]
    begins = np.flatnonzero(np.diff(loop, prepend=-1))  # of the loops, among the iterations
    given = ~slope.any(axis=1)[begins]
    found = np.zeros(len(begins), bool)
    sizes = np.diff(begins, append=len(loop))
    for axis in range(lows.shape[1]):
        low = np.minimum.reduceat(lows[order, axis], starts)
        high = np.maximum.reduceat(highs[order, axis], starts)
        # All are given: look at neighbours, from the lowest to the highest.
        along = np.lexsort((low, loop))
        meet = (high[along][:-1] >= low[along][1:]) & (loop[along][:-1] == loop[along][1:])
        apart = np.add.reduceat(np.append(False, meet), begins) == 0
        # Some are given: each is to stay in a window that is as wide as it moves.
        moved = slope[:, axis] * index
        lowest = np.minimum.reduceat(low - moved, begins)
        highest = np.maximum.reduceat(high - moved, begins)
        in_windows = highest - lowest < np.abs(slope[begins, axis])
        found |= np.where(given, apart, in_windows) | (sizes == 1)
        if found.all():
            return True
    return False
