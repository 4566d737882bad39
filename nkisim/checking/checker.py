"""Runs the checks over a trace as it grows, and over all of it at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim.checking.memory_state import MemoryState
from nkisim.checking.patterns import check_allocation, check_bounds, check_memory, check_tiles
from nkisim.checking.settings import current_modes
from nkisim.errors import KernelError, OutputError, warn
from nkisim.index import Restriction
from nkisim.instruction import Instruction
from nkisim.memory import Space
from nkisim.tensor import Tensor

if TYPE_CHECKING:
    from nkisim.trace import Trace


class Checker:
    """All checks, over one trace."""

    def __init__(self) -> None:
        self.modes = current_modes()

    def begin(self, trace: Trace) -> None:
        """Start on an empty trace."""
        self.trace = trace
        self._memory_state = MemoryState(self, trace)
        stages = {
            "bounds": check_bounds,
            "memory": check_memory,
            "tile": check_tiles,
        }
        self._stages = [
            (name, check) for name, check in stages.items() if self.modes[name] != "off"
        ]

    def on_instruction(self, instr: Instruction) -> None:
        for name, check in self._stages:
            error = check(instr, self.trace)
            if error is not None:
                self.report(name, error)
        self._memory_state.on_instruction(instr)

    def on_allocate(
        self, shape: tuple[int, ...], dtype: np.dtype, space: Space, par_axis: int, name: str
    ) -> None:
        if self.modes["tile"] != "off":
            error = check_allocation(shape, dtype, space, par_axis, name, self.trace)
            if error is not None:
                self.report("tile", error)

    def defined_part(self, tensor: Tensor) -> Restriction | None:
        """The part of a tile that something wrote; None when it is all, or nothing."""
        return self._memory_state.defined_part(tensor)

    def on_output(self, tensor: Tensor) -> None:
        """An HBM tensor that the kernel returns has been written."""
        missing, size = self._memory_state.missing_part(tensor.buffer)
        if not missing or not size:
            return
        place = tensor.buffer.location
        if missing == size:
            self.report(
                "output",
                OutputError(
                    f"the kernel returns {tensor.describe()}, which nothing writes",
                    rule="an output is HBM that the kernel fills with nl.store or a DMA",
                    fix="store the result into it before returning",
                    location=place,
                ),
            )
        elif self.modes["output"] != "off":
            warn(
                OutputError(
                    f"{missing:,} of {size:,} elements of the output {tensor.describe()} are never "
                    "written and hold garbage on hardware",
                    rule="an output should be written everywhere",
                    fix="check the launch grid and the masks of the stores",
                    location=place,
                )
            )

    def finish(self) -> None:
        """All instances are traced."""
        self._memory_state.finish()

    def report(self, name: str, error: KernelError) -> None:
        """Raise, warn or drop, as the mode of check `name` says."""
        mode = self.modes[name]
        if mode == "error":
            raise error
        if mode == "warn":
            warn(error)
