"""Memory by number: each HBM tensor and each tile on chip is one thing to wait for.

A tensor with block axes is many tiles. Each has a life of its own: it takes memory from its first
use to its last, as the compiler gives it. Tiles that the kernel places by hand share memory where
their addresses do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product

import numpy as np

from nkisim.cost.tasks import Access, Work
from nkisim.instruction import Instruction
from nkisim.memory import Buffer, Placed, Space, c_strides
from nkisim.tensor import Tensor

# The parts that views of one kind may name, by their offsets: for each, the first view that did.
_Parts = dict[tuple[int, ...], Tensor]


class Form:
    """What all copies of an instruction have in common (see Instruction.origin).

    Made when memory is numbered; `nkisim.cost.passes` and `nkisim.cost.build` add to it what they
    find out about one copy, for all of them.

    Attributes:
        instr: one of them.
        blocks: whether an operand is in a blocked tensor on chip, or placed by hand.
        reads, writes: the parts that each operand may name; None with `blocks`.
        shared: the number of its computation, if a later iteration may share it (see `_Kinds`).
        label: what it does.
        plan: what `nkisim.cost.build` makes of it.
    """

    __slots__ = ("blocks", "instr", "label", "plan", "reads", "shared", "writes")

    def __init__(self, instr: Instruction, storage: Storage) -> None:
        self.instr = instr
        self.label = instr.label
        tiles = instr.outs + instr.tiles_in
        self.blocks = any(t.buffer.placed or _in_block(t) for t in tiles)
        self.reads: list[_Parts] | None = None
        self.writes: list[_Parts] | None = None
        if not self.blocks:
            self.reads = [storage.parts(t) for t in instr.tiles_in]
            self.writes = [storage.parts(t) for t in instr.outs]
        self.shared: int | None = None
        self.plan: object = None


class Step:
    """An instruction, and what it reads and writes by number, in the order of its operands."""

    __slots__ = ("form", "instr", "reads", "writes")

    def __init__(
        self, instr: Instruction, form: Form, reads: list[Access], writes: list[Access]
    ) -> None:
        self.instr = instr
        self.form = form
        self.reads = reads
        self.writes = writes


class Storage:
    """Numbers of what the tensors of a program are kept in.

    Buffers keep their numbers in the program; tiles of blocked buffers, memory shared by placed
    tiles, and what only the compiler knows get negative ones.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.forms: dict[Instruction, Form] = {}  # by the instruction copied from
        self._parts: dict[tuple, _Parts] = {}
        self._nbytes: dict[tuple, int] = {}
        self._tiles: dict[tuple[int, tuple[int, ...]], int] = {}  # (buffer, block) -> number
        self._walked: set[int] = set()  # blocked buffers with a view of several tiles
        self._slots: dict[tuple[Space, Placed], tuple[int, bool]] = {}
        self._next = -1

    def steps(self, instrs: Sequence[Instruction]) -> list[Step]:
        """Number what `instrs` touch. To be called once, before anything else."""
        known = self.forms
        forms = [known.get(i.origin or i) or self._form(i) for i in instrs]
        if any(form.blocks for form in known.values()):
            self._look_at_blocks(instrs, forms)
        numbered = self._numbered
        return [
            Step(i, form, numbered(i.tiles_in, form.reads), numbered(i.outs, form.writes))
            for i, form in zip(instrs, forms, strict=True)
        ]

    def _numbered(self, tiles: tuple[Tensor, ...], parts: Sequence[_Parts] | None) -> list[Access]:
        """What operands touch, given the parts that each may name, if that is known."""
        spaces = self.work.spaces
        accesses = []
        if parts is None:
            for t in tiles:
                if t.buffer.number not in spaces:
                    self._register(t.buffer)
                accesses.append(self.access(t))
            return accesses
        for t, known in zip(tiles, parts, strict=True):
            buffer = t.buffer
            number = buffer.number
            if number not in spaces:
                self._register(buffer)
            accesses.append((number, known.setdefault(t.offsets, t)))
        return accesses

    def _form(self, i: Instruction) -> Form:
        origin = i.origin or i
        found = self.forms[origin] = Form(origin, self)
        return found

    def parts(self, t: Tensor, first: int = 0) -> _Parts:
        """The parts that views like `t` may name, by their offsets from axis `first` on."""
        key = (t.shape, id(t.coefs), t.base_shape, first)
        found = self._parts.get(key)
        if found is None:
            found = self._parts[key] = {}
        return found

    def _register(self, b: Buffer) -> None:
        number, work = b.number, self.work
        work.buffers[number] = b
        work.spaces[number] = b.space
        if b.space.on_chip and not b.placed and not self._blocked(b):
            key = (b.shape, b.par_axis, b.dtype)
            nbytes = self._nbytes.get(key)
            if nbytes is None:
                nbytes = self._nbytes[key] = b.tiles * b.partition_bytes
            work.sizes[number] = nbytes

    def _look_at_blocks(self, instrs: Sequence[Instruction], forms: Sequence[Form]) -> None:
        """Find out which tensors are one piece, and which tiles share memory."""
        placed: dict[int, Buffer] = {}
        for i, form in zip(instrs, forms, strict=True):
            for t in i.outs + i.tiles_in if form.blocks else ():
                if t.buffer.placed:
                    placed[t.buffer.number] = t.buffer
                if _in_block(t) and any(map(any, t.coefs[: t.buffer.par_axis])):
                    self._walked.add(t.buffer.number)
        if placed:
            self._place(placed.values())

    def scratch(self, nbytes: int, space: Space = Space.PSUM) -> int:
        """A new tile that only the compiler knows."""
        number = self._next
        self._next -= 1
        self.work.sizes[number] = nbytes
        self.work.spaces[number] = space
        return number

    def access(self, t: Tensor) -> Access:
        """What a tensor is kept in, and which part of that it is."""
        b = t.buffer
        if b.placed:
            return self._slot(t)
        if not self._blocked(b):
            return b.number, self.parts(t).setdefault(t.offsets, t)
        first = b.par_axis
        return self._tile(b, t.offsets[:first]), self._inside(t, first)

    def _inside(self, t: Tensor, first: int) -> Tensor:
        """Which part of a tile of a blocked tensor a view is, whichever tile that is."""
        parts, inside = self.parts(t, first), t.offsets[first:]
        found = parts.get(inside)
        if found is None:
            found = parts[inside] = t.moved(t.buffer, (0,) * first + inside)
        return found

    def whole_tile(self, t: Tensor) -> bool:
        """Whether a view of a tile on chip is all of it, in order."""
        b = t.buffer
        if b.number in self._walked:
            return False
        return (
            t.size * t.itemsize == b.partition_bytes * b.shape[b.par_axis]
            and not any(t.offsets[b.par_axis :])
            and t.strides == c_strides(t.shape)
        )

    def _blocked(self, b: Buffer) -> bool:
        return bool(b.par_axis) and b.space.on_chip and b.number not in self._walked

    def _tile(self, b: Buffer, block: tuple[int, ...]) -> int:
        key = (b.number, block)
        found = self._tiles.get(key)
        if found is None:
            found = self._tiles[key] = self.scratch(b.partition_bytes, b.space)
            self.work.buffers[found] = b
        return found

    # -- tiles placed by hand -------------------------------------------------------------------

    def _place(self, buffers: Iterable[Buffer]) -> None:
        """Tiles that share bytes are one."""
        tiles: dict[tuple[Space, Placed], None] = {}
        for b in buffers:
            for at in b.placed:
                tiles.setdefault((b.space, at))
        groups: list[list] = []  # [space, partitions taken, first byte, last byte, tiles]
        for space, at in sorted(tiles, key=lambda x: (x[0].value, x[1].address, x[1])):
            rows = set(range(at.start // 32, -(-(at.start + at.partitions) // 32)))
            end = at.address + at.size
            touching = [g for g in groups if g[0] is space and g[3] > at.address and g[1] & rows]
            group = [space, rows, at.address, end, [at]]
            for g in touching:
                groups.remove(g)
                group[1] |= g[1]
                group[2], group[3] = min(group[2], g[2]), max(group[3], g[3])
                group[4] += g[4]
            groups.append(group)
        for space, _, first, last, members in groups:
            number = self.scratch(last - first, space)
            alone = len(set(members)) == 1
            for at in members:
                self._slots[space, at] = (number, alone)

    def _slot(self, t: Tensor) -> Access:
        """The memory behind a tile placed by hand, and which part of it `t` is."""
        b = t.buffer
        blocks = b.shape[: b.par_axis]
        offsets = t.offsets[: b.par_axis]
        found = {
            self._slots[b.space, b.placed[int(np.ravel_multi_index(idx, blocks)) if blocks else 0]]
            for idx in _blocks_of(t, blocks, offsets)
        }
        number, alone = min(found)
        if len(found) > 1 or not alone:
            return number, None
        return number, self._inside(t, b.par_axis)


def _in_block(t: Tensor) -> bool:
    """Whether a view is of an on-chip tensor with block axes."""
    return bool(t.buffer.par_axis) and t.buffer.space.on_chip


def _blocks_of(t: Tensor, blocks: tuple[int, ...], first: tuple[int, ...]) -> list[tuple]:
    """The block indices that a view touches: mostly one."""
    rows = t.coefs[: len(blocks)]
    if not any(any(row) for row in rows):
        return [first]
    ranges = [range(low, high + 1) for low, high in t.bounds()[: len(blocks)]]
    return list(product(*ranges))
