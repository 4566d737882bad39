"""Iterations of short loops that the compiler makes one instruction of.

An instruction of a few elements spends most of its time on starting. Where iterations of an
`nl.affine_range` do the same side by side, one instruction with one more axis does the work of
all of them. Published counts of instructions of a depthwise convolution (see [U] in
`nkisim.machine.timing`) and latencies of attention show when:

* when all iterations together have at most `Timing.joined_elements` elements a partition, each
  statement of the loop becomes one instruction; and so do several of these, if a loop around does
  nothing else;
* in a longer loop the sums of four iterations do, when they are short. (Of 12 elements together
  they do; of 512, in attention of small heads, they take as long as if they did not.)

Transfers and matmuls stay as they are, and so do loops with transfers in them, and tiles that the
kernel places by hand.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from itertools import chain, groupby, pairwise
from math import prod
from typing import NamedTuple

from nkisim.compiler.moves import is_spread
from nkisim.cost.storage import Operation, OperationForm, Storage
from nkisim.cost.tasks import Access, Work
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.loops import Path
from nkisim.ir.memory import Space

_SUMS, _SUMMED = 4, 64  # of a long loop that become one, and their elements, at most

_Iteration = list[Operation]


def join_iterations(
    steps: list[Operation], storage: Storage, work: Work, parallel: Collection[int], most: int
) -> list[Operation]:
    """Make one step of what iterations of a short loop do side by side.

    Args:
        steps: in program order.
        storage: of what they touch.
        work: takes notes of what was joined.
        parallel: numbers of the loops over `nl.affine_range`.
        most: elements a partition of the longest instruction that comes out.
    """
    joins = _Joins(storage, work, parallel, most)
    if not joins.candidates:
        return steps
    joined = joins.of_all(steps, joins.of_loop)
    while len(joined) < len(steps) and joins.leaves_whole_loops:
        steps = joined
        joined = joins.of_all(steps, joins.of_loop_around)
    for form, times in Counter([s.form for s in joined if s.form in joins.iterations]).items():
        work.choices[f"{form.label} of {joins.iterations[form]} iterations joined"] += times
    return joined


# The loop iterations that steps are done in, and which steps these are: from one to another.
_Run = tuple[Path, int, int]


def _runs(steps: Sequence[Operation]) -> list[_Run]:
    """Steps of the same iteration that follow each other. Fills are where what they fill is first
    used."""
    runs: list[_Run] = []
    path: Path | None = None
    start = 0
    fill = -1  # the first of those before the next step
    for at, step in enumerate(steps):
        loops = step.instr.loops
        if step.form.fills:
            fill = at if fill < 0 else fill
            continue
        if loops is not path and loops != path:
            here = at if fill < 0 else fill
            if path is not None and here:
                runs.append((path, start, here))
            start, path = here, loops
        fill = -1
    runs.append((path or (), start, len(steps)))
    return runs


def _loop(run: _Run) -> tuple[Path, int]:
    """The iterations around the innermost loop of a run, and the loop's number."""
    path = run[0]
    return (path[:-1], path[-1][0]) if path else ((), -1)


class _JoinedOperand(NamedTuple):
    """One operand of a joined instruction, made of the operands of several iterations.

    Attributes:
        form: of the one, with one more axis; None when they are the same.
        part: what it is of the tile that they are in; None when each is a tile of its own.
        axis: of tiles of their own, the new one, on which these are side by side; else -1.
    """

    form: Form | None
    part: AccessPattern | None
    axis: int

    def operand(self, tile: AccessPattern) -> AccessPattern:
        """The operand, from that of the first iteration."""
        if self.form is None:
            return tile
        offsets, axis = tile.offsets, self.axis
        if axis >= 0:
            offsets = (*offsets[:axis], 0, *offsets[axis:])
        return tile.view_of(self.form, offsets)

    def touched(self, accesses: list[Access]) -> list[Access]:
        """The accesses of the joined operand, given the accesses of the iterations' operands."""
        return accesses if self.part is None else [(accesses[0][0], self.part)]


class _JoinedOperands(NamedTuple):
    """The operands of a joined instruction: one instruction in the place of several iterations."""

    reads: list[_JoinedOperand]
    write: _JoinedOperand


