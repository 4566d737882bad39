"""Enumerations of `nki.isa`."""

from __future__ import annotations

from enum import Enum

from nkisim.ir.instruction import Engine, Instruction
from nkisim.trace.tracer import current


class _Fast(Enum):
    """Members are hashed by identity: they are parts of keys that every call makes."""

    __hash__ = object.__hash__


class engine(_Fast):
    """Engines of a NeuronCore."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    sync = 6
    unknown = 0


ENGINES: dict[engine, Engine | None] = {
    engine.tensor: Engine.TENSOR,
    engine.vector: Engine.VECTOR,
    engine.scalar: Engine.SCALAR,
    engine.gpsimd: Engine.GPSIMD,
    engine.dma: Engine.DMA,
    engine.sync: Engine.SYNC,
    engine.unknown: None,
}


class reduce_cmd(_Fast):
    """What an instruction does with the accumulators of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(_Fast):
    """What generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(_Fast):
    """What a DMA does with an index out of range."""

    error = 0
    skip = 1


class matmul_perf_mode(_Fast):
    """Modes of the Tensor Engine."""

    none = "none"
    double_row = "double_row"


class nc_version(Enum):
    """Generations of NeuronCores."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    __hash__ = object.__hash__

    def __lt__(self, other: nc_version) -> bool:
        return self.value < other.value

    def __le__(self, other: nc_version) -> bool:
        return self.value <= other.value

    def __gt__(self, other: nc_version) -> bool:
        return self.value > other.value

    def __ge__(self, other: nc_version) -> bool:
        return self.value >= other.value


class dma_engine(_Fast):
    """Which DMA moves data between the two cores of a logical core."""

    dma = 1
    gpsimd_dma = 2


class NkiInstruction:
    """The handle of an instruction that was written down."""

    __slots__ = ("instruction",)

    def __init__(self, instruction: Instruction | None = None) -> None:
        self.instruction = instruction

    def depends_on(self, *producers: NkiInstruction) -> NkiInstruction:
        """Run this instruction after others. Results do not depend on it.

        Args:
            *producers: handles of instructions that are written before this one.

        Returns:
            The handle.
        """
        later = self.instruction
        if later is not None:
            orders = current().trace.orders
            orders += [(p.instruction, later) for p in producers if p.instruction is not None]
        return self


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
unknown_engine = engine.unknown

__all__ = [
    "NkiInstruction",
    "dge_mode",
    "dma_engine",
    "engine",
    "gpsimd_engine",
    "matmul_perf_mode",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
