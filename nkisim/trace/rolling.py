"""Loops traced in part, for profiles: iterations in the middle are copies of one that was traced.

To the compiler the body of an `nl.affine_range` or `nl.sequential_range` loop is one piece of code,
whose addresses grow with the loop index. So is a kernel to the instances of its launch grid, and
most bodies of `nl.static_range` are, though they need not be. Of a long loop, five iterations are
traced: three at the start and two at the end. Where the second, third and last but one show the
same instructions at addresses that grow evenly, those between are made from the third one. That
takes a fraction of the time of tracing them. A loop in a loop is executed again and again: once an
execution has shown how far the addresses move, the two ends tell enough of the next one, or some
more where the first or the last one is not like the others. Of later ones a single iteration is
traced, if it uses loop indices in addresses as the first execution did, and if nothing that it
leaves behind in Python is read (see nkisim.trace.carried).

A kernel may do more here than the compiler allows. Where it branches on a loop index, or a mask
leaves other parts out, iterations differ: those that decide alike, if they follow each other
evenly, make a strand (the even ones, or those left of a diagonal), and each strand is traced in
part. If it counts in Python, and that is not taken back
(nkisim.frontends.neuronxcc.rules.counters), the first iterations
show it, and all others are traced, too; so they are where a loop index becomes a plain number, to
look something up in a table of Python, or text. Where that comes too late, behind iterations that
were left out, or where something shows later, as tiles that are kept in a list, `NotUniform` names
the loop, and the kernel is traced once more with five, or all, iterations of each execution. A
kernel that breaks a rule is traced as a whole, so that errors and warnings are those of the whole
trace.

What functions keep between their calls, and what objects hold, is compared after each iteration
that is traced (nkisim.trace.watching), with the bounds of nkisim.trace.guards. What is not seen:
that it changes in none of these, but in one that was left out.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from types import FrameType
from typing import TYPE_CHECKING

from nkisim.errors import Location, NotUniform
from nkisim.trace.frames import iterates_directly
from nkisim.trace.loop_index import LoopIndex, begin_notes, decisions, refused, uses
from nkisim.trace.recipes import Plan
from nkisim.trace.rolled_loop import Closeness, Loop
from nkisim.trace.strands import SHORTEST, Mark, Sample, Write
from nkisim.trace.unrolling import Rolled, unroll
from nkisim.trace.watching import Watches

if TYPE_CHECKING:
    from nkisim.ir.instruction import Instruction
    from nkisim.ir.trace import Trace
    from nkisim.trace.tracer import Tracer

_TRIES = 2  # executions of a loop that are looked at, if nothing can be left out of any


class Rolls:
    """The rolled loops of a trace.

    Attributes:
        tracer: what traces the kernel.
        watches: what it may change in Python by calls.
        closeness: of loops that differ from what was taken for granted, as NotUniform names them.
        repeats: what iterations that were left out would have written: parts of memory, with an
            axis in front of the instruction's for each loop around it.
        found: the rolled loops, by number; launch-grid axes by ~axis. Of axes inside of others,
            which are gone over again and again, the second number is that of the instance, as far
            as the axes around tell it; else it is 0.
        samples: what strands have shown, by loop and steps from an iteration to the next.
        settled: loops of which it may be taken for granted how far addresses move.
        doubt: why the trace cannot be trusted, if that came up where nothing can be raised.
    """

    def __init__(
        self, tracer: Tracer, closeness: Mapping[Location | int, Closeness], watches: Watches
    ) -> None:
        self.tracer = tracer
        self.watches = watches
        self.closeness = dict(closeness)
        self.repeats: list[Write] = []
        self.found: dict[tuple[int, int], Rolled] = {}
        self.samples: dict[tuple[Location | int, int], list[Sample]] = {}
        self._left_out: list[tuple[int, int]] = []  # parts of the trace that are not in outlines
        self.settled: set[Location | int] = set()
        self.doubt: NotUniform | None = None
        # How many executions of loops there were of which no iteration could be left out.
        self._tried: Counter[Location | int] = Counter()
        self._open: list[Loop] = []
        begin_notes()

    def now(self) -> Mark:
        instructions = self.tracer.trace.instructions
        return Mark(len(instructions), len(self.repeats), len(decisions()), len(uses()))

    def around(self, loop: Loop) -> list[Loop]:
        """The rolled loops that one is in."""
        return self._open[: self._open.index(loop)]

    def inserted(self, at: int) -> None:
        """An instruction was put in at a position of the trace."""

        def moved(mark: Mark) -> Mark:
            return mark._replace(instructions=mark.instructions + (mark.instructions > at))

        for loop in self._open:
            loop.start = moved(loop.start)
            loop.marks[:] = map(moved, loop.marks)
            for marks in [m for s in loop.strands for m in s.marks if m is not loop.marks]:
                marks[:] = map(moved, marks)
        self._left_out = [(a + (a > at), b + (b > at)) for a, b in self._left_out]

    def outline(self, start: Mark, end: Mark) -> list[Instruction]:
        """The instructions in between. Of loops inside, which may have been traced in full or in
        part, those of iterations that tell what all of them do."""
        instructions = self.tracer.trace.instructions
        found: list[Instruction] = []
        at = start.instructions
        for a, b in self._left_out[bisect_left(self._left_out, (at, at)) :]:
            if a >= end.instructions:
                break
            found += instructions[at:a]
            at = b
        return found + instructions[at : end.instructions]

    def sum_up(self, loop: Loop, repeated: int) -> None:
        """A loop is over: for those around it, only those of its iterations count that tell what
        all of them do.

        Args:
            loop: the loop.
            repeated: how many repeats there were before its own.
        """
        start = loop.start
        echoes = [marks for s in loop.strands if (marks := s.echo) is not None]
        others = {id(marks) for marks in echoes}
        traced = sorted(marks for strand in loop.strands for marks in strand.marks)
        telling = [marks for marks in traced if id(marks) not in others]
        uses()[start.uses :] = [u for a, b in telling for u in uses()[a.uses : b.uses]]
        repeats = [r for a, b in telling for r in self.repeats[a.repeats : b.repeats]]
        self.repeats[start.repeats :] = repeats + self.repeats[repeated:]
        first = bisect_left(self._left_out, (start.instructions,))
        inside = self._left_out[first:] + [(a.instructions, b.instructions) for a, b in echoes]
        del self._left_out[first:]
        end = start.instructions
        for a, b in sorted(inside, key=lambda part: (part[0], -part[1])):
            if end <= a < b:  # else it is in another one
                self._left_out.append((a, b))
                end = b
        decisions()[start.decisions :] = [d for s in loop.strands for d in s.decided()]

    def loop(
        self, key: int, indices: range, frame: FrameType | None, around: int = 0
    ) -> Iterable[int]:
        """The indices of a loop that are to be traced; all of them when it is short, or when
        others than a `for` statement go over it.

        Args:
            key: the loop's number, or ~axis of a launch grid.
            indices: all of its indices.
            frame: of the function that loops; None for an axis.
            around: of an axis, which instance it is as far as the axes around tell it.
        """
        line = self._line(key)
        closeness = self.closeness.get(line, Closeness.BRIEF)
        if (
            len(indices) < SHORTEST
            or line is None
            or closeness is Closeness.WHOLE
            or not (frame is None or iterates_directly(frame))
        ):
            return indices
        found = Loop(self, (key, around), line, indices, closeness is Closeness.BRIEF, frame)
        return self._in_part(found)

    def _in_part(self, loop: Loop) -> Iterator[int]:
        """The indices of a long loop that are to be traced."""
        try:
            yield from self._followed(loop)
        finally:
            loop.forget()

    def _followed(self, loop: Loop) -> Iterator[int]:
        """The same. Then, what became of the others is put down."""
        line, (key, _) = loop.variable.line, loop.key
        self._open.append(loop)
        ended = False
        try:
            yield from loop.steps()
            ended = True
        finally:
            self._open.remove(loop)
            loop.variable.must_be = True
            if not ended:
                self.doubt = NotUniform("a loop is left before its end", line)
        if not loop.variable.is_followed:
            self.closeness[line] = Closeness.WHOLE
            return
        try:
            loop.check_counts()
        except NotUniform as error:
            error.loop = line
            raise
        if all(strand.is_whole for strand in loop.strands):
            self._tried[line] += 1
            if self._tried[line] >= _TRIES:
                self.closeness[line] = Closeness.WHOLE
        repeated = len(self.repeats)
        plans: list[Plan] = []
        for strand in [s for s in loop.strands if s.plan is not None]:
            try:
                sample = strand.finish()
            except NotUniform as error:
                if strand.plan.is_complete:
                    self.closeness[line] = Closeness.WHOLE
                    strand.plan = None
                    continue
                error.loop, error.brief = line, strand.known is not None
                raise
            if sample is not None:
                strand.samples.append(sample)
            plans.append(strand.plan)
        recorded = key >= 0 and not self.tracer.trace.loops[key].pythons
        self.found[loop.key] = Rolled(loop.indices, plans, recorded)
        self.sum_up(loop, repeated)

    @property
    def left_out(self) -> set[int]:
        """The loops, by number, of which iterations were left out; launch-grid axes by ~axis."""
        return {
            key
            for (key, _), rolled in self.found.items()
            if not all(plan.is_complete for plan in rolled.plans)
        }

    def _line(self, key: int) -> Location | int | None:
        """A loop as NotUniform names it."""
        return key if key < 0 else self.tracer.trace.loops[key].location

    def repeat(self, left_out: Write, like: Write, traced: bool) -> None:
        """Iterations write as the traced one did that wrote `like`.

        Args:
            left_out: what they write.
            like: what that one has written.
            traced: whether they were traced, too.
        """
        if not traced:
            checker = self.tracer.checker
            if not (
                checker.on_repeat(left_out.part, like.part)
                if left_out.whole
                else checker.is_written(left_out.part)
            ):
                raise NotUniform("what is written has to be looked at one by one")
        if self._open:
            self.repeats.append(left_out)

    def program_id(self, axis: int, value: int) -> int:
        """A program id, which the kernel may compute with but not decide by."""
        variables = [loop.variable for loop in self._open if loop.variable.line == ~axis]
        return LoopIndex(value, variables[0]) if variables else value

    def unroll(self, trace: Trace) -> None:
        """Put in the iterations that were left out. Raises NotUniform."""
        doubt = self.doubt or refused()
        if doubt is not None:
            raise doubt
        models = {plan.like for rolled in self.found.values() for plan in rolled.plans}
        found: dict[tuple[int, int], Rolled] = {}
        for key, rolled in self.found.items():
            plans = [p for p in rolled.plans if p.name in models or not p.is_complete]
            if plans:
                found[key] = rolled._replace(plans=plans)
        try:
            if found:
                unroll(trace, found)
        except NotUniform as error:
            if error.loop is not None:
                error.loop = self._line(error.loop)
            raise
        self._forget_python_loops(trace)

    def _forget_python_loops(self, trace: Trace) -> None:
        """Take Python's own loops off the record, as a whole trace has none of them."""
        pythons = {n for n, loop in enumerate(trace.loops) if loop.pythons}
        if not pythons:
            return
        known: dict[int, tuple[tuple, tuple]] = {}  # by identity, of the paths that are kept here
        for items in (trace.instructions, trace.buffers):
            for x in items:
                path = x.loops
                found = known.get(id(path))
                if found is None:
                    rest = tuple([p for p in path if p[0] not in pythons])
                    found = known[id(path)] = path, rest
                x.loops = found[1]


def instances(shape: tuple[int, ...], rolls: Rolls | None) -> Iterable[int]:
    """The SPMD instances of a grid that are to be traced: all, or of long axes a part."""
    return range(prod(shape)) if rolls is None else _instances(shape, rolls, 0, 0)


def _instances(shape: tuple[int, ...], rolls: Rolls, axis: int, first: int) -> Iterator[int]:
    if axis == len(shape):
        yield first
        return
    for i in rolls.loop(~axis, range(shape[axis]), None, first):
        yield from _instances(shape, rolls, axis + 1, first * shape[axis] + int(i))