class _Joins:
    """Loops of which iterations become one instruction."""

    def __init__(self, storage: Storage, work: Work, parallel: Collection[int], most: int) -> None:
        self._storage = storage
        self._work = work
        self._parallel = parallel
        self._most = most
        self.candidates = {
            form
            for form in storage.forms.values()
            if 2 * _elements(form.instr) <= most and _joinable(form.instr)
        }
        self._whole: set[OperationForm] = set()  # what stands for all iterations of a loop
        self.iterations: dict[OperationForm, int] = {}  # that one stands for
        self._longer: dict[tuple, OperationForm] = {}  # by what is joined, and how
        self._parts: dict[tuple, AccessPattern] = {}  # by their form, and where they start
        # By what iterations do, for each statement how it is joined; nothing if that cannot be.
        self._known: dict[tuple, list[_JoinedOperands | None]] = {}

    @property
    def leaves_whole_loops(self) -> bool:
        """Whether there are loops of which nothing is left but what stands for all iterations."""
        return bool(self._whole)

    def of_all(self, steps: list[Operation], of_loop: Callable) -> list[Operation]:
        """The steps with those of each innermost loop as `of_loop` gives them."""
        joined: list[Operation] = []
        for (_, loop), runs in groupby(_runs(steps), _loop):
            iterations = [steps[start:end] for _, start, end in runs]
            if loop in self._parallel and len(iterations) > 1:
                joined += of_loop(iterations)
            else:
                joined += chain.from_iterable(iterations)
        return joined

    def of_loop(self, iterations: list[_Iteration]) -> list[Operation]:
        """The steps of a loop, with iterations joined where that can be."""
        steps = list(chain.from_iterable(iterations))
        if not any([step.form in self.candidates for step in iterations[-1]]):
            return steps
        if any([step.instr.spec.kind is OpKind.TRANSFER for step in iterations[-1]]):
            return steps
        first, iterations = _aligned(iterations)
        count = len(iterations)
        if not count:
            return steps
        longest = self._longest(iterations)
        if longest * count <= self._most:
            return self._in_parts(steps, first, iterations, self.candidates, count)
        sums = {step.form for step in iterations[0] if step.instr.spec.kind is OpKind.REDUCTION}
        sums &= self.candidates
        if not sums or _SUMS * longest > _SUMMED or count % _SUMS:
            return steps
        return self._in_parts(steps, first, iterations, sums, _SUMS)

    def of_loop_around(self, iterations: list[_Iteration]) -> list[Operation]:
        """The steps of a loop around loops whose iterations were all joined. Its own iterations are
        joined where that can be."""
        steps = list(chain.from_iterable(iterations))
        if not all([step.form in self._whole for step in iterations[-1]]):
            return steps
        first, iterations = _aligned(iterations)
        count = len(iterations)
        if not count:
            return steps
        most = self._most // self._longest(iterations)
        together = max(n for n in range(1, most + 1) if count % n == 0)
        if together == 1:
            return steps
        return self._in_parts(steps, first, iterations, self._whole, together)

    def _longest(self, iterations: Sequence[_Iteration]) -> int:
        return max([1, *[_elements(step.instr) for step in iterations[0]]])

    def _in_parts(
        self,
        steps: list[Operation],
        first: list[Operation],
        iterations: list[_Iteration],
        which: Collection[OperationForm],
        together: int,
    ) -> list[Operation]:
        """So many iterations joined at a time; the steps as they are if that cannot be."""
        parts = []
        for at in range(0, len(iterations), together):
            joined = self._join(iterations[at : at + together], which)
            if joined is None:
                return steps
            parts += joined
        if together == len(iterations):
            self._whole.update([step.form for step in parts if step.form in self.iterations])
        return first + parts

    def _join(
        self, iterations: list[_Iteration], which: Collection[OperationForm]
    ) -> list[Operation] | None:
        """One statement after the other, each for all iterations; None if that is not the same."""
        statements = [[steps[at] for steps in iterations] for at in range(len(iterations[0]))]
        touches = [step.reads + step.writes for step in chain.from_iterable(iterations)]
        accesses = list(chain.from_iterable(touches))
        numbers = [n for n, _ in accesses]
        order = {n: at for at, n in enumerate(dict.fromkeys(numbers))}  # in which they are touched
        touched = *map(order.__getitem__, numbers), *[id(part) for _, part in accesses]
        forms = tuple([statement[0].form for statement in statements])
        chosen = tuple([form in which for form in forms])
        key = len(iterations), forms, chosen, touched
        ways = self._known.get(key)
        if ways is None:
            ways = [self._joined_operands(s) if s[0].form in which else None for s in statements]
            if not any(ways) or not _is_same(statements, ways):
                ways = []
            self._known[key] = ways
        if not ways:
            return None
        steps = []
        for at, statement in enumerate(statements):
            way = ways[at]
            if way is None:
                steps += statement
            else:
                steps.append(self._one(statement, way))
        return steps

    def _one(self, statement: Sequence[Operation], way: _JoinedOperands) -> Operation:
        """One step for the same statement of several iterations."""
        first = statement[0]
        i = first.instr
        reads, more, tiles = [], [], []
        for at, beside in enumerate(way.reads):
            touched = beside.touched([s.reads[at] for s in statement])
            tiles.append(beside.operand(i.tiles_in[at]))
            reads.append(touched[0])
            more += touched[1:]
        writes = way.write.touched([s.writes[0] for s in statement])
        if first.form in self._whole:  # what else those touch that stand for several already
            for s in statement:
                more += s.reads[len(tiles) :]
                writes += s.writes[1:]
        out = way.write.operand(i.outs[0])
        ins = given = tuple(tiles)
        if len(i.ins) > len(given):
            left = iter(given)
            ins = tuple([next(left) if isinstance(x, AccessPattern) else x for x in i.ins])
        longer = i.again((out,), ins, given, i.program, i.loops[:-1], i.location)
        key = first.form, len(statement), out.form, *[t.form for t in tiles]
        form = self._longer.get(key)
        if form is None:
            form = self._longer[key] = self._storage.forms[key] = OperationForm(longer, [], [])
            self.iterations[form] = len(statement) * self.iterations.get(first.form, 1)
        return Operation(longer, form, reads + more, writes)

    def _joined_operands(self, statement: Sequence[Operation]) -> _JoinedOperands | None:
        """The joined operands of one statement in several iterations; None if it cannot be
        joined."""
        i = statement[0].instr
        may_differ = i.spec.joined_inputs
        reads = []
        for at, tile in enumerate(i.tiles_in):
            beside = self._joined_operand([s.reads[at] for s in statement], tile)
            if beside is None or (at >= may_differ and beside.form is not None):
                return None
            reads.append(beside)
        write = self._joined_operand([s.writes[0] for s in statement], i.outs[0])
        return None if write is None or write.form is None else _JoinedOperands(reads, write)

    def _joined_operand(self, accesses: list[Access], tile: AccessPattern) -> _JoinedOperand | None:
        """The joined operand of operands that lie side by side; None if they do not lie so."""
        number, part = accesses[0]
        numbers, parts = [n for n, _ in accesses], [p for _, p in accesses]
        if any(p is None or p.form is not part.form for p in parts):
            return None
        if numbers.count(number) == len(numbers):
            steps = {
                tuple([b - a for a, b in zip(p.offsets, q.offsets, strict=True)])
                for p, q in pairwise(parts)
            }
            step = min(steps)
            if len(steps) > 1 or step[part.buffer.par_axis]:
                return None
            if not any(step):
                return _JoinedOperand(None, part, -1)
            form = _with_axis(part.form, len(parts), step)
            key = form, part.offsets
            whole = self._parts.get(key)
            if whole is None:
                whole = self._parts[key] = part.view_of(form, part.offsets)
            return _JoinedOperand(form, whole, -1)
        memory = self._work.memory
        if (
            memory[number].space is not Space.SBUF
            or any(memory[n] is not memory[number] for n in numbers)
            or len(set(numbers)) < len(numbers)
            or any(p is not part for p in parts)
        ):
            return None
        axis = tile.buffer.par_axis + 1
        return _JoinedOperand(_with_new_axis(tile.form, len(parts), axis), None, axis)


