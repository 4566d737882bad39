"""What the scheduler runs: tasks, and the memory that they touch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer
from nkisim.errors import Location
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Space
from nkisim.machine import PARTITIONS

# For each engine that may run a task, what it costs there.
Costs = tuple[tuple[Engine, Cost], ...]

# What a task touches: memory by number, and which part of it; None for all of it. The part is a
# view of any memory of that kind, the same one whenever it is the same part.
Access = tuple[int, AccessPattern | None]


@dataclass(slots=True, frozen=True)
class Memory:
    """An HBM tensor, or a tile on chip, as memory that tasks touch.

    Attributes:
        space: which one it is in, after the compiler's choices.
        nbytes: bytes a partition that a tile takes; 0 in HBM.
        rows: partitions that a tile has.
    """

    space: Space
    nbytes: int = 0
    rows: int = PARTITIONS


@dataclass(slots=True, frozen=True, eq=False)
class Kind:
    """The common part of tasks that differ in the memory that they touch only.

    Attributes:
        label: what they do.
        costs: for each engine that may run one, its cost; the first is preferred.
        transfer: for DMA, what moves.
        again: for DMA, whether the compiler put it in because it had no room to keep what it moves:
            such transfers have a queue of their own.
        accumulates: a matmul that adds to what the one before left in PSUM.
        table: for Scalar, the activation function whose table must be loaded.
        flops: operations that count for the roofline.
        psum: whether one reads or writes PSUM.
        instructions: of the engine, in a row, that one stands for.
    """

    label: str
    costs: Costs
    transfer: Transfer | None = None
    accumulates: bool = False
    table: str = ""
    flops: int = 0
    psum: bool = False
    instructions: int = 1
    again: bool = False


class ScheduledTask:
    """One thing that an engine or the DMA queues do.

    Attributes:
        instr: the instruction that it comes from.
        kind: what it does, and what that takes. Its attributes are the task's, too.
        reads, writes: the memory that it touches.
    """

    __slots__ = ("instr", "kind", "reads", "writes")

    def __init__(
        self, instr: Instruction, kind: Kind, reads: list[Access], writes: list[Access]
    ) -> None:
        self.instr = instr
        self.kind = kind
        self.reads = reads
        self.writes = writes

    @property
    def label(self) -> str:
        return self.kind.label

    @property
    def costs(self) -> Costs:
        return self.kind.costs

    @property
    def transfer(self) -> Transfer | None:
        return self.kind.transfer

    @property
    def accumulates(self) -> bool:
        return self.kind.accumulates

    @property
    def table(self) -> str:
        return self.kind.table

    @property
    def flops(self) -> int:
        return self.kind.flops

    @property
    def psum(self) -> bool:
        return self.kind.psum


@dataclass
class Work:
    """The tasks of one NeuronCore, in program order.

    Memory goes by number: an HBM tensor, or one tile on chip (see `nkisim.cost.storage`).

    Attributes:
        tasks: the tasks.
        memory: number -> what it is.
        choices: what the compiler was assumed to do, in words -> how often.
        residence: which tiles are on chip when (nkisim.schedule.allocation.Residence), where that
            was looked up for all tasks; else None.
        kept: tiles that later iterations use in place of their own.
        rows: rows that are kept when they were loaded, and broadcast anew by those who read them.
        spared: loads that the compiler was assumed not to repeat, by their line in the kernel:
            transfers, and what each of them moves.
        reloaded: tiles that were stored to make room, and loaded again.
        ordered: numbers of the loops over nl.sequential_range.
        orders: by the identity of an instruction, those that the kernel asks it to run after.
    """

    tasks: list[ScheduledTask] = field(default_factory=list)
    memory: dict[int, Memory] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    residence: Any = None
    kept: set[int] = field(default_factory=set)
    rows: set[int] = field(default_factory=set)
    spared: dict[Location | None, list[tuple[int, Transfer]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    reloaded: set[int] = field(default_factory=set)
    ordered: set[int] = field(default_factory=set)
    orders: dict[int, list[Instruction]] = field(default_factory=dict)
