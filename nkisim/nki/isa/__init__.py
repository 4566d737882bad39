"""`neuronxcc.nki.isa`: one function an instruction. Most of it is still to come."""

from __future__ import annotations

from enum import Enum
from typing import Any

from nkisim.index import Mask
from nkisim.instruction import Engine
from nkisim.lowering.elementwise import elementwise, operator_name
from nkisim.lowering.movement import copy
from nkisim.tensor import Tensor


class engine(Enum):
    """The engine that an instruction is asked to run on."""

    tensor = 1
    vector = 5
    scalar = 2
    gpsimd = 3
    dma = 4
    unknown = 0


tensor_engine = engine.tensor
vector_engine = engine.vector
scalar_engine = engine.scalar
gpsimd_engine = engine.gpsimd
dma_engine = engine.dma
unknown_engine = engine.unknown

_ENGINES = {
    engine.vector: Engine.VECTOR,
    engine.scalar: Engine.SCALAR,
    engine.gpsimd: Engine.GPSIMD,
}


def tensor_tensor(
    data1: Tensor,
    data2: Tensor,
    op: Any,
    *,
    dtype: Any = None,
    mask: Mask | None = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """`op(data1, data2)`, element by element, on the Vector or GpSimd Engine.

    Args:
        data1, data2: on-chip tiles of one shape, (partitions <= 128, free...).
        op: a binary operator: an `nki.language` function or the NumPy function of that name.
        dtype: output type; the promoted input type when None.
        mask: where to compute.
        engine: the engine to use; the Vector Engine when unknown, except for power and 32-bit
            integer arithmetic, which GpSimd runs.

    Returns:
        An SBUF tile of the operands' shape.
    """
    return elementwise(
        operator_name(op),
        data1,
        data2,
        dtype=dtype,
        mask=mask,
        engine=_ENGINES.get(engine),
    )


def tensor_copy(
    src: Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    engine: engine = engine.unknown,
    **kwargs: Any,
) -> Tensor:
    """Copy an on-chip tile into a new SBUF tile, converting to `dtype` if given."""
    return copy(src, mask=mask, dtype=dtype, engine=_ENGINES.get(engine))
