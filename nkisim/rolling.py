"""Loops traced in part, for profiles: iterations in the middle are copies of one that was traced.

To the compiler the body of an `nl.affine_range` or `nl.sequential_range` loop is one piece of code,
whose addresses grow with the loop index. So is a kernel to the instances of its launch grid. Of a
long loop, five iterations are traced: three at the start and two at the end. Where the second,
third and last but one show the same instructions at addresses that grow evenly, those between are
made from the third one. That takes a fraction of the time of tracing them.

A kernel may do more here than the compiler allows: branch on a loop index, count in Python, keep
tiles in a list. `NotUniform` is then raised, and the kernel is traced as a whole. So is one that
breaks a rule, so that errors and warnings are those of the whole trace.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from math import prod
from operator import itemgetter
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nkisim.instruction import Instruction
from nkisim.memory import Buffer, Role
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.trace import Trace, Tracer

Path = tuple[tuple[int, int], ...]

_SHORTEST = 8  # iterations of a loop that is worth it
_FIRST, _SECOND, _THIRD = range(3)


class NotUniform(Exception):
    """The iterations of a loop differ in more than their addresses, or may do."""


class LoopIndex(int):
    """A loop index or program id, or what a kernel makes of some by adding and scaling.

    It notes what the kernel decides by it. Between two iterations with the same order relation
    to the same thing, all iterations have it.
    """

    __slots__ = ()
    __hash__ = int.__hash__

    def __bool__(self) -> bool:
        _note_decision(self, 0, sys._getframe(1))
        return int.__bool__(self)

    def __neg__(self) -> LoopIndex:
        return LoopIndex(int.__neg__(self))

    def __truediv__(self, other: object) -> float:
        raise NotUniform("the kernel divides a loop index")


class _Folded(LoopIndex):
    """What a kernel makes of loop indices in another way (`i % 2`), so that it goes up and down."""

    __slots__ = ()
    __hash__ = int.__hash__


_tracing = threading.local()  # `decisions` made in the kernel being traced, as they are noted


def _note_decision(index: LoopIndex, other: object, frame: FrameType) -> None:
    name = frame.f_globals.get("__name__", "")
    if name == "nkisim" or name.startswith("nkisim."):
        return
    if type(index) is _Folded or type(other) is _Folded or not isinstance(other, int | float):
        raise NotUniform("the kernel decides something by a loop index")
    _tracing.decisions.append((+index > +other) - (+index < +other))


def _define_operators() -> None:
    def arithmetic(name: str, linear: bool) -> None:
        plain = getattr(int, name)

        def operator(self: LoopIndex, other: object) -> Any:
            found = plain(self, other)
            if type(found) is not int:
                return found
            both = isinstance(other, LoopIndex)
            if type(self) is _Folded or type(other) is _Folded or not linear:
                return _Folded(found)
            return _Folded(found) if both and "mul" in name else LoopIndex(found)

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


class Written(NamedTuple):
    """Memory that instructions write.

    Attributes:
        tensor: the access pattern; in front of the axes of the instruction's, one for each loop
            around it of which iterations are left out.
        programs: the instance that writes, over these axes.
    """

    tensor: Tensor
    programs: np.ndarray

    def along(self, step: tuple[int, ...], programs: np.ndarray, steps: range) -> Written:
        """What is written at each of `steps`: `step` further each time, by other instances."""
        t = self.tensor
        start = tuple(o + steps.start * s for o, s in zip(t.offsets, step, strict=True))
        many = t.view_as(
            (len(steps), *t.shape),
            start,
            tuple((s, *row) for s, row in zip(step, t.coefs, strict=True)),
        )
        by = np.arange(steps.start, steps.stop).reshape(-1, *[1] * self.programs.ndim)
        return Written(many, self.programs + by * programs)


class Loop:
    """One execution of a rolled loop, while it is traced."""

    def __init__(self, rolls: Rolls, key: int, indices: Sequence[int]) -> None:
        self.rolls = rolls
        self.key = key
        self.indices = indices
        self.first_buffer = len(rolls.tracer.trace.buffers)
        self.marks: list[Mark] = []
        self.values: list[dict[str, int | float]] = []

    def steps(self) -> Iterator[int]:
        """The indices to trace. To be followed by `after` for each."""
        n = len(self.indices)
        for k in (0, 1, 2, n - 2, n - 1):
            self.marks.append(self.rolls.now())
            yield LoopIndex(self.indices[k])
        self.marks.append(self.rolls.now())

    def after(self, frame: FrameType | None) -> None:
        """An iteration has ended. Looks at what the kernel's function counts in Python."""
        if frame is None:
            return
        found: dict[str, int | float] = {}
        for name, value in frame.f_locals.items():
            if isinstance(value, int | float):
                found[name] = +value
            elif isinstance(value, list | dict | set):
                found[f"len({name})"] = len(value)
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
            step = _step(before.tensor, after.tensor, distance)
            if step is not None:
                programs = (after.programs - before.programs) // distance
                self.rolls.repeat(before.along(step, programs, range(1, distance)), before)

    def _check_values(self, distance: int) -> None:
        if not self.values:
            return
        b, c, d = self.values[1:4]
        for name, value in c.items():
            if name not in b or name not in d:
                raise NotUniform(f"{name} is not set in every iteration")
            step = value - b[name]
            if d[name] - value != distance * step:
                raise NotUniform(f"{name} depends on the iterations before")
            if step and name.startswith("len("):
                raise NotUniform(f"{name} grows")

    def _written(self, at: int) -> list[Written]:
        """What one of the traced iterations has written of memory that it did not make."""
        rolls, (here, there) = self.rolls, self.marks[at : at + 2]
        found = [
            Written(t, np.array(i.program))
            for i in rolls.tracer.trace.instructions[here.instructions : there.instructions]
            for t in i.outs
        ]
        found += rolls.repeats[here.repeats : there.repeats]
        return [w for w in found if self._outlives(w.tensor.buffer)]

    def _outlives(self, buffer: Buffer) -> bool:
        """Whether what is written of a buffer matters behind the iteration."""
        return buffer.role is Role.LOCAL and (
            buffer.number < self.first_buffer or buffer.program is None
        )


