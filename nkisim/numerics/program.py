"""A traced kernel that can be run on data, many times, from several threads.

Checks have run while tracing; running is a list of NumPy calls on views. On-chip and scratch
buffers share storage by liveness, in a workspace. Workspaces are kept between runs: those of all
programs that were used last, as far as they fit in `KEPT` bytes together, and the very last one.
"""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import poison
from nkisim.ir.forks import unlocked_in_child
from nkisim.ir.garbage import without_collection
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Role
from nkisim.ir.ordering import by_core
from nkisim.ir.trace import Trace
from nkisim.ir.views import view_of
from nkisim.numerics.blas import OneThread
from nkisim.numerics.digest import contents, digest
from nkisim.numerics.floating import DefaultEnvironment
from nkisim.numerics.plan import plan
from nkisim.numerics.recent import Recent
from nkisim.numerics.workspace import OperandPlaces, Workspace, byte_view

KEPT = 128 << 20
"""Bytes of the workspaces that are kept for the next run, of all programs together."""

_kept = Recent(KEPT)
_TRACE = 14_000  # bytes that the trace of a small kernel takes, with its plan and its guards
_INSTRUCTION = 800  # bytes that an instruction of a trace takes, with its part of the plan


class TensorSpec(NamedTuple):
    """Shape (tuple of ints) and dtype of a tensor that is not there yet."""

    shape: tuple[int, ...]
    dtype: np.dtype
    name: str = ""


