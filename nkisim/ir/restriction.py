"""Restrictions of a tile by a mask: boxes, and boolean arrays inside of them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

# For each axis, the range (low, high).
Box = tuple[tuple[int, int], ...]


class Restriction(NamedTuple):
    """A mask applied to a tile: the box that bounds it, and what is true within the box."""

    box: Box
    dense: np.ndarray | None  # bool, of the box's shape; None when the whole box is true

    def tightened(self) -> Restriction:
        """This restriction with the smallest box that holds all that is true."""
        if self.dense is None or not self.dense.any():
            return self
        inner, part = bounding_box(self.dense)
        box = tuple((lo + a, lo + b) for (lo, _), (a, b) in zip(self.box, inner, strict=True))
        return Restriction(box, None if part.all() else part)

    @property
    def empty(self) -> bool:
        return any(hi <= lo for lo, hi in self.box) or (
            self.dense is not None and not self.dense.any()
        )


def bounding_box(true: np.ndarray) -> tuple[Box, np.ndarray]:
    """The smallest box that holds every true element (there is one), and the part inside it."""
    box = []
    for axis in range(true.ndim):
        others = tuple(d for d in range(true.ndim) if d != axis)
        (at,) = np.nonzero(true.any(axis=others))
        box.append((int(at[0]), int(at[-1]) + 1))
    return tuple(box), true[tuple(slice(lo, hi) for lo, hi in box)]


def boxes(true: np.ndarray) -> Iterator[Box]:
    """Disjoint boxes that together hold exactly the true elements: runs of equal slices."""
    if not true.ndim:
        if true:
            yield ()
        return
    flat = true.reshape(len(true), -1)
    changes = np.nonzero((flat[1:] != flat[:-1]).any(axis=1))[0] + 1
    edges = [0, *changes.tolist(), len(true)]
    for low, high in itertools.pairwise(edges):
        for rest in boxes(true[low]):
            yield ((low, high), *rest)
