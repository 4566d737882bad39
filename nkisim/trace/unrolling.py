"""Putting in the iterations that a rolled trace left out (see nkisim.trace.rolling): from the
innermost
loops outwards, each is made by a recipe from one that is there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import groupby, product, zip_longest
from math import prod
from operator import add
from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import NotUniform
from nkisim.ir.instruction import Instruction
from nkisim.ir.loops import Copied, Path
from nkisim.ir.memory import Buffer, Role
from nkisim.trace.recipes import Comparison, Plan, Recipe

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


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


class _Alike(NamedTuple):
    """Iterations of a plan that are to be alike: see `Comparison`."""

    plan: Plan
    parts: list[list[Instruction]]
    depth: int
    is_own: Callable[[Buffer], bool]


def unroll(trace: Trace, rolled: dict[tuple[int, int], Rolled]) -> None:
    """Put in the iterations that were left out.

    Args:
        trace: with some iterations of each rolled loop.
        rolled: those loops, as in `nkisim.trace.rolling.Rolls.found`.

    Raises:
        NotUniform: the iterations that were traced differ in more than addresses. It names the
            loop by its number, and is `brief` where they were to be like those of an earlier one.
    """
    trace.copies = len(trace.buffers)
    trace.instructions = _Unroller(trace, rolled).run()


class _Unroller:
    def __init__(self, trace: Trace, rolled: dict[tuple[int, int], Rolled]) -> None:
        self.trace = trace
        self.rolled = rolled
        # By the name of the plan; and what there is no recipe for until it is asked for.
        self.recipes: dict[tuple[int, int, int], Recipe] = {}
        self.later: dict[tuple[int, int, int], _Alike] = {}
        grid = trace.grid
        steps = [[(~axis, i) for i in range(extent)] for axis, extent in enumerate(grid.shape)]
        self.places: list[Path] = list(product(*steps))  # by the number of the instance
        self.programs = [prod(grid.shape[axis + 1 :]) for axis in range(len(steps))]

    def run(self) -> list[Instruction]:
        found = []
        for i in self.trace.instructions:
            path = self.places[i.program] + i.loops
            self._check_scope(i, path)
            found.append((path, i))
        return self._expand(found, 0)

    def _home(self, buffer: Buffer) -> Path:
        """The iterations that a buffer belongs to."""
        if buffer.program is None or buffer.role is not Role.LOCAL:
            return ()
        return self.places[buffer.program] + buffer.loops

    def _check_scope(self, i: Instruction, path: Path) -> None:
        """What an iteration makes is used in it only, or behind the loop if it is the last one:
        the iterations left out made more."""
        for t in i.outs + i.tiles_in:
            b = t.buffer
            if b.loops is i.loops and b.program == i.program:
                continue
            home = self._home(b)
            if home != path[: len(home)]:
                inside = {key for key, _ in path}
                for level, (here, there) in enumerate(zip_longest(home, path)):
                    if here is None or here == there:
                        continue
                    key, index = here
                    rolled = self._rolled_at(home, level)
                    if rolled and (key in inside or index != rolled.indices[-1]):
                        raise NotUniform("a tile outlives the iteration that made it", key)

    def _expand(self, instrs: Sequence[tuple[Path, Instruction]], level: int) -> list[Instruction]:
        """Instructions, given with their paths, in all iterations of the loops from `level` on."""
        out: list[Instruction] = []
        seen: set[int] = set()
        for key, run in groupby(instrs, lambda x: x[0][level][0] if len(x[0]) > level else None):
            if key is None:
                out += [i for _, i in run]
                continue
            parts: dict[int, list[Instruction]] = {}
            for index, part in groupby(run, lambda x: x[0][level][1]):
                if index in parts:
                    raise NotUniform("iterations are interleaved", key)
                inside = list(part)
                rolled = self._rolled_at(inside[0][0], level)
                parts[index] = self._expand(inside, level + 1)
            if key in seen and rolled is not None:
                raise NotUniform("a loop is interleaved with what surrounds it", key)
            seen.add(key)
            if rolled is not None:
                out += self._fill(key, rolled, parts, level)
            else:
                for part in parts.values():
                    out += part
        return out

    def _rolled_at(self, path: Path, level: int) -> Rolled | None:
        """The rolled loop, or axis, that something with a path is in at a level, if it is one."""
        key, around = path[level][0], 0
        if key < 0:
            for extent, (_, at) in zip(self.trace.grid.shape, path[:level], strict=False):
                around = around * extent + at
        return self.rolled.get((key, around))

    def _fill(self, key: int, rolled: Rolled, parts: dict, level: int) -> list[Instruction]:
        """All iterations of a rolled loop, given those that were traced, by index."""
        missing: dict[int, Recipe] = {}  # by index
        last: set[int] = set()
        around = len(self.places[0])
        depth = max(level - around, -1)

        def is_own(b: Buffer) -> bool:
            if b.program is None or b.role is not Role.LOCAL:
                return False
            # Those of another loop are not: its last tiles may be used behind it.
            at = level - around
            return at < 0 or (at < len(b.loops) and b.loops[at][0] == key)

        for plan in rolled.plans:
            traced = [parts.get(plan.indices[k], []) for k in plan.alike]
            if not any(traced):
                continue
            alike = _Alike(plan, traced, depth, is_own)
            if plan.is_complete:  # mostly, no other iterations are like these
                self.later[plan.name] = alike
                continue
            try:
                recipe = self.recipes[plan.name] = self._made_recipe(alike)
            except NotUniform as error:
                error.loop, error.brief = key, plan.like is not None
                raise
            if recipe.instructions:
                missing |= dict.fromkeys(plan.missing, recipe)
                last.update(plan.missing[-1:])
        if missing and rolled.recorded:
            self.trace.copied[key] = Copied({*missing}, last, *_slopes(missing.values()))
        out: list[Instruction] = []
        for recipe, indices in groupby(rolled.indices, missing.get):
            if recipe is not None:
                out += self._copies(recipe, level, key, indices, rolled.recorded)
            else:
                for index in indices:
                    out += parts.get(index, [])
        return out

    def _made_recipe(self, alike: _Alike) -> Recipe:
        """The recipe for iterations like some. Raises NotUniform."""
        known = None
        if alike.plan.like is not None:
            known = self._known(alike.plan.like)
            if known is None:
                raise NotUniform("iterations were not alike before")
        return Comparison(self.trace, *alike, known).made_recipe()

    def _known(self, name: tuple[int, int, int]) -> Recipe | None:
        """The recipe of an earlier plan, if its iterations were alike."""
        alike = self.later.pop(name, None)
        if alike is not None:
            with suppress(NotUniform):
                self.recipes[name] = self._made_recipe(alike)
        return self.recipes.get(name)

    def _copies(
        self, recipe: Recipe, level: int, key: int, indices: Iterable[int], recorded: bool
    ) -> list[Instruction]:
        """The iterations with some loop indices, made by a recipe."""
        around, known = (*recipe.around,), self.trace.buffers
        moving, instructions = list(recipe.moving.items()), recipe.instructions
        copies: list[Instruction] = []
        for index in indices:
            by = (index - recipe.index) // recipe.step
            if recipe.depth < 0:
                jump, head = (index - recipe.index) * self.programs[level], ()
            else:
                jump, head = 0, (*around, (key, index))
            inside = recipe.paths if recorded else self._renumbered(recipe.paths)
            paths = [head + path for path in inside]
            buffers = []
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
            for step, operands_moving in moving:
                distance = [by * s for s in step]
                for k, at in operands_moving:
                    x = operands[k]
                    if at is None:
                        operands[k] = x.moved(*distance)
                        continue
                    offsets = tuple(map(add, x.offsets, distance))
                    operands[k] = x.moved(x.buffer if at < 0 else buffers[at], offsets)
            for i, at, pick_outs, pick_ins, pick_tiles in instructions:
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


def _slopes(recipes: Iterable[Recipe]) -> tuple[dict[int, tuple[int, ...]], set[int]]:
    """What the iterations that are made by some recipes use: see Copied.slopes and mixed."""
    found: dict[int, tuple[int, ...] | None] = {}
    for recipe in dict.fromkeys(recipes):
        for number, slope in recipe.slopes().items():
            found[number] = slope if found.get(number, slope) == slope else None
    slopes = {number: slope for number, slope in found.items() if slope is not None}
    return slopes, found.keys() - slopes.keys()