@unlocked_in_child
class Program:
    """A specialised kernel.

    Attributes:
        trace: the instructions and where they come from.
        inputs: the tensor arguments, in order.
        outputs: what it returns, in order, then the arguments it writes in place.
        output_buffers: the buffer behind each output.
        aliases: index of an output -> index of the argument that holds it.
    """

    def __init__(self, trace: Trace, outputs: Sequence[AccessPattern]) -> None:
        self.trace = trace
        self.output_buffers = [t.buffer for t in outputs]
        arguments = [t.buffer for t in trace.arguments]
        self.inputs = tuple(TensorSpec(b.shape, b.dtype, b.name) for b in arguments)
        self.outputs = tuple(TensorSpec(t.shape, t.dtype, t.buffer.name) for t in outputs)
        self.aliases = {
            o: arguments.index(b)
            for o, b in enumerate(self.output_buffers)
            if b.role is Role.ARGUMENT
        }
        self._poisoned = [
            o for o, b in enumerate(self.output_buffers) if b.number in trace.partly_written
        ]
        numbers = [b.number for b in self.output_buffers]
        self._repeats = {o: numbers.index(n) for o, n in enumerate(numbers) if n in numbers[:o]}
        self._workspaces: deque[Workspace] = deque()

    def writes_input(self, index: int) -> bool:
        """Whether the kernel writes argument `index`, and does not only return it."""
        return self.trace.arguments[index].buffer.number in self.trace.written_arguments

    @cached_property
    def needed_inputs(self) -> tuple[int, ...]:
        """Indices of the arguments whose contents before the launch matter.

        The others are only outputs: the kernel writes every element of them and reads none.
        """
        read = {t.buffer.number for instr in self.instructions for t in instr.tiles_in}
        open_ = {
            t.buffer.number: np.ones(t.buffer.size, bool)
            for t in self.trace.arguments
            if t.buffer.number in self.trace.written_arguments and t.buffer.number not in read
        }
        for instr in self.instructions:
            for out in instr.outs:
                if out.buffer.number in open_ and not instr.spec.partial:
                    where = instr.where_of(out)
                    view = view_of(open_[out.buffer.number], out)
                    np.copyto(view, False, where=True if where is None else where)
        only_outputs = {number for number, left in open_.items() if not left.any()}
        numbers = [t.buffer.number for t in self.trace.arguments]
        return tuple(i for i, number in enumerate(numbers) if number not in only_outputs)

    @property
    def instructions(self) -> list[Instruction]:
        return self.trace.instructions

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all that running reads, the same in every process."""
        return digest(self._contents())

    def same_as(self, other: Program) -> bool:
        """Whether running either program does the same."""
        return all(a == b for a, b in zip_longest(self._contents(), other._contents()))

    def _contents(self) -> Iterator[str]:
        given = [
            (b, s.shape, s.dtype) for b, s in zip(self.output_buffers, self.outputs, strict=True)
        ]
        return contents(self.trace, given)

    @cached_property
    def kept_bytes(self) -> int:
        """About what the trace takes, with the arrays that its instructions hold."""
        arrays = {}
        for i in self.instructions:
            for x in (
                i.where,
                i.where_out,
                i.undefined,
                *i.settings.given.values(),
                *(i.contested or ()),
            ):
                if type(x) is np.ndarray:
                    arrays[id(x)] = x.nbytes
        data = sum(b.data.nbytes for b in self.trace.buffers if b.data is not None)
        return _TRACE + len(self.instructions) * _INSTRUCTION + sum(arrays.values()) + data

    @cached_property
    def _plan(self) -> OperandPlaces:
        keep = {b.number for b in self.output_buffers}
        with without_collection():
            return OperandPlaces(plan(self.trace, keep), self.trace, self.output_buffers)

    def run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None = None
    ) -> tuple[np.ndarray, ...]:
        """Execute on data.

        Args:
            inputs: one array for each of `self.inputs`, of its shape and dtype.
            outputs: arrays to fill, C-contiguous; made when not given. An output that aliases an
                input starts as a copy of it, or is it when the same array is given for both.

        Returns:
            The outputs.

        Raises:
            ParameterError: the arrays do not match the specialisation.
            RaceError: results depend on the order in which cores run (`Trace.unsettled`).
        """
        with DefaultEnvironment(), np.errstate(all="ignore"):
            return self._run(inputs, outputs)

    def _run(
        self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray] | None
    ) -> tuple[np.ndarray, ...]:
        layout = self._plan
        if len(inputs) != len(self.inputs):
            raise _wrong_count("input", len(inputs), len(self.inputs))
        sources = [_checked(a, s) for a, s in zip(inputs, self.inputs, strict=True)]
        if outputs is None:
            results = [np.empty(s.shape, s.dtype) for s in self.outputs]
        else:
            results = self._checked_outputs(outputs)
        others = [p.run([a.copy() for a in sources]) for p in self._other_orders]
        for o, i in self.aliases.items():
            if results[o] is not inputs[i]:
                np.copyto(results[o], sources[i].reshape(results[o].shape))
        for o in self._poisoned:
            results[o].fill(poison(results[o].dtype))
        try:
            workspace = self._workspaces.pop()
        except IndexError:
            workspace = Workspace(layout, weakref.ref(self._workspaces))
        table = workspace.table.copy()
        bases = [byte_view(a) for a in sources] + [byte_view(a) for a in results]
        for place, base, shape, dtype, offset, strides in layout.outside:
            table[place] = np.ndarray(shape, dtype, bases[base], offset, strides)
        blas = OneThread() if layout.multiplies else contextlib.nullcontext()
        with blas:
            for function, places in layout.calls:
                function(*[table[p] for p in places])
        self._workspaces.append(workspace)
        _kept.use(workspace, layout.workspace_bytes, workspace.let_go)
        for o, first in self._repeats.items():
            if results[o] is not results[first]:
                np.copyto(results[o], results[first].reshape(results[o].shape))
        if any(
            a.tobytes() != b.tobytes()
            for other in others
            for a, b in zip(results, other, strict=True)
        ):
            raise self.trace.unsettled
        return tuple(results)

    @cached_property
    def _other_orders(self) -> list[Program]:
        """Programs that must give the same: where cores touch the same memory in no order."""
        if self.trace.unsettled is None:
            return []
        # In another order a core may read what nothing has written yet.
        shared = {
            b.number for b in self.trace.buffers if b.program is None and b.role is Role.LOCAL
        }
        trace = replace(
            self.trace,
            partly_written=self.trace.partly_written | shared,
            read_undefined=self.trace.read_undefined | shared,
            unsettled=None,
        )
        outputs = [AccessPattern(b) for b in self.output_buffers]
        return [
            Program(replace(trace, instructions=by_core(trace, last_first)), outputs)
            for last_first in (False, True)
        ]

    def _checked_outputs(self, outputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """`outputs`, which can be filled in place."""
        if len(outputs) != len(self.outputs):
            raise _wrong_count("output", len(outputs), len(self.outputs))
        for o, (array, spec) in enumerate(zip(outputs, self.outputs, strict=True)):
            if array.shape != spec.shape or array.dtype != spec.dtype:
                raise ParameterError(
                    f"output '{spec.name}' is given as {array.dtype}{list(array.shape)}, "
                    f"but the program makes {spec.dtype}{list(spec.shape)}",
                    rule="an array to fill has the output's shape and dtype",
                    fix="make it from program.outputs, or let run make it",
                )
            filled = o not in self.aliases or self.writes_input(self.aliases[o])
            if not array.flags.c_contiguous or (filled and not array.flags.writeable):
                raise ParameterError(
                    f"output '{spec.name}' is given as an array that is not C-contiguous and "
                    "writable",
                    rule="outputs are filled in place, without a copy",
                    fix="pass np.empty(shape, dtype), and copy from it afterwards",
                )
        return list(outputs)


def _wrong_count(what: str, given: int, wanted: int) -> ParameterError:
    return ParameterError(
        f"{given} arrays are given for {wanted} {what}{'s' * (wanted != 1)}",
        rule=f"a program is run with one array an {what}",
        fix=f"see program.{what}s",
    )


def _checked(array: np.ndarray, spec: TensorSpec) -> np.ndarray:
    if array.shape != spec.shape or array.dtype != spec.dtype:
        raise ParameterError(
            f"argument '{spec.name}' is {array.dtype}{list(array.shape)}, "
            f"but the program was traced for {spec.dtype}{list(spec.shape)}",
            rule="a traced program is specialised to shapes and dtypes",
            fix="call the kernel again, which traces a new specialisation",
        )
    return np.ascontiguousarray(array)
