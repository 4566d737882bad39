"""What the operations of an HLO module read from memory and write to it, counted from shapes."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterator

from nkibook.hlo.parse import Computation, Instruction, ParsedModule, Shape

# What a user of the result computes for itself, so that it is never an array in memory.
_ON_THE_FLY = frozenset({"broadcast", "constant", "iota"})
# The same elements under another name.
_VIEWS = frozenset({"bitcast", "get-tuple-element", "parameter", "reshape", "tuple"})

_EXPONENTIALS = frozenset({"exponential", "logistic"})
_EXPONENTIALS_OF_FX = frozenset({("map", "exp"), ("map", "sigmoid")})


@dataclasses.dataclass(frozen=True)
class Operation:
    """An HLO operation that reads and writes memory.

    Attributes:
        opcode: of the instruction, such as `exponential`; of a fusion, `fusion`.
        shape: of the result.
        op_name: the framework's operation, with the named scopes around it.
        read: bytes of the operands.
        written: bytes of the result.
        flops: of a matrix product, 2 for each multiplication and addition; otherwise 0.
    """

    opcode: str
    shape: Shape
    op_name: str
    read: int
    written: int
    flops: int

    @property
    def moved(self) -> int:
        """Bytes read and written."""
        return self.read + self.written

    @property
    def exponentials(self) -> int:
        """Elements, if it is an exponential or a sigmoid, of HLO or of a graph of PyTorch."""
        alone = self.opcode in _EXPONENTIALS or (self.opcode, self.op_name) in _EXPONENTIALS_OF_FX
        return math.prod(self.shape.dims) if alone else 0


def operations(module: ParsedModule) -> Iterator[Operation]:
    """The operations of a module in order, as if each were executed alone.

    A fusion and a custom call are one operation each. A call is what it calls. A gather reads as
    much as it writes. A broadcast, a constant and an iota are no arrays: their user reads what they
    are made of.
    """
    yield from _of({c.name: c for c in module.computations}, module.entry)


def _of(called: dict[str, Computation], computation: Computation) -> Iterator[Operation]:
    for i in computation.instructions:
        if i.opcode == "call":
            for name in i.called_computations:
                yield from _of(called, called[name])
        elif i.opcode not in _VIEWS | _ON_THE_FLY:
            written = i.shape.nbytes
            read = sum(_read(computation, computation[name]) for name in i.operands)
            if i.opcode == "gather":
                read = written
            yield Operation(i.opcode, i.shape, i.op_name, read, written, flops_of(computation, i))


def _read(computation: Computation, operand: Instruction) -> int:
    """Bytes that a user of an operand reads."""
    while operand.opcode == "reshape":
        operand = computation[operand.operands[0]]
    if operand.opcode in _ON_THE_FLY:
        return sum(_read(computation, computation[name]) for name in operand.operands)
    return operand.shape.nbytes


def flops_of(computation: Computation, i: Instruction) -> int:
    """Multiplications and additions of a matrix product; 0 for other operations."""
    if i.opcode != "dot":
        return 0
    left = computation[i.operands[0]].shape.dims
    summed = re.findall(r"\d+", i.attributes.get("lhs_contracting_dims", ""))
    return 2 * math.prod(i.shape.dims) * math.prod(left[int(axis)] for axis in summed)
