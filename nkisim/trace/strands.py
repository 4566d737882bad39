"""Iterations of a loop that decide alike, of which a part is traced (see nkisim.trace.rolling)."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import compress
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nkisim.errors import NotUniform
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.trace.counting import Counts, Numbers
from nkisim.trace.loop_index import Decision, decisions, slope, uses
from nkisim.trace.recipes import Plan, Step, alike, even_step

if TYPE_CHECKING:
    from nkisim.ir.instruction import Instruction
    from nkisim.trace.rolled_loop import Loop

SHORTEST = 3  # iterations that are worth it

# Of a decision, and for each loop inside, in how many of its iterations.
Outcome = tuple[bool | int, ...]


@dataclass
class Sample:
    """What a strand of an execution of a loop has shown.

    Attributes:
        plan: its name.
        second: the instructions of its second iteration.
        outcomes: of what the kernel decided by loop indices in it.
        slopes: how much the indices that it used in addresses grow in an iteration.
        steps: how far what it writes of memory that it did not make moves.
        growth: how much what the kernel counts in Python grows in an iteration.
        ends_alike: whether the last iteration is like the one before.
        confirmed: whether a later execution has moved that way.
    """

    plan: tuple[int, int, int]
    second: list[Instruction]
    outcomes: list[Outcome]
    slopes: list[int | Fraction]
    steps: list[Step]
    growth: Numbers
    ends_alike: bool
    confirmed: bool = False


class Write(NamedTuple):
    """What an iteration, or those of a loop inside it, writes.

    Attributes:
        part: of memory.
        whole: whether it writes all of the part; else a mask tells which elements.
    """

    part: Tensor
    whole: bool


class Mark(NamedTuple):
    """Where the trace stands at the start or the end of an iteration."""

    instructions: int
    repeats: int
    decisions: int
    uses: int


class Strand:
    """Iterations of an execution of a loop that decide alike, while they are traced.

    Args:
        loop: the execution.
        indices: the loop indices of these iterations.
    """

    plan: Plan | None = None  # once it is known which iterations to trace; of long ones
    is_whole = False  # whether all are traced, because none can be made from another one

    def __init__(self, loop: Loop, indices: range) -> None:
        self.loop = loop
        self.indices = indices
        self.known: Sample | None = None  # of a strand with the same instructions
        self.marks: list[list[Mark]] = []  # start and end of each iteration that is traced
        self.counts: list[Counts] = []  # of each
        self._wanted: set[int] = set()
        rolls, key = loop.rolls, (loop.variable.line, indices.step)
        self.samples = rolls.samples.setdefault(key, []) if loop.brief else []

    @property
    def is_open(self) -> bool:
        """Whether it may still show that none of its iterations can be made from another one."""
        if self.is_whole or len(self.indices) < SHORTEST:
            return False
        return self.plan is None or len(self.marks) <= self._model

    @property
    def leaves_out(self) -> bool:
        """Whether iterations are left out by now."""
        return self.plan is not None and bool(self.plan.gap) and not self.is_open

    def be_whole(self) -> None:
        """Trace all iterations that are to come, of which none was left out."""
        self.is_whole = True
        self.plan = self.known = None

    def wants(self, index: int) -> bool:
        """Whether the iteration with a loop index, one of this strand's, is to be traced."""
        return self.plan is None or index in self._wanted

    def traced_one(self, marks: list[Mark], counts: Counts) -> None:
        """An iteration that was wanted has been traced."""
        self.marks.append(marks)
        self.counts.append(counts)
        if self.plan is None and not self.is_whole and len(self.indices) >= SHORTEST:
            self.known = self._find()
            if self.known is not None or len(self.marks) == 2:
                self.plan = self._made_plan()
                self._wanted = {self.indices[k] for k in self.plan.traced}
        if self.plan is not None and self.plan.gap and len(self.marks) == self._model + 1:
            if not self._can_be_copied():
                self.be_whole()
            elif self.known is None and len(self.indices) == len(self.loop.indices):
                self._expect()

    def _expect(self) -> None:
        """Note what the iterations left out will have written: those that are still to come may
        read it. Should these have moved otherwise, NotUniform is raised at last."""
        checker = self.loop.rolls.tracer.checker
        others = range(1, len(self.plan.gap) + 1)
        for before, like in zip(self._written(-2), self._written(-1), strict=False):
            was, now = before.part, like.part
            if like.whole and was.buffer is now.buffer and was.form is now.form:
                step = even_step((was, now), 0, 1)
                if step is not None:
                    checker.on_repeat(_along(now, step, others), now)

    def _find(self) -> Sample | None:
        """The sample whose instructions the iteration that has just ended has, if it changes
        nothing that others may see."""
        if self.loop.changes:
            return None
        outcomes = self._outcomes(-1)
        samples = [s for s in self.samples if s.outcomes == outcomes]
        mine = self._instructions(-1) if samples else []
        return next((s for s in samples if _look_alike(mine, s.second)), None)

    def _made_plan(self) -> Plan:
        """Which iterations to trace, when the first or the first two have been."""
        n, name = len(self.indices), self.loop.next_plan()
        if self.known is not None:
            first, last = len(self.marks) - 1, n - 1 if self.known.ends_alike else n - 2
            if self._is_settled():
                gap = range(first + 1, last + 1)
                traced = tuple(sorted({0, first, *range(last + 1, n)}))
                self.loop.settle()
                return Plan(name, self.indices, traced, (first,), gap, self.known.plan)
            if first < last:
                traced = tuple(sorted({0, first, last, n - 1}))
                gap = range(first + 1, last)
                return Plan(name, self.indices, traced, (first, last), gap, self.known.plan)
            self.known = None
        traced = tuple(sorted({0, 1, 2, n - 2, n - 1}))
        same, gap = ((1, 2, n - 2), range(3, n - 2)) if n > 4 else ((1, 2), range(2, 2))
        return Plan(name, self.indices, traced, same, gap, None)

    def _is_settled(self) -> bool:
        """Whether the iteration that has just ended tells enough of all others."""
        known = self.known
        return (
            known.confirmed
            and self.loop.leaves_nothing({*known.growth}.union(*[c.changed() for c in self.counts]))
            and self._slopes(-1) == known.slopes
            and _have_forms(self._instructions(-1), known.second)
        )

    def _can_be_copied(self) -> bool:
        """Whether those that are missing may be made from the iteration that has just ended, as far
        as it can be told by now: `finish` would raise otherwise, and all would be traced again."""
        checker = self.loop.rolls.tracer.checker
        if not self.loop.keeps_state:
            return False
        if checker.leaves_gaps:
            written = self._written(-1)
            if self.known is not None:
                moves = [step is not None for step in self.known.steps]
            else:
                pairs = zip(self._written(-2), written, strict=False)
                moves = [a.part.offsets != b.part.offsets for a, b in pairs]
            if not all(w.whole and checker.is_written(w.part) for w in compress(written, moves)):
                return False
        return self.known is not None or not any(
            map(self._hands_on, self.counts[-1].changed() - self.loop.stale)
        )

    def _hands_on(self, number: tuple[int, str]) -> bool:
        """Whether an iteration may compute with a number that the one before has left, given its
        function and its name."""
        depth, name = number
        names = self.loop.names
        if name.startswith("len("):
            return True
        return names is not None and name.isidentifier() and (depth > 0 or name not in names.anew)

    def finish(self) -> Sample | None:
        """The loop is over: note what the iterations left out would have written.

        Returns:
            What this strand shows of later ones; None when it was known.

        Raises:
            NotUniform: its iterations are not alike.
        """
        plan, known, model = self.plan, self.known, self._model
        written = self._written(model)
        if plan.is_settled:
            steps, last_like = known.steps, plan.gap.stop - 1
            if len(written) != len(steps):
                raise NotUniform("iterations write other tensors than before")
        else:
            last_like = plan.alike[-1]
            if model > 0 and not self._holds_for_missing(model):
                raise NotUniform("the kernel decides differently in some iterations")
            growth = self._growth(plan)
            positions = [plan.traced.index(k) for k in plan.alike]
            outcomes = [self._outcomes(at) for at in positions]
            if any(o != outcomes[0] for o in outcomes):
                raise NotUniform("the kernel decides differently in some iterations")
            last = self._written(positions[-1])
            if len(written) != len(last):
                raise NotUniform("iterations write different tensors")
            pairs = zip(written, last, strict=True)
            steps = [_step(a.part, b.part, plan.distance) for a, b in pairs]
        others = range(1, last_like - plan.gap.start + 2)
        for like, step in zip(written, steps, strict=True):
            if step is not None:
                left_out = like._replace(part=_along(like.part, step, others))
                self.loop.rolls.repeat(left_out, like, traced=not plan.gap)
        if known is not None:
            if steps == known.steps and not plan.is_settled:
                known.confirmed = True
                # Another loop around may have been found to be none to leave iterations out of,
                # and no longer tell what is computed from its index.
                known.slopes = self._slopes(model)
                self.loop.rolls.settled.add(self.loop.variable.line)
            return None
        end = len(plan.traced) - 1
        ends_alike = outcomes[-1] == self._outcomes(end) and _look_alike(
            self._instructions(end - 1), self._instructions(end)
        )
        slopes = self._slopes(1)
        return Sample(
            plan.name, self._instructions(1), self._outcomes(1), slopes, steps, growth, ends_alike
        )

    def _holds_for_missing(self, at: int) -> bool:
        """Whether those that are missing decide as one of the traced iterations, when numbers that
        the kernel compares loop indices with are what they are there."""
        variable, missing = self.loop.variable, self.plan.missing
        values = np.arange(missing.start, missing.stop, missing.step)
        return not missing or all(
            d.holds_throughout(variable, missing)
            or not d.depends_on(variable)
            or d.holds(variable, values).all()
            for d in self.decisions(at)
        )

    def _growth(self, plan: Plan) -> Numbers:
        """How much what the kernel's functions count in Python grows in an iteration."""
        counts = [self.counts[plan.traced.index(k)] for k in plan.alike]
        *earlier, c, d = [count.after for count in counts]
        growth: Numbers = {}
        for name, value in c.items():
            if name in self.loop.stale:
                continue
            if name not in d or any(name not in b for b in earlier):
                raise NotUniform(f"{name[1]} is not set in every iteration")
            if self.known is not None:
                step = self.known.growth.get(name, 0)
            else:
                step = value - earlier[0][name] if earlier else d[name] - value
            if d[name] - value != plan.distance * step:
                raise NotUniform(f"{name[1]} depends on the iterations before")
            if step:
                growth[name] = step
        for number in growth:
            if self._hands_on(number):
                raise NotUniform(f"{number[1]} depends on the iterations before")
        return growth

    @property
    def _model(self) -> int:
        """Which of the traced iterations the missing ones are made from."""
        return 0 if self.plan is None else self.plan.traced.index(self.plan.gap.start - 1)

    @property
    def echo(self) -> list[Mark] | None:
        """Of the iterations that were traced, the one that is left out in executions that settle.
        The others tell what all of them do."""
        if self.plan is None or self.plan.is_settled:
            return None
        return self.marks[self.plan.traced.index(self.plan.alike[-1])]

    def decided(self) -> list[Decision]:
        """What the kernel decided by loop indices in all iterations."""
        model = self._model
        before = self.plan.traced[model] if model else 0
        parts = (0, self.indices[:before]), (model, self.indices[before:])
        return [
            Decision(*d[:4], (*d.within, (self.loop.variable, indices)))
            for at, indices in parts
            if indices
            for d in self.decisions(at)
        ]

    def decisions(self, at: int) -> list[Decision]:
        """What the kernel decided by loop indices in one of the traced iterations."""
        start, end = self.marks[at]
        return decisions()[start.decisions : end.decisions]

    def _slopes(self, at: int) -> list[int | Fraction]:
        """How much what one of the traced iterations used in addresses grows in an iteration."""
        start, end = self.marks[at]
        return [slope(x, self.loop.variable) for x in uses()[start.uses : end.uses]]

    def _outcomes(self, at: int) -> list[Outcome]:
        return [(d.outcome, *[len(r) for _, r in d.within]) for d in self.decisions(at)]

    def _instructions(self, at: int) -> list[Instruction]:
        """The instructions of one of the traced iterations, in outline."""
        return self.loop.rolls.outline(*self.marks[at])

    def _written(self, at: int) -> list[Write]:
        """What one of the traced iterations has written of memory that it did not make."""
        start, end = self.marks[at]
        outlives = self.loop.outlives
        found = [
            Write(t, i.where_of(t) is None)
            for i in self._instructions(at)
            for t in i.outs
            if outlives(t.buffer)
        ]
        repeats = self.loop.rolls.repeats[start.repeats : end.repeats]
        return found + [write for write in repeats if outlives(write.part.buffer)]


