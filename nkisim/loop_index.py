"""Loop indices that know how they were made, and what a kernel decides by them.

In a rolled trace (see nkisim.rolling) iterations of a loop are left out. To know what a kernel does
in one of those, it has to be known what it decides there: a loop index, and all that is computed
from it, is a `LoopIndex`, which notes what it is compared with. A `Decision` can be looked up for
any other iteration.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable
from fractions import Fraction
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import Location, NotUniform


class Variable:
    """What runs through a range: the index of one execution of a loop.

    Args:
        line: the loop's line, or ~axis of a launch grid, as NotUniform names it.
    """

    def __init__(self, line: Location | int) -> None:
        self.line = line


class LoopIndex(int):
    """A loop index or program id, or what a kernel computes from some.

    Attributes:
        variable: the loop's; of several, the first.
        formula: how it was computed: (operation, operands); None for the index of a loop.
    """

    __hash__ = int.__hash__
    variable: Variable
    formula: tuple[Callable, tuple] | None

    @classmethod
    def of(cls, value: int, variable: Variable, formula: Any = None) -> LoopIndex:
        """An index of a loop, or what was computed from one."""
        index = cls(value)
        index.variable = variable
        index.formula = formula
        return index

    def __bool__(self) -> bool:
        _note(operator.ne, self, 0, sys._getframe(1))
        return int.__bool__(self)

    def __truediv__(self, other: object) -> float:
        raise NotUniform("the kernel divides a loop index", self.variable.line)

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self


class Decision(NamedTuple):
    """What a kernel has decided by a loop index.

    Attributes:
        comparison: such as operator.lt.
        index: what was compared.
        other: what it was compared with.
        outcome: of the comparison.
        within: loops inside of which it was decided that are over, each with all indices for which
            the kernel has decided that way.
    """

    comparison: Callable
    index: LoopIndex
    other: Any
    outcome: bool
    within: tuple[tuple[Variable, range], ...] = ()

    def depends_on(self, variable: Variable) -> bool:
        """Whether it could be another one for another index of a loop."""
        return _contains(self.index, variable) or _contains(self.other, variable)

    def holds_throughout(self, variable: Variable, indices: range) -> bool:
        """Whether it is easily seen that the kernel decides that way for all of a loop's indices.

        Args:
            variable: the loop's.
            indices: at least one.
        """
        lead = self._lead(variable)
        if lead is None:
            return False
        start, growth = lead
        if growth == 0:
            return self.comparison(start, 0) == self.outcome
        return self.comparison in _ORDERS and all(
            self.comparison(start + growth * indices[end], 0) == self.outcome for end in (0, -1)
        )

    def _lead(self, variable: Variable) -> tuple[int, int] | None:
        """How far the index is ahead of what it is compared with: at index 0 of a loop, and by how
        much that grows in an iteration. None where it does not grow evenly, or loops inside have
        to be looked at, too."""
        if self.within:
            return None
        try:
            line, other = _line(self.index, variable), _line(self.other, variable)
        except RecursionError:
            return None
        return line and other and (line[0] - other[0], line[1] - other[1])

    def holds(self, variable: Variable, values: np.ndarray) -> np.ndarray:
        """For which values of a loop's index, which it depends on, the kernel decides that way.

        Args:
            variable: the loop's.
            values: int64 [n].

        Returns:
            bool [n]; False where that cannot be told.
        """
        inner = [(v, r) for v, r in self.within if self.depends_on(v)]
        try:
            lead = self._lead(variable)
            if lead is not None:
                return self.comparison(lead[1] * values, -lead[0]) == self.outcome
            known = {variable: values.reshape(-1, *(1,) * len(inner))}
            for axis, (v, r) in enumerate(reversed(inner)):
                known[v] = np.arange(r.start, r.stop, r.step).reshape(-1, *(1,) * axis)
            with np.errstate(all="raise"):
                a, b = _at(self.index, known), _at(self.other, known)
                same = self.comparison(a, b) == self.outcome
        except (ArithmeticError, RecursionError, TypeError, ValueError):
            return np.zeros(len(values), bool)
        return same.reshape(len(values), -1).all(axis=1) if inner else same


def _line(x: Any, variable: Variable) -> tuple[int, int] | None:
    """What `x` is at index 0 of a loop, and how much it grows in an iteration; None where it does
    not grow evenly."""
    if type(x) is not LoopIndex:
        return (int(x), 0) if isinstance(x, int | np.integer) else None
    if x.formula is None:
        return (0, 1) if x.variable is variable else (+x, 0)
    operation, operands = x.formula
    lines = [_line(y, variable) for y in operands]
    if None in lines:
        return None
    if not any([growth for _, growth in lines]):
        return +x, 0
    if operation in (operator.add, operator.sub, operator.neg):
        starts, growths = zip(*lines, strict=True)
        return operation(*starts), operation(*growths)
    if operation is operator.mul:
        (a, grown), (b, other) = lines
        if not (grown and other):
            return a * b, a * other + b * grown
    return None


def _contains(x: Any, variable: Variable) -> bool:
    """Whether a loop index was used to compute `x`."""
    if not isinstance(x, LoopIndex):
        return False
    if x.formula is None:
        return x.variable is variable
    return any([_contains(y, variable) for y in x.formula[1]])


def _at(x: Any, known: dict[Variable, np.ndarray]) -> Any:
    """What `x` is where loops have other indices."""
    if not isinstance(x, LoopIndex):
        return x
    if x.formula is None:
        return known.get(x.variable, int(x))
    operation, operands = x.formula
    return operation(*[_at(y, known) for y in operands])


# What two numbers are to zero in these, those between them are, too.
_ORDERS = (operator.lt, operator.le, operator.gt, operator.ge)
_LINEAR = (operator.add, operator.sub, operator.neg, operator.mul)
_QUOTIENTS = (operator.floordiv, operator.mod)
_TURNS = 8  # divisors up to which it is the remainder that is to stay the same

# Of the kernel being traced: `decisions` made, and `uses` of indices, as they are noted.
_tracing = threading.local()


def decisions() -> list[Decision]:
    """Those noted so far by the kernel being traced in this thread."""
    return _tracing.decisions


def uses() -> list[LoopIndex]:
    """The indices that went into addresses so far, of the kernel being traced in this thread."""
    return _tracing.uses


def begin_notes() -> None:
    """A kernel is traced: nothing is noted yet."""
    _tracing.decisions = []
    _tracing.uses = []


def is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the simulator, not of the kernel."""
    name = frame.f_globals.get("__name__", "")
    return name == "nkisim" or name.startswith("nkisim.")


