"""A traced kernel that can be run on data, many times, from several threads.

Checks have run while tracing; running is a list of NumPy calls on views. On-chip and scratch
buffers share storage by liveness, in a workspace. Workspaces are kept between runs: those of all
programs that were used last, as far as they fit in `KEPT` bytes together, and the very last one.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import zip_longest
from typing import NamedTuple

import numpy as np

from nkisim.errors import ParameterError
from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import FLOATS
from nkisim.ir.forks import unlocked_in_child
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.memory import Buffer, Role
from nkisim.ir.ordering import by_core
from nkisim.ir.trace import Trace
from nkisim.ir.views import overlap, view_of
from nkisim.numerics.blas import OneThread
from nkisim.numerics.digest import contents, digest
from nkisim.numerics.floating import DefaultEnvironment
from nkisim.numerics.plan import Step, plan
from nkisim.numerics.ranges import range_check
from nkisim.numerics.recent import Recent

KEPT = 128 << 20
"""Bytes of the workspaces that are kept for the next run, of all programs together."""

_kept = Recent(KEPT)
_TRACE = 14_000  # bytes that the trace of a small kernel takes, with its plan and its guards
_INSTRUCTION = 800  # bytes that an instruction of a trace takes, with its part of the plan
_VIEW = 200  # bytes of an array's header


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
        self._workspaces: deque[_Workspace] = deque()

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
    def _plan(self) -> _Layout:
        keep = {b.number for b in self.output_buffers}
        with _no_collection():
            return _Layout(plan(self.trace, keep), self.trace, self.output_buffers)

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
            workspace = _Workspace(layout, weakref.ref(self._workspaces))
        table = workspace.table.copy()
        bases = [_bytes(a) for a in sources] + [_bytes(a) for a in results]
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


@contextlib.contextmanager
def _no_collection() -> Iterator[None]:
    """Keep the cyclic garbage collector from going through a large trace again and again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _written_over(step: Step) -> list[int]:
    """The positions of operands, outputs first, that overlap an output without being equal to it.
    An instruction reads all before it writes; NumPy, with an output in the input of a reduction,
    does not."""
    outs = step.outs
    return [
        n
        for n, t in enumerate(step.tiles_in, start=len(outs))
        if any([t.buffer is o.buffer and not t.same_elements(o) and overlap(t, o) for o in outs])
    ]


def _with_copies(function: Callable, at: list[int], *tiles: np.ndarray) -> None:
    own = list(tiles)
    for n in at:
        own[n] = tiles[n].copy()
    function(*own)


class _Layout:
    """The place of each operand of each step: an outside array, a constant, or the workspace.

    Attributes:
        calls: functions to run, in order, with the places of their operands in the table of views.
        outside: operands in arrays that differ from run to run: (place, array, shape, dtype,
            byte offset, byte strides); inputs come first among the arrays, then outputs.
        inside: operands in the workspace: (place, slot, shape, dtype, byte offset, byte strides).
        slots: bytes of each workspace array.
        constants: place -> view of constant data.
        workspace_bytes: about what a workspace takes.
        multiplies: whether there are matrix products among the calls.
    """

    def __init__(self, steps: list[Step], trace: Trace, outputs: list[Buffer]) -> None:
        self.calls: list[tuple[Callable, tuple[int, ...]]] = []
        self.outside: list[tuple] = []
        self.inside: list[tuple] = []
        self.slots: list[int] = []
        self.constants: list[tuple[int, np.ndarray]] = []
        self.multiplies = any(step.instr.spec.kind is OpKind.PRODUCT for step in steps)
        arguments = [t.buffer for t in trace.arguments]
        self._arrays = {b.number: i for i, b in enumerate(arguments)}
        for o, b in reversed([*enumerate(outputs)]):  # the first of those that share a buffer
            self._arrays[b.number] = len(arguments) + o
        self._places: dict[tuple, int] = {}
        self._functions: dict[tuple, Callable] = {}
        self._byte_strides: dict[tuple, tuple[int, ...]] = {}
        slots = self._assign_slots(steps)
        undefined = set(trace.read_undefined)  # not what an earlier run has left there
        for step in steps:
            tensors = (*step.outs, *step.tiles_in)
            for t in tensors:
                if t.buffer.number in undefined and t.buffer.number in slots:
                    undefined.discard(t.buffer.number)
                    place = self._place(AccessPattern(t.buffer), slots)
                    fill = functools.partial(_fill, poison(t.buffer.stored))
                    self.calls.append((fill, (place,)))
            places = tuple([self._place(t, slots) for t in tensors])
            instr = step.instr
            if instr.watched:
                check = range_check(instr, trace.strict_ranges)
                self.calls.append((check, places[len(step.outs) :]))
            function = self._function(step)
            repeated = [_repeated(t) for t in step.outs]
            if any(repeated):
                function = functools.partial(_with_repeated, function, repeated)
            early = _written_over(step)
            if early:
                function = functools.partial(_with_copies, function, early)
            if instr.contested is not None:
                function = functools.partial(_with_contested, function, *instr.contested)
            self.calls.append((function, places))
        self.size = len(self._places)
        self.workspace_bytes = sum(self.slots) + len(self.inside) * _VIEW
        del self._places, self._functions, self._byte_strides, self._arrays

    def _function(self, step: Step) -> Callable:
        """The function that computes a step. Elementwise instructions of a kind share it: it
        depends on their attributes, types and scalars only."""
        instr = step.instr
        if not instr.spec.elementwise or instr.where is not None:
            return instr.spec.bind(instr)
        scalars = [x for x in instr.ins if not isinstance(x, AccessPattern)]
        key = (
            instr.opcode,
            tuple([t.dtype for t in instr.outs]),
            tuple([x.dtype if isinstance(x, AccessPattern) else None for x in instr.ins]),
            instr.settings,
            # 1, 1.0 and True are equal, and so are 0.0 and -0.0.
            tuple([x if type(x) is str else (type(x), x, repr(x)) for x in scalars]),
        )
        try:
            found = self._functions.get(key)
        except TypeError:  # a scalar that cannot be compared
            return instr.spec.bind(instr)
        if found is None:
            found = self._functions[key] = instr.spec.bind(instr)
        return found

    def _assign_slots(self, steps: list[Step]) -> dict[int, int]:
        """Storage for local buffers: a slot is free again after its buffer's last use."""
        last: dict[int, int] = {}
        for at, step in enumerate(steps):
            for t in (*step.outs, *step.tiles_in):
                last[t.buffer.number] = at
        ending: dict[int, list[int]] = {}
        for number, at in last.items():
            ending.setdefault(at, []).append(number)
        free: dict[int, list[int]] = {}
        slots: dict[int, int] = {}
        for at, step in enumerate(steps):
            used = {t.buffer.number: t.buffer for t in (*step.outs, *step.tiles_in)}
            for number, buffer in used.items():
                if number in slots or number in self._arrays or buffer.data is not None:
                    continue
                size = buffer.size * buffer.stored.itemsize
                spare = free.get(size)
                if spare:
                    slots[number] = spare.pop()
                else:
                    slots[number] = len(self.slots)
                    self.slots.append(size)
            for number in ending.get(at, ()):
                if number in slots:
                    free.setdefault(self.slots[slots[number]], []).append(slots[number])
        return slots

    def _place(self, tensor: AccessPattern, slots: dict[int, int]) -> int:
        buffer = tensor.buffer
        number = buffer.number
        dtype = tensor.dtype if buffer.stored is buffer.dtype else buffer.stored
        item = dtype.itemsize
        offset, strides = tensor.offset * item, tensor.strides
        if item != 1:
            scaled = self._byte_strides.get((strides, item))
            if scaled is None:
                scaled = tuple(s * item for s in strides)
                self._byte_strides[strides, item] = scaled
            strides = scaled
        home = slots.get(number, -1 - number)
        key = (home, offset, strides, tensor.shape, dtype)
        place = self._places.get(key)
        if place is not None:
            return place
        place = self._places[key] = len(self._places)
        view = (tensor.shape, dtype, offset, strides)
        if number in slots:
            self.inside.append((place, slots[number], *view))
        elif number in self._arrays:
            self.outside.append((place, self._arrays[number], *view))
        else:
            data = _bytes(tensor.buffer.data)
            self.constants.append((place, np.ndarray(view[0], view[1], data, *view[2:])))
        return place


