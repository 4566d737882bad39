"""Memory by number: each HBM tensor and each tile on chip is one thing to wait for.

A tensor with block axes is many tiles. Each has a life of its own: it takes memory from its first
use to its last, as the compiler gives it. Tiles that the kernel places by hand share memory where
their addresses do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import count, product
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from nkisim.cost.tasks import Access, Memory, ScheduledTask, Work
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Buffer, Placed, Space, c_strides
from nkisim.machine import PARTITIONS

# The parts that views of one kind may name, by their offsets: for each, the first view that did.
_Parts = dict[tuple[int, ...], AccessPattern]

# What views of one kind touch of tiles placed by hand, by where these are and by their offsets.
_Slots = dict[tuple[int, tuple[int, ...]], Access]

# What alike operands have in common: their position among the tensors read or written; the parts
# that they may name; what these are in; how many block axes the tensor has, when the operand is in
# one of its tiles; what they touch, when the kernel places the tile by hand.
_Operand = tuple[int, _Parts, Memory, int, _Slots | None]


class _Slot(NamedTuple):
    """The memory that a tile placed by hand is in, which others may be in, too.

    Attributes:
        number: of the memory.
        alone: whether all tiles in it are in the same place.
        first: the lowest address in it.
        unit: bytes in which addresses and sizes of elements in it are counted.
        length: how many of these a partition has there.
    """

    number: int
    alone: bool
    first: int
    unit: int
    length: int


class OperationForm:
    """The common part of instructions that differ in the memory that they touch only.

    Made when memory is numbered; those who walk over the steps, in `nkisim.compiler.build` and
    before it, add to it what they find out about one of them, for all.

    Attributes:
        instr: one of them.
        label: what it does.
        reads, writes: its operands on tensors.
        shared: the number of its computation, if a later iteration may share it.
        fills: whether it fills a whole tile.
        reloads: whether it loads what the compiler had no room to keep.
        like: an earlier form that takes the same time, if there is one: with other numbers as
            operands.
        plan: what `nkisim.compiler.build` makes of it.
    """

    __slots__ = (
        "fills", "instr", "label", "like", "plan", "reads", "reloads", "shared", "writes"
    )  # fmt: skip

    def __init__(self, instr: Instruction, reads: list[_Operand], writes: list[_Operand]) -> None:
        self.instr = instr
        self.label = instr.label
        self.reads = reads
        self.writes = writes
        self.shared: int | None = None
        self.fills = self.reloads = False
        self.like: OperationForm | None = None
        self.plan: object = None


class Operation(ScheduledTask):
    """An instruction on its way to a task: it is one as soon as its `kind` is set.

    Attributes:
        form: of the instruction.
        reads, writes: what it touches, in the order of its operands.
    """

    __slots__ = ("form",)

    def __init__(
        self, instr: Instruction, form: OperationForm, reads: list[Access], writes: list[Access]
    ) -> None:
        self.instr = instr
        self.form = form
        self.reads = reads
        self.writes = writes


class Storage:
    """The numbers of the memories in which a program keeps its tensors.

    Buffers keep their numbers in the program; tiles of blocked buffers, memory shared by placed
    tiles, and what only the compiler knows get negative ones.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self.forms: dict[object, OperationForm] = {}  # by what tells them apart
        self._first: dict[object, OperationForm] = {}  # the same, but for numbers
        self._parts: dict[tuple, tuple[_Parts, _Slots]] = {}
        self._operands: dict[tuple, _Operand] = {}
        self._tiles: dict[tuple[int, tuple[int, ...]], int] = {}  # (buffer, block) -> number
        self._walked: set[int] = set()  # blocked buffers with a view of several tiles
        self._slots: dict[tuple[Space, Placed], _Slot] = {}
        # The same by what views have in common; None for views of several tiles.
        self._placed: dict[tuple, tuple[_Slot, Placed | None]] = {}
        self._shared: dict[tuple, AccessPattern] = {}  # parts of memory that tiles share
        self._placings: dict[tuple[Space, tuple[Placed, ...]], int] = {}
        self._placing_of: dict[int, int] = {}  # by identity: there may be thousands of tiles in one
        self._scratch: dict[tuple[int, int, int], Memory] = {}  # what tiles are, by what that is
        self._next = -1

    def steps(self, instrs: Sequence[Instruction]) -> list[Operation]:
        """The operations of `instrs`, their memories numbered. To be called once, and first."""
        accesses = self._accesses
        return [
            Operation(i, form, accesses(i.tiles_in, form.reads), accesses(i.outs, form.writes))
            for i, form in zip(instrs, self._forms(instrs), strict=True)
        ]

    def _forms(self, instrs: Sequence[Instruction]) -> list[OperationForm]:
        """The form of each instruction."""
        alike: dict[object, Instruction] = {}
        firsts = [alike.setdefault(_look(i), i) for i in instrs]
        if any(map(_is_special, alike.values())):
            self._look_at_blocks(instrs)
            return [self._form(i) for i in instrs]
        forms = {i: self._form(i) for i in alike.values()}
        return list(map(forms.__getitem__, firsts))

    def _form(self, i: Instruction) -> OperationForm:
        """The form of an instruction, shared with earlier instructions that are alike."""
        reads = list(map(self._operand, count(), i.tiles_in))
        writes = list(map(self._operand, count(), i.outs))
        scalars = ()
        if len(i.tiles_in) < len(i.ins):
            scalars = tuple([None if isinstance(x, AccessPattern) else x for x in i.ins])
        # Operands are kept, so they may be told apart by identity, which is quick.
        operands = (*map(id, reads), None, *map(id, writes))
        masked: bool | bytes = i.where is not None
        if masked and i.engine is Engine.DMA:  # which moves what the mask leaves
            masked = i.where.tobytes()
        given = tuple(i.settings.given.values())
        key = i.opcode, id(i.engine), i.engine_asked, masked, operands, scalars, *given
        try:
            found = self.forms.get(key)
        except TypeError:  # a setting that cannot be compared
            key, found = i, None
        if found is None:
            found = self.forms[key] = OperationForm(i, reads, writes)
            if key is not i:
                look = *key[:5], *map(type, scalars), *given
                first = self._first.setdefault(look, found)
                found.like = None if first is found else first
        return found

    def _look_at_blocks(self, instrs: Iterable[Instruction]) -> None:
        """Find out which tensors are one piece, and which tiles share memory."""
        placed: dict[int, Buffer] = {}
        for i in instrs:
            for t in i.outs + i.tiles_in:
                b = t.buffer
                if b.placed:
                    placed[b.number] = b
                if _walks_blocks(t):
                    self._walked.add(b.number)
        if placed:
            self._place(placed.values())

    def _operand(self, at: int, t: AccessPattern) -> _Operand:
        b = t.buffer
        key = at, t.form, t.dtype, b.kind, b.number in self._walked
        if b.placed:
            key += (self._placing(b), t.offsets)
        found = self._operands.get(key)
        if found is None:
            found = self._operands[key] = self._new_operand(at, t)
        return found

    def _new_operand(self, at: int, t: AccessPattern) -> _Operand:
        b, blocks = t.buffer, 0
        if not b.space.on_chip:
            memory = Memory(b.space)
        else:
            if b.number not in self._walked:
                blocks = b.par_axis
            tiles = 1 if blocks else b.tiles
            memory = Memory(b.space, tiles * b.partition_bytes, b.shape[b.par_axis])
        key = (t.shape, id(t.coefs), t.base_shape, blocks, b.par_axis)
        parts, slots = self._parts.setdefault(key, ({}, {}))
        return at, parts, memory, blocks, slots if b.placed else None

    def _accesses(self, tiles: tuple[AccessPattern, ...], operands: list[_Operand]) -> list[Access]:
        """The accesses of an instruction's operands."""
        known, numbers, places = self.work.memory, self._tiles, self._placing_of
        found = []
        for at, parts, memory, blocks, slots in operands:
            t = tiles[at]
            number, offsets = t.buffer.number, t.offsets
            if slots is not None:
                place = places.get(id(t.buffer.placed))
                if place is None:
                    place = self._placing(t.buffer)
                access = slots.get((place, offsets))
                if access is None:
                    access = slots[place, offsets] = self._slot(t, parts)
                found.append(access)
                continue
            if blocks:
                tile = number, offsets[:blocks]
                number = numbers.get(tile)
                if number is None:
                    number = numbers[tile] = self._next
                    self._next -= 1
                    known[number] = memory
                offsets = offsets[blocks:]
                part = parts.get(offsets)
                if part is None:
                    part = parts[offsets] = _in_first_tile(t, blocks)
            else:
                if number not in known:
                    known[number] = memory
                part = parts.setdefault(offsets, t)
            found.append((number, part))
        return found

    def scratch(self, nbytes: int, space: Space = Space.PSUM, rows: int = PARTITIONS) -> int:
        """A new tile that only the compiler knows."""
        number = self._next
        self._next -= 1
        key = nbytes, id(space), rows
        memory = self._scratch.get(key)
        if memory is None:
            memory = self._scratch[key] = Memory(space, nbytes, rows)
        self.work.memory[number] = memory
        return number

    def reloading(self, form: OperationForm) -> OperationForm:
        """The form of loads like these that the compiler puts in."""
        key = form, "again"
        found = self.forms.get(key)
        if found is None:
            found = self.forms[key] = OperationForm(form.instr, form.reads, form.writes)
            found.reloads = True
        return found

    def another(self, number: int) -> int:
        """A new tile of the size of one that there is."""
        new = self._next
        self._next -= 1
        self.work.memory[new] = self.work.memory[number]
        return new

    def whole_tile(self, t: AccessPattern) -> bool:
        """Whether a view of a tile on chip is all of it, in order."""
        b = t.buffer
        if b.number in self._walked:
            return False
        return (
            t.size * t.itemsize == b.partition_bytes * b.shape[b.par_axis]
            and not any(t.offsets[b.par_axis :])
            and t.strides == c_strides(t.shape)
        )

    # -- tiles placed by hand -------------------------------------------------------------------

    def _place(self, buffers: Iterable[Buffer]) -> None:
        """Tiles that share bytes, one with the next, are in one memory."""
        tiles: dict[tuple[Space, Placed], int] = {}
        for b in buffers:
            for at in b.placed:
                known = tiles.get((b.space, at), 0)
                tiles[b.space, at] = gcd(known, b.dtype.itemsize)
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
            unit = gcd(last - first, *[gcd(at.address - first, tiles[space, at]) for at in members])
            slot = _Slot(number, len(set(members)) == 1, first, unit, (last - first) // unit)
            for at in members:
                self._slots[space, at] = slot

    def _placing(self, b: Buffer) -> int:
        """A number for where the tiles of a buffer are."""
        found = self._placing_of.get(id(b.placed))
        if found is None:
            found = self._placings.setdefault((b.space, b.placed), len(self._placings))
            self._placing_of[id(b.placed)] = found
        return found

    def alone(self, t: AccessPattern) -> bool:
        """Whether a tile shares no memory with others that the kernel places."""
        if not t.buffer.placed:
            return True
        slot, place = self._where(t)
        return slot.alone and place is not None

    def _slot(self, t: AccessPattern, parts: _Parts) -> Access:
        """The memory behind a tile placed by hand, and which part of it `t` is."""
        slot, place = self._where(t)
        if place is None:
            return slot.number, None
        if not slot.alone:
            return slot.number, self._shared_part(t, slot, place)
        blocks = t.buffer.par_axis
        inside = t.offsets[blocks:]
        part = parts.get(inside)
        if part is None:
            part = parts[inside] = _in_first_tile(t, blocks)
        return slot.number, part

    def _where(self, t: AccessPattern) -> tuple[_Slot, Placed | None]:
        """The memory behind the hand-placed tiles of a view, and the tile's place in that memory;
        no place if the view touches several tiles."""
        b = t.buffer
        key = (b.space, self._placing(b), t.offsets[: b.par_axis], t.form)
        found = self._placed.get(key)
        if found is None:
            blocks = b.shape[: b.par_axis]
            places = {
                b.placed[int(np.ravel_multi_index(idx, blocks)) if blocks else 0]
                for idx in _blocks_of(t, blocks, t.offsets[: b.par_axis])
            }
            slot = min(self._slots[b.space, place] for place in places)
            found = self._placed[key] = slot, places.pop() if len(places) == 1 else None
        return found

    def _shared_part(self, t: AccessPattern, slot: _Slot, place: Placed) -> AccessPattern | None:
        """A view of a tile as a view of the memory that the tile shares with others, (partitions,
        units); None where no access pattern describes it."""
        blocks = t.buffer.par_axis
        free = t.base_shape[blocks + 1 :]
        if len(t.base_shape) <= blocks or prod(free) * t.itemsize != place.size:
            return None
        item, rest = divmod(t.itemsize, slot.unit)
        if rest:
            return None
        steps = [n * item for n in c_strides(free)]
        column = [
            sum(row[d] * step for row, step in zip(t.coefs[blocks + 1 :], steps, strict=True))
            for d in range(len(t.shape))
        ]
        walk = Form.of(
            (*t.shape, item), (PARTITIONS, slot.length), ((*t.coefs[blocks], 0), (*column, 1))
        )
        start = (place.address - slot.first) // slot.unit
        start += sum(o * step for o, step in zip(t.offsets[blocks + 1 :], steps, strict=True))
        key = walk, place.start + t.offsets[blocks], start
        part = self._shared.get(key)
        if part is None:
            part = self._shared[key] = t.view_of(walk, key[1:])
        return part


def _look(i: Instruction) -> object:
    """A memo key of an instruction, cheap to compare. Instructions with equal keys have one form,
    unless one of them touches special tiles (`_is_special`)."""
    model, outs = i.model, i.outs
    if model is not None:  # notes are for operands of the same kinds
        return model, i.settings, *[(t.form, t.dtype, t.buffer.kind) for t in outs]
    if i.where is not None or len(i.tiles_in) < len(i.ins):
        return i
    operands = [(t.form, t.dtype, t.buffer.kind) for t in i.ins + outs]
    return i.opcode, id(i.engine), i.engine_asked, i.settings, len(i.ins), *operands


def _is_special(i: Instruction) -> bool:
    """Whether an instruction touches tiles that the kernel places itself, or several tiles of one
    tensor by one view."""
    return any(t.buffer.place is not None or _walks_blocks(t) for t in i.outs + i.tiles_in)


def _walks_blocks(t: AccessPattern) -> bool:
    """Whether a view goes over several tiles of a tensor on chip."""
    b = t.buffer
    return b.space.on_chip and any(map(any, t.coefs[: b.par_axis]))


def _in_first_tile(t: AccessPattern, blocks: int) -> AccessPattern:
    """A view of the first tile of a tensor, in the place where `t` is in its own tile.

    Args:
        t: the view.
        blocks: how many block axes the tensor has.
    """
    if not any(t.offsets[:blocks]):
        return t
    return t.moved(t.buffer, (0,) * blocks + t.offsets[blocks:])


def _blocks_of(t: AccessPattern, blocks: tuple[int, ...], first: tuple[int, ...]) -> list[tuple]:
    """The block indices that a view touches: mostly one."""
    rows = t.coefs[: len(blocks)]
    if not any(any(row) for row in rows):
        return [first]
    ranges = [range(low, high + 1) for low, high in t.bounds()[: len(blocks)]]
    return list(product(*ranges))