def _note(comparison: Callable, index: LoopIndex, other: object, frame: FrameType) -> None:
    if is_ours(frame):
        return
    if not isinstance(other, int | float | np.integer | np.floating):
        line = index.variable.line
        raise NotUniform("the kernel compares a loop index with what is no number", line)
    known = getattr(_tracing, "decisions", None)
    if known is not None:  # else an index was kept from another thread's trace
        known.append(Decision(comparison, index, other, comparison(+index, +other)))


def note_use(index: LoopIndex) -> None:
    """It is in an address, or in another number that is to grow evenly with loop indices.

    A quotient or a remainder does so only while the other of the two stays what it is. That is a
    decision, too: `i % 2` has its iterations taken in turns, `i % 100` by hundreds. Of what is not
    linear in another way, it is one that it stays what it is.
    """
    known = getattr(_tracing, "uses", None)
    if known is None:  # it was kept from another thread's trace
        return
    known.append(index)
    _note_kept(index)


def _note_kept(index: LoopIndex) -> None:
    if index.formula is None:
        return
    operation, operands = index.formula
    indices = [x for x in operands if isinstance(x, LoopIndex)]
    kept = None
    if operation in _QUOTIENTS and type(operands[1]) is int:
        dividend, divisor = operands
        kept = dividend % divisor if divisor <= _TURNS else dividend // divisor
    elif operation not in _LINEAR or (operation is operator.mul and len(indices) > 1):
        kept, indices = index, []
    if kept is not None:
        _tracing.decisions.append(Decision(operator.eq, kept, +kept, True))
    for x in indices:
        _note_kept(x)


def slope(x: Any, variable: Variable) -> int | Fraction:
    """How much an index that was noted as used grows, where a loop's own index grows by one and
    what had to stay as it is does."""
    if not isinstance(x, LoopIndex):
        return 0
    if x.formula is None:
        return int(x.variable is variable)
    operation, operands = x.formula
    grown = [slope(y, variable) for y in operands]
    if operation in (operator.add, operator.sub, operator.neg):
        return operation(*grown)
    if operation is operator.mul and not all(isinstance(y, LoopIndex) for y in operands):
        return grown[0] * +operands[1] + grown[1] * +operands[0]
    if operation in _QUOTIENTS and type(operands[1]) is int:
        in_turns = operands[1] <= _TURNS
        if operation is operator.mod:
            return 0 if in_turns else grown[0]
        return Fraction(grown[0], operands[1]) if in_turns else 0
    return 0


def _define_operators() -> None:
    def binary(name: str) -> None:
        plain, operation = getattr(int, f"__{name}__"), getattr(operator, f"__{name}__")
        reflected = getattr(int, f"__r{name}__")

        def operator_(self: LoopIndex, other: object) -> Any:
            found = plain(self, other)
            if type(found) is not int:
                return found
            return LoopIndex.of(found, self.variable, (operation, (self, other)))

        def operator_reflected(self: LoopIndex, other: object) -> Any:
            found = reflected(self, other)
            if type(found) is not int:
                return found
            return LoopIndex.of(found, self.variable, (operation, (other, self)))

        setattr(LoopIndex, f"__{name}__", operator_)
        setattr(LoopIndex, f"__r{name}__", operator_reflected)

    def unary(name: str) -> None:
        plain, operation = getattr(int, f"__{name}__"), getattr(operator, f"__{name}__")

        def operator_(self: LoopIndex) -> LoopIndex:
            return LoopIndex.of(plain(self), self.variable, (operation, (self,)))

        setattr(LoopIndex, f"__{name}__", operator_)

    def comparison(name: str) -> None:
        plain, comparison_ = getattr(int, f"__{name}__"), getattr(operator, f"__{name}__")

        def operator_(self: LoopIndex, other: object) -> Any:
            _note(comparison_, self, other, sys._getframe(1))
            return plain(self, other)

        setattr(LoopIndex, f"__{name}__", operator_)

    for name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
        binary(name)
    for name in ("lshift", "rshift", "and", "or", "xor"):
        binary(name)
    for name in ("neg", "abs", "invert"):
        unary(name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        comparison(name)


_define_operators()
