"""How iterations that a rolled trace left out are made from one that was traced.

Those that are to be alike are compared, instruction by instruction and operand by operand. Where
they differ in nothing but the tiles that each makes for itself and in addresses that grow evenly,
the one in front of the gap is a recipe for those that are missing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from operator import add, sub
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nkisim.errors import NotUniform
from nkisim.frontends.neuronxcc.tensors.index import Affine
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.instruction import Instruction, picker
from nkisim.ir.loops import Path
from nkisim.ir.memory import Buffer, Space

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

Step = tuple[int, ...] | None  # how far an operand moves in an iteration; None: it stays


class Plan(NamedTuple):
    """Which iterations of a strand are traced: of some iterations of a loop, or of a launch-grid
    axis, that follow each other evenly.

    Attributes:
        name: the loop, as in `nkisim.trace.rolling.Rolls.found`, and which of its plans this is.
        indices: of the iterations.
        traced: positions in `indices` of those that are traced.
        alike: of those, the ones to be alike. With a single one, all is taken from `like`.
        gap: positions of those that are missing, behind an iteration of `alike` that they are
            like.
        like: the plan whose addresses have to move as far; None for the first ones.
    """

    name: tuple[int, int, int]
    indices: range
    traced: tuple[int, ...]
    alike: tuple[int, ...]
    gap: range
    like: tuple[int, int, int] | None

    @property
    def is_settled(self) -> bool:
        """Whether it is known, without a second iteration, how far addresses move."""
        return len(self.alike) == 1

    @property
    def model(self) -> int:
        """Which of `alike` the missing ones are made from."""
        return self.alike.index(self.gap.start - 1)

    @property
    def distance(self) -> int:
        """Iterations from one end of the gap to the other."""
        return len(self.gap) + 1

    @property
    def missing(self) -> range:
        """The indices of the iterations that are not traced."""
        return self.indices[self.gap.start : self.gap.stop]

    @property
    def is_complete(self) -> bool:
        """Whether no iteration is missing: these only show what later ones are like."""
        return len(self.traced) == len(self.indices)


class Recipe:
    """How the instructions of one iteration are made from those of another.

    Args:
        index: the loop index of the latter.
        step: from that to the index of the next one like it.
        depth: of the loop: how many are around it; -1 for instances.

    Attributes:
        around: the loop iterations that this one is in.
        paths: those inside of it.
        buffers: those that the iteration makes for itself, with the position of their path and the
            sets of numbers that a copy of it belongs to, as it does.
        operands: each operand once.
        moves: for each, how far it moves; None for those that stay where they are.
        owned: those that stay, in a buffer of the iteration: (position, position in `buffers`).
        moving: by step, those that move: (position, position in `buffers`; -1 in memory from
            outside, None for what is computed from coordinates).
        outside: for the memory from outside, by number: how far what is used of it moves.
        steps: the moves of the outs and the ins of each instruction.
        instructions: (instruction, position of its path, how to pick its outs, ins and tiles_in
            from the operands).
    """

    def __init__(self, index: int, step: int, depth: int) -> None:
        self.index = index
        self.step = step
        self.depth = depth
        self.around: Path = ()
        self.paths: list[Path] = []
        self.buffers: list[tuple[Buffer, int, list[set[int]]]] = []
        self.operands: list[Any] = []
        self.moves: list[Step] = []
        self.owned: list[tuple[int, int]] = []
        self.moving: dict[tuple[int, ...], list[tuple[int, int | None]]] = defaultdict(list)
        self.outside: dict[int, set[tuple[int, ...]]] = defaultdict(set)
        self.steps: list[Step] = []
        self.instructions: list[tuple[Instruction, int, Any, Any, Any]] = []
        self._known: dict[int, int] = {}

    def operand(self, x: Any, step: Step, at: int | None) -> int:
        """The position of a new operand; `step` and `at` as in `moving`."""
        position = len(self.operands)
        self.operands.append(x)
        self.moves.append(step)
        if at == -1:
            self.outside[x.buffer.number].add(step or x.form.start)
        if step is not None:
            self.moving[step].append((position, at))
        elif at is not None and at >= 0:
            self.owned.append((position, at))
        return position

    def fits(self, times: int) -> bool:
        """Whether all operands that move stay within their tensors, that many iterations on."""
        for step, moving in self.moving.items():
            distance = [times * s for s in step]
            for position, at in moving:
                if at is None:
                    continue
                x = self.operands[position]
                if not x.form.holds(tuple(map(add, x.offsets, distance))):
                    return False
        return True

    def slopes(self) -> dict[int, tuple[int, ...] | None]:
        """For the memory from outside, by number: how far all that is used of it moves from one
        loop index to the next; None where not all of it moves alike."""
        found: dict[int, tuple[int, ...] | None] = {}
        for number, (step, *others) in self.outside.items():
            even = not others and not any(s % self.step for s in step)
            found[number] = tuple([s // self.step for s in step]) if even else None
        return found

    def path(self, loops: Path) -> int:
        """The position of a path. By identity, which what an iteration makes shares."""
        at = self._known.get(id(loops))
        if at is None:
            at = self._known[id(loops)] = len(self.paths)
            self.around = loops[: max(self.depth, 0)]
            self.paths.append(loops[self.depth + 1 :])
        return at


class Comparison:
    """Compares the iterations of a plan that are to be alike.

    Args:
        trace: that they are of.
        plan: which iterations.
        parts: the instructions of each.
        depth: of the loop: how many are around it; -1 for instances.
        is_own: whether a buffer belongs to the iteration that made it.
        known: what iterations before, that these are to be like, were made by.
    """

    def __init__(
        self,
        trace: Trace,
        plan: Plan,
        parts: list[list[Instruction]],
        depth: int,
        is_own: Callable[[Buffer], bool],
        known: Recipe | None,
    ) -> None:
        self.trace = trace
        self.plan = plan
        self.parts = parts
        self.is_own = is_own
        self.known = known
        self.model = plan.model
        index = plan.indices[plan.alike[self.model]]
        self.recipe = Recipe(index, plan.indices.step, depth)
        self._own: dict[tuple[int, ...], int] = {}  # by number: position in the recipe, or -1
        self._seen: dict[tuple, int] = {}  # operands by identity: position in the recipe
        self._fixed: dict[int, int] = {}  # the same of constants
        self._compared: set[tuple[int, int]] = set()  # instructions, by what they are copies of
        self._positions: list[int] = []  # of the outs and ins of all instructions
        self._strides = Strides(plan.distance)

    def made_recipe(self) -> Recipe:
        """The recipe for the iterations that are missing.

        Raises:
            NotUniform: the iterations differ in more than addresses, or from those before.
        """
        plan, recipe, known, model = self.plan, self.recipe, self.known, self.model
        if len({len(p) for p in self.parts}) > 1:
            raise NotUniform("iterations have different numbers of instructions")
        rows = zip(*self.parts, strict=True)
        if plan.is_settled:
            if len(known.instructions) != len(self.parts[0]):
                raise NotUniform("iterations have other numbers of instructions than before")
            steps = iter(known.steps)
            for (i,), (before, *_) in zip(rows, known.instructions, strict=True):
                self._compare(i, (before,))
                outs = [self._settled(x, next(steps, None)) for x in i.outs]
                ins = [self._settled(x, next(steps, None)) for x in i.ins]
                self._add(i, outs, ins)
        else:
            even = self._even
            for same in rows:
                i = same[model]
                self._compare(i, same)
                # Of alike instructions, which have as many operands.
                outs = list(map(even, *[s.outs for s in same]))
                ins = list(map(even, *[s.ins for s in same]))
                self._add(i, outs, ins)
        recipe.steps = list(map(recipe.moves.__getitem__, self._positions))
        if known is not None and recipe.steps != known.steps:
            raise NotUniform("addresses grow faster or slower than before")
        if plan.is_settled and not recipe.fits(len(plan.gap)):
            raise NotUniform("addresses leave a tensor")
        partners = [numbers for numbers, at in self._own.items() if at >= 0]
        if any(len(set(column)) < len(partners) for column in zip(*partners, strict=True)):
            raise NotUniform("iterations use their tiles differently")
        self._check_own_tiles()
        for numbers in partners:
            self.trace.echoes.update(numbers[:model], numbers[model + 1 :])
        return recipe

    def _check_own_tiles(self) -> None:
        """What checks have found of a tile that the model makes holds for those of the iterations
        that are missing, if these use the same part of it, or one further on, all uses alike; or
        if all of it is written at first, and no loop inside, nor the Tensor Engine, writes on."""
        recipe = self.recipe
        moves: dict[int, set[Step]] = {}
        for step, moving in recipe.moving.items():
            for _, at in moving:
                if at is not None and at >= 0:
                    moves.setdefault(at, set()).add(step)
        if not moves:
            return
        for _, at in recipe.owned:
            if at in moves:
                moves[at].add(None)
        apart = {recipe.buffers[at][0].number for at, steps in moves.items() if len(steps) > 1}
        whole: set[int] = set()
        for i, *_ in recipe.instructions:
            for x in i.outs:
                number = x.buffer.number
                if number not in apart:
                    continue
                if x.covers_buffer and i.where_of(x) is None:
                    whole.add(number)
                if (
                    number not in whole
                    or len(i.loops) > len(x.buffer.loops)
                    or x.space is Space.PSUM
                ):
                    raise NotUniform("iterations use other parts of their tiles")

    def _compare(self, i: Instruction, others: tuple[Instruction, ...]) -> None:
        mine = id(i.origin or i)
        for other in others:
            theirs = id(other.origin or other)
            pair = mine, theirs
            if mine != theirs and pair not in self._compared:
                if not alike(i, other):
                    raise NotUniform("iterations have different instructions")
                self._compared.add(pair)

    def _add(self, i: Instruction, outs: list[int], ins: list[int]) -> None:
        """Add an instruction, given the positions of its operands."""
        recipe = self.recipe
        self._positions += outs
        self._positions += ins
        pick_tiles = pick_ins = picker(ins)
        if i.tiles_in is not i.ins:
            tiles = [at for at, x in zip(ins, i.ins, strict=True) if isinstance(x, Tensor)]
            pick_tiles = picker(tiles)
        recipe.instructions.append((i, recipe.path(i.loops), picker(outs), pick_ins, pick_tiles))

    def _even(self, *xs: Any) -> int:
        """The position of an operand, given it in each of the iterations."""
        key = tuple(map(id, xs))
        at = self._seen.get(key)
        if at is None:
            x, home = xs[self.model], None
            if type(x) is Tensor:
                home = self._home(xs)
            elif not isinstance(x, (Tensor, Affine)):
                if not all(_same(x, other) for other in xs):
                    raise NotUniform("an operand changes from iteration to iteration")
                return self._constant(x)
            step = self._strides.of(xs, self.model)
            at = self._seen[key] = self.recipe.operand(x, step, home)
        return at

    def _settled(self, x: Any, step: Step) -> int:
        """The position of an operand, given it in one iteration, and how far it moves."""
        key = id(x), step
        at = self._seen.get(key)
        if at is None:
            if not isinstance(x, (Tensor, Affine)):
                return self._constant(x)
            home = self._home((x,)) if isinstance(x, Tensor) else None
            at = self._seen[key] = self.recipe.operand(x, step, home)
        return at

    def _constant(self, x: Any) -> int:
        at = self._fixed.get(id(x))
        if at is None:
            at = self._fixed[id(x)] = self.recipe.operand(x, None, None)
        return at

    def _home(self, tiles: tuple[Tensor, ...]) -> int:
        """Which of the iteration's own buffers a view is of; -1 for one that it did not make."""
        numbers = tuple([t.buffer.number for t in tiles])
        at = self._own.get(numbers)
        if at is not None:
            return at
        buffers = [t.buffer for t in tiles]
        buffer = buffers[self.model]
        if not self.is_own(buffer):
            if any([b is not buffer for b in buffers]):
                raise NotUniform("iterations touch different memory")
            self._own[numbers] = -1
            return -1
        for b in buffers:
            if b is not buffer:
                if not self.is_own(b):
                    raise NotUniform("iterations touch different memory")
                _check_buffers(b, buffer)
        trace, recipe = self.trace, self.recipe
        at = self._own[numbers] = len(recipe.buffers)
        notes = [of for of in (trace.hidden, trace.assigned) if buffer.number in of]
        recipe.buffers.append((buffer, recipe.path(buffer.loops), notes))
        return at


