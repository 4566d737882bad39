"""The contents of buffers while a kernel is traced on data.

A register that is loaded from a tile decides what a kernel does next, so the instructions that the
tile's value comes from are run at once: each of them once, however often a value is asked for.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.barriers import Interleaving
from nkisim.ir.dtypes import poison
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer
from nkisim.ir.ordering import Waiting
from nkisim.ir.trace import Trace
from nkisim.numerics.program import Program


class Contents:
    """The values of buffers at the point that tracing has come to.

    Args:
        trace: what is being recorded.
        data: an array for each of its arguments. They are not written.
    """

    def __init__(self, trace: Trace, data: Sequence[np.ndarray]) -> None:
        self.trace = trace
        self._inputs = list(data)
        self._arrays: dict[int, np.ndarray] = {}  # of buffers that something has written
        self._order = Interleaving(trace.grid.size)
        self._seen = 0
        self._waiting = Waiting()

    def read(self, buffer: Buffer) -> np.ndarray:
        """The elements of a buffer. It is not to be written."""
        new = self.trace.instructions[self._seen :]
        self._seen += len(new)
        for instr in self._order.add(new):
            self._waiting.add(instr)
        self._run(self._waiting.take(self._waiting.writers.get(buffer.number)))
        if buffer.number not in self._arrays:
            for at, argument in enumerate(self.trace.arguments):
                if argument.buffer is buffer:
                    return self._inputs[at]
        return self._array(buffer)

    def _run(self, instructions: list[Instruction]) -> None:
        if not instructions:
            return
        part = copy.copy(self.trace)
        part.instructions, part.partly_written = instructions, set()
        touched = {t.buffer.number: t.buffer for i in instructions for t in (*i.outs, *i.tiles_in)}
        written = {t.buffer.number for i in instructions for t in i.outs}
        for at, argument in enumerate(part.arguments):
            number = argument.buffer.number
            if number in written and number not in self._arrays:
                self._arrays[number] = self._inputs[at] = self._inputs[at].copy()
            if number not in written:
                touched.pop(number, None)
        buffers = [b for b in touched.values() if b.data is None]
        program = Program(part, [AccessPattern(b) for b in buffers])
        program.run(self._inputs, [self._array(b) for b in buffers])

    def _array(self, buffer: Buffer) -> np.ndarray:
        found = self._arrays.get(buffer.number)
        if found is None:
            found = self._arrays[buffer.number] = np.zeros(buffer.shape, buffer.dtype)
            if buffer.number in self.trace.read_undefined:
                found.fill(poison(found.dtype))
        return found
