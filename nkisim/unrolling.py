"""Putting in the iterations that a rolled trace left out (see nkisim.rolling).

Those that are to be alike are compared, instruction by instruction and operand by operand. Where
they differ in nothing but the tiles that each makes for itself and in addresses that grow evenly,
the one in front of the gap is a recipe for those that are missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from math import prod
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nkisim.errors import NotUniform
from nkisim.index import Affine
from nkisim.instruction import Instruction, picker
from nkisim.memory import Buffer, Role
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.trace import Trace

Path = tuple[tuple[int, int], ...]


class Plan(NamedTuple):
    """Which iterations of a strand are traced: of some iterations of a loop, or of a launch-grid
    axis, that follow each other evenly.

    Attributes:
        name: the loop's number, or ~axis, and which of its plans this is.
        indices: of the iterations.
        traced: positions in `indices` of those that are traced.
        alike: of those, the ones to be alike. With a single one, all is taken from `like`.
        gap: positions of those that are missing, behind an iteration of `alike` that they are
            like.
        like: the plan whose addresses have to move as far; None for the first ones.
    """

    name: tuple[int, int]
    indices: range
    traced: tuple[int, ...]
    alike: tuple[int, ...]
    gap: range
    like: tuple[int, int] | None

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


class Rolled(NamedTuple):
    """An execution of a loop, or a launch-grid axis, that was traced in part.

    Attributes:
        indices: of all iterations.
        plans: of those of its strands that have one.
        recorded: whether the path of an instruction names the iteration it is in. If not, as for
            instances and Python's own loops, nothing but their numbers tells loops inside apart.
    """

    indices: range
    plans: list[Plan]
    recorded: bool


def unroll(trace: Trace, rolled: dict[int, Rolled]) -> None:
    """Put in the iterations that were left out.

    Args:
        trace: with some iterations of each rolled loop.
        rolled: those loops, by number; launch-grid axes by ~axis.

    Raises:
        NotUniform: the iterations that were traced differ in more than addresses. It names the
            loop by its number, and is `brief` where they were to be like those of an earlier one.
    """
    trace.copies = len(trace.buffers)
    trace.instructions = _Unroller(trace, rolled).run()


class _Recipe:
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
        self.moves: list[tuple[int, ...] | None] = []
        self.owned: list[tuple[int, int]] = []
        self.moving: dict[tuple[int, ...], list[tuple[int, int | None]]] = {}
        self.steps: list[tuple[int, ...] | None] = []
        self.instructions: list[tuple[Instruction, int, Any, Any, Any]] = []
        self._known: dict[int, int] = {}

    def operand(self, x: Any, step: tuple[int, ...] | None, at: int | None) -> int:
        """The position of a new operand; `step` and `at` as in `moving`."""
        position = len(self.operands)
        self.operands.append(x)
        self.moves.append(step)
        if step is not None:
            self.moving.setdefault(step, []).append((position, at))
        elif at is not None and at >= 0:
            self.owned.append((position, at))
        return position

    def fits(self, times: int) -> bool:
        """Whether all operands that move stay within their tensors, that many iterations on."""
        for step, moving in self.moving.items():
            for position, at in moving:
                if at is None:
                    continue
                x = self.operands[position]
                offsets = tuple([o + times * s for o, s in zip(x.offsets, step, strict=True)])
                if x.moved(x.buffer, offsets).escape() is not None:
                    return False
        return True

    def path(self, loops: Path) -> int:
        """The position of a path. By identity, which what an iteration makes shares."""
        at = self._known.setdefault(id(loops), len(self.paths))
        if at == len(self.paths):
            self.around = loops[: max(self.depth, 0)]
            self.paths.append(loops[self.depth + 1 :])
        return at


class _Unroller:
    def __init__(self, trace: Trace, rolled: dict[int, Rolled]) -> None:
        self.trace = trace
        self.rolled = rolled
        self.recipes: dict[tuple[int, int], _Recipe] = {}  # by the name of the plan
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
            if home != path[: len(home)]:
                for key, _ in home:
                    if key in self.rolled:
                        raise NotUniform("a tile outlives the iteration that made it", key)

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
                raise NotUniform("a loop is interleaved with what surrounds it", key)
            seen.add(key)
            parts: dict[int, list[Instruction]] = {}
            for index, part in groupby(run, lambda p: p[0][1]):
                if index in parts:
                    raise NotUniform("iterations are interleaved", key)
                parts[index] = self._expand([i for _, i in part], level + 1)
            if key in self.rolled:
                out += self._fill(key, parts, level)
            else:
                for part in parts.values():
                    out += part
        return out

    def _fill(self, key: int, parts: dict, level: int) -> list[Instruction]:
        """All iterations of a rolled loop, given those that were traced, by index."""
        rolled = self.rolled[key]
        missing: dict[int, _Recipe] = {}  # by index
        for plan in rolled.plans:
            traced = [parts.get(plan.indices[k], []) for k in plan.alike]
            if not any(traced):
                continue
            try:
                known = None
                # Executions of a launch-grid axis share names: its last one stands for all.
                if plan.like not in (None, plan.name):
                    known = self.recipes.get(plan.like)
                    if known is None:
                        raise NotUniform("iterations were not alike before")
                recipe = self.recipes[plan.name] = self._recipe(traced, level, plan, known)
            except NotUniform as error:
                if plan.is_complete:
                    continue
                error.loop, error.brief = key, plan.like is not None
                raise
            if recipe.instructions:
                missing |= dict.fromkeys(plan.missing, recipe)
        out: list[Instruction] = []
        for index in rolled.indices:
            if index in missing:
                out += self._copy(missing[index], level, key, index)
            else:
                out += parts.get(index, [])
        return out

    def _recipe(
        self, parts: list[list[Instruction]], level: int, plan: Plan, known: _Recipe | None
    ) -> _Recipe:
        """How to make the iterations that are missing from `parts`, which are to be alike, and to
        move as those did that were `known` before."""
        if len({len(p) for p in parts}) > 1:
            raise NotUniform("iterations have different numbers of instructions")
        depth = max(level - len(self.places[0]), -1)
        model = plan.model
        recipe = _Recipe(plan.indices[plan.alike[model]], plan.indices.step, depth)
        own: dict[tuple[int, ...], int] = {}  # buffers by number -> position in the recipe, or -1
        seen: dict[tuple, int] = {}
        fixed: dict[int, int] = {}
        known_steps = iter(known.steps) if plan.is_settled else None
        compared: set[tuple[int, int]] = set()  # instructions, by what they are copies of

        def operand(xs: tuple) -> int:
            x = xs[model]
            step = next(known_steps, None) if plan.is_settled else None
            if not isinstance(x, Tensor | Affine):
                if not all(_same(x, other) for other in xs):
                    raise NotUniform("an operand changes from iteration to iteration")
                at = fixed.get(id(x))
                if at is None:
                    at = fixed[id(x)] = recipe.operand(x, None, None)
            else:
                key = (*map(id, xs), step)
                at = seen.get(key)
                if at is None:
                    if not plan.is_settled:
                        step = _even_step(xs, model, plan.distance)
                    home = None if type(x) is Affine else self._own(xs, model, own, recipe, level)
                    at = seen[key] = recipe.operand(x, step, home)
            recipe.steps.append(recipe.moves[at])
            return at

        before = [entry[0] for entry in known.instructions] if plan.is_settled else parts[0]
        if len(before) != len(parts[0]):
            raise NotUniform("iterations have other numbers of instructions than before")
        for first, *same in zip(before, *parts, strict=True):
            i = same[model]
            mine = i.origin or i
            for other in (first, *same):
                pair = id(mine), id(other.origin or other)
                if pair not in compared:
                    if not alike(i, other):
                        raise NotUniform("iterations have different instructions")
                    compared.add(pair)
            outs = [operand(x) for x in zip(*[s.outs for s in same], strict=True)]
            ins = [operand(x) for x in zip(*[s.ins for s in same], strict=True)]
            pick_tiles = pick_ins = picker(ins)
            if i.tiles_in is not i.ins:
                tiles = [at for at, x in zip(ins, i.ins, strict=True) if isinstance(x, Tensor)]
                pick_tiles = picker(tiles)
            at = recipe.path(i.loops)
            recipe.instructions.append((i, at, picker(outs), pick_ins, pick_tiles))
        if known is not None and recipe.steps != known.steps:
            raise NotUniform("addresses grow faster or slower than before")
        if plan.is_settled and not recipe.fits(len(plan.gap)):
            raise NotUniform("addresses leave a tensor")
        partners = [numbers for numbers, at in own.items() if at >= 0]
        if any(len(set(column)) < len(partners) for column in zip(*partners, strict=True)):
            raise NotUniform("iterations use their tiles differently")
        for numbers in partners:
            self.trace.echoes.update(numbers[:model], numbers[model + 1 :])
        return recipe

    def _own(
        self,
        tiles: tuple[Tensor, ...],
        model: int,
        own: dict[tuple[int, ...], int],
        recipe: _Recipe,
        level: int,
    ) -> int:
        """Which of the iteration's own buffers a view is of; -1 for one that it did not make."""
        numbers = tuple([t.buffer.number for t in tiles])
        at = own.get(numbers)
        if at is not None:
            return at
        buffer = tiles[model].buffer
        inside = {len(self._home(t.buffer)) > level for t in tiles}
        if inside == {False} and all(t.buffer is buffer for t in tiles):
            own[numbers] = -1
            return -1
        if inside != {True}:
            raise NotUniform("iterations touch different memory")
        for t in tiles:
            _check_buffers(t.buffer, buffer)
        at = own[numbers] = len(recipe.buffers)
        notes = [of for of in (self.trace.hidden, self.trace.assigned) if buffer.number in of]
        recipe.buffers.append((buffer, recipe.path(buffer.loops), notes))
        return at

    def _copy(self, recipe: _Recipe, level: int, key: int, index: int) -> list[Instruction]:
        """The iteration with a loop index, made by a recipe."""
        by = (index - recipe.index) // recipe.step
        if recipe.depth < 0:
            jump, head = (index - recipe.index) * self.programs[level], ()
        else:
            jump, head = 0, (*recipe.around, (key, index))
        recorded = self.rolled[key].recorded
        paths = [head + p for p in (recipe.paths if recorded else self._renumbered(recipe.paths))]
        buffers = []
        known = self.trace.buffers
        for b, at, notes in recipe.buffers:
            new = b.again(len(known), b.program + jump, paths[at])
            known.append(new)
            buffers.append(new)
            for numbers in notes:
                numbers.add(new.number)
        operands = recipe.operands.copy()
        for k, at in recipe.owned:
            x = operands[k]
            operands[k] = x.moved(buffers[at], x.offsets)
        for step, moving in recipe.moving.items():
            distance = [by * s for s in step]
            for k, at in moving:
                x = operands[k]
                if at is None:
                    operands[k] = x.moved(*distance)
                    continue
                offsets = tuple(map(add, x.offsets, distance))
                operands[k] = x.moved(x.buffer if at < 0 else buffers[at], offsets)
        copies = []
        for i, at, pick_outs, pick_ins, pick_tiles in recipe.instructions:
            ins = pick_ins(operands)
            tiles = ins if pick_tiles is pick_ins else pick_tiles(operands)
            copies.append(i.moved(pick_outs(operands), ins, tiles, i.program + jump, paths[at]))
        return copies

    def _renumbered(self, paths: list[Path]) -> list[Path]:
        """The same iterations of loops that are executed once more."""
        loops, new = self.trace.loops, {}
        for number in dict.fromkeys(number for path in paths for number, _ in path):
            new[number] = len(loops)
            loops.append(loops[number])
        return [tuple([(new[number], i) for number, i in path]) for path in paths]


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


