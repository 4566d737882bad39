"""Loop indices that know how they were made, and what a kernel decides by them.

In a rolled trace (see nkisim.trace.rolling) iterations of a loop are left out. To know what a
kernel does
in one of those, it has to be known what it decides there: a loop index, and all that is computed
from it, is a `LoopIndex`, which notes what it is compared with. A `Decision` can be looked up for
any other iteration.
"""

from __future__ import annotations

import operator
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from numbers import Integral
from types import FrameType
from typing import Any, NamedTuple

import numpy as np

from nkisim.errors import Location, NotUniform
from nkisim.trace.frames import is_ours


class Variable:
    """What runs through a range: the index of one execution of a loop.

    Args:
        line: the loop's line, or ~axis of a launch grid, as NotUniform names it.

    Attributes:
        is_followed: whether it is known what the kernel does with the index, in all iterations.
        must_be: whether it has to be, because some were left out; or the loop is over.
    """

    __slots__ = ("is_followed", "line", "must_be")

    def __init__(self, line: Location | int) -> None:
        self.line = line
        self.is_followed = True
        self.must_be = False


class LoopIndex:
    """A loop index or program id, or what a kernel computes from some.

    To the kernel it is an int. It is none to Python, so that nothing can be told from it unseen: an
    `int` that Python or NumPy makes of it, to look something up in a list or to write it as text,
    is one that no formula tells for other iterations, which all have to be traced then.

    Args:
        value: what it is in this iteration.
        variable: the loop's; of several, the first.
        formula: how it was computed: (operation, operands); None for the index of a loop.
    """

    __slots__ = ("formula", "value", "variable")
    __class__ = property(lambda self: int)
    __array_ufunc__ = None  # so that NumPy scalars on the left defer to our operators

    def __init__(
        self, value: int, variable: Variable, formula: tuple[Callable, tuple] | None = None
    ) -> None:
        self.value = value
        self.variable = variable
        self.formula = formula

    def __bool__(self) -> bool:
        _note(operator.ne, self, 0, sys._getframe(1))
        return self.value != 0

    def __pos__(self) -> LoopIndex | int:
        """Itself; to the simulator, the plain number."""
        return self.value if is_ours(sys._getframe(1)) else self

    def __round__(self, digits: int | None = None) -> LoopIndex:
        if digits is not None and digits < 0:
            return round(self._plain(sys._getframe(1), "rounds"), digits)
        return self

    def __trunc__(self) -> LoopIndex:
        return self

    __floor__ = __ceil__ = __trunc__

    def __truediv__(self, other: Any) -> Any:
        return self._plain(sys._getframe(1), "divides") / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self._plain(sys._getframe(1), "divides by")

    def __divmod__(self, other: int) -> tuple[int, int]:
        return self // other, self % other

    def __rdivmod__(self, other: int) -> tuple[int, int]:
        return other // self, other % self

    def __hash__(self) -> int:
        return hash(self._plain(sys._getframe(1), "looks up"))

    def __index__(self) -> int:
        return self._plain(sys._getframe(1), "looks up, or makes a number of,")

    __int__ = __index__

    def __float__(self) -> float:
        return float(self._plain(sys._getframe(1), "makes a float of"))

    def __complex__(self) -> complex:
        return complex(self._plain(sys._getframe(1), "makes a complex number of"))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return np.asarray(self._plain(sys._getframe(1), "makes an array of"), dtype)

    def __repr__(self) -> str:
        return repr(self._plain(sys._getframe(1), "makes text of"))

    def __format__(self, spec: str) -> str:
        return format(self._plain(sys._getframe(1), "makes text of"), spec)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self._plain(sys._getframe(1), f"asks for {name} of"), name)

    def _plain(self, frame: FrameType, what: str) -> int:
        """The number, for what is not followed.

        Args:
            frame: of who asks. The simulator's own functions know what they do.
            what: is done with it.

        Raises:
            NotUniform: the kernel asks, and iterations were left out.
        """
        if not is_ours(frame):
            _follow_no_more(self, f"the kernel {what} a loop index")
        return self.value


