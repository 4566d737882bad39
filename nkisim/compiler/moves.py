"""What the compiler adds to have data where an instruction can read them: transfers, transposes and
copies of rows through the Tensor Engine, and copies out of PSUM."""

from __future__ import annotations

from math import prod
from typing import NamedTuple

import numpy as np

from nkisim.cost import compute
from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer, swapped
from nkisim.cost.tasks import Kind
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.numerics.ops.cycles import TileOperand

_SPREAD_BANKS = 4  # [I] PSUM banks that a row goes through to SBUF; the others are left to matmuls


class Piece(NamedTuple):
    """Some columns of a transposed load or store.

    Attributes:
        rows: partitions before the transpose.
        moving: the transfer.
        transpose: through the Tensor Engine.
        copy: of the result, from PSUM to SBUF.
    """

    rows: int
    moving: Kind
    transpose: Kind
    copy: Kind


class Spread(NamedTuple):
    """The broadcast of a row over partitions.

    Attributes:
        product: by the Tensor Engine.
        copy: of the result, from PSUM to SBUF.
        nbytes: of PSUM that it goes through, a partition.
    """

    product: Kind
    copy: Kind
    nbytes: int


def moving(
    label: str,
    moved: Transfer,
    timing: Timing,
    again: bool = False,
    descriptors: str = "",
    starts: Engine = Engine.SYNC,
) -> Kind:
    """A transfer, and the instruction that starts it.

    Args:
        label: of the transfer.
        moved: what moves.
        timing: the table.
        again: whether the compiler loads again what it had no room to keep.
        descriptors: who generates them, as a member of `nisa.dge_mode`: "hwdge", "swdge" or "none",
            where the kernel says so.
        starts: the engine that starts it, unless GpSimd generates descriptors.
    """
    dma = timing.dma
    engine, ns = starts, dma.spill_trigger_ns if again else dma.trigger_ns
    if moved.indirect:
        engine, ns = Engine.GPSIMD, dma.indirect_ns
    elif descriptors == "swdge":
        engine, ns = Engine.GPSIMD, dma.software_ns
    elif descriptors == "none":
        ns = dma.static_trigger_ns
        moved = moved._replace(later_ns=dma.static_start_ns - dma.start_ns)
    return Kind(label, ((engine, Cost(ns, ns, 0.0)),), moved, again=again)


def copying(
    before: TileOperand, after: TileOperand, timing: Timing, label: str = "tensor_copy"
) -> Kind:
    """A copy on Scalar or Vector that is not in the kernel."""
    costs = tuple(
        (e, compute.copy(e, before, after, timing)) for e in (Engine.SCALAR, Engine.VECTOR)
    )
    return Kind(label, costs, psum=True)


def pieces(i: Instruction, machine: Machine, timing: Timing) -> list[Piece]:
    """The pieces of a transposed load or store."""
    out, source = i.outs[0], i.ins[-1]
    rows, columns = out.shape[0], out.size // out.shape[0]
    found = []
    for start in range(0, columns, machine.partitions):
        n = min(machine.partitions, columns - start)
        transfer = moving(i.label, swapped(i, n, timing.dma), timing)
        shape = (rows, n) if source.space.on_chip else (n, rows)
        found.append(Piece(shape[0], transfer, *_transposing(shape, source.dtype, timing)))
    return found


def _transposing(shape: tuple[int, int], dtype: np.dtype, timing: Timing) -> tuple[Kind, Kind]:
    """(partitions, columns) of `dtype` through the Tensor Engine, and from PSUM to SBUF."""
    rows, columns = shape
    pe = timing.tensor
    passes = pe.transpose_passes if dtype == F32 else 1
    product = compute.passes_cost(max(rows, min(pe.min_columns, columns)), passes, timing)
    before = TileOperand(rows, columns, F32, Space.PSUM, 4)
    after = TileOperand(rows, columns, dtype, Space.SBUF, dtype.itemsize)
    transpose = Kind("transpose", ((Engine.TENSOR, product),), psum=True)
    return transpose, copying(before, after, timing)


def is_spread(t: AccessPattern) -> bool:
    """Whether all partitions of a view, more than one, are the same row of a tile on chip."""
    return t.shape[0] > 1 and t.space.on_chip and not any(t.coefs[t.buffer.par_axis])


def spread(row: AccessPattern, machine: Machine, timing: Timing) -> Spread:
    """The broadcast of a row: as many products and copies as the row takes PSUM banks."""
    fmax, rows = machine.psum_fmax, row.shape[0]
    columns = prod(n for d, n in enumerate(row.shape[1:], 1) if any(c[d] for c in row.coefs))
    passes = timing.tensor.fp32_passes if row.dtype == F32 else 1
    banks = [min(fmax, columns - start) for start in range(0, columns, fmax)]
    products = [compute.passes_cost(n, passes, timing) for n in banks]
    copies = [
        copying(
            TileOperand(n, rows, F32, Space.PSUM, 4),
            TileOperand(n, rows, row.dtype, Space.SBUF, row.itemsize),
            timing,
        )
        for n in banks
    ]
    costs = tuple(
        (engine, compute.in_a_row([copy.costs[at][1] for copy in copies]))
        for at, (engine, _) in enumerate(copies[0].costs)
    )
    quickest = [min(cost.busy for _, cost in copy.costs) for copy in copies]
    product = ((Engine.TENSOR, compute.feeding(products, quickest)),)
    return Spread(
        Kind("partition_broadcast", product, psum=True, instructions=len(banks)),
        Kind(copies[0].label, costs, psum=True, instructions=len(banks)),
        min(4 * columns, _SPREAD_BANKS * machine.psum_bank_bytes),
    )


def to_sbuf(nbytes: int, rows: int, timing: Timing, label: str) -> Kind:
    """A copy of a whole tile of fp32, of so many bytes a partition, from PSUM to SBUF."""
    n = nbytes // F32.itemsize
    before, after = (TileOperand(n, rows, F32, s, F32.itemsize) for s in (Space.PSUM, Space.SBUF))
    return copying(before, after, timing, label)
