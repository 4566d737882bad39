"""The accumulator registers of the Scalar and the Vector Engine: one fp32 number a partition.

Instructions reduce into them, several in a row if asked to, and read them out. They stand in a
hidden tile of the instance, so that the checks see reads of registers that nothing has reset.
"""

from __future__ import annotations

from collections.abc import Callable

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import F32
from nkisim.trace.tracer import current

_RESET = {"add": 0.0, "maximum": float("-inf")}


def accumulate(
    engine: str,
    command: str,
    data: Tensor,
    result: Tensor | None,
    op: str,
    *,
    idle: Callable[[], None],
    reduce: Callable[..., None],
) -> None:
    """Write down an instruction that uses the accumulators of `engine`.

    Args:
        engine: whose registers.
        command: name of a member of nisa.reduce_cmd.
        data: the tile reduced; its partitions are the registers'.
        result: tile that receives the registers, or None.
        op: "add" or "maximum".
        idle: emits the instruction without a reduction.
        reduce: emits it with one: `reduce(reduce_op=, reductions=, before=)`.
    """
    registers = _registers(engine)[: data.shape[0]]
    outputs = () if result is None else (result,)
    if command == "idle":
        if result is not None:
            raise ParameterError(
                "reduce_res is given, but reduce_cmd is idle",
                rule="nothing is accumulated when reduce_cmd is idle",
                fix="pass reduce_cmd=nisa.reduce_cmd.reset_reduce",
            )
        idle()
    elif command == "reset":
        current().emit("memset", (registers,), value=_RESET[op])
        idle()
        if result is not None:
            current().emit("tensor_copy", (result,), (_like(registers, result),))
    else:
        before = registers if command == "reduce" else None
        reduce(reduce_op=op, reductions=(registers, *outputs), before=before)


def _like(registers: Tensor, result: Tensor) -> Tensor:
    while registers.ndim < result.ndim:
        registers = registers.expand_dims(registers.ndim)
    return registers


def _registers(engine: str) -> Tensor:
    machine = current().trace.machine
    return current().hidden(f"{engine} accumulators", (machine.partitions, 1), F32)
