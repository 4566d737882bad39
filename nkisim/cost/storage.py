"""Memory by number: each HBM tensor and each tile on chip is one thing to wait for.

A tensor with block axes is many tiles. Each has a life of its own: it takes memory from its first
use to its last, as the compiler gives it. Tiles that the kernel places by hand share memory where
their addresses do.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple

import numpy as np

from nkisim.cost.tasks import Work
from nkisim.instruction import Instruction
from nkisim.memory import Buffer, Placed, Space, block_of, c_strides
from nkisim.tensor import Tensor

# What a task touches: a number, and which part of it; None for all of it.
Access = tuple[int, Tensor | None]


class Step(NamedTuple):
    """An instruction, and what it reads and writes by number, in the order of its operands."""

    instr: Instruction
    reads: list[Access]
    writes: list[Access]


class Storage:
    """Numbers of what the tensors of a program are kept in.

    Buffers keep their numbers in the program; tiles of blocked buffers, memory shared by placed
    tiles, and what only the compiler knows get negative ones.
    """

    def __init__(self, work: Work) -> None:
        self.work = work
        self._tiles: dict[tuple[int, int], int] = {}  # (blocked buffer, block) -> number
        self._walked: set[int] = set()  # blocked buffers with a view of several tiles
        self._slots: dict[tuple[Space, Placed], tuple[int, bool]] = {}
        self._next = -1

    def steps(self, instrs: Sequence[Instruction]) -> list[Step]:
        """Number what `instrs` touch. To be called once, before anything else."""
        buffers: dict[int, Buffer] = {}
        for i in instrs:
            for t in i.outs + i.tiles_in:
                b = t.buffer
                buffers[b.number] = b
                if b.par_axis and b.space.on_chip and any(map(any, t.coefs[: b.par_axis])):
                    self._walked.add(b.number)
        work = self.work
        for number, b in buffers.items():
            work.buffers[number] = b
            work.spaces[number] = b.space
            if b.space.on_chip and not b.placed and not self._blocked(b):
                work.sizes[number] = b.tiles * b.partition_bytes
        if any(b.placed for b in buffers.values()):
            self._place(buffers.values())
        access = self.access
        plain = {n for n, b in buffers.items() if not b.placed and not b.par_axis}
        return [
            Step(
                i,
                [(n, t) if (n := t.buffer.number) in plain else access(t) for t in i.tiles_in],
                [(n, t) if (n := t.buffer.number) in plain else access(t) for t in i.outs],
            )
            for i in instrs
        ]

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
        number = b.number
        if b.placed:
            return self._slot(t)
        if b.par_axis and b.space.on_chip and number not in self._walked:
            number = self._tile(b, block_of(t))
        return number, t

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

    def _tile(self, b: Buffer, block: int) -> int:
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
        zero = (0,) * len(blocks) + t.offsets[b.par_axis :]
        return number, t.view_as(t.shape, zero, t.coefs)


def _blocks_of(t: Tensor, blocks: tuple[int, ...], first: tuple[int, ...]) -> list[tuple]:
    """The block indices that a view touches: mostly one."""
    rows = t.coefs[: len(blocks)]
    if not any(any(row) for row in rows):
        return [first]
    ranges = [range(low, high + 1) for low, high in t.bounds()[: len(blocks)]]
    return list(product(*ranges))
