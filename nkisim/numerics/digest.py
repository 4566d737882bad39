"""The text of what a program computes: equal only for programs that are interchangeable.

An executable of XLA names its program by a digest of this text, so that whatever running reads has
to be in it. Each field of an instruction, a buffer and a trace therefore is, unless it is listed
here as one that running does not read; and a value of a type that has no text is an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import numpy as np

from nkisim.ir.access import AccessPattern, Form
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer
from nkisim.ir.trace import Trace

# What running does not read: where something comes from, and what follows from other fields.
_NOT_READ = {
    Instruction: {"location", "loops", "model", "tiles_in"},
    Buffer: {"declared", "kind", "location", "loops", "name", "place", "placed", "strides"},
    Trace: {"arguments", "assigned", "buffers", "hidden", "instructions", "loops", "result"}
    | {"machine", "orders", "rules", "target", "tells_apart", "grid"},
}
_EXACT = (type(None), bool, int, str, bytes, float, complex)


def contents(trace: Trace, outputs: Sequence[tuple]) -> Iterator[str]:
    """The program that a trace makes, part by part, the same in every process.

    Args:
        trace: the traced kernel.
        outputs: buffer, shape and dtype of each tensor that running gives.

    Raises:
        TypeError: an instruction has a setting of which nothing says when it equals another one.
    """
    text = _Text()
    yield text.of_fields(trace, _read(Trace, [f.name for f in fields(Trace)]))
    yield f"{trace.grid} {trace.machine.name}"
    for buffer in trace.buffers:
        yield text.of_fields(buffer, _read(Buffer, Buffer.__slots__))
    yield text.of([t.buffer.number for t in trace.arguments])
    yield text.of(outputs)
    names = _read(Instruction, [f.name for f in fields(Instruction)])
    for instr in trace.instructions:
        yield text.of_fields(instr, names)


def digest(parts: Iterable[str]) -> str:
    """SHA-256 of contents."""
    sha = hashlib.sha256()
    for part in parts:
        sha.update(f"{part}\n".encode())
    return sha.hexdigest()


def _read(kind: type, names: Sequence[str]) -> list[str]:
    return [name for name in names if name not in _NOT_READ[kind]]


class _Text:
    """Makes text of values. That of objects which many instructions share is made once."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[str, Any]] = {}  # with the object, which keeps its id

    def of_fields(self, value: object, names: Sequence[str]) -> str:
        """The text of some attributes of an object."""
        return " ".join([self.of(getattr(value, name)) for name in names])

    def of(self, value: Any) -> str:
        """The text of a value, with its type: 1, 1.0 and True differ, and so do 0.0 and -0.0."""
        kind = type(value)
        if kind in _EXACT:
            return f"{kind.__name__}{value!r}"
        if isinstance(value, AccessPattern):
            place = f"#{value.buffer.number}{value.offsets}"
            return f"{place}{self._once(value.form)}{self._once(value.dtype)}"
        if kind is tuple or kind is list:
            return f"[{', '.join([self.of(x) for x in value])}]"
        return self._once(value)

    def _once(self, value: Any) -> str:
        found = self._known.get(id(value))
        if found is None:
            found = self._known[id(value)] = self._make(value), value
        return found[0]

    def _make(self, value: Any) -> str:
        kind = type(value)
        if isinstance(value, Form):
            return f"{value.shape}{value.base_shape}{value.coefs}"
        if isinstance(value, np.dtype):
            return f"dtype {value.name}{value.str}"
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            if array.dtype.hasobject:
                raise TypeError("an array of objects is no setting of an instruction")
            data = hashlib.sha256(array.tobytes()).hexdigest()
            return f"{kind.__name__} {self.of(array.dtype)}{array.shape}{data}"
        if isinstance(value, Buffer):
            return f"#{value.number}"
        if isinstance(value, Enum):
            return f"{kind.__qualname__}.{value.name}"
        if isinstance(value, dict):
            entries = sorted([(self.of(k), self.of(v)) for k, v in value.items()])
            return f"{kind.__name__}{entries}"
        if isinstance(value, set | frozenset):
            return f"{kind.__name__}{sorted([self.of(x) for x in value])}"
        if isinstance(value, tuple):  # a named one
            return f"{kind.__qualname__}[{', '.join([self.of(x) for x in value])}]"
        if is_dataclass(value) and not isinstance(value, type):
            return f"{kind.__qualname__}({self.of_fields(value, [f.name for f in fields(kind)])})"
        if isinstance(value, BaseException):
            return f"{kind.__qualname__}({value})"
        raise TypeError(
            f"an instruction has a setting of type {kind.__qualname__}, which nkisim.numerics."
            "digest cannot tell from others of its type"
        )
