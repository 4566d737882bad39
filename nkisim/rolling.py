"""Loops traced in part, for profiles: iterations in the middle are copies of one that was traced.

To the compiler the body of an `nl.affine_range` or `nl.sequential_range` loop is one piece of code,
whose addresses grow with the loop index. So is a kernel to the instances of its launch grid, and
most bodies of `nl.static_range` are, though they need not be. Of a long loop, five iterations are
traced: three at the start and two at the end. Where the second, third and last but one show the
same instructions at addresses that grow evenly, those between are made from the third one. That
takes a fraction of the time of tracing them.

A kernel may do more here than the compiler allows: branch on a loop index, count in Python, keep
tiles in a list. `NotUniform` then names the loop, and the kernel is traced once more with all
iterations of that one. A kernel that breaks a rule is traced as a whole, so that errors and
warnings are those of the whole trace.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from math import prod
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from nkisim.errors import Location, NotUniform
from nkisim.memory import Buffer, Role
from nkisim.tensor import Tensor
from nkisim.unrolling import unroll

if TYPE_CHECKING:
    from nkisim.trace import Trace, Tracer


_SHORTEST = 8  # iterations of a loop that is worth it


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
    """One execution of a rolled loop, while it is traced."""

    def __init__(self, rolls: Rolls, line: Location | int, indices: Sequence[int]) -> None:
        self.rolls = rolls
        self.line = line
        self.indices = indices
        self.first_buffer = len(rolls.tracer.trace.buffers)
        self.marks: list[Mark] = []
        self.values: list[dict[str, int | float]] = []

    def steps(self) -> Iterator[int]:
        """The indices to trace. To be followed by `after` for each."""
        n = len(self.indices)
        for k in (0, 1, 2, n - 2, n - 1):
            self.marks.append(self.rolls.now())
            yield LoopIndex.of(self.indices[k], self.line)
        self.marks.append(self.rolls.now())

    def after(self, frame: FrameType | None) -> None:
        """An iteration has ended. Looks at what the kernel's functions count in Python.

        Args:
            frame: of the function that loops, called by others of the kernel.
        """
        found: dict[str, int | float] = {}
        depth = 0
        while frame is not None and not _is_ours(frame):
            for name, value in frame.f_locals.items():
                if isinstance(value, int | float):
                    found[f"{name} ({depth})"] = +value
                elif isinstance(value, list | dict | set):
                    found[f"len({name}) ({depth})"] = len(value)
            frame, depth = frame.f_back, depth + 1
        self.values.append(found)

    def finish(self) -> None:
        """The loop is over: note what the iterations left out would have written."""
        distance = len(self.indices) - 4  # from the third to the last but one
        self._check_values(distance)
        decisions = [
            _tracing.decisions[here.decisions : there.decisions]
            for here, there in pairwise(self.marks[1:5])
        ]
        if not decisions[0] == decisions[1] == decisions[2]:
            raise NotUniform("the kernel decides differently in some iterations")
        third, last = self._written(2), self._written(3)
        if len(third) != len(last):
            raise NotUniform("iterations have different numbers of instructions")
        for before, after in zip(third, last, strict=True):
            step = _step(before, after, distance)
            if step is not None:
                self.rolls.repeat(_along(before, step, range(1, distance)), before)

    def _check_values(self, distance: int) -> None:
        b, c, d = self.values[1:4]
        for name, value in c.items():
            if name not in b or name not in d:
                raise NotUniform(f"{name} is not set in every iteration")
            step = value - b[name]
            if d[name] - value != distance * step:
                raise NotUniform(f"{name} depends on the iterations before")
            if step and name.startswith("len("):
                raise NotUniform(f"{name} grows")

    def _written(self, at: int) -> list[Tensor]:
        """What one of the traced iterations has written of memory that it did not make."""
        rolls, (here, there) = self.rolls, self.marks[at : at + 2]
        found = [
            t
            for i in rolls.tracer.trace.instructions[here.instructions : there.instructions]
            for t in i.outs
        ]
        found += rolls.repeats[here.repeats : there.repeats]
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
        whole: loops that are not to be rolled, as NotUniform names them.
        repeats: what iterations that were left out would have written: access patterns, with an
            axis in front of the instruction's for each loop around it.
        found: the rolled loops, by number, with their indices; launch-grid axes by ~axis.
        doubt: why the trace cannot be trusted, if that came up where nothing can be raised.
    """

    def __init__(self, tracer: Tracer, whole: frozenset[Location | int]) -> None:
        self.tracer = tracer
        self.whole = whole
        self.repeats: list[Tensor] = []
        self.found: dict[int, Sequence[int]] = {}
        self.doubt: NotUniform | None = None
        self._open: list[Loop] = []
        _tracing.decisions = []

    def now(self) -> Mark:
        return Mark(len(self.tracer.trace.instructions), len(self.repeats), len(_tracing.decisions))

    def inserted(self, at: int) -> None:
        """An instruction was put in at a position of the trace."""
        for loop in self._open:
            loop.marks = [m._replace(instructions=m[0] + (m[0] > at)) for m in loop.marks]

    def loop(self, key: int, indices: Sequence[int], frame: FrameType | None) -> Iterator[int]:
        """The indices of a loop that are to be traced; all of them when it is short.

        Args:
            key: the loop's number, or ~axis of a launch grid.
            indices: all of its indices.
            frame: of the function that loops.
        """
        line = self._line(key)
        if len(indices) < _SHORTEST or line is None or line in self.whole:
            yield from indices
            return
        loop = Loop(self, line, indices)
        self._open.append(loop)
        ended = False
        try:
            for i in loop.steps():
                yield i
                loop.after(frame)
            ended = True
        finally:
            self._open.remove(loop)
            if not ended:
                self.doubt = NotUniform("a loop is left before its end", line)
        try:
            loop.finish()
        except NotUniform as error:
            error.loop = line
            raise
        self.found[key] = indices

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
        return LoopIndex.of(value, ~axis) if long and ~axis not in self.whole else value

    def unroll(self, trace: Trace) -> None:
        """Put in the iterations that were left out. Raises NotUniform."""
        if self.doubt is not None:
            raise self.doubt
        if not self.found:
            return
        try:
            unroll(trace, self.found)
        except NotUniform as error:
            if isinstance(error.loop, int):
                error.loop = self._line(error.loop)
            raise


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