class Rolls:
    """The rolled loops of a trace.

    Attributes:
        tracer: what traces the kernel.
        repeats: what iterations that were left out would have written.
        found: the rolled loops, by number, with their indices; launch-grid axes by ~axis.
        doubt: why the trace cannot be trusted, if that came up where nothing can be raised.
    """

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer
        self.repeats: list[Written] = []
        self.found: dict[int, Sequence[int]] = {}
        self.doubt = ""
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
        if len(indices) < _SHORTEST:
            yield from indices
            return
        loop = Loop(self, key, indices)
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
                self.doubt = "a loop is left before its end"
        loop.finish()
        self.found[key] = indices

    def repeat(self, left_out: Written, like: Written) -> None:
        """Iterations that were left out write as the traced one did that wrote `like`."""
        if not self.tracer.checker.on_repeat(left_out.tensor, left_out.programs, like.tensor):
            raise NotUniform("what is written has to be looked at one by one")
        if self._open:
            self.repeats.append(left_out)

    def program_id(self, axis: int, value: int) -> int:
        """A program id, which the kernel may compute with but not decide by."""
        return LoopIndex(value) if self.tracer.trace.grid.shape[axis] >= _SHORTEST else value

    def unroll(self, trace: Trace) -> None:
        """Put in the iterations that were left out. Raises NotUniform."""
        if self.doubt:
            raise NotUniform(self.doubt)
        if self.found:
            trace.copies = len(trace.buffers)
            trace.instructions = _Unroller(trace, self.found).run()


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


def _even_step(b: Tensor, c: Tensor, d: Tensor, distance: int) -> tuple[int, ...] | None:
    """How far a view moves in an iteration, given those of the second, the third, and the one
    `distance` further on; None when it stays where it is."""
    if any(type(t) is not Tensor for t in (b, c, d)):
        raise NotUniform("an operand of a special kind")
    if (
        not b.shape == c.shape == d.shape
        or not b.coefs is c.coefs is d.coefs
        or not b.dtype == c.dtype == d.dtype
        or not b.base_shape == c.base_shape == d.base_shape
    ):
        raise NotUniform("operands have different shapes")
    step = tuple(int(y - x) for x, y in zip(b.offsets, c.offsets, strict=True))
    if any(z - y != distance * s for y, z, s in zip(c.offsets, d.offsets, step, strict=True)):
        raise NotUniform("addresses do not grow evenly")
    return step if any(step) else None


# -- putting the iterations in ------------------------------------------------------------------


class _Recipe:
    """How the instructions of one iteration are made from those of another.

    Attributes:
        buffers: those that the iteration makes for itself.
        operands: each operand once: (operand, position in `buffers` or -1, step of its offsets or
            None).
        instructions: (instruction, how to pick its outs, ins and tiles_in from the operands).
    """

    def __init__(self) -> None:
        self.buffers: list[Buffer] = []
        self.operands: list[tuple[Any, int, tuple[int, ...] | None]] = []
        self.instructions: list[tuple[Instruction, Any, Any, Any]] = []


