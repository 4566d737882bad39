"""From a trace to tasks: what the compiler leaves of the instructions, and where it runs them.

A kernel's text leaves choices to the compiler. Those about whole instructions are made in
`nkisim.compiler.fills` and `nkisim.compiler.copies`: which of these are not needed; in
`nkisim.compiler.repeats`: what is kept so that later iterations need not compute or load it again;
and in `nkisim.compiler.joining`: which become one. These are made here, once, for every kernel:

* a row that is broadcast over partitions is made by the Tensor Engine, a PSUM bank at a time. It
  stays in PSUM when it fits a bank and is used at once by Vector or Scalar; otherwise it is copied
  to SBUF, each bank while the next ones are made;
* `divide` is a reciprocal and a product;
* a load or store that swaps the axes of a tile, which DMA would do element by element, is
  transposed by the Tensor Engine, and goes in long runs;
* unless the kernel asks for an engine: copies and products or sums with a scalar run on Vector or
  Scalar, fills on GpSimd or Vector, whichever has less to do (see `nkisim.schedule.engines`); a
  long reciprocal on Scalar, but on NeuronCore-v3 not that of `nisa.reciprocal`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from math import prod

from nkisim.compiler import moves
from nkisim.compiler.copies import without_copies
from nkisim.compiler.fills import sink_fills
from nkisim.compiler.joining import join_iterations
from nkisim.compiler.moves import Piece, Spread
from nkisim.compiler.overflow import TO_SBUF, Leaving, leave_psum
from nkisim.compiler.renaming import rename
from nkisim.compiler.repeats import without_repeats
from nkisim.cost import compute
from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer, swaps_axes, transfer
from nkisim.cost.storage import Operation, OperationForm, Storage
from nkisim.cost.tasks import Access, Kind, Memory, ScheduledTask, Work
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Engine, Instruction, OpKind
from nkisim.ir.memory import Space
from nkisim.machine import Machine
from nkisim.machine.timing import Timing
from nkisim.numerics.ops.cycles import OnEngine, TileOperand, Tiles, tile_operand
from nkisim.numerics.ops.elementwise import reciprocal_on

_PSUM = Space.PSUM

_ELEMENTWISE_ENGINES = (Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD)


def work_of(
    instructions: Sequence[Instruction],
    machine: Machine,
    timing: Timing,
    parallel: Collection[int] = (),
    hoists: bool = True,
    overflows: bool = False,
) -> Work:
    """The tasks that run `instructions` of one core.

    Args:
        instructions: in program order.
        machine, timing: tables of the generation.
        parallel: numbers of the loops whose iterations do not depend on each other.
        hoists: whether results are kept from one iteration of a loop to the next.
        overflows: whether more is alive in PSUM than it holds, so that some of it goes to SBUF.
    """
    return _Builder(machine, timing).build(instructions, parallel, hoists, overflows)


class _Plan:
    """A recipe: how tasks are made of the instructions of one form.

    Attributes:
        run: the method of the builder that makes them.
        kind: of the one task that each of them is, when that is the same for all.
        kinds: else the same, by which operands are in PSUM.
        rows: operands that are one row, broadcast over partitions: position, and what copies of
            the row have in common.
        reads_psum: whether one more operand can be in PSUM.
        moved: for DMA, the transfer.
        pieces: of a transposed load or store.
        inverses: of a division, the reciprocal and the bytes a partition of its result, by whether
            the divisor is in PSUM.
    """

    __slots__ = ("inverses", "kind", "kinds", "moved", "pieces", "reads_psum", "rows", "run")

    def __init__(self, i: Instruction, builder: _Builder) -> None:
        self.kind: Kind | None = None
        self.kinds: dict[tuple[bool, ...], Kind] = {}
        self.rows: list[tuple[int, tuple]] = []
        self.moved: Transfer | None = None
        self.pieces: list[Piece] = []
        self.inverses: dict[bool, tuple[Kind, int]] = {}
        self.reads_psum = _reads_psum(i)
        if i.spec.kind is OpKind.TRANSFER:
            self.moved = transfer(i, builder.timing.dma)
            self.run = _Builder._add_dma
            if swaps_axes(i):
                self.run = _Builder._add_swapped
                self.pieces = moves.pieces(i, builder.machine, builder.timing)
        elif i.spec.kind is OpKind.BROADCAST:
            self.run = _Builder._add_broadcast
        else:
            self.run = _Builder._add_division if _divides(i) else _Builder._add_plain
        if i.engine in _ELEMENTWISE_ENGINES:
            self.rows = [
                (at, builder.row_shape(t)) for at, t in enumerate(i.tiles_in) if moves.is_spread(t)
            ]


class _Row:
    """A row and its broadcast over partitions, which several instructions may read.

    Attributes:
        shape: see `_Builder.row_shape`.
        loops: where it is first read.
        from_psum: whether all readers can read it from PSUM, in one iteration.
        number: the memory that holds it; None until that is chosen.
        made: whether its tasks are there yet.
    """

    __slots__ = ("from_psum", "loops", "made", "number", "shape")

    def __init__(self, shape: tuple[int, ...], loops: tuple) -> None:
        self.shape = shape
        self.loops = loops
        self.from_psum = True
        self.number: int | None = None
        self.made = False


class _Builder:
    def __init__(self, machine: Machine, timing: Timing) -> None:
        self.machine = machine
        self.timing = timing
        self.work = Work()
        self.storage = Storage(self.work)
        self._spreads: dict[tuple, Spread] = {}  # of broadcast rows
        self._row_shapes: dict[tuple, tuple] = {}
        # By the position of a step, the rows that it reads, and as which operand.
        self._rows: dict[int, list[tuple[int, _Row]]] = {}
        self._copies: set[int] = set()  # across partitions, that stay in PSUM
        self._leaving: dict[int, list[Leaving]] = {}  # by the position of a step
        self._copies_out: dict[Memory, Kind] = {}  # by what leaves

    def build(
        self,
        instructions: Sequence[Instruction],
        parallel: Collection[int],
        hoists: bool,
        overflows: bool,
    ) -> Work:
        host = Engine.HOST
        steps = self.storage.steps([i for i in instructions if i.engine is not host])
        steps = sink_fills(steps, self.storage, self.work)
        rename(steps, self.storage)
        steps = without_copies(steps, self.storage, self.work)
        hoisted: dict[OperationForm, int] = {}
        if hoists:
            room = self.timing.kept_operand_bytes
            steps, hoisted = without_repeats(steps, self.storage, self.work, room)
        if parallel:
            most = self.timing.joined_elements
            steps = join_iterations(steps, self.storage, self.work, parallel, most)
        if overflows:
            self._leaving = leave_psum(steps, self.storage, self.work, self.machine.psum_bytes)
        forms = self.storage.forms.values()
        for form in forms:
            form.plan = _Plan(form.instr, self) if form.like is None else form.like.plan
        for form, times in hoisted.items():
            if form.plan.moved is not None:
                self.work.spared[form.instr.location].append((times, form.plan.moved))
        if any(form.plan.run is _Builder._add_broadcast for form in forms):
            self._place_copies(steps)
        if any(form.plan.rows for form in forms):
            self._find_rows(steps)
        add = self.work.tasks.append
        for at, step in enumerate(steps):
            plan = step.form.plan
            if plan.kind is not None:
                step.kind = plan.kind
                add(step)
            else:
                plan.run(self, at, step)
            if at in self._leaving:
                for left in self._leaving[at]:
                    self._copy_out(step.instr, left)
        return self.work

    def row_shape(self, t: AccessPattern) -> tuple:
        """A memo key of a row operand: operands of one key are one row if their offsets are
        equal."""
        # Free axes of stride zero are not part of the row.
        shape = tuple(
            n if d == 0 or any(row[d] for row in t.coefs) else 1 for d, n in enumerate(t.shape)
        )
        found = (shape, t.dtype, id(t.coefs))
        return self._row_shapes.setdefault(found, found)

    def _find_rows(self, steps: Sequence[Operation]) -> None:
        """Rows that are broadcast over partitions: which there are, and where each will be."""
        rows: dict[tuple, _Row] = {}
        version = {step.reads[k][0]: 0 for step in steps for k, _ in step.form.plan.rows}
        for at, step in enumerate(steps):
            plan, i = step.form.plan, step.instr
            if plan.rows:
                self._rows[at] = read = []
                for k, shape in plan.rows:
                    number = step.reads[k][0]
                    key = (number, version[number], i.tiles_in[k].offsets, id(shape))
                    if number in self.work.rows:
                        key += (i.loops,)
                    row = rows.get(key)
                    if row is None:
                        row = rows[key] = _Row(shape, i.loops)
                    if not plan.reads_psum or row.loops != i.loops:
                        row.from_psum = False
                    read.append((k, row))
            for number, _ in step.writes:
                if number in version:
                    version[number] += 1
        for row in rows.values():
            shape, dtype, _ = row.shape
            n = prod(shape[1:])
            if row.from_psum and 4 * n <= self.machine.psum_bank_bytes:
                self.work.choices["broadcast row read from PSUM"] += 1
                row.number = self.storage.scratch(4 * n)
            else:
                self.work.choices["broadcast row copied to SBUF"] += 1
                row.number = self.storage.scratch(n * dtype.itemsize, Space.SBUF)

    def _place_copies(self, steps: Sequence[Operation]) -> None:
        """Choose the broadcast copies, made by operators of the kernel, that stay in PSUM."""
        made = [step for step in steps if step.form.plan.run is _Builder._add_broadcast]
        readers: dict[int, list[Operation]] = {step.writes[0][0]: [] for step in made}
        itemsizes = {step.writes[0][0]: step.instr.outs[0].buffer.dtype.itemsize for step in made}
        for step in steps:
            for number, _ in step.reads:
                if number in readers:
                    readers[number].append(step)
        work = self.work
        for number, found in readers.items():
            memory = work.memory[number]
            n = memory.nbytes // itemsizes[number]
            if (
                4 * n <= self.machine.psum_bank_bytes
                and all(r.form.plan.reads_psum for r in found)
                and all(r.instr.loops == found[0].instr.loops for r in found)
            ):
                work.choices["broadcast row read from PSUM"] += 1
                work.memory[number] = Memory(Space.PSUM, 4 * n, memory.rows)
                self._copies.add(number)

    # -- tasks ----------------------------------------------------------------------------------

    def _reads(self, at: int, step: Operation) -> list[Access]:
        """The reads of an engine instruction, its row operands replaced by their broadcast
        copies."""
        if not step.form.plan.rows:
            return step.reads
        reads = list(step.reads)
        for k, row in self._rows[at]:
            made = (row.number, None)
            if not row.made:
                row.made = True
                self._broadcast(step.instr, step.instr.tiles_in[k], reads[k], made)
            reads[k] = made
        return reads

    def _add_broadcast(self, at: int, step: Operation) -> None:
        self._broadcast(step.instr, step.instr.ins[0], step.reads[0], step.writes[0])

    def _add_dma(self, at: int, step: Operation) -> None:
        if step.instr.settings.sends:
            ns = self.timing.semaphore_ns
            kind = Kind(step.form.label, ((Engine.SYNC, Cost(ns, ns, 0.0)),))
        else:
            settings = step.instr.settings
            kind = moves.moving(
                step.form.label,
                step.form.plan.moved,
                self.timing,
                step.form.reloads,
                settings.descriptors,
                settings.started_by or Engine.SYNC,
            )
        step.kind = step.form.plan.kind = kind
        self.work.tasks.append(step)

    def _add_swapped(self, at: int, step: Operation) -> None:
        """A transposed load or store: 128 columns at a time through the Tensor Engine."""
        i, read, write = step.instr, step.reads[0], step.writes[0]
        self.work.choices[f"{step.form.label} transposed by the Tensor Engine"] += 1
        source = i.ins[-1]
        nbytes = i.outs[0].shape[0] * source.itemsize
        for piece in step.form.plan.pieces:
            flat = (self.storage.scratch(nbytes, Space.SBUF), None)
            if source.space.on_chip:
                self._transpose(i, read, flat, piece)
                self.work.tasks.append(ScheduledTask(i, piece.moving, [flat], [write]))
            else:
                self.work.tasks.append(ScheduledTask(i, piece.moving, [read], [flat]))
                self._transpose(i, flat, write, piece)

    def _transpose(self, i: Instruction, read: Access, write: Access, piece: Piece) -> None:
        made = (self.storage.scratch(4 * piece.rows), None)
        self.work.tasks.append(ScheduledTask(i, piece.transpose, [read], [made]))
        self.work.tasks.append(ScheduledTask(i, piece.copy, [made], [write]))

    def _copy_out(self, i: Instruction, left: Leaving) -> None:
        """From PSUM to SBUF, because there is no room."""
        memory = left.memory
        kind = self._copies_out.get(memory)
        if kind is None:
            kind = moves.to_sbuf(memory.nbytes, memory.rows, self.timing, TO_SBUF)
            self._copies_out[memory] = kind
        self.work.tasks.append(ScheduledTask(i, kind, [(left.source, None)], [(left.target, None)]))

    def _add_plain(self, at: int, step: Operation) -> None:
        step.reads = self._reads(at, step)
        plan = step.form.plan
        if plan.rows or self._copies or self._leaving:
            step.kind = self._kind_where(step)
        else:
            step.kind = plan.kind = self._kind(step)
        self.work.tasks.append(step)

    def _kind_where(self, step: Operation) -> Kind:
        """The kind of an engine instruction whose rows may stand in PSUM, memoised by where they
        do."""
        memory, kinds = self.work.memory, step.form.plan.kinds
        where = tuple([memory[number].space is _PSUM for number, _ in step.reads])
        kind = kinds.get(where)
        if kind is None:
            kind = kinds[where] = self._kind(step)
        return kind

    def _kind(self, step: Operation) -> Kind:
        """The kind (engines, costs, operations counted) of an engine instruction."""
        i = step.instr
        ins = self._operands(i.tiles_in, step.reads)
        outs = self._operands(i.outs, step.writes)
        spec, operands = i.spec, (*ins, *outs)
        psum = any(o.space is Space.PSUM for o in operands)
        engines = self._engines(i, max([o.n for o in operands], default=0), psum)
        costs = tuple((e, compute.cost(OnEngine(i, e, ins, outs, self.timing))) for e in engines)
        flops = 0
        if spec.flops is not None:
            flops = spec.flops(i, ins, outs)
        elif i.engine in _ELEMENTWISE_ENGINES:
            flops = max(o.n * o.rows for o in operands)
        accumulates = spec.kind is OpKind.PRODUCT and i.settings.accumulate
        label = "multiply by reciprocal" if _divides(i) else step.form.label
        table = compute.table_of(i, engines[0])
        return Kind(label, costs, None, accumulates, table, flops, psum)

    def _engines(self, i: Instruction, n: int, psum: bool) -> tuple[Engine, ...]:
        """The engines that may run an instruction of `n` elements a partition; the one that the
        kernel asked for, if it did, or that the front end chose."""
        spec = i.spec
        if spec.engines is None or i.engine_asked or i.engine is not spec.engine:
            return (i.engine,)
        return spec.engines(i, n, psum, self.timing)

    def _operands(self, tiles: tuple[AccessPattern, ...], accesses: list[Access]) -> Tiles:
        memory = self.work.memory
        # Of an instruction for several iterations, what else it touches comes after its operands.
        pairs = zip(tiles, accesses, strict=False)
        return tuple([tile_operand(t, memory[n].space) for t, (n, _) in pairs])

    def _broadcast(self, i: Instruction, row: AccessPattern, read: Access, write: Access) -> None:
        """A row times a column of ones, and from PSUM to where the result is to be."""
        key = (row.shape, id(row.coefs), row.dtype)
        spread = self._spreads.get(key)
        if spread is None:
            spread = self._spreads[key] = moves.spread(row, self.machine, self.timing)
        tasks, made = self.work.tasks, write
        if self.work.memory[write[0]].space is not Space.PSUM:
            made = (self.storage.scratch(spread.nbytes), None)
        tasks.append(ScheduledTask(i, spread.product, [read], [made]))
        if made is not write:
            tasks.append(ScheduledTask(i, spread.copy, [made], [write]))

    def _add_division(self, at: int, step: Operation) -> None:
        """x / y as x * (1 / y)."""
        divisor = step.reads[-1]
        reciprocal, nbytes = self._inverse(step)
        inverse = (self.storage.scratch(nbytes, Space.SBUF), None)
        self.work.tasks.append(ScheduledTask(step.instr, reciprocal, [divisor], [inverse]))
        self.work.choices["divide lowered to reciprocal and multiply"] += 1
        step.reads = self._reads(at, step)
        step.kind = self._kind_where(step)
        step.reads = [*step.reads[:-1], inverse]
        self.work.tasks.append(step)

    def _inverse(self, step: Operation) -> tuple[Kind, int]:
        """The reciprocal of a divisor, and the bytes a partition of its result."""
        space = self.work.memory[step.reads[-1][0]].space
        inverses = step.form.plan.inverses
        found = inverses.get(space is _PSUM)
        if found is None:
            lanes = tile_operand(step.instr.tiles_in[-1], space)
            one = lanes if lanes.stride else lanes._replace(n=1)  # one element a lane
            (engine,) = reciprocal_on(step.instr, one.n, space is _PSUM, self.timing)
            result = TileOperand(one.n, one.rows, F32, Space.SBUF, 4 if one.n > 1 else 0)
            cost = compute.reciprocal(engine, one, result, self.timing)
            found = inverses[space is _PSUM] = Kind("reciprocal", ((engine, cost),)), 4 * one.n
        return found


def _reads_psum(reader: Instruction) -> bool:
    """Whether an instruction can take one more operand from PSUM."""
    return reader.engine in (Engine.VECTOR, Engine.SCALAR) and not any(
        t.space is Space.PSUM for t in reader.tiles_in
    )


def _divides(i: Instruction) -> bool:
    return (
        i.settings.op == "divide"
        and len(i.ins) == 2
        and isinstance(i.ins[1], AccessPattern)
        and i.engine is Engine.VECTOR
    )
