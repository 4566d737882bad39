"""Loops traced in part, for profiles: iterations in the middle are copies of one that was traced.

To the compiler the body of an `nl.affine_range` or `nl.sequential_range` loop is one piece of code,
whose addresses grow with the loop index. So is a kernel to the instances of its launch grid, and
most bodies of `nl.static_range` are, though they need not be. Of a long loop, five iterations are
traced: three at the start and two at the end. Where the second, third and last but one show the
same instructions at addresses that grow evenly, those between are made from the third one. That
takes a fraction of the time of tracing them. A loop in a loop is executed again and again: once an
execution has shown how far the addresses move, two iterations tell enough of the later ones, or
some more where the first or the last one is not like the others.

A kernel may do more here than the compiler allows: branch on a loop index, count in Python, keep
tiles in a list. `NotUniform` then names the loop, and the kernel is traced once more with five, or
all, iterations of each execution. A kernel that breaks a rule is traced as a whole, so that errors
and warnings are those of the whole trace.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from math import prod
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from nkisim.errors import Location, NotUniform
from nkisim.memory import Buffer, Role
from nkisim.tensor import Tensor
from nkisim.unrolling import Rolled, alike, unroll

if TYPE_CHECKING:
    from nkisim.instruction import Instruction
    from nkisim.trace import Trace, Tracer


_SHORTEST = 3  # iterations of a loop that is worth it


# Numbers of the kernel's Python code, by function (calls up the stack) and name.
Numbers = dict[tuple[int, str], int | float]


class Closeness(IntEnum):
    """How much of a long loop is traced."""

    BRIEF = 0  # five iterations of the first execution, two to four of each later one
    FIVE = 1  # five of each execution
    WHOLE = 2


class Sample(NamedTuple):
    """What an execution of a loop has shown.

    Attributes:
        execution: its number.
        second: the instructions of its second iteration.
        decisions: what the kernel decided by loop indices in it.
        growth: how much what the kernel counts in Python grows in an iteration.
        ends_alike: whether the last iteration is like the one before.
    """

    execution: int
    second: list[Instruction]
    decisions: list[int]
    growth: Numbers
    ends_alike: bool


class LoopIndex(int):
    """A loop index or program id, or what a kernel makes of some by adding and scaling.

    It notes what the kernel decides by it. Between two iterations with the same order relation
    to the same thing, all iterations have it.

    Attributes:
        loop: whose index it is, as NotUniform names it.
    """

    __hash__ = int.__hash__
    loop: Location | int

    @classmethod
    def of(cls, value: int, loop: Location | int) -> LoopIndex:
        """An index of a loop."""
        index = cls(value)
        index.loop = loop
        return index

    def __bool__(self) -> bool:
        _note_decision(self, 0, sys._getframe(1))
        return int.__bool__(self)

    def __neg__(self) -> LoopIndex:
        return type(self).of(int.__neg__(self), self.loop)

    def __truediv__(self, other: object) -> float:
        raise NotUniform("the kernel divides a loop index", self.loop)


class _Folded(LoopIndex):
    """What a kernel makes of loop indices in another way (`i % 2`), so that it goes up and down."""

    __hash__ = int.__hash__


_tracing = threading.local()  # `decisions` made in the kernel being traced, as they are noted


def _is_ours(frame: FrameType) -> bool:
    """Whether a frame is of the simulator, not of the kernel."""
    name = frame.f_globals.get("__name__", "")
    return name == "nkisim" or name.startswith("nkisim.")


def _note_decision(index: LoopIndex, other: object, frame: FrameType) -> None:
    if _is_ours(frame):
        return
    for x in (index, other):
        if type(x) is _Folded or not isinstance(x, int | float):
            raise NotUniform("the kernel decides something by a loop index", index.loop)
    decisions = getattr(_tracing, "decisions", None)
    if decisions is not None:  # else an index was kept from another thread's trace
        decisions.append((+index > +other) - (+index < +other))


def _define_operators() -> None:
    def arithmetic(name: str, linear: bool) -> None:
        plain = getattr(int, name)

        def operator(self: LoopIndex, other: object) -> Any:
            found = plain(self, other)
            if type(found) is not int:
                return found
            folded = type(self) is _Folded or type(other) is _Folded or not linear
            folded |= "mul" in name and isinstance(other, LoopIndex)
            return (_Folded if folded else LoopIndex).of(found, self.loop)

        setattr(LoopIndex, name, operator)

    def comparison(name: str) -> None:
        plain = getattr(int, name)

        def operator(self: LoopIndex, other: object) -> Any:
            _note_decision(self, other, sys._getframe(1))
            return plain(self, other)

        setattr(LoopIndex, name, operator)

    linear = ("add", "sub", "mul")
    for name in (*linear, "floordiv", "mod", "pow", "lshift", "rshift", "and", "or", "xor"):
        arithmetic(f"__{name}__", name in linear)
        arithmetic(f"__r{name}__", name in linear)
    for name in ("eq", "ne", "lt", "le", "gt", "ge"):
        comparison(f"__{name}__")


_define_operators()


class Mark(NamedTuple):
    """Where the trace stands at the start of an iteration."""

    instructions: int
    repeats: int
    decisions: int


class Loop:
    """One execution of a rolled loop, while it is traced.

    Args:
        rolls: the trace.
        line: the loop's line, or ~axis of a launch grid.
        indices: all of its indices.
        samples: what earlier executions have shown.
    """

    rolled: Rolled  # once it is known which iterations to trace

    def __init__(
        self, rolls: Rolls, line: Location | int, indices: range, samples: list[Sample]
    ) -> None:
        self.rolls = rolls
        self.line = line
        self.indices = indices
        self.samples = samples
        self.known: Sample | None = None  # of an execution with the same instructions
        self.first_buffer = len(rolls.tracer.trace.buffers)
        self.marks: list[Mark] = []  # at the start of each iteration that is traced, and the end
        self.values: dict[int, Numbers] = {}  # at the end of those that are alike

    def steps(self, frame: FrameType | None) -> Iterator[int]:
        """The indices to trace.

        Args:
            frame: of the function that loops, called by others of the kernel.
        """
        yield self._start(0)
        if self.samples:
            self.values[0] = _numbers(frame)
            now = _tracing.decisions[self.marks[-1].decisions :]
            self.known = self._find(s for s in self.samples if s.decisions == now)
        if self.known is None:
            yield self._start(1)
            self.values[1] = _numbers(frame)
            self.known = self._find(self.samples)
        self.rolled = self._plan()
        for k in self.rolled.traced[len(self.marks) :]:
            yield self._start(k)
            if k in self.rolled.alike:
                self.values[k] = _numbers(frame)
        self.marks.append(self.rolls.now())

    def _start(self, k: int) -> LoopIndex:
        self.marks.append(self.rolls.now())
        return LoopIndex.of(self.indices[k], self.line)

    def _find(self, samples: Iterable[Sample]) -> Sample | None:
        """The first of `samples` whose instructions the iteration that has just ended has."""
        mine = self.rolls.tracer.trace.instructions[self.marks[-1].instructions :]
        return next((s for s in samples if _look_alike(mine, s.second)), None)

    def _plan(self) -> Rolled:
        """Which iterations to trace, when the first or the first two have been."""
        n = len(self.indices)
        if self.known is not None:
            first, last = len(self.marks) - 1, n - 1 if self.known.ends_alike else n - 2
            if first < last:
                traced = tuple(sorted({0, first, last, n - 1}))
                return Rolled(self.indices, traced, (first, last), self.known.execution)
            self.known = None
        traced = tuple(sorted({0, 1, 2, n - 2, n - 1}))
        return Rolled(self.indices, traced, (1, 2, n - 2) if n > 4 else (1, 2), None)

    def finish(self, key: int) -> Sample | None:
        """The loop is over: note what the iterations left out would have written.

        Returns:
            What this execution, of number `key`, shows of later ones.
        """
        distance = self.rolled.distance
        growth = self._growth(distance)
        positions = [self.rolled.traced.index(k) for k in self.rolled.alike]
        decisions = [self._decisions(at) for at in positions]
        if any(d != decisions[0] for d in decisions):
            raise NotUniform("the kernel decides differently in some iterations")
        third, last = (self._written(at) for at in positions[-2:])
        if len(third) != len(last):
            raise NotUniform("iterations have different numbers of instructions")
        for before, after in zip(third, last, strict=True):
            step = _step(before, after, distance)
            if step is not None and distance > 1:
                self.rolls.repeat(_along(before, step, range(1, distance)), before)
        if self.known is not None:
            return None
        end = len(self.rolled.traced) - 1
        ends_alike = decisions[-1] == self._decisions(end) and _look_alike(
            self._instructions(end - 1), self._instructions(end)
        )
        return Sample(key, self._instructions(1), self._decisions(1), growth, ends_alike)

    def _growth(self, distance: int) -> Numbers:
        """How much what the kernel's functions count in Python grows in an iteration."""
        *earlier, c, d = [self.values[k] for k in self.rolled.alike]
        growth: Numbers = {}
        for name, value in c.items():
            if name not in d or any(name not in b for b in earlier):
                raise NotUniform(f"{name[1]} is not set in every iteration")
            if self.known is not None:
                step = self.known.growth.get(name, 0)
            else:
                step = value - earlier[0][name] if earlier else d[name] - value
            if d[name] - value != distance * step:
                raise NotUniform(f"{name[1]} depends on the iterations before")
            if step:
                if name[1].startswith("len("):
                    raise NotUniform(f"{name[1]} grows")
                growth[name] = step
        return growth

    def _decisions(self, at: int) -> list[int]:
        """What the kernel decided by loop indices in one of the traced iterations."""
        here, there = self.marks[at : at + 2]
        return _tracing.decisions[here.decisions : there.decisions]

    def _instructions(self, at: int) -> list[Instruction]:
        """The instructions of one of the traced iterations."""
        here, there = self.marks[at : at + 2]
        return self.rolls.tracer.trace.instructions[here.instructions : there.instructions]

    def _written(self, at: int) -> list[Tensor]:
        """What one of the traced iterations has written of memory that it did not make."""
        here, there = self.marks[at : at + 2]
        found = [t for i in self._instructions(at) for t in i.outs]
        found += self.rolls.repeats[here.repeats : there.repeats]
        return [t for t in found if self._outlives(t.buffer)]

    def _outlives(self, buffer: Buffer) -> bool:
        """Whether what is written of a buffer matters behind the iteration."""
        return buffer.role is Role.LOCAL and (
            buffer.number < self.first_buffer or buffer.program is None
        )


