"""The hardware-level instruction: the one thing that numerics, checks, timing and profile consume.

`OPCODES` is the table of what exists. An entry says all that tells an opcode from another one: the
kind of its work, the NumPy function that computes it, what it costs, and how its results depend on
its inputs. Adding an instruction is one entry and one function (`nkisim.numerics.ops`). Numerics,
checks and times ask the entry; findings, which advise on certain instructions, name these.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter
from typing import Any

import numpy as np

from nkisim.errors import Location
from nkisim.ir.access import AccessPattern, Affine
from nkisim.ir.memory import Space
from nkisim.ir.settings import NO_SETTINGS, Settings
from nkisim.machine.timing import Timing


class Engine(Enum):
    """The hardware unit that executes an instruction."""

    TENSOR = "Tensor"
    VECTOR = "Vector"
    SCALAR = "Scalar"
    GPSIMD = "GpSimd"
    SYNC = "Sync"
    DMA = "DMA"
    HOST = "host"  # device_print: the simulator itself


class OpKind(Enum):
    """The kind of work that an opcode does."""

    TRANSFER = "transfer"  # between memories, by DMA
    PRODUCT = "product"  # of matrices
    TRANSPOSE = "transpose"  # of a tile, its partitions with its free axes
    BROADCAST = "broadcast"  # of a row over partitions
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    SCAN = "scan"  # what follows in a row depends on what is before
    SEARCH = "search"  # for values in a row
    GATHER = "gather"  # of elements, or to them, by their indices
    FILL = "fill"  # with a constant
    RANDOM = "random"
    BARRIER = "synchronisation"  # of instances
    PRINT = "print"


class TransferKind(Enum):
    """How a DMA instruction walks memory, which is what its time follows from."""

    COPY = "copy"
    SUM = "sum"  # of all of its sources
    TRANSPOSE = "transpose"
    GATHER = "gather"  # sources: what is picked from, then the indices
    SCATTER = "scatter"  # sources: what is moved, then the indices
    SCATTER_ADD = "scatter and add"  # sources: what is added to, what is moved, the indices


Operand = AccessPattern | Affine | int | float | bool | np.generic
Bound = Callable[..., None]
Missing = list[np.ndarray | None]
Flow = Callable[["Instruction", Missing], Missing]


@dataclass(slots=True, eq=False)
class Instruction:
    """One instruction of one SPMD instance.

    Attributes:
        opcode: key in OPCODES.
        engine: engine it runs on (chosen when the opcode leaves a choice).
        outs: access patterns written.
        ins: access patterns, scalars, and what it computes from coordinates.
        settings: what the kernel's text fixes beside the operands, of the class that the opcode's
            entry names.
        where: boolean array over the iteration domain for masks that are not boxes; else None.
            Operands of the domain's shape are masked by it.
        where_out: the same for outputs that have another shape than the domain (reductions).
        program: number of the SPMD instance, row-major in the grid.
        loops: the loop iterations it is in, outermost first, as (loop number, iteration).
        location: the kernel line.
        engine_asked: whether the kernel asked for the engine, and left no choice.
        watched: whether its input is compared with the range of its function when it runs.
        contested: which elements of its output another core writes, too, if that is right as
            long as both write the same, and the error to raise where they do not; else None.
        undefined: of a transpose, which elements of its input nothing wrote; None for none. A
            product would spread what is there by chance, so that it is left out.
        unread: for each of several outputs, whether nothing reads it: noted by the plan.
        model: an earlier instruction for operands of the same forms and types, where this one was
            made from it (see `again`). Since then this one may have got another target, and
            settings that go with it.
    """

    opcode: str
    engine: Engine
    outs: tuple[AccessPattern, ...]
    ins: tuple[Operand, ...]
    settings: Settings = NO_SETTINGS
    where: np.ndarray | None = None
    where_out: np.ndarray | None = None
    program: int = 0
    loops: tuple = ()
    location: Location | None = None
    engine_asked: bool = False
    watched: bool = False
    tiles_in: tuple[AccessPattern, ...] = field(init=False)  # the tensors among `ins`
    contested: tuple[np.ndarray, Exception] | None = field(init=False, default=None)
    undefined: np.ndarray | None = field(init=False, default=None)
    unread: tuple[bool, ...] | None = field(init=False, default=None)
    model: Instruction | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        tiles = tuple([x for x in self.ins if isinstance(x, AccessPattern)])
        self.tiles_in = self.ins if len(tiles) == len(self.ins) else tiles

    def again(
        self,
        outs: tuple[AccessPattern, ...],
        ins: tuple[Operand, ...],
        tiles_in: tuple[AccessPattern, ...],
        program: int,
        loops: tuple,
        location: Location | None,
    ) -> Instruction:
        """A copy of this instruction on other operands, at another place of the kernel.

        Args:
            outs, ins: the operands, of the same types and forms.
            tiles_in: the tensors among `ins`.
            program: number of the SPMD instance.
            loops: the loop iterations it is in.
            location: the kernel line.
        """
        new = object.__new__(Instruction)
        new.opcode, new.engine, new.settings = self.opcode, self.engine, self.settings
        new.where, new.where_out = self.where, self.where_out
        new.location, new.engine_asked, new.watched = location, self.engine_asked, self.watched
        new.outs, new.ins, new.tiles_in = outs, ins, tiles_in
        new.program, new.loops = program, loops
        new.contested = new.undefined = new.unread = None
        new.model = self.model or self
        return new

    @property
    def spec(self) -> OpSpec:
        return OPCODES[self.opcode]

    @property
    def label(self) -> str:
        """The instruction's name in messages: `tensor_tensor(add)`, or `load` for a DMA from
        HBM."""
        op = self.settings.op
        if self.spec.cost is TransferKind.COPY:
            if self.settings.sends is not None:
                return "send" if self.settings.sends else "receive"
            source, target = self.ins[0].space.on_chip, self.outs[0].space.on_chip
            if source != target:
                return "store" if source else "load"
        return f"{self.opcode}({op})" if op else self.opcode

    def where_of(self, tensor: AccessPattern) -> np.ndarray | None:
        """The mask of the elements of the operand `tensor` that are touched; None for all of
        them."""
        if self.where is None and self.where_out is None:
            return None
        for where in (self.where, self.where_out):
            if where is not None and where.shape == tensor.shape:
                return where
        return None

    def __str__(self) -> str:
        outs = ", ".join(t.describe() for t in self.outs)
        ins = ", ".join(t.describe() if isinstance(t, AccessPattern) else repr(t) for t in self.ins)
        return f"{self.engine.value:7} {self.label:24} {outs} <- {ins}"


def touching(
    instructions: Iterable[Instruction], spaces: Collection[Space]
) -> Iterator[tuple[int, Instruction, Sequence[AccessPattern]]]:
    """The instructions that read or write one of some memories: (position, instruction, its tiles
    there)."""
    return picking(instructions, lambda t: t.buffer.space in spaces)


def picking(
    instructions: Iterable[Instruction], wanted: Callable[[AccessPattern], bool]
) -> Iterator[tuple[int, Instruction, Sequence[AccessPattern]]]:
    """The instructions that have operands of some kind: (position, instruction, these operands)."""
    for at, i in enumerate(instructions):
        tiles = [t for t in i.outs + i.tiles_in if wanted(t)]
        if tiles:
            yield at, i, tiles


def picker(positions: list[int]) -> Callable[[Sequence], tuple]:
    """A function that gives the entries of a sequence at `positions`, as a tuple."""
    if len(positions) > 1:
        return itemgetter(*positions)
    if not positions:
        return lambda entries: ()
    at = positions[0]
    return lambda entries: (entries[at],)


Needed = list[np.ndarray | None]
Reads = Callable[["Instruction", Needed], list[np.ndarray]]


def reads_by_axis(instr: Instruction, needed: Needed) -> list[np.ndarray]:
    """For outputs that reduce or replace free axes: the elements of an input that share the needed
    ones' coordinates on the axes of equal extent; with another number of axes, their partition."""
    found = []
    for tile in instr.tiles_in:
        part = np.zeros(tile.shape, bool)
        for n in needed:
            if n is not None:
                part |= _same_coordinates(n, tile.shape)
        found.append(part)
    return found