class _Workspace:
    """The arrays that one run at a time may use.

    Args:
        layout: what is in it.
        idle: refers to the workspaces of its program that no run uses.

    Attributes:
        let_go: takes it out of those.
    """

    def __init__(self, layout: _Layout, idle: weakref.ref[deque[_Workspace]]) -> None:
        self.let_go = functools.partial(_take_out, id(self), idle)
        self.table: list[np.ndarray | None] = [None] * layout.size
        arrays = [np.zeros(n, np.uint8) for n in layout.slots]
        for place, slot, shape, dtype, offset, strides in layout.inside:
            self.table[place] = np.ndarray(shape, dtype, arrays[slot], offset, strides)
        for place, view in layout.constants:
            self.table[place] = view


def _take_out(identity: int, idle: weakref.ref[deque[_Workspace]]) -> None:
    """Take a workspace out of those that no run uses, if it is there."""
    workspaces = idle()
    for workspace in [*workspaces] if workspaces is not None else ():
        if id(workspace) == identity:
            with contextlib.suppress(ValueError):  # a run has just taken it
                workspaces.remove(workspace)


def _bytes(array: np.ndarray) -> np.ndarray:
    """A flat byte view (ml_dtypes types have no buffer protocol of their own)."""
    return array.reshape(-1).view(np.uint8)


def _with_contested(
    function: Callable, contested: np.ndarray, error: Exception, out: np.ndarray, *rest: np.ndarray
) -> None:
    """Call `function`, which writes elements of `out` that another core has written.

    Raises:
        error: it writes something else there.
    """
    before = out[contested].tobytes()
    function(out, *rest)
    if out[contested].tobytes() != before:
        raise error


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


def poison(dtype: np.dtype) -> object:
    """The value that stands for undefined memory: NaN, or the lowest integer."""
    if dtype in FLOATS:
        return np.nan
    return True if dtype == np.bool_ else np.iinfo(dtype).min


def _repeated(view: AccessPattern) -> tuple[int, ...]:
    """Axes along which a view stays on one element, as those that a step of 0 makes."""
    if 0 not in view.strides:
        return ()
    steps = zip(view.strides, view.shape, strict=True)
    return tuple([axis for axis, (step, n) in enumerate(steps) if step == 0 and n > 1])


def _with_repeated(function: Callable, repeated: list[tuple[int, ...]], *tiles: np.ndarray) -> None:
    """Runs an instruction some of whose outputs write an element many times: the last one stays.

    Functions compute in their outputs, and reductions read there what they add up.
    """
    outs = [t.copy() if axes else t for t, axes in zip(tiles, repeated, strict=False)]
    function(*outs, *tiles[len(outs) :])
    for tile, made, axes in zip(tiles, outs, repeated, strict=False):
        if axes:
            last = tuple([slice(-1, None) if d in axes else slice(None) for d in range(tile.ndim)])
            tile[last] = made[last]


def _fill(value: object, array: np.ndarray) -> None:
    array.fill(value)