Integral.register(LoopIndex)


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
        return (0, 1) if x.variable is variable else (x.value, 0)
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
        return known.get(x.variable, x.value)
    operation, operands = x.formula
    values = [_at(y, known) for y in operands]
    if operation in _GROWING:
        # NumPy's int64 wraps around without a word.
        a, b = (np.asarray(v, np.float64) for v in values)
        if (np.abs(_GROWING[operation](a, b)) >= 2.0**62).any():
            raise OverflowError
    return operation(*values)


# What two numbers are to zero in these, those between them are, too.
_ORDERS = (operator.lt, operator.le, operator.gt, operator.ge)
_LINEAR = (operator.add, operator.sub, operator.neg, operator.mul)
_QUOTIENTS = (operator.floordiv, operator.mod)
# Those whose results may be much larger, and how large.
_GROWING: dict[Callable, Callable] = {
    operator.mul: operator.mul,
    operator.pow: operator.pow,
    operator.lshift: lambda a, b: a * 2.0**b,
}
_TURNS = 8  # divisors up to which it is the remainder that is to stay the same

# Of the kernel being traced: `decisions` made, and `uses` of indices, as they are noted.
_tracing = threading.local()


def decisions() -> list[Decision]:
    """Those noted so far by the kernel being traced in this thread."""
    return _tracing.decisions


def uses() -> list[LoopIndex]:
    """The indices that went into addresses so far, of the kernel being traced in this thread."""
    return _tracing.uses


def refused() -> NotUniform | None:
    """The first use of an index that is not followed, by the kernel being traced in this thread:
    should it catch all exceptions, that was one all the same."""
    return _tracing.refused


def begin_notes() -> None:
    """A kernel is traced: nothing is noted yet."""
    _tracing.decisions = []
    _tracing.uses = []
    _tracing.refused = None


def _refused(index: LoopIndex, reason: str, variable: Variable | None = None) -> NotUniform:
    error = NotUniform(reason, (variable or index.variable).line)
    if getattr(_tracing, "refused", None) is None:
        _tracing.refused = error
    return error


def _follow_no_more(index: LoopIndex, reason: str) -> None:
    """Have all iterations traced from here on of the loops that an index was computed from.

    Raises:
        NotUniform: it is too late for one of them.
    """
    variables = set(_variables(index))
    for v in variables:
        if v.must_be:
            raise _refused(index, reason, v)
    for v in variables:
        v.is_followed = False


def _variables(index: LoopIndex) -> Iterator[Variable]:
    """The loops that an index was computed from, some more than once."""
    parts: list[Any] = [index]
    while parts:
        x = parts.pop()
        if type(x) is LoopIndex:
            if x.formula is None:
                yield x.variable
            else:
                parts += x.formula[1]


def _note(comparison: Callable, index: LoopIndex, other: object, frame: FrameType) -> None:
    if is_ours(frame):
        return
    if not isinstance(other, int | float | np.integer | np.floating):
        raise _refused(index, "the kernel compares a loop index with what is no number")
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
        note_same(kept)
    for x in indices:
        _note_kept(x)


def note_same(index: LoopIndex) -> None:
    """What is done is so for this value of an index only."""
    known = getattr(_tracing, "decisions", None)
    if known is not None:
        known.append(Decision(operator.eq, index, index.value, True))


def note_sign(index: LoopIndex, low: int, high: int) -> Decision | None:
    """Numbers that move with an index are compared with zero: all are at least that, or none is.
    Else it is told by this value of the index which ones are.

    Args:
        index: what they move with.
        low, high: the smallest and the largest one.

    Returns:
        What is noted.
    """
    known = getattr(_tracing, "decisions", None)
    if known is None:  # it was kept from another thread's trace
        return None
    if low >= 0:
        noted = Decision(operator.ge, index, index.value - low, True)
    elif high < 0:
        noted = Decision(operator.lt, index, index.value - high, True)
    else:
        noted = Decision(operator.eq, index, index.value, True)
    known.append(noted)
    return noted