class Rolls:
    """The rolled loops of a trace.

    Attributes:
        tracer: what traces the kernel.
        closeness: of loops that differ from what was taken for granted, as NotUniform names them.
        repeats: what iterations that were left out would have written: access patterns, with an
            axis in front of the instruction's for each loop around it.
        found: the rolled loops, by number; launch-grid axes by ~axis.
        doubt: why the trace cannot be trusted, if that came up where nothing can be raised.
    """

    def __init__(self, tracer: Tracer, closeness: Mapping[Location | int, Closeness]) -> None:
        self.tracer = tracer
        self.closeness = dict(closeness)
        self.repeats: list[Tensor] = []
        self.found: dict[int, Rolled] = {}
        self.doubt: NotUniform | None = None
        self._samples: dict[tuple[Location | int, range], list[Sample]] = {}
        self._open: list[Loop] = []
        _tracing.decisions = []

    def now(self) -> Mark:
        return Mark(len(self.tracer.trace.instructions), len(self.repeats), len(_tracing.decisions))

    def inserted(self, at: int) -> None:
        """An instruction was put in at a position of the trace."""
        for loop in self._open:
            loop.marks = [m._replace(instructions=m[0] + (m[0] > at)) for m in loop.marks]

    def loop(self, key: int, indices: range, frame: FrameType | None) -> Iterator[int]:
        """The indices of a loop that are to be traced; all of them when it is short.

        Args:
            key: the loop's number, or ~axis of a launch grid.
            indices: all of its indices.
            frame: of the function that loops.
        """
        line = self._line(key)
        closeness = self.closeness.get(line, Closeness.BRIEF)
        if len(indices) < _SHORTEST or line is None or closeness is Closeness.WHOLE:
            yield from indices
            return
        brief = closeness is Closeness.BRIEF
        samples = self._samples.setdefault((line, indices), []) if brief else []
        loop = Loop(self, line, indices, samples)
        self._open.append(loop)
        ended = False
        try:
            yield from loop.steps(frame)
            ended = True
        finally:
            self._open.remove(loop)
            if not ended:
                self.doubt = NotUniform("a loop is left before its end", line)
        try:
            sample = loop.finish(key)
        except NotUniform as error:
            if loop.rolled.is_complete:
                self.closeness[line] = Closeness.WHOLE
                return
            error.loop, error.brief = line, loop.known is not None
            raise
        if sample is not None:
            samples.append(sample)
        recorded = key >= 0 and not self.tracer.trace.loops[key].pythons
        self.found[key] = loop.rolled._replace(recorded=recorded)

    def _line(self, key: int) -> Location | int | None:
        """A loop as NotUniform names it."""
        return key if key < 0 else self.tracer.trace.loops[key].location

    def repeat(self, left_out: Tensor, like: Tensor) -> None:
        """Iterations that were left out write as the traced one did that wrote `like`."""
        if not self.tracer.checker.on_repeat(left_out, like):
            raise NotUniform("what is written has to be looked at one by one")
        if self._open:
            self.repeats.append(left_out)

    def program_id(self, axis: int, value: int) -> int:
        """A program id, which the kernel may compute with but not decide by."""
        long = self.tracer.trace.grid.shape[axis] >= _SHORTEST
        return (
            LoopIndex.of(value, ~axis)
            if long and self.closeness.get(~axis) is not Closeness.WHOLE
            else value
        )

    def unroll(self, trace: Trace) -> None:
        """Put in the iterations that were left out. Raises NotUniform."""
        if self.doubt is not None:
            raise self.doubt
        models = {rolled.like for rolled in self.found.values()}
        found = {k: r for k, r in self.found.items() if k in models or not r.is_complete}
        try:
            if found:
                unroll(trace, found)
        except NotUniform as error:
            if error.loop is not None:
                error.brief = found[error.loop].like is not None
                error.loop = self._line(error.loop)
            raise
        self._forget_python_loops(trace)

    def _forget_python_loops(self, trace: Trace) -> None:
        """Take Python's own loops off the record, as a whole trace has none of them."""
        if not any(loop.pythons for loop in trace.loops):
            return
        known: dict[int, tuple[tuple, tuple]] = {}  # by identity, of the paths that are kept here
        for x in (*trace.instructions, *trace.buffers):
            found = known.get(id(x.loops))
            if found is None:
                rest = tuple([p for p in x.loops if not trace.loops[p[0]].pythons])
                found = known[id(x.loops)] = x.loops, rest
            x.loops = found[1]


