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
from functools import cached_property
from math import prod

import numpy as np

from nkisim.cost import compute
from nkisim.cost.compute import Cost, Operand
from nkisim.cost.dma import Transfer, swapped, swaps_axes, transfer
from nkisim.cost.passes import DMA, sink_fills, without_repeats
from nkisim.cost.storage import Access, Step, Storage
from nkisim.cost.tasks import Costs, Task, Work
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


class _Form:
    """What all copies of an instruction have in common (see Instruction.origin).

    Attributes:
        label: what it does.
        run: the method of the builder that makes its tasks.
        rows: positions of the operands that are one row, broadcast over partitions.
        moved: for DMA, the transfer.
        parts: for an engine, what a task of it is made from, by which operands are in PSUM, as far
            as that may differ.
    """

    __slots__ = ("label", "moved", "parts", "rows", "run")

    def __init__(self, i: Instruction, builder: _Builder) -> None:
        self.label = i.label
        self.moved: Transfer | None = None
        self.parts: dict[tuple[bool, ...], tuple] = {}
        self.rows: list[int] = []
        if i.opcode in DMA:
            self.moved = builder.transfer(i)
            self.run = _Builder._add_swapped if swaps_axes(i) else _Builder._add_dma
        elif i.opcode == "partition_broadcast":
            self.run = _Builder._add_broadcast
        else:
            self.run = _Builder._add_division if _divides(i) else _Builder._add_plain
        if i.engine in _ELEMENTWISE_ENGINES:
            self.rows = [at for at, t in enumerate(i.tiles_in) if t.shape[0] > 1 and _one_row(t)]


