"""A traced kernel as bytes, which another process takes without trusting who wrote them.

The process that traces a kernel runs its author's Python, so whatever comes out of it may be
forged. What is read here builds data of the instruction stream and nothing else: no function is
called that a trace does not consist of.
"""

from __future__ import annotations

import dataclasses
import io
import pickle
from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any

import numpy as np

from nkisim.errors import Location
from nkisim.frontends.neuronxcc.kernel import RULES as NEURONXCC_RULES
from nkisim.frontends.nki.kernel import RULES as NKI_RULES
from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.instruction import Engine, Instruction
from nkisim.ir.memory import Buffer, BufferKind, Role, Space
from nkisim.ir.rules import Rules
from nkisim.ir.settings import Settings
from nkisim.ir.trace import Trace
from nkisim.machine import GENERATIONS, Machine

_RULES = {rules.dialect: rules for rules in (NEURONXCC_RULES, NKI_RULES)}
_MACHINES = {machine.name: machine for machine in GENERATIONS}
_ENUMS = {kind.__name__: kind for kind in (Engine, Role, Space)}
# Whose classes a trace consists of; of front ends, those of access patterns.
_DATA = ("nkisim.ir.", "nkisim.numerics.ops.")


class UntrustedTrace(Exception):
    """Bytes that are no trace."""


def dumps(trace: Trace, outputs: list[AccessPattern]) -> bytes:
    """A trace and the tensors that it gives, as bytes.

    Raises:
        UntrustedTrace: something in it is no data of the instruction stream.
    """
    plain = dataclasses.replace(
        trace,
        arguments=[AccessPattern(t.buffer) for t in trace.arguments],
        result=None,
        unsettled=None,  # found again by who checks
    )
    numbers = [t.buffer.number for t in outputs]
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=5).dump((plain, numbers))
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise UntrustedTrace(f"{type(error).__name__}: {error}") from None
    return file.getvalue()


def loads(data: bytes) -> tuple[Trace, list[AccessPattern]]:
    """The trace and its outputs.

    Raises:
        UntrustedTrace: the bytes are no trace, or name something that no trace consists of.
    """
    try:
        trace, numbers = _Unpickler(io.BytesIO(data)).load()
        assert isinstance(trace, Trace)
        outputs = [AccessPattern(trace.buffers[n]) for n in numbers]
        assert all(b.number == n for n, b in enumerate(trace.buffers))
        for buffer in trace.buffers:
            _follow(buffer)
        for instruction in trace.instructions:
            _require_genuine(instruction)
        for tensor in (*trace.arguments, *outputs):
            if tensor.space.on_chip:
                raise UntrustedTrace(f"{tensor.buffer} is an argument or a result")
    except UntrustedTrace:
        raise
    except Exception as error:  # whatever forged bytes do
        raise UntrustedTrace(f"{type(error).__name__}: {error}") from None
    return trace, outputs


def _follow(buffer: Buffer) -> None:
    """Compute again what follows from a buffer's shape, type and memory."""
    again = Buffer(
        buffer.number,
        buffer.shape,
        buffer.dtype,
        buffer.space,
        par_axis=buffer.par_axis,
        role=buffer.role,
        place=buffer.place,
    )
    buffer.kind, buffer.strides = again.kind, again.strides


_OF_THEIR_OWN = (Engine.DMA, Engine.SYNC, Engine.HOST)


def _require_genuine(instruction: Instruction) -> None:
    """Refuse an engine that does not run the instruction, and a view that is not as its form."""
    own, engine = instruction.spec.engine, instruction.engine
    if engine is not own and (
        own in _OF_THEIR_OWN or engine in _OF_THEIR_OWN or engine is Engine.TENSOR
    ):
        raise UntrustedTrace(f"{instruction.opcode} on {engine.value}")
    for tile in (*instruction.outs, *instruction.tiles_in):
        form = tile.form
        if (tile.shape, tile.base_shape, tile.coefs) != (form.shape, form.base_shape, form.coefs):
            raise UntrustedTrace(f"{instruction.opcode} of a tile with the form of another one")


class _Pickler(pickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        kind = type(x)
        if isinstance(x, Settings):
            return _settings, (kind, x.given)
        if isinstance(x, Instruction):
            return _instruction, tuple(getattr(x, name) for name in _GIVEN)
        if isinstance(x, Form):
            return _form, (x.shape, x.base_shape, x.coefs)
        if isinstance(x, BufferKind):
            return _kind, ()
        if isinstance(x, Enum):
            return _member, (kind.__name__, x.name)
        if isinstance(x, np.ndarray):
            if x.dtype.hasobject:
                raise pickle.PicklingError("an array of objects")
            return _array, (x.dtype, x.shape, x.tobytes())
        if isinstance(x, np.dtype):
            return _dtype, (x.name if x.isbuiltin != 1 else x.str,)
        if isinstance(x, np.generic):
            return _scalar, (x.dtype, x.tobytes())
        if isinstance(x, Rules):
            return _rules, (x.dialect,)
        if isinstance(x, Machine):
            return _machine, (x.name,)
        if isinstance(x, FunctionType) and x.__module__ != __name__:
            return _function, ()  # where a kernel places tiles: `Buffer.placed` has the places
        return NotImplemented


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module == __name__ and name in _MAKERS:
            return _MAKERS[name]
        if module == Location.__module__ and name == Location.__name__:
            return Location
        if name in (Form.__name__, Instruction.__name__, BufferKind.__name__):
            raise UntrustedTrace(f"{name} is made again, of what is given")
        if (module + ".").startswith(_DATA) or module.startswith("nkisim.frontends."):
            found = super().find_class(module, name)
            if isinstance(found, type) and (
                not module.startswith("nkisim.frontends.") or issubclass(found, AccessPattern)
            ):
                return found
        raise UntrustedTrace(f"{module}.{name} is no part of a trace")


def _settings(kind: type[Settings], given: dict[str, Any]) -> Settings:
    return kind.of(given)


_GIVEN = tuple(f.name for f in dataclasses.fields(Instruction) if f.init)


def _instruction(*given: Any) -> Instruction:
    return Instruction(*given)


def _form(*given: Any) -> Form:
    return Form.of(*given)


def _kind() -> None:
    return None  # computed again, once the buffer is there


def _member(kind: str, name: str) -> Enum:
    return _ENUMS[kind][name]


def _dtype(name: str) -> np.dtype:
    return as_dtype(name)


def _array(dtype: np.dtype, shape: tuple[int, ...], data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype).reshape(shape)


def _scalar(dtype: np.dtype, data: bytes) -> Any:
    return np.frombuffer(data, dtype)[0]


def _rules(dialect: str) -> Rules:
    return _RULES[dialect]


def _machine(name: str) -> Machine:
    return _MACHINES[name]


def _function() -> Callable:
    return _elsewhere


def _elsewhere(*args: Any, **kwargs: Any) -> Any:
    raise UntrustedTrace("a function of the kernel is not called here")


_MAKERS = {
    f.__name__: f
    for f in (
        *(_settings, _instruction, _form, _kind, _member),
        *(_dtype, _array, _scalar, _rules, _machine, _function),
    )
}
