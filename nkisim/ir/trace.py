"""The trace of a kernel: its instructions, and the buffers that they work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nkisim.ir.access import AccessPattern
from nkisim.ir.grid import Grid
from nkisim.ir.instruction import Instruction
from nkisim.ir.loops import Loop
from nkisim.ir.memory import Buffer
from nkisim.ir.rules import Rules
from nkisim.machine import GEN2, Machine


@dataclass
class Trace:
    """The trace of a kernel.

    Attributes:
        name: the kernel's name.
        grid: the launch grid.
        instructions: of all SPMD instances, instance by instance.
        buffers: every allocation; `Buffer.number` is the position.
        arguments: the tensor arguments, in order.
        result: what the kernel returned, with Tensors at the leaves.
        written_arguments: numbers of the argument buffers that the kernel writes.
        partly_written: numbers of the HBM buffers with elements that nothing writes.
        read_undefined: numbers of the buffers of which elements are read, or may be, that nothing
            has written.
        loops: every loop execution; instructions and buffers name them by position.
        hidden: numbers of the buffers that stand for state of the hardware.
        assigned: numbers of the buffers that only passed a result on to where it was assigned.
        machine: the NeuronCore generation traced for.
        target: what chose it, as in nkisim.machine.target; "" for the default.
        strict_ranges: whether an input out of its function's range is an error when it runs.
        tells_apart: whether an instance asks for its nl.program_id; else all of them do the same.
        unsettled: the error if results depend on which of two instances comes first; None where no
            instance touches what another one writes.
        rules: what its dialect decides.
        guessed: what the kernel calls of which no latency is published.
        orders: pairs of instructions of which the kernel asks that the second one runs after the
            first.
    """

    name: str
    grid: Grid
    instructions: list[Instruction] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    arguments: list[AccessPattern] = field(default_factory=list)
    result: Any = None
    written_arguments: list[int] = field(default_factory=list)
    partly_written: set[int] = field(default_factory=set)
    read_undefined: set[int] = field(default_factory=set)
    loops: list[Loop] = field(default_factory=list)
    hidden: set[int] = field(default_factory=set)
    assigned: set[int] = field(default_factory=set)
    machine: Machine = GEN2
    target: str = ""
    strict_ranges: bool = False
    tells_apart: bool = False
    unsettled: Exception | None = None
    rules: Rules = field(default_factory=Rules)
    guessed: set[str] = field(default_factory=set)
    orders: list[tuple[Instruction, Instruction]] = field(default_factory=list)
