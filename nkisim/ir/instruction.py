"""The hardware-level instruction: the one thing that numerics, checks, timing and profile consume.

`OPCODES` is the table of what exists. An entry says which engine runs the opcode, which memories
its operands may live in, and which NumPy function computes it, so adding an instruction is one
entry and one function (`nkisim.numerics.ops`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from operator import itemgetter

import numpy as np

from nkisim.errors import Location
from nkisim.ir.access import AccessPattern, Affine
from nkisim.ir.memory import Space


class Engine(Enum):
    """What executes an instruction."""

    TENSOR = "Tensor"
    VECTOR = "Vector"
    SCALAR = "Scalar"
    GPSIMD = "GpSimd"
    SYNC = "Sync"
    DMA = "DMA"
    HOST = "host"  # device_print: the simulator itself


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
        attrs: compile-time settings, e.g. {"op": "add"}. A dma_copy to or from an exchange buffer
            by which one core hands a tile to another one has "sends", True or False: hardware
            makes one transfer of the two, which is modelled as the receiver's.
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
        model: an earlier instruction for operands of the same forms and types, where this one was
            made from it (see `again`). Since then this one may have got another target, and
            settings that go with it.
    """

    opcode: str
    engine: Engine
    outs: tuple[AccessPattern, ...]
    ins: tuple[Operand, ...]
    attrs: dict = field(default_factory=dict)
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
        """This instruction on other operands, in another place.

        Args:
            outs, ins: the operands, of the same types and forms.
            tiles_in: the tensors among `ins`.
            program: number of the SPMD instance.
            loops: the loop iterations it is in.
            location: the kernel line.
        """
        new = object.__new__(Instruction)
        new.opcode, new.engine, new.attrs = self.opcode, self.engine, self.attrs
        new.where, new.where_out = self.where, self.where_out
        new.location, new.engine_asked, new.watched = location, self.engine_asked, self.watched
        new.outs, new.ins, new.tiles_in = outs, ins, tiles_in
        new.program, new.loops = program, loops
        new.contested = new.undefined = None
        new.model = self.model or self
        return new

    @property
    def spec(self) -> OpSpec:
        return OPCODES[self.opcode]

    @property
    def label(self) -> str:
        """What it does, for messages: `tensor_tensor(add)`, or `load` for a DMA from HBM."""
        op = self.attrs.get("op")
        if self.opcode == "dma_copy":
            if "sends" in self.attrs:
                return "send" if self.attrs["sends"] else "receive"
            source, target = self.ins[0].space.on_chip, self.outs[0].space.on_chip
            if source != target:
                return "store" if source else "load"
        return f"{self.opcode}({op})" if op else self.opcode

    def where_of(self, tensor: AccessPattern) -> np.ndarray | None:
        """Which elements of the operand `tensor` are touched; None for all of them."""
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


@dataclass(frozen=True)
class OpSpec:
    """An entry of OPCODES.

    Attributes:
        name: the opcode.
        engine: the engine that runs it unless the instruction says otherwise.
        bind: given an instruction, the function `f(*outs, *tiles_in)` on NumPy views.
        on_chip: whether every tile operand must be in SBUF or PSUM.
        elementwise: each output element depends on the input elements at its own coordinates
            only, so two instructions on neighbouring tiles equal one on both.
        pure_copy: moves elements and, with equal dtypes, changes nothing.
        partial: writes only some of the elements that its outputs name; which ones, data decides.
        flow: which output elements are undefined, given those of the inputs:
            `flow(instruction, missing) -> missing of each output`, boolean arrays or None for
            fully defined. An opcode without one refuses undefined inputs.
    """

    name: str
    engine: Engine
    bind: Callable[[Instruction], Bound]
    on_chip: bool = True
    elementwise: bool = False
    pure_copy: bool = False
    flow: Flow | None = None
    partial: bool = False


OPCODES: dict[str, OpSpec] = {}


def opcode(
    name: str,
    engine: Engine,
    *,
    on_chip: bool = True,
    elementwise: bool = False,
    pure_copy: bool = False,
    flow: Flow | None = None,
    partial: bool = False,
) -> Callable[[Callable], Callable]:
    """Enter an opcode in the table. Decorates its `bind(instruction) -> f(*outs, *tiles_in)`."""
    if elementwise and flow is None:
        flow = _flow_elementwise

    def enter(bind: Callable) -> Callable:
        OPCODES[name] = OpSpec(name, engine, bind, on_chip, elementwise, pure_copy, flow, partial)
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
