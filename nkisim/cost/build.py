"""From a trace to tasks: what the compiler leaves of the instructions, and where it runs them.

A kernel's text leaves choices to the compiler. Those about whole instructions are made in
`nkisim.cost.passes`; these are made here, once, for every kernel:

* a row that is broadcast over partitions is made by the Tensor Engine, and stays in PSUM when it
  fits a bank and is used at once by Vector or Scalar; otherwise it is copied to SBUF;
* `divide` is a reciprocal and a product;
* a load or store that swaps the axes of a tile, which DMA would do element by element, is
  transposed by the Tensor Engine, and goes in long runs;
* unless the kernel asks for an engine: copies and products or sums with a scalar run on Vector or
  Scalar, fills on GpSimd or Vector, whichever has less to do in all; a long reciprocal on Scalar.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import prod

import numpy as np

from nkisim.cost import compute
from nkisim.cost.compute import Cost, Operand
from nkisim.cost.dma import Transfer, swapped, swaps_axes, transfer
from nkisim.cost.passes import DMA, sink_fills, without_repeats
from nkisim.cost.storage import Access, Storage
from nkisim.cost.tasks import Task, Work
from nkisim.dtypes import F32
from nkisim.instruction import Engine, Instruction
from nkisim.machine import Machine
from nkisim.memory import Space
from nkisim.tensor import Tensor
from nkisim.timing import Timing

# tensor_scalar operators that Scalar has too, as the scale and bias of a copy.
_AFFINE = frozenset({"multiply", "add", "subtract", "multiply, add", "multiply, subtract"})

_TABLE_PAYS = 64  # [I] elements from which a reciprocal is quicker on Scalar

_ELEMENTWISE_ENGINES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def work_of(instructions: Sequence[Instruction], machine: Machine, timing: Timing) -> Work:
    """The tasks that run `instructions` of one core."""
    return _Builder(machine, timing).build(instructions)


class _Builder:
    def __init__(self, machine: Machine, timing: Timing) -> None:
        self.machine = machine
        self.timing = timing
        self.work = Work()
        self.storage = Storage(self.work)
        self._costs: dict[tuple, tuple] = {}
        self._operands: dict[tuple, Operand] = {}
        self._transfers: dict[tuple, tuple[Transfer, bool]] = {}  # and whether it swaps axes
        self._rows: dict[int, tuple] = {}  # id of an operand -> key of its broadcast row
        self._made: dict[tuple, tuple[int, bool]] = {}  # key -> (number, whether it exists)

    def build(self, instructions: Sequence[Instruction]) -> Work:
        kept = [i for i in instructions if i.engine is not Engine.HOST]
        self.storage.declare(kept)
        kept = sink_fills(kept, self.storage, self.work)
        kept = without_repeats(kept, self.storage, self.work)
        self._find_rows(kept)
        for instr in kept:
            self._add(instr)
        return self.work

    def _find_rows(self, instrs: Sequence[Instruction]) -> None:
        """Rows that are broadcast over partitions: which there are, and where each will be."""
        found: dict[tuple, list[Instruction]] = defaultdict(list)
        version: dict[int, int] = defaultdict(int)
        for i in instrs:
            if i.engine in _ELEMENTWISE_ENGINES:
                for t in i.tiles_in:
                    if t.shape[0] > 1 and _one_row(t):
                        key = self._row_key(t, version)
                        found[key].append(i)
                        self._rows[id(t)] = key
            for t in i.outs:
                version[self.storage.number(t)] += 1
        bank = self.machine.psum_bank_bytes
        for key, readers in found.items():
            shape = key[2]
            n = prod(s for s in shape[1:])
            at_once = all(r.loops == readers[0].loops for r in readers)
            gains = all(_reads_psum(r) for r in readers)
            if 4 * n <= bank and at_once and gains:
                self.work.choices["broadcast row read from PSUM"] += 1
                self._made[key] = (self.storage.scratch(4 * n), False)
            else:
                self.work.choices["broadcast row copied to SBUF"] += 1
                self._made[key] = (self.storage.scratch(n * key[3].itemsize, Space.SBUF), False)

    def _row_key(self, t: Tensor, version: dict[int, int]) -> tuple:
        number = self.storage.number(t)
        # Free axes of stride zero are not part of the row.
        shape = tuple(
            n if d == 0 or any(row[d] for row in t.coefs) else 1 for d, n in enumerate(t.shape)
        )
        return (number, version[number], shape, t.dtype, t.offsets, id(t.coefs))

    # -- tasks ----------------------------------------------------------------------------------

    def _add(self, i: Instruction) -> None:
        if i.opcode in DMA:
            self._add_dma(i)
        elif i.opcode == "partition_broadcast":
            number, _ = self.storage.access(i.outs[0])
            self._broadcast(i, i.ins[0], number, i.outs[0])
        elif _divides(i):
            self._add_division(i)
        else:
            self._add_plain(i)

    def _reads(self, i: Instruction) -> list[Access]:
        """What an engine instruction reads, once rows are broadcast."""
        reads = self.storage.accesses(i.tiles_in)
        if not self._rows:
            return reads
        for at, t in enumerate(i.tiles_in):
            key = self._rows.get(id(t))
            if key is None:
                continue
            made, exists = self._made[key]
            if not exists:
                self._made[key] = (made, True)
                self._broadcast(i, t, made, None)
            reads[at] = (made, None)
        return reads

    def _add_dma(self, i: Instruction) -> None:
        key = (i.opcode, _pattern(i.outs[0]), *map(_pattern, i.tiles_in))
        found = self._transfers.get(key)
        if found is None:
            found = self._transfers[key] = transfer(i, self.timing.dma), swaps_axes(i)
        moved, swaps = found
        reads, writes = self.storage.accesses(i.tiles_in), self.storage.accesses(i.outs)
        if swaps:
            self._add_swapped(i, reads[0], writes[0])
        else:
            self._move(i, moved, reads, writes)

    def _move(
        self, i: Instruction, moved: Transfer, reads: list[Access], writes: list[Access]
    ) -> None:
        """A transfer, and the instruction that starts it."""
        dma = self.timing.dma
        queue, ns = Engine.SYNC, dma.trigger_ns
        if moved.indirect:
            queue, ns = Engine.GPSIMD, dma.indirect_ns
        trigger = ((queue, Cost(ns, ns, ns)),)
        self.work.tasks.append(Task(i, i.label, trigger, reads, writes, transfer=moved))

    def _add_swapped(self, i: Instruction, read: Access, write: Access) -> None:
        """A transposed load or store: 128 columns at a time through the Tensor Engine."""
        self.work.choices[f"{i.label} transposed by the Tensor Engine"] += 1
        out, source = i.outs[0], i.ins[-1]
        rows, columns = out.shape[0], out.size // out.shape[0]
        stores = source.space.on_chip
        dtype = source.dtype
        for start in range(0, columns, self.machine.partitions):
            n = min(self.machine.partitions, columns - start)
            moved = swapped(i, n, self.timing.dma)
            flat = (self.storage.scratch(rows * dtype.itemsize, Space.SBUF), None)
            if stores:
                self._transpose(i, read, flat, (rows, n), dtype)
                self._move(i, moved, [flat], [write])
            else:
                self._move(i, moved, [read], [flat])
                self._transpose(i, flat, write, (n, rows), dtype)

    def _transpose(
        self, i: Instruction, read: Access, write: Access, shape: tuple[int, int], dtype: np.dtype
    ) -> None:
        """(partitions, columns) of `dtype` through the Tensor Engine, and from PSUM to SBUF."""
        rows, columns = shape
        pe = self.timing.tensor
        passes = pe.fp32_passes if dtype == F32 else 1
        product = compute.passes_cost(max(rows, min(pe.min_columns, columns)), passes, self.timing)
        made = (self.storage.scratch(4 * rows), None)
        self.work.tasks.append(
            Task(i, "transpose", ((Engine.TENSOR, product),), [read], [made], psum=True)
        )
        before = Operand(rows, columns, F32, Space.PSUM, 4)
        after = Operand(rows, columns, dtype, Space.SBUF, dtype.itemsize)
        self._copy(i, before, after, made, write)

    def _copy(
        self, i: Instruction, before: Operand, after: Operand, read: Access, write: Access
    ) -> None:
        """A copy that the compiler adds, on Scalar or Vector."""
        costs = tuple(
            (e, compute.cost(i, e, (before,), (after,), self.timing, "tensor_copy"))
            for e in (Engine.SCALAR, Engine.VECTOR)
        )
        self.work.tasks.append(Task(i, "tensor_copy", costs, [read], [write], psum=True))

    def _add_plain(self, i: Instruction, label: str = "") -> None:
        reads, writes = self._reads(i), self.storage.accesses(i.outs)
        spaces, operand = self.work.spaces, self._operand
        ins = tuple([operand(t, spaces[n]) for (n, _), t in zip(reads, i.tiles_in, strict=True)])
        outs = tuple([operand(t, spaces[n]) for (n, _), t in zip(writes, i.outs, strict=True)])
        # Operands are kept, so they may be told apart by identity, which is quick.
        key = (i.opcode, id(i.engine), i.engine_asked, *map(id, ins), *map(id, outs), _kind(i))
        found = self._costs.get(key)
        if found is None:
            accumulates = i.opcode == "nc_matmul" and bool(i.attrs.get("accumulate"))
            costs, flops, psum = self._engines(i, ins, outs)
            found = self._costs[key] = (costs, i.label, accumulates, _table(i), flops, psum)
        costs, name, accumulates, table, flops, psum = found
        self.work.tasks.append(
            Task(i, label or name, costs, reads, writes, None, accumulates, table, flops, psum)
        )

    def _engines(self, i: Instruction, ins: tuple, outs: tuple) -> tuple:
        timing = self.timing
        psum = any(o.space is Space.PSUM for o in (*ins, *outs))
        if i.engine is Engine.TENSOR:
            only = compute.tensor_cost(i, ins, outs[0], timing)
            flops = 0
            if i.opcode == "nc_matmul":
                rows = i.attrs.get("rows", 1)
                flops = 2 * ins[0].rows * rows * ins[0].n // rows * (ins[1].n // rows)
            return ((Engine.TENSOR, only),), flops, psum
        if i.engine in (Engine.SYNC, Engine.DMA):
            ns = timing.semaphore_ns
            return ((Engine.SYNC, Cost(ns, ns, 0.0)),), 0, psum
        engines = self._choices(i, max(o.n for o in (*ins, *outs)), psum)
        costs = tuple((e, compute.cost(i, e, ins, outs, timing)) for e in engines)
        return costs, max(o.n * o.rows for o in (*ins, *outs)), psum

    def _choices(self, i: Instruction, n: int, psum: bool) -> tuple[Engine, ...]:
        """The engines that may run an instruction; the one that the kernel asked for, if it did."""
        engine = i.engine
        if i.engine_asked or engine is not Engine.VECTOR:
            return (engine,)
        if i.opcode == "memset":
            return (Engine.VECTOR,) if psum else (Engine.GPSIMD, Engine.VECTOR)
        if i.opcode == "reciprocal":
            return (Engine.SCALAR,) if n >= _TABLE_PAYS else (engine,)
        if i.opcode == "tensor_copy" or (i.opcode == "tensor_scalar" and _is_affine(i)):
            return (Engine.VECTOR, Engine.SCALAR)
        return (engine,)

    def _operand(self, t: Tensor, space: Space) -> Operand:
        key = (t.shape, id(t.coefs), t.base_shape, t.dtype, id(space))
        found = self._operands.get(key)
        if found is None:
            found = self._operands[key] = compute.operand(t, space)
        return found

    def _broadcast(self, i: Instruction, row: Tensor, number: int, out: Tensor | None) -> None:
        """A row times a column of ones, a PSUM bank at a time, into buffer `number`."""
        timing, machine = self.timing, self.machine
        rows = row.shape[0]
        columns = prod(n for d, n in enumerate(row.shape[1:], 1) if any(c[d] for c in row.coefs))
        resident = self.work.spaces[number] is Space.PSUM
        passes = timing.tensor.fp32_passes if row.dtype == F32 else 1
        for start in range(0, columns, machine.psum_fmax):
            n = min(machine.psum_fmax, columns - start)
            made = number if resident else self.storage.scratch(4 * n)
            product = compute.passes_cost(n, passes, timing)
            self.work.tasks.append(
                Task(
                    i,
                    "partition_broadcast",
                    ((Engine.TENSOR, product),),
                    [self.storage.access(row)],
                    [(made, None)],
                    psum=True,
                )
            )
            if resident:
                continue
            before = Operand(n, rows, F32, Space.PSUM, 4)
            after = Operand(n, rows, row.dtype, Space.SBUF, row.itemsize)
            self._copy(i, before, after, (made, None), (number, out))

    def _add_division(self, i: Instruction) -> None:
        """x / y as x * (1 / y)."""
        timing = self.timing
        number, y = self.storage.access(i.ins[1])
        lanes = self._operand(y, self.work.spaces[number])
        one = lanes if lanes.stride else lanes._replace(n=1)  # one element a lane
        inverse = self.storage.scratch(one.n * 4, Space.SBUF)
        engine = Engine.SCALAR if one.n >= _TABLE_PAYS else Engine.VECTOR
        result = Operand(one.n, one.rows, F32, Space.SBUF, 4 if one.n > 1 else 0)
        cycles = compute.reciprocal(engine, one, result, timing)
        self.work.tasks.append(
            Task(i, "reciprocal", ((engine, cycles),), [(number, y)], [(inverse, None)])
        )
        self.work.choices["divide lowered to reciprocal and multiply"] += 1
        self._add_plain(i, "multiply by reciprocal")
        task = self.work.tasks[-1]
        task.reads[-1] = (inverse, None)


def _pattern(t: Tensor) -> tuple:
    """What the time of a transfer depends on: all of an access pattern but where it starts."""
    b = t.buffer
    # Hashing an enum's member is slow; its identity is not.
    return t.shape, id(t.coefs), t.base_shape, t.dtype, id(b.space), b.par_axis


def _reads_psum(reader: Instruction) -> bool:
    """Whether an instruction can take one more operand from PSUM."""
    return reader.engine in (Engine.VECTOR, Engine.SCALAR) and not any(
        t.space is Space.PSUM for t in reader.tiles_in
    )


def _one_row(t: Tensor) -> bool:
    """Whether all partitions of an on-chip view are one and the same row."""
    return t.space.on_chip and not any(t.coefs[t.buffer.par_axis])


def _divides(i: Instruction) -> bool:
    return (
        i.attrs.get("op") == "divide"
        and len(i.ins) == 2
        and isinstance(i.ins[1], Tensor)
        and i.engine is Engine.VECTOR
    )


def _is_affine(i: Instruction) -> bool:
    """Whether a tensor_scalar is `scale * x + bias` of floats, which Scalar computes too."""
    return i.attrs.get("op") in _AFFINE and not any(
        t.dtype.kind in "iub" for t in (*i.outs, *i.tiles_in)
    )


def _kind(i: Instruction) -> object:
    """What of an instruction's attributes its time or its name depends on."""
    attrs = i.attrs
    if not attrs:
        return None
    op = attrs.get("op")
    if len(attrs) == 1 and op:
        return op
    get = attrs.get
    zero = get("value") == 0
    return op, get("steps"), zero, get("num_elem_per_idx"), get("rows"), get("accumulate")


# Functions that every table of the Scalar Engine has, or that need none.
_NO_TABLE = frozenset({"copy", "square", "relu", "abs", "sign", "negative", "add", "multiply"})


def _table(i: Instruction) -> str:
    if i.engine is not Engine.SCALAR or not i.opcode.startswith("activation"):
        return ""
    op = i.attrs.get("op", "copy")
    return "" if op in _NO_TABLE else op
