"""Iterations of loops that use parts of a tensor of their own, as most that walk over its tiles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import NamedTuple

from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.loops import Path
from nkisim.ir.memory import Buffer


class Access(NamedTuple):
    """A use of a tensor.

    Attributes:
        view: what is used of it.
        path: the loop iterations that the use is in, inside of those that made the tensor.
        writes: whether it is written.
        accumulates: whether it is added to, which may be done in any order.
    """

    view: Tensor
    path: Path
    writes: bool
    accumulates: bool


def have_own_parts(
    buffer: Buffer,
    accesses: Sequence[Access],
    loops: Set[int],
    slopes: Mapping[int, tuple[int, ...]],
) -> bool:
    """Whether iterations of each of some loops are easily seen to keep out of each other's way:
    on some axis of the tensor they use ranges that do not overlap, or they only read it, or only
    add to it.

    Args:
        buffer: the tensor.
        accesses: the uses of it.
        loops: numbers of the loops in question.
        slopes: for the loops of which only some iterations are given: how far on each axis what
            the others use moves, from one loop index to the next, between two that are given.
    """
    if any([a.view.base_shape != buffer.shape or not a.view.size for a in accesses]):
        return False
    return _keep_apart([(a, a.view.bounds()) for a in accesses], 0, loops, slopes)


_Bounds = list[tuple[int, int]]
_Uses = list[tuple[Access, _Bounds]]  # and the lowest and highest coordinate on each axis


def _keep_apart(
    uses: _Uses, level: int, loops: Set[int], slopes: Mapping[int, tuple[int, ...]]
) -> bool:
    """`have_own_parts` for uses that are in the same iterations of the outer `level` loops."""
    executions: dict[int, dict[int, _Uses]] = {}  # by loop and index
    for use in uses:
        path = use[0].path
        if level < len(path):
            loop, index = path[level]
            executions.setdefault(loop, {}).setdefault(index, []).append(use)
    for loop, iterations in executions.items():
        inside = [access for of in iterations.values() for access, _ in of]
        if not any([a.writes for a in inside]) or all([a.accumulates for a in inside]):
            continue
        if loop in loops and not _are_disjoint(iterations, slopes.get(loop)):
            return False
        if not all(_keep_apart(of, level + 1, loops, slopes) for of in iterations.values()):
            return False
    return True


def _are_disjoint(iterations: Mapping[int, _Uses], slope: tuple[int, ...] | None) -> bool:
    """Whether iterations, given by their index, use ranges that do not overlap on one of the axes.
    With a slope, neither do those between them."""
    if len(iterations) == 1:
        return True
    axes = len(next(iter(iterations.values()))[0][1])
    for axis in range(axes):
        ranges = [
            (index, min([b[axis][0] for _, b in of]), max([b[axis][1] for _, b in of]))
            for index, of in iterations.items()
        ]
        if slope is None:
            apart = _do_not_overlap((low, high) for _, low, high in ranges)
        else:
            # Each stays in a window that is as wide as it moves.
            step = slope[axis]
            lowest = min([low - step * index for index, low, _ in ranges])
            highest = max([high - step * index for index, _, high in ranges])
            apart = highest - lowest < abs(step)
        if apart:
            return True
    return False


def _do_not_overlap(ranges: Iterable[tuple[int, int]]) -> bool:
    end = None
    for low, high in sorted(ranges):
        if end is not None and low <= end:
            return False
        end = high
    return True