def _same_coordinates(needed: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    if needed.ndim != len(shape):
        if not shape or not needed.ndim or needed.shape[0] != shape[0]:
            return np.ones(shape, bool)
        rows = needed.reshape(needed.shape[0], -1).any(axis=1)
        return np.broadcast_to(rows.reshape(-1, *(1,) * (len(shape) - 1)), shape)
    axes = tuple(d for d, n in enumerate(needed.shape) if n != shape[d])
    return np.broadcast_to(needed.any(axis=axes, keepdims=True), shape)


def _reads_all(instr: Instruction, needed: Needed) -> list[np.ndarray]:
    """All of each input: it may name too many elements and never too few."""
    return [np.ones(tile.shape, bool) for tile in instr.tiles_in]


@dataclass(frozen=True)
class OpSpec:
    """An entry of OPCODES.

    Attributes:
        name: the opcode.
        engine: the engine that runs it unless the instruction says otherwise.
        kind: the kind of its work.
        bind: given an instruction, the function `f(*outs, *tiles_in)` on NumPy views.
        settings: the class of its settings.
        cost: what it takes: a TransferKind of an opcode of DMA, else a formula
            (`nkisim.numerics.ops.cycles`).
        flops: the operations that count, `flops(instruction, ins, outs)` of the same operands as
            the formula has; None for one of each element on a compute engine, and otherwise none.
        engines: the engines that a compiler may choose from where the kernel does not,
            `engines(instruction, elements a partition, whether an operand is in PSUM, the
            generation's times)`; None for no choice.
        table: whether it applies a function out of a table of the Scalar Engine.
        on_chip: whether every tile operand must be in SBUF or PSUM.
        elementwise: each output element depends on the input elements at its own coordinates
            only, so two instructions on neighbouring tiles equal one on both.
        pure_copy: moves elements and, with equal dtypes, changes nothing.
        in_place: reads an element, or all of a row, before it writes it, so that the output may be
            an input.
        joined_inputs: of iterations of a loop that a compiler makes one instruction of, how many
            inputs may differ between iterations; 0 if it makes none.
        partial: writes only some of the elements that its outputs name; which ones, data decides.
        flow: which output elements are undefined, given those of the inputs:
            `flow(instruction, missing) -> missing of each output`, boolean arrays or None for
            fully defined. An opcode without one refuses undefined inputs.
        reads: which elements of each input tile some elements of the outputs depend on:
            `reads(instruction, needed of each output) -> read of each input`, boolean arrays;
            needed is None for an output of which nothing is.
    """

    name: str
    engine: Engine
    kind: OpKind
    bind: Callable[[Instruction], Bound]
    cost: Callable | TransferKind
    settings: type[Settings] = Settings
    flops: Callable[..., int] | None = None
    engines: Callable[[Instruction, int, bool, Timing], tuple[Engine, ...]] | None = None
    table: bool = False
    on_chip: bool = True
    elementwise: bool = False
    pure_copy: bool = False
    in_place: bool = False
    joined_inputs: int = 0
    partial: bool = False
    flow: Flow | None = None
    reads: Reads = _reads_all

    def __post_init__(self) -> None:
        by_dma = self.engine is Engine.DMA
        if not isinstance(self.kind, OpKind) or by_dma is not (self.kind is OpKind.TRANSFER):
            raise ValueError(f"{self.name} of {self.engine} has the kind of work {self.kind}")
        if by_dma is not isinstance(self.cost, TransferKind) or self.cost is None:
            raise ValueError(f"{self.name} of {self.engine} has the cost {self.cost}")
        if self.kind is OpKind.PRODUCT and self.flops is None:
            raise ValueError(f"{self.name} is a product whose operations are not counted")
        if self.flow is None and self.elementwise:
            object.__setattr__(self, "flow", _flow_elementwise)
        if self.reads is _reads_all and self.elementwise:
            object.__setattr__(self, "reads", reads_by_axis)


OPCODES: dict[str, OpSpec] = {}


def opcode(
    name: str, engine: Engine, kind: OpKind, *, cost: Callable | TransferKind, **facts: Any
) -> Callable[[Callable], Callable]:
    """Enter an opcode in the table. Decorates its `bind(instruction) -> f(*outs, *tiles_in)`.

    Args:
        name, engine, kind, cost, **facts: see OpSpec.

    Raises:
        ValueError: it has no kind or cost that an opcode of its engine can have.
    """

    def enter(bind: Callable) -> Callable:
        OPCODES[name] = OpSpec(name, engine, kind, bind, cost, **facts)
        return bind

    return enter


def _flow_elementwise(instr: Instruction, missing: Missing) -> Missing:
    union = None
    for m in missing:
        if m is not None:
            union = m if union is None else union | m
    return [union] * len(instr.outs)


def flow_by_axis(instr: Instruction, missing: Missing) -> Missing:
    """For outputs that reduce or replace free axes: an output element is undefined when any input
    element is that shares its coordinates on the axes of equal extent. Inputs with another number
    of axes share the partition only."""
    return [_spread_missing(out.shape, missing) for out in instr.outs]


def _spread_missing(shape: tuple[int, ...], missing: Missing) -> np.ndarray | None:
    union = None
    for m in missing:
        if m is None:
            continue
        if m.ndim != len(shape):
            m = m.reshape(m.shape[0], -1).any(axis=1).reshape((-1,) + (1,) * (len(shape) - 1))
        axes = tuple(d for d, n in enumerate(m.shape) if n != shape[d])
        spread = np.broadcast_to(m.any(axis=axes, keepdims=True), shape)
        union = spread if union is None else union | spread
    return union


def flow_first(instr: Instruction, missing: Missing) -> Missing:
    """As `flow_by_axis` for the first output; the others hold state that is always defined."""
    return [_spread_missing(instr.outs[0].shape, missing), *[None] * (len(instr.outs) - 1)]