def _elements(i: Instruction) -> int:
    """Elements a partition of the largest tile that an instruction writes, or reads from chip."""
    return max([prod(t.shape[1:]) for t in i.outs + i.tiles_in], default=0)


def _joinable(i: Instruction) -> bool:
    return bool(
        i.spec.joined_inputs
        and i.where is None
        and i.where_out is None
        and len(i.outs) == 1
        and i.settings.op != "divide"
        and not any(t.buffer.placed for t in i.outs + i.tiles_in)
        and not any(is_spread(t) for t in i.tiles_in)
    )


def _aligned(iterations: list[_Iteration]) -> tuple[list[Operation], list[_Iteration]]:
    """The loop-invariant steps, which only the first iteration has because they were hoisted, and
    the iterations without them; no iterations if their steps differ."""
    first, *others = iterations
    if not others:
        return [], []
    forms = [step.form for step in others[0]]
    if any([step.form for step in other] != forms for other in others[1:]):
        return [], []
    hoisted, kept = [], []
    for step in first:
        here = len(kept)
        (kept if here < len(forms) and step.form is forms[here] else hoisted).append(step)
    return (hoisted, [kept, *others]) if len(kept) == len(forms) else ([], [])


def _is_same(
    statements: Sequence[Sequence[Operation]], ways: Sequence[_JoinedOperands | None]
) -> bool:
    """Whether loop distribution is legal: statements may run one after the other, each in all
    iterations, because each iteration writes memory of its own.

    Args:
        statements: by statement, its step in each iteration.
        ways: by statement, how it is joined, if it is.
    """
    uses: dict[int, list[tuple[int, int, AccessPattern | None]]] = defaultdict(list)
    written: set[int] = set()
    for at, statement in enumerate(statements):
        for c, step in enumerate(statement):
            for number, part in step.reads:
                uses[number].append((c, at, part))
            for number, part in step.writes:
                uses[number].append((c, at, part))
                written.add(number)
    for number in written:
        used = uses[number]
        c, at, _ = used[0]
        if all(other == c for other, _, _ in used):
            continue
        if all(other == at for _, other, _ in used) and ways[at] is None:
            continue
        if not _apart(used):
            return False
    return True