class _Builder:
    def __init__(self, machine: Machine, timing: Timing) -> None:
        self.machine = machine
        self.timing = timing
        self.work = Work()
        self.storage = Storage(self.work)
        self._forms: dict[int, _Form] = {}  # by id of the instruction copied from
        self._costs: dict[tuple, tuple] = {}
        self._operands: dict[tuple, Operand] = {}
        self._transfers: dict[tuple, Transfer] = {}
        self._pieces: dict[tuple, list[tuple[int, Costs, Costs]]] = {}  # of broadcast rows
        self._rows: dict[tuple[int, int], tuple] = {}  # (step, operand) -> key of a broadcast row
        self._made: dict[tuple, tuple[int, bool]] = {}  # key -> (number, whether it exists)
        self._copies: set[int] = set()  # across partitions, that stay in PSUM

    def build(self, instructions: Sequence[Instruction]) -> Work:
        steps = self.storage.steps([i for i in instructions if i.engine is not Engine.HOST])
        steps = sink_fills(steps, self.storage, self.work)
        steps = without_repeats(steps, self.storage, self.work)
        forms = [self._form(step.instr) for step in steps]
        if any(form.run is _Builder._add_broadcast for form in forms):
            self._place_copies(steps, forms)
        if any(form.rows for form in forms):
            self._find_rows(steps, forms)
        for at, (step, form) in enumerate(zip(steps, forms, strict=True)):
            form.run(self, at, step, form)
        return self.work

    def _form(self, i: Instruction) -> _Form:
        key = id(i.origin or i)
        found = self._forms.get(key)
        if found is None:
            found = self._forms[key] = _Form(i, self)
        return found

    def transfer(self, i: Instruction) -> Transfer:
        """What a DMA instruction asks of the queues."""
        key = (i.opcode, _pattern(i.outs[0]), *map(_pattern, i.tiles_in))
        found = self._transfers.get(key)
        if found is None:
            found = self._transfers[key] = transfer(i, self.timing.dma)
        return found

    def _find_rows(self, steps: Sequence[Step], forms: Sequence[_Form]) -> None:
        """Rows that are broadcast over partitions: which there are, and where each will be."""
        found: dict[tuple, list[Instruction]] = defaultdict(list)
        version: dict[int, int] = defaultdict(int)
        for at, (step, form) in enumerate(zip(steps, forms, strict=True)):
            for k in form.rows:
                number = step.reads[k][0]
                key = _row_key(number, version[number], step.instr.tiles_in[k])
                found[key].append(step.instr)
                self._rows[at, k] = key
            for number, _ in step.writes:
                version[number] += 1
        for key, readers in found.items():
            shape = key[2]
            n = prod(s for s in shape[1:])
            if self._stays_in_psum(n, readers):
                self.work.choices["broadcast row read from PSUM"] += 1
                self._made[key] = (self.storage.scratch(4 * n), False)
            else:
                self.work.choices["broadcast row copied to SBUF"] += 1
                self._made[key] = (self.storage.scratch(n * key[3].itemsize, Space.SBUF), False)

    def _place_copies(self, steps: Sequence[Step], forms: Sequence[_Form]) -> None:
        """The same for the copies across partitions that the kernel's operators make."""
        readers: dict[int, list[Instruction]] = {
            step.writes[0][0]: []
            for step, form in zip(steps, forms, strict=True)
            if form.run is _Builder._add_broadcast
        }
        for step in steps:
            for number, _ in step.reads:
                if number in readers:
                    readers[number].append(step.instr)
        work = self.work
        for number, found in readers.items():
            n = work.sizes[number] // work.buffers[number].dtype.itemsize
            if self._stays_in_psum(n, found):
                work.choices["broadcast row read from PSUM"] += 1
                work.spaces[number] = Space.PSUM
                work.sizes[number] = 4 * n
                self._copies.add(number)

    def _stays_in_psum(self, n: int, readers: Sequence[Instruction]) -> bool:
        """Whether a row of `n` elements on all partitions is best read from where it was made."""
        at_once = all(r.loops == readers[0].loops for r in readers)
        return 4 * n <= self.machine.psum_bank_bytes and at_once and all(map(_reads_psum, readers))

    # -- tasks ----------------------------------------------------------------------------------

    def _reads(self, at: int, step: Step, form: _Form) -> list[Access]:
        """What an engine instruction reads, once rows are broadcast."""
        if not form.rows:
            return step.reads
        reads = list(step.reads)
        for k in form.rows:
            key = self._rows[at, k]
            made, exists = self._made[key]
            if not exists:
                self._made[key] = (made, True)
                row = step.instr.tiles_in[k]
                self._broadcast(step.instr, row, step.reads[k], (made, None))
            reads[k] = (made, None)
        return reads

    def _add_broadcast(self, at: int, step: Step, form: _Form) -> None:
        self._broadcast(step.instr, step.instr.ins[0], step.reads[0], step.writes[0])

    def _add_dma(self, at: int, step: Step, form: _Form) -> None:
        self._move(step.instr, form.moved, step.reads, step.writes, form.label)

    def _move(
        self,
        i: Instruction,
        moved: Transfer,
        reads: list[Access],
        writes: list[Access],
        label: str,
    ) -> None:
        """A transfer, and the instruction that starts it."""
        trigger = self._indirect_trigger if moved.indirect else self._trigger
        self.work.tasks.append(Task(i, label, trigger, reads, writes, transfer=moved))

    @cached_property
    def _trigger(self) -> Costs:
        ns = self.timing.dma.trigger_ns
        return ((Engine.SYNC, Cost(ns, ns, ns)),)

    @cached_property
    def _indirect_trigger(self) -> Costs:
        ns = self.timing.dma.indirect_ns
        return ((Engine.GPSIMD, Cost(ns, ns, ns)),)

    def _add_swapped(self, at: int, step: Step, form: _Form) -> None:
        """A transposed load or store: 128 columns at a time through the Tensor Engine."""
        i, read, write = step.instr, step.reads[0], step.writes[0]
        self.work.choices[f"{form.label} transposed by the Tensor Engine"] += 1
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
                self._move(i, moved, [flat], [write], form.label)
            else:
                self._move(i, moved, [read], [flat], form.label)
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
        copy = self._copy_costs(before, after)
        self.work.tasks.append(Task(i, "tensor_copy", copy, [made], [write], psum=True))

    def _copy_costs(self, before: Operand, after: Operand) -> Costs:
        """Of a copy that the compiler adds, on Scalar or Vector."""
        return tuple(
            (e, compute.copy(e, before, after, self.timing)) for e in (Engine.SCALAR, Engine.VECTOR)
        )

    def _add_plain(self, at: int, step: Step, form: _Form) -> None:
        reads = self._reads(at, step, form)
        where: tuple[bool, ...] = ()
        if form.rows or self._copies:
            spaces = self.work.spaces
            where = tuple([spaces[number] is Space.PSUM for number, _ in reads])
        parts = form.parts.get(where)
        if parts is None:
            parts = form.parts[where] = self._parts(step, reads)
        costs, accumulates, table, flops, psum = parts
        self.work.tasks.append(
            Task(step.instr, form.label, costs, reads, step.writes, None, accumulates, table,
                 flops, psum)
        )  # fmt: skip

    def _parts(self, step: Step, reads: list[Access]) -> tuple:
        """Of an instruction on an engine: costs, accumulates, table, flops and psum of its task."""
        i = step.instr
        spaces, operand = self.work.spaces, self._operand
        ins = tuple([operand(t, spaces[n]) for (n, _), t in zip(reads, i.tiles_in, strict=True)])
        outs = tuple([operand(t, spaces[n]) for (n, _), t in zip(step.writes, i.outs, strict=True)])
        # Operands are kept, so they may be told apart by identity, which is quick.
        key = (i.opcode, id(i.engine), i.engine_asked, *map(id, ins), *map(id, outs), _kind(i))
        found = self._costs.get(key)
        if found is None:
            accumulates = i.opcode == "nc_matmul" and bool(i.attrs.get("accumulate"))
            costs, flops, psum = self._engines(i, ins, outs)
            found = self._costs[key] = (costs, accumulates, _table(i), flops, psum)
        return found

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

    def _broadcast(self, i: Instruction, row: Tensor, read: Access, write: Access) -> None:
        """A row times a column of ones, a PSUM bank at a time."""
        key = (row.shape, id(row.coefs), row.dtype)
        pieces = self._pieces.get(key)
        if pieces is None:
            pieces = self._pieces[key] = self._broadcast_pieces(row)
        resident = self.work.spaces[write[0]] is Space.PSUM
        for columns, product, copy in pieces:
            made = write if resident else (self.storage.scratch(4 * columns), None)
            self.work.tasks.append(
                Task(i, "partition_broadcast", product, [read], [made], psum=True)
            )
            if not resident:
                self.work.tasks.append(Task(i, "tensor_copy", copy, [made], [write], psum=True))

    def _broadcast_pieces(self, row: Tensor) -> list[tuple[int, Costs, Costs]]:
        """For each PSUM bank of a broadcast row: its columns, and the costs of the product and of
        the copy to SBUF."""
        fmax, rows = self.machine.psum_fmax, row.shape[0]
        columns = prod(n for d, n in enumerate(row.shape[1:], 1) if any(c[d] for c in row.coefs))
        passes = self.timing.tensor.fp32_passes if row.dtype == F32 else 1
        pieces = []
        for start in range(0, columns, fmax):
            n = min(fmax, columns - start)
            product = ((Engine.TENSOR, compute.passes_cost(n, passes, self.timing)),)
            before = Operand(n, rows, F32, Space.PSUM, 4)
            after = Operand(n, rows, row.dtype, Space.SBUF, row.itemsize)
            pieces.append((n, product, self._copy_costs(before, after)))
        return pieces

    def _add_division(self, at: int, step: Step, form: _Form) -> None:
        """x / y as x * (1 / y)."""
        timing, i = self.timing, step.instr
        number, y = step.reads[-1]
        lanes = self._operand(i.tiles_in[-1], self.work.spaces[number])
        one = lanes if lanes.stride else lanes._replace(n=1)  # one element a lane
        inverse = self.storage.scratch(one.n * 4, Space.SBUF)
        engine = Engine.SCALAR if one.n >= _TABLE_PAYS else Engine.VECTOR
        result = Operand(one.n, one.rows, F32, Space.SBUF, 4 if one.n > 1 else 0)
        cycles = compute.reciprocal(engine, one, result, timing)
        self.work.tasks.append(
            Task(i, "reciprocal", ((engine, cycles),), [(number, y)], [(inverse, None)])
        )
        self.work.choices["divide lowered to reciprocal and multiply"] += 1
        self._add_plain(at, step, form)
        task = self.work.tasks[-1]
        task.label = "multiply by reciprocal"
        task.reads = [*task.reads[:-1], (inverse, None)]


def _row_key(number: int, version: int, t: Tensor) -> tuple:
    """The same for operands that are the same row."""
    # Free axes of stride zero are not part of the row.
    shape = tuple(
        n if d == 0 or any(row[d] for row in t.coefs) else 1 for d, n in enumerate(t.shape)
    )
    return (number, version, shape, t.dtype, t.offsets, id(t.coefs))


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