def take_back(noted: Sequence[Decision | None]) -> None:
    """What was noted last was not decided."""
    known = getattr(_tracing, "decisions", [])
    for decision in reversed(noted):
        if not (known and known[-1] is decision):
            break
        known.pop()


def moving_start(bounds: tuple[Any, ...], indices: range) -> LoopIndex | int:
    """The index that a loop starts with, which may move with a loop around it. It is noted as
    decided how many iterations there are.

    Args:
        bounds: the arguments of the loop, as those of `range`.
        indices: which it gave.
    """
    if LoopIndex not in set(map(type, bounds)):
        return indices.start
    bounds = tuple([b if type(b) is LoopIndex else int(b) for b in bounds])
    start, stop, step = (0, *bounds, 1) if len(bounds) == 1 else (*bounds, 1)[:3]
    if type(step) is LoopIndex:
        raise _refused(step, "a loop's step depends on a loop index")
    trips = stop - start
    if type(trips) is LoopIndex:
        note_same(trips)
    return start


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
        operation = getattr(operator, name if name not in ("and", "or") else f"{name}_")

        def operator_(self: LoopIndex, other: object) -> Any:
            number = other if type(other) is int else _number(self, other)
            if number is None:
                return NotImplemented
            found = operation(self.value, number)
            if type(found) is not int:
                _follow_no_more(self, "the kernel makes a float of a loop index")
                return operation(self.value, number if type(other) is LoopIndex else other)
            return LoopIndex(found, self.variable, (operation, (self, other)))

        def operator_reflected(self: LoopIndex, other: object) -> Any:
            number = other if type(other) is int else _number(self, other)
            if number is None:
                return NotImplemented
            found = operation(number, self.value)
            if type(found) is not int:
                _follow_no_more(self, "the kernel makes a float of a loop index")
                return operation(other, self.value)  # never a LoopIndex, which comes first
            return LoopIndex(found, self.variable, (operation, (other, self)))

        setattr(LoopIndex, f"__{name}__", operator_)
        setattr(LoopIndex, f"__r{name}__", operator_reflected)

    def unary(name: str) -> None:
        operation = getattr(operator, name)

        def operator_(self: LoopIndex) -> LoopIndex:
            return LoopIndex(operation(self.value), self.variable, (operation, (self,)))

        setattr(LoopIndex, f"__{name}__", operator_)

    def comparison(name: str) -> None:
        comparison_ = getattr(operator, name)

        def operator_(self: LoopIndex, other: object) -> Any:
            _note(comparison_, self, other, sys._getframe(1))
            other = other.value if type(other) is LoopIndex else other
            return comparison_(self.value, other)

        setattr(LoopIndex, f"__{name}__", operator_)

    for name in ("add", "sub", "mul", "floordiv", "mod", "pow"):
        binary(name)
    for name in ("lshift", "rshift", "and", "or", "xor"):
        binary(name)
    for name in ("neg", "abs", "invert"):
        unary(name)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        comparison(name)


def _number(index: LoopIndex, other: object) -> int | float | None:
    """What an index is computed with, as a number of Python; None if it is no number.

    Raises:
        NotUniform: it is an array of NumPy, or a number that wraps around early.
    """
    if type(other) is LoopIndex:
        return other.value
    if isinstance(other, int | float):
        return other
    if isinstance(other, np.int64 | np.int32 | np.floating):
        return other.item()
    if isinstance(other, np.ndarray | np.generic):
        raise _refused(index, f"the kernel computes {other.dtype} from a loop index")
    return None


_define_operators()
