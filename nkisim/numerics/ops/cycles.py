"""Costs of opcodes: cycle formulas over its operands, each beside the function that computes
it.

The formulas are those of the `nki.isa` docstrings (SDK 2.26), with the constants of
`nkisim.machine.timing`. `nkisim.cost.compute` makes times of them. N is the number of elements a
partition.
"""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space
from nkisim.machine.timing import Timing


class TileOperand(NamedTuple):
    """The properties of a tile that cycle formulas use."""

    n: int  # elements a partition
    rows: int
    dtype: object
    space: Space
    stride: int  # bytes between neighbours on the innermost free axis; 0 when there is one element


Tiles = tuple[TileOperand, ...]


class OnEngine(NamedTuple):
    """An instruction on one of the engines that can run it, which is what a formula is given.

    Attributes:
        instr: the instruction.
        engine: the engine.
        ins, outs: its tiles.
        timing: the table of the generation.
    """

    instr: Instruction
    engine: Engine
    ins: Tiles
    outs: Tiles
    timing: Timing


def tile_operand(t: AccessPattern, space: Space) -> TileOperand:
    """A tile, in the memory that the compiler chose for it."""
    stride = 0
    for d in range(t.ndim - 1, 0, -1):
        if t.shape[d] > 1:
            stride = abs(t.strides[d]) * t.itemsize
            break
    return TileOperand(prod(t.shape[1:]), t.shape[0], t.dtype, space, stride)


class Cycles(NamedTuple):
    """An instruction on the Vector, Scalar or GpSimd Engine.

    Attributes:
        each: cycles an element.
        extra: cycles beyond those of all instructions of the engine.
        n: elements a partition that it goes over; None for those of its longest operand.
        fast: elements a cycle in Vector's performance mode, where the operands allow that; None for
            an opcode without one.
        table: whether Scalar runs at the rate of functions that are in a table.
    """

    each: float
    extra: float = 0.0
    n: int | None = None
    fast: int | None = 1
    table: bool = False


class Passes(NamedTuple):
    """An instruction on the Tensor Engine: how often how many columns move through the array."""

    columns: int
    passes: int


class Fixed(NamedTuple):
    """The time of an instruction that does not depend on its operands, in nanoseconds."""

    ns: float


def one_cycle(on: OnEngine) -> Cycles:
    """One cycle an element: published for the opcode, or the best guess where nothing is."""
    return Cycles(1.0)


def semaphore(on: OnEngine) -> Fixed:
    """The time of a semaphore: what instances wait for each other otherwise, the schedule knows."""
    return Fixed(on.timing.semaphore_ns)


def no_time(on: OnEngine) -> Fixed:
    """Nothing: the simulator does it, and no engine."""
    return Fixed(0.0)


def with_accumulator(on: OnEngine) -> Cycles:
    """One cycle an element, and an accumulator that is read out."""
    return Cycles(1.0, on.timing.accumulator_cycles)


def one_after_the_other(timing: Timing, fast: int = 1) -> Cycles:
    """Two operands that are read in turn: both the elements and the access cost twice."""
    extra = (timing.two_input_cycles - 1) * timing.vector.issue_cycles
    return Cycles(timing.two_input_cycles, extra, fast=fast)


def fast_copy(ins: Tiles, outs: Tiles, of_fp32: bool = False) -> int:
    """Elements that a lane of Vector takes a cycle in performance mode, of one tile.

    Trainium2 architecture guide: of 16-bit types copies and tensor_scalar take four from SBUF to
    SBUF, two where elements are apart or one side is in PSUM; tensor_tensor two, all in SBUF. In
    profiles on trn2 (see nkisim.machine.timing) tensor_scalar takes two of fp32 in SBUF, too.
    """
    sizes, in_psum, dense = _layout(ins, outs)
    if sizes == {2}:
        if not in_psum:
            return 4 if dense else 2
        return 2 if in_psum == 1 and dense else 1
    return 2 if of_fp32 and sizes == {4} and not in_psum and dense else 1


def fast_pair(ins: Tiles, outs: Tiles) -> int:
    """Elements of two tiles that a lane of Vector takes a cycle in performance mode
    (`fast_copy`)."""
    sizes, in_psum, _ = _layout(ins, outs)
    return 2 if sizes == {2} and not in_psum else 1


def _layout(ins: Tiles, outs: Tiles) -> tuple[set[int], int, bool]:
    """The layout of tiles: sizes of elements, how many tiles are in PSUM, whether all are
    contiguous."""
    tiles = [o for o in (*ins, *outs) if o.stride]  # the others are one element a lane
    sizes = {np.dtype(o.dtype).itemsize for o in tiles}
    in_psum = sum(o.space is Space.PSUM for o in tiles)
    return sizes, in_psum, all(o.stride == np.dtype(o.dtype).itemsize for o in tiles)
