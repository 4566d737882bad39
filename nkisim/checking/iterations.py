"""Iterations of loops that use parts of a tensor of their own.

Most loops walk over the tiles of a tensor. That is told here with arrays over all of its uses at
once, so that uses need not be looked at one by one.
"""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np

from nkisim.memory import Buffer
from nkisim.tensor import Tensor

Path = tuple[tuple[int, int], ...]


def have_own_parts(
    buffer: Buffer,
    tensors: Sequence[Tensor],
    paths: Sequence[Path],
    writes: Sequence[bool],
    accumulates: Sequence[bool],
    loops: Set[int],
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
    """
    if any([t.base_shape != buffer.shape or not t.size for t in tensors]):
        return False
    lows, highs = _bounds(tensors)
    changes, ordered = np.array(writes), ~np.array(accumulates)
    inside, known = _places(paths)  # of each use, which of the different paths
    part = np.zeros(len(known), np.int64)  # of each path, as far as `level`
    for level in range(known.shape[1]):
        # Of the uses in loops of this level, those whose loop has to be looked at.
        deep = known[inside, level, 0] >= 0
        if not deep.any():
            return True
        lows, highs, changes, ordered, inside = (
            x[deep] for x in (lows, highs, changes, ordered, inside)
        )
        loop = _numbered(part, known[:, level, 0])
        part = _numbered(loop, known[:, level, 1])
        mine = loop[inside]
        count = int(loop.max()) + 1
        matters = np.bincount(mine, changes, count).astype(bool)
        matters &= np.bincount(mine, ordered, count).astype(bool)
        keep = matters[mine]
        lows, highs, changes, ordered, inside = (
            x[keep] for x in (lows, highs, changes, ordered, inside)
        )
        asked = np.zeros(count, bool)
        asked[loop[np.isin(known[:, level, 0], list(loops))]] = True
        if not _disjoint(lows, highs, loop[inside], part[inside], asked).all():
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
    lows: np.ndarray, highs: np.ndarray, loop: np.ndarray, part: np.ndarray, asked: np.ndarray
) -> np.ndarray:
    """For each loop, whether it is not `asked` about, or its iterations (`part`) use ranges that
    do not overlap on one of the axes."""
    found = ~asked
    wanted = asked[loop]
    lows, highs, loop, part = lows[wanted], highs[wanted], loop[wanted], part[wanted]
    if not len(part):
        return np.ones_like(found)
    order = np.argsort(part, kind="stable")
    starts = np.flatnonzero(np.diff(part[order], prepend=-1))
    loop = loop[order][starts]  # of each iteration
    for axis in range(lows.shape[1]):
        low = np.minimum.reduceat(lows[order, axis], starts)
        high = np.maximum.reduceat(highs[order, axis], starts)
        along = np.lexsort((low, loop))
        meet = (high[along][:-1] >= low[along][1:]) & (loop[along][:-1] == loop[along][1:])
        bad = np.zeros_like(found)
        bad[loop[along][1:][meet]] = True
        found |= ~bad
        if found.all():
            break
    return found
