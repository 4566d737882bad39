"""The outputs of a kernel: tensors that it returns, and parameters that it writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from nkisim.errors import MemorySpaceError, OutputError, ParameterError
from nkisim.frontends.dialect import Call
from nkisim.frontends.neuronxcc.rules.annotations import parameter_hints
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Role

if TYPE_CHECKING:
    from nkisim.checking.checker import Checker
    from nkisim.ir.trace import Trace


def check_outputs(call: Call, returned: list[Tensor], trace: Trace, checker: Checker) -> None:
    """Look at what a traced kernel returns and writes.

    Args:
        call: the call of the kernel.
        returned: the tensors that the kernel returns.
        trace: its trace.
        checker: what the trace was checked with.

    Raises:
        OutputError: a returned tensor is on chip, a part, or one of several instances.
        ParameterError: a parameter is written that is no output.
    """
    name, func = call.name, call.func
    for tensor in returned:
        _check_returned(name, tensor, trace)
        checker.on_output(tensor)
    for error in _kept_in_hbm(returned, trace):
        checker.report("compiler", error)
    if returned:
        _check_parameters(func, returned, trace)
    elif not trace.written_arguments and all(i.outs for i in trace.instructions):
        checker.report(
            "output",
            OutputError(
                f"kernel {name} leaves no result: it returns no tensor, and writes and prints "
                "nothing",
                rule="what a kernel computes is gone when it ends, but for HBM that it returns",
                fix="store the result in an nl.shared_hbm tensor and return that",
                code="err_tensor_output_not_written_to",
                location=call.place,
            ),
            mild=True,
        )


def _check_returned(name: str, tensor: Tensor, trace: Trace) -> None:
    if tensor.space.on_chip:
        raise OutputError(
            f"kernel {name} returns {tensor.describe()}",
            rule="kernel outputs live in HBM; on-chip tiles are gone when it ends",
            fix="make an output with nl.ndarray(..., buffer=nl.shared_hbm), nl.store the tile into "
            "it and return that",
            location=tensor.buffer.location,
        )
    if tensor.buffer.program is not None and trace.grid.size > 1:
        raise OutputError(
            f"kernel {name}[{trace.grid}] returns {tensor.describe()}, which each instance has one "
            "of",
            rule="the output of a launch grid is one tensor that all instances write",
            fix="make it with buffer=nl.shared_hbm",
            location=tensor.buffer.location,
        )
    if not tensor.covers_buffer:
        raise OutputError(
            f"kernel {name} returns a part of {tensor.describe()}",
            rule="a kernel returns whole tensors",
            fix="return the tensor, and slice the result outside the kernel",
            location=tensor.buffer.location,
        )


def _kept_in_hbm(returned: list[Tensor], trace: Trace) -> Iterator[MemorySpaceError]:
    """HBM tensors that only the kernel itself uses, where it also places tiles by hand."""
    if all([b.place is None for b in trace.buffers]):
        return
    outputs = {t.buffer.number for t in returned}
    for b in trace.buffers:
        if b.role is Role.LOCAL and not b.space.on_chip and b.number not in outputs:
            yield MemorySpaceError(
                f"{b!r} is no output, and no argument, of a kernel that places tiles by hand",
                rule="with direct allocation the compiler takes no HBM tensors but arguments and "
                "outputs (AWS's known issues)",
                fix="return it, keep it in SBUF, or let the compiler place the tiles",
                location=b.location,
            )


def _check_parameters(func: Callable, returned: list[Tensor], trace: Trace) -> None:
    """New-style kernels return their outputs and write only parameters marked as mutable."""
    hints = parameter_hints(func)
    for tensor in trace.arguments:
        name = tensor.buffer.name
        if tensor.buffer.number not in trace.written_arguments:
            continue
        mutable = getattr(hints.get(name), "mutable", False)
        if mutable and any(t.buffer is tensor.buffer for t in returned):
            continue
        writer = next(
            i for i in trace.instructions if any(o.buffer is tensor.buffer for o in i.outs)
        )
        if mutable:
            raise ParameterError(
                f"the kernel writes its mutable parameter '{name}' and does not return it",
                rule="a mutable parameter is one of the outputs, so it is returned",
                fix=f"add {name} to the return statement",
                code="err_mutable_parameter_not_returned",
                location=writer.location,
            )
        raise ParameterError(
            f"the kernel writes its parameter '{name}'",
            rule="parameters are immutable in a kernel that returns its outputs",
            fix="write to an nl.shared_hbm tensor, or annotate the parameter with "
            "nki.typing.mutable_tensor and return it",
            code="err_cannot_update_immutable_parameter",
            location=writer.location,
        )
