"""From a trace to tasks: what the compiler leaves of the instructions, and where it runs them.

A kernel's text leaves choices to the compiler. These are made here, once, for every kernel:

* zeroing a PSUM tile that a matmul then accumulates into costs nothing (the first matmul
  overwrites);
* a computation that an iteration repeats on the same inputs as the one before is done once, and
  so is a load that an innermost loop repeats;
* a row that is broadcast over partitions is made by the Tensor Engine, and stays in PSUM when it
  fits a bank and is used at once by Vector or Scalar; otherwise it is copied to SBUF;
* `divide` is a reciprocal and a product;
* copies, fills and reciprocals run on whichever engine that can do them is free first, unless
  the kernel asks for one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import product
from math import prod

import numpy as np

from nkisim.cost import compute
from nkisim.cost.compute import Cost, Operand
from nkisim.cost.dma import Transfer, transfer
from nkisim.dtypes import F32
from nkisim.instruction import Engine, Instruction
from nkisim.machine import Machine
from nkisim.memory import Buffer, Placed, Role, Space
from nkisim.tensor import Tensor
from nkisim.timing import Timing

# An iteration's result is kept for the next one when it takes at most this much of a partition.
_KEEP_BYTES = 32 * 1024

_NEVER_SHARED = frozenset({"nc_matmul", "nc_transpose", "memset", "rand", "random_seed", "dropout"})

_DMA = frozenset(
    {"dma_copy", "dma_transpose", "dma_gather", "dma_scatter", "dma_scatter_add", "dma_accumulate"}
)


_ELEMENTWISE_ENGINES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


class Task:
    """One thing that an engine or the DMA queues do.

    Attributes:
        instr: the instruction that it comes from.
        label: what it does.
        costs: for each engine that may run it, its cost; the first is preferred.
        reads, writes: (buffer number, access pattern or None for the whole buffer).
        transfer: for DMA, what moves.
        accumulates: a matmul that adds to what the one before left in PSUM.
        table: for Scalar, the activation function whose table must be loaded.
        flops: operations that count for the roofline.
        psum: whether it reads or writes PSUM.
    """

    __slots__ = (
        "accumulates",
        "costs",
        "flops",
        "instr",
        "label",
        "psum",
        "reads",
        "table",
        "transfer",
        "writes",
    )

    def __init__(
        self,
        instr: Instruction,
        label: str,
        costs: tuple[tuple[Engine, Cost], ...],
        reads: list,
        writes: list,
        *,
        transfer: Transfer | None = None,
        accumulates: bool = False,
        table: str = "",
        flops: int = 0,
        psum: bool = False,
    ) -> None:
        self.instr = instr
        self.label = label
        self.costs = costs
        self.reads = reads
        self.writes = writes
        self.transfer = transfer
        self.accumulates = accumulates
        self.table = table
        self.flops = flops
        self.psum = psum


@dataclass
class Work:
    """The tasks of one NeuronCore, in program order.

    Attributes:
        tasks: the tasks.
        sizes: buffer number -> bytes a partition, of on-chip buffers.
        spaces: buffer number -> the memory that it is in after the compiler's choices.
        choices: what the compiler was assumed to do, in words -> how often.
        buffers: buffer number -> the buffer, for names.
    """

    tasks: list[Task] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    spaces: dict[int, Space] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    buffers: dict[int, Buffer] = field(default_factory=dict)


def work_of(instructions: Sequence[Instruction], machine: Machine, timing: Timing) -> Work:
    """The tasks that run `instructions` of one core."""
    return _Builder(machine, timing).build(instructions)


class _Builder:
    def __init__(self, machine: Machine, timing: Timing) -> None:
        self.machine = machine
        self.timing = timing
        self.work = Work()
        self._same: dict[int, int] = {}  # buffer -> the buffer that holds the same
        self._tiles: dict[int, tuple[Tensor, ...]] = {}  # id of an instruction -> tiles it reads
        self._costs: dict[tuple, tuple] = {}
        self._operands: dict[tuple, Operand] = {}
        self._transfers: dict[tuple, Transfer] = {}
        self._rows: dict[int, tuple] = {}  # id of an operand -> key of its broadcast row
        self._made: dict[tuple, tuple[int, bool]] = {}  # key -> (buffer, whether it exists)
        self._slots: dict[tuple[Space, Placed], tuple[int, bool]] = {}
        self._next = -1  # numbers of buffers that only the compiler knows

    def build(self, instructions: Sequence[Instruction]) -> Work:
        kept = [i for i in instructions if i.engine is not Engine.HOST]
        self._tiles = {id(i): i.tiles_in for i in kept}
        kept = self._without_zeroing(kept)
        kept = self._without_repeats(kept)
        for i in kept:
            for t in i.outs:
                self._declare(t.buffer)
            for t in self._tiles[id(i)]:
                self._declare(t.buffer)
        if any(b.placed for b in self.work.buffers.values()):
            self._place()
        self._find_rows(kept)
        for instr in kept:
            self._add(instr)
        return self.work

    # -- compiler passes ------------------------------------------------------------------------

    def _without_zeroing(self, instrs: list[Instruction]) -> list[Instruction]:
        """Drop fills of PSUM buffers that matmuls then accumulate into."""
        fills: dict[int, int] = {}
        gone: set[int] = set()
        for at, i in enumerate(instrs):
            if i.opcode == "memset" and i.outs[0].space is Space.PSUM and i.attrs["value"] == 0:
                fills[i.outs[0].buffer.number] = at
            elif fills:
                number = i.outs[0].buffer.number if i.outs else -1
                if number in fills and i.opcode == "nc_matmul":
                    gone.add(fills.pop(number))
        if gone:
            self.work.choices["zeroing of a PSUM tile left to the first matmul"] += len(gone)
            return [i for at, i in enumerate(instrs) if at not in gone]
        return instrs

    def _without_repeats(self, instrs: list[Instruction]) -> list[Instruction]:
        """Drop what the next iteration of a loop would compute again from the same inputs."""
        writes: dict[int, int] = {}
        for i in instrs:
            for t in i.outs:
                writes[t.buffer.number] = writes.get(t.buffer.number, 0) + 1
        version: dict[int, int] = defaultdict(int)
        found: dict[tuple, tuple[int, tuple]] = {}
        kept = []
        for i in instrs:
            key = self._identity(i, writes, version) if i.loops else None
            if key is not None:
                before = found.get(key)
                innermost = i.opcode == "dma_copy"
                if before is not None and _next_iteration(before[1], i.loops, innermost):
                    self._same[i.outs[0].buffer.number] = before[0]
                    found[key] = (before[0], i.loops)
                    self.work.choices[f"{i.label} hoisted out of a loop"] += 1
                    continue
                found[key] = (i.outs[0].buffer.number, i.loops)
            for t in i.outs:
                version[t.buffer.number] += 1
            kept.append(i)
        return kept

    def _identity(self, i: Instruction, writes: dict, version: dict) -> tuple | None:
        """What makes two instructions the same computation; None if it cannot be shared."""
        load = i.opcode == "dma_copy" and not i.ins[0].space.on_chip
        if i.opcode in _NEVER_SHARED or (i.opcode in _DMA and not load) or len(i.outs) != 1:
            return None
        out = i.outs[0]
        b = out.buffer
        if (
            b.role is not Role.LOCAL
            or not b.space.on_chip
            or b.placed
            or writes[b.number] != 1
            or i.where is not None
            or not out.covers_buffer
            or _column_bytes(b) > _KEEP_BYTES
        ):
            return None
        parts: list = [i.opcode, out.shape]
        for x in i.ins:
            if isinstance(x, Tensor):
                number = self._same.get(x.buffer.number, x.buffer.number)
                parts += (number, version[number], x.offsets, id(x.coefs), x.shape)
            else:
                parts.append(x)
        if i.attrs:
            parts += i.attrs.items()
        key = tuple(parts)
        try:
            hash(key)
        except TypeError:
            return None
        return key

    def _find_rows(self, instrs: Sequence[Instruction]) -> None:
        """Rows that are broadcast over partitions: which there are, and where each will be."""
        found: dict[tuple, list[Instruction]] = defaultdict(list)
        version: dict[int, int] = defaultdict(int)
        for i in instrs:
            if i.engine in _ELEMENTWISE_ENGINES:
                for t in self._tiles[id(i)]:
                    if t.shape[0] > 1 and _one_row(t):
                        key = self._row_key(t, version)
                        found[key].append(i)
                        self._rows[id(t)] = key
            for t in i.outs:
                version[t.buffer.number] += 1
        bank = self.machine.psum_bank_bytes
        for key, readers in found.items():
            shape = key[2]
            n = prod(s for s in shape[1:])
            at_once = all(r.loops == readers[0].loops for r in readers)
            gains = all(_reads_psum(r) for r in readers)
            if 4 * n <= bank and at_once and gains:
                self.work.choices["broadcast row read from PSUM"] += 1
                self._made[key] = (self._scratch(4 * n), False)
            else:
                self.work.choices["broadcast row copied to SBUF"] += 1
                self._made[key] = (self._scratch(n * key[3].itemsize, Space.SBUF), False)

    def _row_key(self, t: Tensor, version: dict[int, int]) -> tuple:
        number = self._same.get(t.buffer.number, t.buffer.number)
        # Free axes of stride zero are not part of the row.
        shape = tuple(
            n if d == 0 or any(row[d] for row in t.coefs) else 1 for d, n in enumerate(t.shape)
        )
        return (number, version[number], shape, t.dtype, t.offsets, id(t.coefs))

    def _declare(self, b: Buffer) -> None:
        if b.number not in self.work.buffers:
            self.work.buffers[b.number] = b
            self.work.spaces[b.number] = b.space
            if b.space.on_chip:
                self.work.sizes[b.number] = _column_bytes(b)

    # -- tasks ----------------------------------------------------------------------------------

    def _add(self, i: Instruction) -> None:
        if i.opcode in _DMA:
            self._add_dma(i)
        elif i.opcode == "partition_broadcast":
            number, _ = self._access(i.outs)[0]
            self._broadcast(i, i.ins[0], number, i.outs[0])
        elif _divides(i):
            self._add_division(i)
        else:
            self._add_plain(i)

    def _place(self) -> None:
        """Tiles that the kernel places by hand: those that share bytes are one buffer."""
        tiles: dict[tuple[Space, Placed], None] = {}
        for b in self.work.buffers.values():
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
            number = self._scratch(last - first, space)
            alone = len(set(members)) == 1
            for at in members:
                self._slots[space, at] = (number, alone)
        for b in self.work.buffers.values():
            if b.placed:
                self.work.sizes.pop(b.number, None)

    def _slot(self, t: Tensor) -> tuple[int, Tensor | None]:
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

    def _access(self, tensors: Iterable[Tensor]) -> list:
        same = self._same
        if self._slots:
            return [
                self._slot(t)
                if t.buffer.placed
                else (same.get(t.buffer.number, t.buffer.number), t)
                for t in tensors
            ]
        if not same:
            return [(t.buffer.number, t) for t in tensors]
        return [(same.get(t.buffer.number, t.buffer.number), t) for t in tensors]

    def _reads(self, i: Instruction) -> list:
        """What an engine instruction reads, once rows are broadcast."""
        reads = self._access(self._tiles[id(i)])
        if not self._rows:
            return reads
        for at, (_, t) in enumerate(reads):
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
        key = (i.opcode, _pattern(i.outs[0]), *map(_pattern, self._tiles[id(i)]))
        found = self._transfers.get(key)
        if found is None:
            found = self._transfers[key] = transfer(i, self.timing.dma)
        dma = self.timing.dma
        trigger = Cost(dma.trigger_ns, dma.trigger_ns, dma.trigger_ns)
        queue = Engine.SYNC
        if found.indirect:
            trigger = Cost(dma.indirect_ns, dma.indirect_ns, dma.indirect_ns)
            queue = Engine.GPSIMD
        self.work.tasks.append(
            Task(
                i,
                i.label,
                ((queue, trigger),),
                self._access(self._tiles[id(i)]),
                self._access(i.outs),
                transfer=found,
            )
        )

    def _add_plain(self, i: Instruction, label: str = "") -> None:
        reads, writes = self._reads(i), self._access(i.outs)
        spaces = self.work.spaces
        ins = tuple(
            self._operand(t, spaces[n]) for (n, _), t in zip(reads, self._tiles[id(i)], strict=True)
        )
        outs = tuple(self._operand(t, spaces[n]) for n, t in writes)
        # Operands are kept, so they may be told apart by identity, which is quick.
        key = (
            i.opcode,
            id(i.engine),
            i.engine_asked,
            *map(id, ins),
            *map(id, outs),
            _op_of(i),
            i.attrs.get("rows"),
        )
        found = self._costs.get(key)
        if found is None:
            found = self._costs[key] = self._engines(i, ins, outs)
        costs, flops, psum = found
        self.work.tasks.append(
            Task(
                i,
                label or i.label,
                costs,
                reads,
                writes,
                accumulates=i.opcode == "nc_matmul" and bool(i.attrs.get("accumulate")),
                table=_table(i),
                flops=flops,
                psum=psum,
            )
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
        engines = [i.engine]
        if i.engine is Engine.VECTOR and not i.engine_asked:
            n = max(o.n for o in (*ins, *outs))
            if i.opcode == "tensor_copy" or (i.opcode == "reciprocal" and n >= 64):
                engines = [Engine.VECTOR, Engine.SCALAR]
            elif i.opcode == "memset":
                engines = [Engine.GPSIMD, Engine.VECTOR] if not psum else [Engine.VECTOR]
            if i.opcode == "reciprocal" and n >= 64:
                engines = [Engine.SCALAR]
        costs = tuple((e, compute.cost(i, e, ins, outs, timing)) for e in engines)
        return costs, max(o.n * o.rows for o in (*ins, *outs)), psum

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
            made = number if resident else self._scratch(4 * n)
            product = compute.passes_cost(n, passes, timing)
            self.work.tasks.append(
                Task(
                    i,
                    "partition_broadcast",
                    ((Engine.TENSOR, product),),
                    self._access([row]),
                    [(made, None)],
                    psum=True,
                )
            )
            if resident:
                continue
            ends = (
                Operand(n, rows, F32, Space.PSUM, 4),
                Operand(n, rows, row.dtype, Space.SBUF, row.itemsize),
            )
            costs = tuple(
                (e, compute.cost(i, e, ends[:1], ends[1:], timing, "tensor_copy"))
                for e in (Engine.SCALAR, Engine.VECTOR)
            )
            self.work.tasks.append(
                Task(i, "tensor_copy", costs, [(made, None)], [(number, out)], psum=True)
            )

    def _add_division(self, i: Instruction) -> None:
        """x / y as x * (1 / y)."""
        timing = self.timing
        number, y = self._access([i.ins[1]])[0]
        lanes = self._operand(y, self.work.spaces[number])
        one = lanes if lanes.stride else lanes._replace(n=1)  # one element a lane
        inverse = self._scratch(one.n * 4, Space.SBUF)
        engine = Engine.SCALAR if one.n >= 64 else Engine.VECTOR
        result = Operand(one.n, one.rows, F32, Space.SBUF, 4 if one.n > 1 else 0)
        cycles = compute.reciprocal(engine, one, result, timing)
        self.work.tasks.append(
            Task(i, "reciprocal", ((engine, cycles),), [(number, y)], [(inverse, None)])
        )
        self.work.choices["divide lowered to reciprocal and multiply"] += 1
        self._add_plain(i, "multiply by reciprocal")
        task = self.work.tasks[-1]
        task.reads[-1] = (inverse, None)

    def _scratch(self, nbytes: int, space: Space = Space.PSUM) -> int:
        number = self._next
        self._next -= 1
        self.work.sizes[number] = nbytes
        self.work.spaces[number] = space
        return number


def _blocks_of(t: Tensor, blocks: tuple[int, ...], first: tuple[int, ...]) -> list[tuple]:
    """The block indices that a view touches: mostly one."""
    rows = t.coefs[: len(blocks)]
    if not any(any(row) for row in rows):
        return [first]
    ranges = [range(low, high + 1) for low, high in t.bounds()[: len(blocks)]]
    return list(product(*ranges))


def _pattern(t: Tensor) -> tuple:
    """What the time of a transfer depends on: all of an access pattern but where it starts."""
    b = t.buffer
    # Hashing an enum's member is slow; its identity is not.
    return t.shape, id(t.coefs), t.base_shape, t.dtype, id(b.space), b.par_axis


def _column_bytes(b: Buffer) -> int:
    """Bytes that a buffer takes in each partition, all its blocks together."""
    return b.nbytes // max(1, b.shape[b.par_axis])


def _next_iteration(before: tuple, now: tuple, innermost: bool) -> bool:
    """Whether one loop only has moved on, by one iteration, between two places in the loops."""
    if len(before) != len(now):
        return False
    differ = [d for d, (a, b) in enumerate(zip(before, now, strict=True)) if a[1] != b[1]]
    if len(differ) != 1 or (innermost and differ[0] != len(now) - 1):
        return False
    (loop, i), (same, j) = before[differ[0]], now[differ[0]]
    return loop == same and j == i + 1


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


def _op_of(i: Instruction) -> object:
    return (
        i.attrs.get("op")
        or i.attrs.get("steps")
        or (i.attrs.get("value") == 0)
        or i.attrs.get("num_elem_per_idx")
    )


# Functions that every table of the Scalar Engine has, or that need none.
_NO_TABLE = frozenset({"copy", "square", "relu", "abs", "sign", "negative", "add", "multiply"})


def _table(i: Instruction) -> str:
    if i.engine is not Engine.SCALAR or not i.opcode.startswith("activation"):
        return ""
    op = i.attrs.get("op", "copy")
    return "" if op in _NO_TABLE else op