class _Unroller:
    def __init__(self, trace: Trace, rolled: dict[int, Sequence[int]]) -> None:
        self.trace = trace
        self.rolled = rolled
        grid = trace.grid
        axes = range(len(grid.shape))
        self.places: list[Path] = [
            tuple((~axis, grid.coordinates(program)[axis]) for axis in axes)
            for program in range(grid.size)
        ]
        self.programs = [prod(grid.shape[axis + 1 :]) for axis in axes]

    def run(self) -> list[Instruction]:
        for i in self.trace.instructions:
            self._check_scope(i)
        return self._expand(self.trace.instructions, 0)

    def _path(self, i: Instruction) -> Path:
        return self.places[i.program] + i.loops

    def _home(self, buffer: Buffer) -> Path:
        """The iterations that a buffer belongs to."""
        if buffer.program is None or buffer.role is not Role.LOCAL:
            return ()
        return self.places[buffer.program] + buffer.loops

    def _check_scope(self, i: Instruction) -> None:
        """What an iteration makes is used in it only: the iterations left out made more."""
        path = self._path(i)
        for t in (*i.outs, *i.tiles_in):
            home = self._home(t.buffer)
            if home != path[: len(home)] and any(key in self.rolled for key, _ in home):
                raise NotUniform("a tile outlives the iteration that made it")

    def _expand(self, instrs: Sequence[Instruction], level: int) -> list[Instruction]:
        """`instrs` with all iterations of the loops from `level` inwards."""

        def place(i: Instruction) -> tuple[int, int] | None:
            path = self._path(i)
            return path[level] if len(path) > level else None

        out: list[Instruction] = []
        seen: set[int] = set()
        placed = [(place(i), i) for i in instrs]
        for key, run in groupby(placed, lambda p: None if p[0] is None else p[0][0]):
            if key is None:
                out += [i for _, i in run]
                continue
            if key in seen and key in self.rolled:
                raise NotUniform("a loop is interleaved with what surrounds it")
            seen.add(key)
            parts: dict[int, list[Instruction]] = {}
            for index, part in groupby(run, lambda p: p[0][1]):
                if index in parts:
                    raise NotUniform("iterations are interleaved")
                parts[index] = self._expand([i for _, i in part], level + 1)
            if key in self.rolled:
                out += self._fill(key, parts, level)
            else:
                for part in parts.values():
                    out += part
        return out

    def _fill(self, key: int, parts: dict, level: int) -> list[Instruction]:
        """All iterations of a rolled loop, given those that were traced."""
        indices = self.rolled[key]
        n = len(indices)
        a, b, c, d, e = (parts.get(indices[k], []) for k in (0, 1, 2, n - 2, n - 1))
        recipe = self._recipe((b, c, d), level, n - 4)
        out = a + b + c
        for k in range(3, n - 2):
            out += self._copy(recipe, level, key, k - 2, indices[k])
        return out + d + e

    def _recipe(self, parts: tuple[list, list, list], level: int, distance: int) -> _Recipe:
        if len({len(p) for p in parts}) > 1:
            raise NotUniform("iterations have different numbers of instructions")
        recipe = _Recipe()
        own: dict[int, int] = {}  # number of a buffer -> its position in the recipe
        partners: list[tuple[int, int]] = []  # of each, in the other two iterations
        known: dict[tuple[int, int, int], int] = {}
        fixed: dict[int, int] = {}

        def operand(b: Any, c: Any, d: Any) -> int:
            if not isinstance(c, Tensor):
                if not _same(b, c) or not _same(c, d):
                    raise NotUniform("an operand changes from iteration to iteration")
                at = fixed.setdefault(id(c), len(recipe.operands))
                if at == len(recipe.operands):
                    recipe.operands.append((c, -1, None))
                return at
            key = id(b), id(c), id(d)
            at = known.get(key)
            if at is None:
                at = known[key] = len(recipe.operands)
                home = self._own(b, c, d, own, partners, recipe, level)
                recipe.operands.append((c, home, _even_step(b, c, d, distance)))
            return at

        for b, c, d in zip(*parts, strict=True):
            _check_alike(b, c)
            _check_alike(c, d)
            outs = [operand(*x) for x in zip(b.outs, c.outs, d.outs, strict=True)]
            ins = [operand(*x) for x in zip(b.ins, c.ins, d.ins, strict=True)]
            tiles = [at for at, x in zip(ins, c.ins, strict=True) if isinstance(x, Tensor)]
            pick_ins = _picker(ins)
            pick_tiles = pick_ins if tiles == ins else _picker(tiles)
            recipe.instructions.append((c, _picker(outs), pick_ins, pick_tiles))
        if any(len(set(column)) < len(partners) for column in zip(*partners, strict=True)):
            raise NotUniform("iterations use their tiles differently")
        return recipe

    def _own(
        self,
        b: Tensor,
        c: Tensor,
        d: Tensor,
        own: dict[int, int],
        partners: list[tuple[int, int]],
        recipe: _Recipe,
        level: int,
    ) -> int:
        """Which of the iteration's own buffers a view is of; -1 for one that it did not make."""
        inside = {len(self._home(t.buffer)) > level for t in (b, c, d)}
        if inside == {False} and b.buffer is c.buffer is d.buffer:
            return -1
        if inside != {True}:
            raise NotUniform("iterations touch different memory")
        others = b.buffer.number, d.buffer.number
        at = own.setdefault(c.buffer.number, len(recipe.buffers))
        if at == len(recipe.buffers):
            _check_buffers(b.buffer, c.buffer)
            _check_buffers(c.buffer, d.buffer)
            recipe.buffers.append(c.buffer)
            partners.append(others)
        if partners[at] != others:
            raise NotUniform("iterations use their tiles differently")
        return at

    def _copy(
        self, recipe: _Recipe, level: int, key: int, by: int, index: int
    ) -> list[Instruction]:
        """The iteration `by` steps behind that of the recipe, whose loop index is `index`."""
        trace, axes = self.trace, len(self.places[0])
        jump = by * self.programs[level] if level < axes else 0
        inner: dict[int, int] = {}
        paths: dict[Path, Path] = {(): ()}

        def moved(loops: Path) -> Path:
            found = paths.get(loops)
            if found is None:
                depth = level - axes  # of this loop in `loops`; negative for an axis of the grid
                out = list(loops[: max(depth, 0)])
                for number, i in loops[len(out) :]:
                    if number == key:
                        out.append((number, index))
                        continue
                    new = inner.get(number)
                    if new is None:
                        new = inner[number] = len(trace.loops)
                        trace.loops.append(trace.loops[number])
                    out.append((new, i))
                found = paths[loops] = tuple(out)
            return found

        buffers = [self._copy_buffer(b, jump, moved(b.loops)) for b in recipe.buffers]
        operands = []
        for x, at, step in recipe.operands:
            if at < 0 and step is None:
                operands.append(x)
                continue
            offsets = x.offsets
            if step is not None:
                offsets = tuple([o + by * s for o, s in zip(offsets, step, strict=True)])
            operands.append(x.moved(x.buffer if at < 0 else buffers[at], offsets))
        copies = []
        for i, pick_outs, pick_ins, pick_tiles in recipe.instructions:
            ins = pick_ins(operands)
            tiles = ins if pick_tiles is pick_ins else pick_tiles(operands)
            loops = paths.get(i.loops) or moved(i.loops)
            copies.append(i.moved(pick_outs(operands), ins, tiles, i.program + jump, loops))
        return copies

    def _copy_buffer(self, b: Buffer, jump: int, loops: Path) -> Buffer:
        trace = self.trace
        new = b.again(len(trace.buffers), b.program + jump, loops)
        trace.buffers.append(new)
        for numbers in (trace.hidden, trace.assigned):
            if b.number in numbers:
                numbers.add(new.number)
        return new


