"""Which tasks must wait for which: reads after writes, writes after reads and after writes.

Each buffer keeps the access patterns that have touched it. Two patterns conflict when their
bounding boxes meet, unless both step through memory so that they never hit the same element.
"""

from __future__ import annotations

from itertools import product
from math import gcd, prod

from nkisim.tensor import Tensor

# Kinds of dependence: on a result, on having been read, on the order of accumulation.
RESULT, READ, ORDER = 2, 1, 0

_Box = tuple[tuple[int, int, int], ...]
_UNKNOWN: _Box = ()


class _Region:
    """One access pattern of a buffer, and who touched it last."""

    __slots__ = ("base", "box", "meets", "readers", "tensor", "writer")

    def __init__(self, tensor: Tensor | None) -> None:
        self.tensor = tensor
        self.base = None if tensor is None else tensor.base_shape
        self.box: _Box | None = _UNKNOWN
        self.writer = -1
        self.readers: list[int] = []
        self.meets: list[tuple[_Region, bool]] = []  # (another region, whether this covers it)


# A pattern that meets more bins than this is compared with every other one.
_WIDE = 64


class Regions:
    """Accesses of one buffer, in program order.

    Patterns are found by the bins that they lie in: a grid of the size of the smaller of the first
    two, so that the tiles of a large tensor are compared with their neighbours only.
    """

    __slots__ = ("_bins", "_grid", "_known", "_wide")

    def __init__(self) -> None:
        self._known: dict[object, _Region] = {}
        self._grid: tuple[int, ...] | None = None
        # Made when there is a second pattern: most buffers have one.
        self._bins: dict[tuple[int, ...], list[_Region]] | None = None
        self._wide: list[_Region] | None = None

    def read(self, t: Tensor | None, task: int, waits: dict[int, int]) -> None:
        """`task` reads `t`. Adds what it must wait for."""
        region = self._find(t)
        if region.writer >= 0:
            waits[region.writer] = RESULT
        for other, _ in region.meets:
            if other.writer >= 0:
                waits[other.writer] = RESULT
        region.readers.append(task)

    def write(self, t: Tensor | None, task: int, waits: dict[int, int]) -> None:
        """`task` writes `t`. Adds what it must wait for."""
        region = self._find(t)
        if region.writer >= 0 or region.readers:
            _overwrite(region, task, waits)
        for other, covered in region.meets:
            before = other.writer
            readers = other.readers
            _overwrite(other, task, waits)
            if not covered:
                other.writer, other.readers = before, readers
        region.writer = task
        region.readers = []

    def _find(self, t: Tensor | None) -> _Region:
        key = None if t is None else (t.offsets, t.shape, id(t.coefs), t.base_shape)
        region = self._known.get(key)
        if region is None:
            region = _Region(t)
            if self._known:
                for other in self._known.values():
                    if other.box is _UNKNOWN:  # the only pattern so far: its box was not needed
                        self._set_grid(other, region)
                        self._enter(other)
                    break
                self._enter(region)
            self._known[key] = region
        return region

    def _set_grid(self, first: _Region, second: _Region) -> None:
        """Bins of the size of the smaller of two patterns."""
        boxes = [_box(r.tensor) for r in (first, second) if r.tensor is not None]
        if boxes and all(len(b) == len(boxes[0]) for b in boxes):
            self._grid = tuple(
                min(h - w + 1 for w, h, _ in axis) for axis in zip(*boxes, strict=True)
            )

    def _enter(self, region: _Region) -> None:
        """Find the patterns that a new one meets."""
        region.box = None if region.tensor is None else _box(region.tensor)
        if self._bins is None:
            self._bins, self._wide = {}, []
        bins = self._bins_of(region)
        if bins is None:
            near = [r for r in self._known.values() if r is not region]
        else:
            found = {id(r): r for b in bins for r in self._bins.get(b, ())}
            near = (*found.values(), *self._wide)
        for other in near:
            if _conflict(region, other):
                region.meets.append((other, _covers(region, other)))
                other.meets.append((region, _covers(other, region)))
        if bins is None:
            self._wide.append(region)
        else:
            for b in bins:
                self._bins.setdefault(b, []).append(region)

    def _bins_of(self, region: _Region) -> list[tuple[int, ...]] | None:
        """The grid cells that a region's box meets; None when it is not to be binned."""
        if region.box is None:
            return None
        if self._grid is None or len(region.box) != len(self._grid):
            return None
        spans = [
            range(low // size, high // size + 1)
            for (low, high, _), size in zip(region.box, self._grid, strict=True)
        ]
        if prod(map(len, spans)) > _WIDE:
            return None
        return list(product(*spans))


def _overwrite(region: _Region, task: int, waits: dict[int, int]) -> None:
    if region.writer >= 0:
        waits[region.writer] = RESULT
    for reader in region.readers:
        if reader != task:
            waits.setdefault(reader, READ)
    region.writer = task
    region.readers = []


def _box(t: Tensor) -> _Box:
    """(lowest, highest, step) on each base axis."""
    box = []
    for low, row in zip(t.offsets, t.coefs, strict=True):
        high, step = low, 0
        for c, extent in zip(row, t.shape, strict=True):
            if c and extent > 1:
                step = gcd(step, abs(c))
                if c > 0:
                    high += c * (extent - 1)
                else:
                    low += c * (extent - 1)
        box.append((low, high, step))
    return tuple(box)


def _conflict(a: _Region, b: _Region) -> bool:
    if a.box is None or b.box is None or (a.base is not b.base and a.base != b.base):
        return True
    for (a_low, a_high, a_step), (b_low, b_high, b_step) in zip(a.box, b.box, strict=True):
        if a_high < b_low or b_high < a_low:
            return False
        if a_step != 1 and b_step != 1:
            step = gcd(a_step, b_step)
            if step > 1 and (a_low - b_low) % step:
                return False
    return True


def _covers(a: _Region, b: _Region) -> bool:
    """Whether `a` surely names every element that `b` does."""
    if a.box is None:
        return True
    if b.box is None or a.base != b.base:
        return False
    for (a_low, a_high, a_step), (b_low, b_high, _) in zip(a.box, b.box, strict=True):
        if a_low > b_low or b_high > a_high or a_step > 1:
            return False
    return True