def _even_step(operands: tuple[Any, ...], model: int, distance: int) -> tuple[int, ...] | None:
    """How far an operand moves in an iteration, given it in those that are to be alike: up to the
    `model` each one behind the other, and the last one `distance` from that. None when it stays."""
    x = operands[model]
    if type(x) is Affine:
        if any(type(y) is not Affine or y.coefs != x.coefs for y in operands):
            raise NotUniform("an operand changes from iteration to iteration")
        return _step([(y.offset,) for y in operands], distance)
    if type(x) is not Tensor:
        raise NotUniform("an operand of a special kind")
    for t in operands:
        if t is not x and (
            type(t) is not Tensor
            or t.form is not x.form
            or (t.dtype is not x.dtype and t.dtype != x.dtype)
        ):
            raise NotUniform("operands have different shapes")
    return _step([t.offsets for t in operands], distance)


def _step(offsets: list[tuple[int, ...]], distance: int) -> tuple[int, ...] | None:
    *earlier, c, d = offsets
    if all([o == c for o in offsets]):
        return None
    grown = [divmod(z - y, distance) for y, z in zip(c, d, strict=True)]
    step = tuple([int(s) for s, _ in grown])
    even = not any(rest for _, rest in grown)
    for b in earlier:
        even &= all([y - x == s for x, y, s in zip(b, c, step, strict=True)])
    if not even:
        raise NotUniform("addresses do not grow evenly")
    return step