def _numbers(frame: FrameType | None) -> Numbers:
    """What the kernel's functions count in Python: their numbers, and lengths of lists."""
    found: Numbers = {}
    depth = 0
    while frame is not None and not _is_ours(frame):
        for name, value in frame.f_locals.items():
            if isinstance(value, (int, float)):  # a union takes twice the time
                found[depth, name] = +value
            elif isinstance(value, (list, dict, set)):
                found[depth, f"len({name})"] = len(value)
        frame, depth = frame.f_back, depth + 1
    return found


def _look_alike(a: list[Instruction], b: list[Instruction]) -> bool:
    """Whether iterations have the same instructions, as far as can be told before all of them
    are compared."""
    return len(a) == len(b) and all(
        alike(i, j) and [t.shape for t in i.outs] == [t.shape for t in j.outs]
        for i, j in zip(a, b, strict=True)
    )


def _step(before: Tensor, after: Tensor, distance: int) -> tuple[int, ...] | None:
    """How far a view of memory moves in an iteration; None when it stays where it is."""
    if (
        before.buffer is not after.buffer
        or before.shape != after.shape
        or before.coefs is not after.coefs
        or before.dtype != after.dtype
        or before.base_shape != after.base_shape
    ):
        raise NotUniform("iterations touch different memory")
    if before.offsets == after.offsets:
        return None
    moved = [divmod(b - a, distance) for a, b in zip(before.offsets, after.offsets, strict=True)]
    if any(rest for _, rest in moved):
        raise NotUniform("addresses do not grow evenly")
    return tuple(int(d) for d, _ in moved)


def _along(t: Tensor, step: tuple[int, ...], steps: range) -> Tensor:
    """What a view that moves by `step` names at each of `steps`, as one view."""
    return t.view_as(
        (len(steps), *t.shape),
        tuple(o + steps.start * s for o, s in zip(t.offsets, step, strict=True)),
        tuple((s, *row) for s, row in zip(step, t.coefs, strict=True)),
    )


def instances(shape: tuple[int, ...], rolls: Rolls | None) -> Iterable[int]:
    """The SPMD instances of a grid that are to be traced: all, or of long axes a part."""
    return range(prod(shape)) if rolls is None else _instances(shape, rolls, 0, 0)


def _instances(shape: tuple[int, ...], rolls: Rolls, axis: int, first: int) -> Iterator[int]:
    if axis == len(shape):
        yield first
        return
    for i in rolls.loop(~axis, range(shape[axis]), None):
        yield from _instances(shape, rolls, axis + 1, first * shape[axis] + int(i))
