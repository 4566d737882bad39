"""Which tasks must wait for which: reads after writes, writes after reads and after writes.

Each buffer keeps the access patterns that have touched it. Two patterns conflict when their
bounding boxes meet, unless both step through memory so that they never hit the same element.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from math import gcd, prod

from nkisim.tensor import Tensor

# Kinds of dependence: on a result, on having been read, on the order of accumulation.
RESULT, READ, ORDER = 2, 1, 0

_Box = tuple[tuple[int, int, int], ...]


class _Pattern:
    """One access pattern, whatever buffer it is of."""

    __slots__ = ("base", "box")

    def __init__(self, tensor: Tensor) -> None:
        self.base = tensor.base_shape
        self.box: _Box = _box(tensor)


class Patterns:
    """The access patterns of a program.

    The tiles that a loop's iterations make are accessed in the same patterns, one after the other.
    What the next pattern meets is worked out for the first of them: `history` numbers the sequences
    of patterns, from 0 for none, and `steps` holds, for a sequence and the next pattern, the number
    of the longer sequence and which of the patterns in it are met, whether they are covered by the
    new one, and whether they cover it.
    """

    def __init__(self) -> None:
        self._found: dict[tuple, _Pattern] = {}
        self.history = 0
        self.steps: dict[tuple[int, int], tuple[int, list[tuple[int, bool, bool]]]] = {}

    def of(self, t: Tensor | None) -> _Pattern | None:
        """The pattern of an access; None for a whole buffer."""
        if t is None:
            return None
        key = (t.offsets, t.shape, id(t.coefs), t.base_shape)
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = _Pattern(t)
        return found


class _Region:
    """One access pattern of a buffer, and who touched it last."""

    __slots__ = ("meets", "pattern", "readers", "writer")

    def __init__(self, pattern: _Pattern | None) -> None:
        self.pattern = pattern
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

    __slots__ = ("_binned", "_bins", "_grid", "_history", "_known", "_order", "_patterns", "_wide")

    def __init__(self, patterns: Patterns) -> None:
        self._patterns = patterns
        self._history = 0
        self._known: dict[_Pattern | None, _Region] = {}
        self._order: list[_Region] = []
        self._grid: tuple[int, ...] | None = None
        self._binned = 0  # how many of them are in bins
        self._bins: dict[tuple[int, ...], list[int]] = {}
        self._wide: list[int] = []

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
        pattern = self._patterns.of(t)
        region = self._known.get(pattern)
        if region is None:
            region = self._known[pattern] = _Region(pattern)
            step = self._patterns.steps.get((self._history, id(pattern)))
            if step is None:
                step = self._step(pattern)
            self._history, meets = step
            order = self._order
            for at, covers, covered in meets:
                other = order[at]
                region.meets.append((other, covers))
                other.meets.append((region, covered))
            order.append(region)
        return region

    def _step(self, pattern: _Pattern | None) -> tuple[int, list[tuple[int, bool, bool]]]:
        """What a pattern meets that this buffer's history does not have yet."""
        patterns, order = self._patterns, self._order
        meets = []
        for at in self._near(pattern):
            other = order[at].pattern
            if _conflict(pattern, other):
                meets.append((at, _covers(pattern, other), _covers(other, pattern)))
        patterns.history += 1
        found = patterns.steps[self._history, id(pattern)] = (patterns.history, meets)
        return found

    def _near(self, pattern: _Pattern | None) -> Iterable[int]:
        """The positions of the regions that a new pattern may meet."""
        order = self._order
        if len(order) < 2:
            return range(len(order))
        if not self._binned:
            self._set_grid()
        for at in range(self._binned, len(order)):
            bins = self._bins_of(order[at].pattern)
            if bins is None:
                self._wide.append(at)
            else:
                for b in bins:
                    self._bins.setdefault(b, []).append(at)
        self._binned = len(order)
        bins = self._bins_of(pattern)
        if bins is None:
            return range(len(order))
        return {*self._wide, *(at for b in bins for at in self._bins.get(b, ()))}

    def _set_grid(self) -> None:
        """Bins of the size of the smaller of two patterns."""
        boxes = [r.pattern.box for r in self._order[:2] if r.pattern is not None]
        if boxes and all(len(b) == len(boxes[0]) for b in boxes):
            self._grid = tuple(
                min(h - w + 1 for w, h, _ in axis) for axis in zip(*boxes, strict=True)
            )

    def _bins_of(self, pattern: _Pattern | None) -> list[tuple[int, ...]] | None:
        """The grid cells that a pattern's box meets; None when it is not to be binned."""
        if pattern is None or self._grid is None or len(pattern.box) != len(self._grid):
            return None
        spans = [
            range(low // size, high // size + 1)
            for (low, high, _), size in zip(pattern.box, self._grid, strict=True)
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


def _conflict(a: _Pattern | None, b: _Pattern | None) -> bool:
    if a is None or b is None or a.base != b.base:
        return True
    for (a_low, a_high, a_step), (b_low, b_high, b_step) in zip(a.box, b.box, strict=True):
        if a_high < b_low or b_high < a_low:
            return False
        if a_step != 1 and b_step != 1:
            step = gcd(a_step, b_step)
            if step > 1 and (a_low - b_low) % step:
                return False
    return True


def _covers(a: _Pattern | None, b: _Pattern | None) -> bool:
    """Whether `a` surely names every element that `b` does."""
    if a is None:
        return True
    if b is None or a.base != b.base:
        return False
    for (a_low, a_high, a_step), (b_low, b_high, _) in zip(a.box, b.box, strict=True):
        if a_low > b_low or b_high > a_high or a_step > 1:
            return False
    return True