def alike(a: Instruction, b: Instruction) -> bool:
    """Whether two instructions differ in nothing but their operands."""
    return (
        a.opcode == b.opcode
        and a.engine is b.engine
        and a.location is b.location
        and a.engine_asked == b.engine_asked
        and len(a.outs) == len(b.outs)
        and len(a.ins) == len(b.ins)
        and (a.attrs is b.attrs or _same(a.attrs, b.attrs))
        and (a.where is b.where or _same(a.where, b.where))
        and (a.where_out is b.where_out or _same(a.where_out, b.where_out))
    )


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


def even_step(operands: tuple[Any, ...], model: int, distance: int) -> Step:
    """How far an operand moves in an iteration: see `Strides.of`."""
    return Strides(distance).of(operands, model)


class Strides:
    """How far operands move in an iteration.

    Args:
        distance: iterations between the last two in which an operand is given.
    """

    def __init__(self, distance: int) -> None:
        self._distance = distance
        self._steps: dict[tuple[int, ...], tuple[int, ...]] = {}  # by how far that is in all

    def of(self, operands: tuple[Any, ...], model: int) -> Step:
        """The step of one, given it in those iterations that are to be alike: up to the `model`
        each one behind the other, and the last one further on. None when it stays.

        Raises:
            NotUniform: it does not move evenly, or is not the same.
        """
        x = operands[model]
        if type(x) is Affine:
            if any(type(y) is not Affine or y.coefs != x.coefs for y in operands):
                raise NotUniform("an operand changes from iteration to iteration")
            return self._between([(y.offset,) for y in operands])
        if type(x) is not Tensor:
            raise NotUniform("an operand of a special kind")
        form, dtype, start, stays = x.form, x.dtype, x.offsets, True
        for t in operands:
            if t is not x and (
                type(t) is not Tensor
                or t.form is not form
                or (t.dtype is not dtype and t.dtype != dtype)
            ):
                raise NotUniform("operands have different shapes")
            stays = stays and t.offsets is start
        return None if stays else self._between([t.offsets for t in operands])

    def _between(self, offsets: list[tuple[int, ...]]) -> Step:
        c, d = offsets[-2:]
        far = tuple(map(sub, d, c))
        step = self._steps.get(far)
        if step is None:
            if any([s % self._distance for s in far]):
                raise NotUniform("addresses do not grow evenly")
            step = self._steps[far] = tuple([s // self._distance for s in far])
        for b in offsets[:-2]:
            if tuple(map(sub, c, b)) != step:
                raise NotUniform("addresses do not grow evenly")
        return step if any(step) else None
