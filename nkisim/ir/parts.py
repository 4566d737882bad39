"""The parts of memory that tasks touch: as boxes, and whether two of them meet.

Two parts conflict when their bounding boxes meet, unless both step through memory so that they
never hit the same element. Where one leaves out some of its box, as half of each row of a tile does
in a row that is one axis, their elements are compared.
"""

from __future__ import annotations

from math import gcd, prod

import numpy as np

from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.memo import Memo

Box = tuple[tuple[int, int, int], ...]

_FEW = 1 << 18  # elements of a row up to which they are looked at one by one


class Patterns:
    """Memoised answers about parts of memory: their boxes, and which of them overlap.

    A part is told apart by identity: views of the same part are given as one (see
    `nkisim.cost.tasks.Access`), so what is found out about it serves all tiles that a loop
    makes.
    So does what the next part meets in a sequence of them: `history` numbers the sequences, from 0
    for none, and `steps` holds, for a sequence and the next part, what that one meets.
    """

    def __init__(self) -> None:
        self._boxes: dict[AccessPattern, Box] = {}
        self._meet: dict[tuple, bool] = {}
        self._rows: dict[AccessPattern, int | None] = {}
        self.history = 0
        self.steps: dict[tuple, tuple] = {}

    def box(self, t: AccessPattern) -> Box:
        """(lowest, highest, step) of a part on each base axis."""
        found = self._boxes.get(t)
        if found is None:
            found = self._boxes[t] = _box(t)
        return found

    def meet(self, a: AccessPattern | None, b: AccessPattern | None) -> bool:
        """Whether two parts of one memory may overlap."""
        found = self._meet.get((a, b))
        if found is None:
            found = self._meet[a, b] = self.overlap(a, b) is not None
        return found

    def overlap(self, a: AccessPattern | None, b: AccessPattern | None) -> tuple[bool, bool] | None:
        """The overlap of two parts of one memory: whether `a` surely covers `b`, and whether `b`
        surely covers `a`; None when they are disjoint."""
        if a is None or b is None or a.base_shape != b.base_shape:
            return a is None, b is None
        over = under = True
        boxes = zip(self.box(a), self.box(b), strict=True)
        for (a_low, a_high, a_step), (b_low, b_high, b_step) in boxes:
            if a_high < b_low or b_high < a_low:
                return None
            if a_step != 1 != b_step:
                step = gcd(a_step, b_step)
                if step > 1 and (a_low - b_low) % step:
                    return None
            if a_low > b_low or b_high > a_high or a_step > 1:
                over = False
            if b_low > a_low or a_high > b_high or b_step > 1:
                under = False
        if self._sparse(a) or self._sparse(b):
            return self._compared(a, b)
        return over, under

    def _sparse(self, t: AccessPattern) -> bool:
        """Whether a part leaves out some of its box."""
        form = t.form
        known = _sparse.get(form)
        if known is None:
            box = prod((high - low) // (step or 1) + 1 for low, high, step in self.box(t))
            known = _sparse[form] = form.size < box
        return known

    def _compared(self, a: AccessPattern, b: AccessPattern) -> tuple[bool, bool] | None:
        """`overlap` of two parts whose boxes meet, by the elements of a row."""
        mine, other = self._row(a), self._row(b)
        if mine is None or other is None:
            return False, False
        (a_low, a_high, a_step), (b_low, b_high, b_step) = self.box(a)[0], self.box(b)[0]
        common = mine & other
        if not common:
            return None
        over = a_low <= b_low and b_high <= a_high and a_step <= 1 and common == other
        under = b_low <= a_low and a_high <= b_high and b_step <= 1 and common == mine
        return over, under

    def _row(self, t: AccessPattern) -> int | None:
        """The elements that a part has in each of its rows, as the bits of a number; None where
        rows differ or are long."""
        if t not in self._rows:
            self._rows[t] = _row(t)
        return self._rows[t]


def _box(t: AccessPattern) -> Box:
    """(lowest, highest, step) on each base axis."""
    key = (id(t.coefs), t.shape)  # coefs are interned, so the id stands for them
    steps = _steps.get(key)
    if steps is None:
        steps = _steps[key] = [
            gcd(*[c for c, extent in zip(row, t.shape, strict=True) if extent > 1])
            for row in t.coefs
        ]
    return tuple([(*ends, step) for ends, step in zip(t.bounds(), steps, strict=True)])


def _row(t: AccessPattern) -> int | None:
    length = prod(t.base_shape[1:])
    first, *rest = t.coefs
    if length > _FEW or any(c and any(row[d] for row in rest) for d, c in enumerate(first)):
        return None
    at = np.zeros((), np.int64)
    step = length
    for n, offset in zip(t.base_shape[1:], t.offsets[1:], strict=True):
        step //= n
        at = at + offset * step
    for d, extent in enumerate(t.shape):
        step, by = length, 0
        for n, row in zip(t.base_shape[1:], rest, strict=True):
            step //= n
            by += row[d] * step
        if by:
            at = np.add.outer(at, np.arange(extent) * by)
    found = np.zeros(length, bool)
    found[at.ravel()] = True
    return int.from_bytes(np.packbits(found, bitorder="little").tobytes(), "little")


_sparse: Memo[Form, bool] = Memo(4096)
_steps: Memo[tuple[int, tuple[int, ...]], list[int]] = Memo(4096)