def _look_alike(a: list[Instruction], b: list[Instruction]) -> bool:
    """Whether iterations have the same instructions, as far as can be told before all of them
    are compared."""
    return len(a) == len(b) and all(
        alike(i, j) and [t.shape for t in i.outs] == [t.shape for t in j.outs]
        for i, j in zip(a, b, strict=True)
    )


def _have_forms(a: list[Instruction], b: list[Instruction]) -> bool:
    """Whether instructions that look alike go over their operands in the same way."""
    return all(
        len(i.tiles_in) == len(j.tiles_in)
        and all(
            x.form is y.form and x.dtype == y.dtype
            for x, y in zip(i.outs + i.tiles_in, j.outs + j.tiles_in, strict=True)
        )
        for i, j in zip(a, b, strict=True)
    )


def _step(before: Tensor, after: Tensor, distance: int) -> Step:
    """How far a view of memory moves in an iteration."""
    if before.buffer is not after.buffer:
        raise NotUniform("iterations touch different memory")
    return even_step((before, after), 0, distance)


def _along(t: Tensor, step: tuple[int, ...], steps: range) -> Tensor:
    """What a view that moves by `step` names at each of `steps`, as one view."""
    return t.view_as(
        (len(steps), *t.shape),
        tuple(o + steps.start * s for o, s in zip(t.offsets, step, strict=True)),
        tuple((s, *row) for s, row in zip(step, t.coefs, strict=True)),
    )
