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
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import as_dtype
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Role, Space
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
    except UntrustedTrace:
        raise
    except Exception as error:  # whatever forged bytes do
        raise UntrustedTrace(f"{type(error).__name__}: {error}") from None
    return trace, outputs


class _Pickler(pickle.Pickler):
    def reducer_override(self, x: Any) -> Any:
        kind = type(x)
        if isinstance(x, Settings):
            return _settings, (kind, x.given)
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
        if (module + ".").startswith(_DATA) or module.startswith("nkisim.frontends."):
            found = super().find_class(module, name)
            if isinstance(found, type) and (
                not module.startswith("nkisim.frontends.") or issubclass(found, AccessPattern)
            ):
                return found
        raise UntrustedTrace(f"{module}.{name} is no part of a trace")


def _settings(kind: type[Settings], given: dict[str, Any]) -> Settings:
    return kind.of(given)


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
    for f in (_settings, _member, _dtype, _array, _scalar, _rules, _machine, _function)
}