def _apart(uses: Sequence[tuple[int, int, AccessPattern | None]]) -> bool:
    """Whether iterations touch parts of a memory that have no element in common.

    Args:
        uses: of each: the iteration, the statement, the part.
    """
    boxes: dict[int, list[tuple[int, int]]] = {}
    base = uses[0][2].base_shape if uses[0][2] is not None else None
    for c, _, part in uses:
        if part is None or part.base_shape != base:
            return False
        box, known = part.bounds(), boxes.get(c)
        if known is not None:
            box = [(min(a, x), max(b, y)) for (a, b), (x, y) in zip(box, known, strict=True)]
        boxes[c] = box
    return any(_in_a_row(line) for line in zip(*boxes.values(), strict=True))


def _in_a_row(ranges: Sequence[tuple[int, int]]) -> bool:
    """Whether ranges have no number in common."""
    ends = sorted(ranges)
    return all(high < low for (_, high), (low, _) in pairwise(ends))


def _with_axis(form: Form, count: int, step: tuple[int, ...]) -> Form:
    """A view of a form, and of others that are `step` apart on the axes of the base."""
    coefs = tuple([(row[0], s, *row[1:]) for row, s in zip(form.coefs, step, strict=True)])
    return Form.of((form.shape[0], count, *form.shape[1:]), form.base_shape, coefs)


def _with_new_axis(form: Form, count: int, axis: int) -> Form:
    """A view of a form in each of several tiles, side by side as one with one more axis."""
    coefs = [(row[0], 0, *row[1:]) for row in form.coefs]
    coefs.insert(axis, (0, 1) + (0,) * (len(form.shape) - 1))
    base = (*form.base_shape[:axis], count, *form.base_shape[axis:])
    return Form.of((form.shape[0], count, *form.shape[1:]), base, tuple(coefs))
