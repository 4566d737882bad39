"""What the scheduler runs: tasks, and the memory that they touch."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nkisim.cost.compute import Cost
from nkisim.cost.dma import Transfer
from nkisim.instruction import Engine, Instruction
from nkisim.memory import Buffer, Space

if TYPE_CHECKING:
    from nkisim.cost.allocation import Residence

# For each engine that may run a task, what it costs there.
Costs = tuple[tuple[Engine, Cost], ...]


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
        costs: Costs,
        reads: list,
        writes: list,
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

    Memory goes by number: an HBM tensor, or one tile on chip (see `nkisim.cost.storage`).

    Attributes:
        tasks: the tasks.
        sizes: number -> bytes a partition, of tiles on chip.
        spaces: number -> the memory that it is in after the compiler's choices.
        choices: what the compiler was assumed to do, in words -> how often.
        buffers: number -> the buffer that it is, or is a tile of.
        residence: which tiles are on chip when; None until all tasks are known.
    """

    tasks: list[Task] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    spaces: dict[int, Space] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    buffers: dict[int, Buffer] = field(default_factory=dict)
    residence: Residence | None = None
