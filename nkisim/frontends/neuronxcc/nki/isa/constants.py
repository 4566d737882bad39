"""The enumerations of `neuronxcc.nki.isa`, and the engines they name."""

from __future__ import annotations

from enum import IntEnum

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.lowering.types import fp32
from nkisim.ir.instruction import Engine
from nkisim.trace.tracer import current


class engine(IntEnum):
    """The engine that an instruction is asked to run on."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    sync = 6
    unknown = 0


class nc_version(IntEnum):
    """Generations of NeuronCores: gen2 is in Trn1 and Inf2, gen3 in Trn2."""

    gen2 = 2
    gen3 = 3


class reduce_cmd(IntEnum):
    """What an instruction does with the accumulator registers of its engine."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3


class dge_mode(IntEnum):
    """Who writes the descriptors of a DMA."""

    none = 0
    swdge = 1
    hwdge = 2
    unknown = 3


class oob_mode(IntEnum):
    """What an indirect access does with an index that is out of bounds."""

    error = 0
    skip = 1


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
dma_engine = Engine.DMA
unknown_engine = engine.unknown

_ENGINES = {
    engine.tensor: Engine.TENSOR,
    engine.vector: Engine.VECTOR,
    engine.scalar: Engine.SCALAR,
    engine.gpsimd: Engine.GPSIMD,
    engine.sync: Engine.SYNC,
}


def choose(what: str, asked: engine | None, *allowed: engine) -> Engine | None:
    """The engine asked for; None when the choice is left open.

    Raises:
        ParameterError: the instruction does not run there.
    """
    if asked is None or asked == engine.unknown:
        return None
    if asked not in allowed:
        raise ParameterError(
            f"{what} with engine={asked!r}",
            rule="it runs on " + " or ".join(f"nisa.engine.{e.name}" for e in allowed),
            fix="pass one of these, or nothing",
        )
    return _ENGINES[asked]


def get_nc_version() -> nc_version:
    """The generation of NeuronCore that the kernel is traced for."""
    return nc_version.gen2 if current().trace.machine.version == 2 else nc_version.gen3


__all__ = [
    "dge_mode",
    "dma_engine",
    "engine",
    "fp32",
    "get_nc_version",
    "gpsimd_engine",
    "nc_version",
    "oob_mode",
    "reduce_cmd",
    "scalar_engine",
    "tensor_engine",
    "unknown_engine",
    "vector_engine",
]
