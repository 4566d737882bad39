"""Kernels whose instructions follow from the values of their arguments, where there are no values.

Under jax.jit and torch_xla a kernel is traced on shapes. If a register that bounds a loop or moves
a view is loaded from an argument, such a trace tells the shapes of the outputs and no more. The
kernel is then traced again, with every check, each time that it runs.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.access import AccessPattern
from nkisim.ir.trace import Trace
from nkisim.numerics.program import Program

_process = os.urandom(16).hex()
_numbers = itertools.count()


def no_values(name: str) -> ParameterError:
    """The error for a TensorSpec given to a kernel whose trace depends on values."""
    return ParameterError(
        f"kernel {name} reads values of its arguments to tell what to do, and is given shapes",
        rule="what such a kernel does, and how long it takes, follows from its data",
        fix="pass arrays in place of every TensorSpec",
    )


def changing_outputs(name: str, found: str) -> ParameterError:
    """A run on data has other outputs than the trace without data."""
    return ParameterError(
        f"kernel {name} {found}, on this data only",
        rule="under jax.jit and torch_xla the outputs are known before the data: those of a trace "
        "with one round of each loop over data",
        fix="return the same tensors for all data, and each argument that a loop writes",
    )


class HasProgram(Protocol):
    """A kernel that is traced: nkisim.runtime.kernel.Specialization."""

    program: Program


class ProgramByData(Program):
    """A kernel that is traced on the data of each run.

    Attributes:
        trace: what it does where each loop over data has one round, and each register is 0.

    Args:
        trace, outputs: as for `Program`.
        on_data: traces the kernel on one array for each of `inputs`. It returns as many tensors.
    """

    def __init__(
        self,
        trace: Trace,
        outputs: Sequence[AccessPattern],
        on_data: Callable[[Sequence[np.ndarray]], HasProgram],
    ) -> None:
        super().__init__(trace, outputs)
        self.on_data = on_data
        self._number = next(_numbers)

    @cached_property
    def digest(self) -> str:
        """A digest of this object, not of its instructions: programs with one first round may
        differ."""
        return hashlib.sha256(f"{super().digest}|{_process}|{self._number}".encode()).hexdigest()

    def same_as(self, other: Program) -> bool:
        return self is other

    @property
    def needed_inputs(self) -> tuple[int, ...]:
        return tuple(range(len(self.inputs)))

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Trace on data, and execute. Arguments and result as for `Program.run`.

        Raises:
            KernelError: the kernel breaks a rule on this data.
            ParameterError: which outputs there are depends on the data.
        """
        program = self.on_data(inputs).program
        results = (
            [np.empty(s.shape, s.dtype) for s in self.outputs]
            if outputs is None
            else self._checked_outputs(outputs)
        )
        places = {i: results[o] for o, i in self.aliases.items()}
        given = []
        for o, spec in enumerate(program.outputs):
            found = places.get(program.aliases[o]) if o in program.aliases else results[o]
            if found is None:
                raise changing_outputs(self.trace.name, f"writes its argument {spec.name}")
            given.append(found)
        for o, i in self.aliases.items():
            if results[o] is not inputs[i]:
                np.copyto(results[o], inputs[i])
        program.run(inputs, given)
        return tuple(results)