def _picker(positions: list[int]) -> Any:
    """A function that gives the entries of a list at `positions`, as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda entries: ()
    at = positions[0]
    return lambda entries: (entries[at],)


def _check_alike(a: Instruction, b: Instruction) -> None:
    """Raises NotUniform when two instructions differ in more than their operands."""
    if (
        a.opcode != b.opcode
        or a.engine is not b.engine
        or a.location != b.location
        or a.engine_asked != b.engine_asked
        or len(a.outs) != len(b.outs)
        or len(a.ins) != len(b.ins)
        or not _same(a.attrs, b.attrs)
        or not _same(a.where, b.where)
        or not _same(a.where_out, b.where_out)
    ):
        raise NotUniform("iterations have different instructions")


def _check_buffers(a: Buffer, b: Buffer) -> None:
    if (
        a.shape != b.shape
        or a.dtype != b.dtype
        or a.space is not b.space
        or a.par_axis != b.par_axis
        or a.placed != b.placed
    ):
        raise NotUniform("iterations make different tiles")


def _same(a: Any, b: Any) -> bool:
    """Whether two settings are equal; False when that cannot be told."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, np.ndarray):
        return bool(np.array_equal(a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(_same(v, b[k]) for k, v in a.items())
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, int | float | str | bool | np.generic):
        return bool(a == b) or (a != a and b != b)
    return False


def instances(shape: tuple[int, ...], rolls: Rolls | None) -> Iterable[int]:
    """The SPMD instances of a grid that are to be traced: all, or of long axes a part."""
    return range(prod(shape)) if rolls is None else _instances(shape, rolls, 0, 0)


def _instances(shape: tuple[int, ...], rolls: Rolls, axis: int, first: int) -> Iterator[int]:
    if axis == len(shape):
        yield first
        return
    for i in rolls.loop(~axis, range(shape[axis]), None):
        yield from _instances(shape, rolls, axis + 1, first * shape[axis] + i)
