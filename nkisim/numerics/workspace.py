"""The storage that a program runs in: where each operand of each step is, and arrays for those that
are neither inputs nor outputs. On-chip and scratch buffers share these by liveness.
"""

from __future__ import annotations

import contextlib
import functools
import weakref
from collections import deque
from collections.abc import Callable

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.dtypes import poison
from nkisim.ir.instruction import OpKind
from nkisim.ir.memory import Buffer
from nkisim.ir.trace import Trace
from nkisim.ir.views import overlap
from nkisim.numerics.ranges import range_check
from nkisim.numerics.steps import Step

_VIEW = 200  # bytes of an array's header


class OperandPlaces:
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
            data = byte_view(tensor.buffer.data)
            self.constants.append((place, np.ndarray(view[0], view[1], data, *view[2:])))
        return place


class Workspace:
    """The arrays that one run at a time may use.

    Args:
        layout: what is in it.
        idle: refers to the workspaces of its program that no run uses.

    Attributes:
        let_go: takes it out of those.
    """

    def __init__(self, layout: OperandPlaces, idle: weakref.ref[deque[Workspace]]) -> None:
        self.let_go = functools.partial(_take_out, id(self), idle)
        self.table: list[np.ndarray | None] = [None] * layout.size
        arrays = [np.zeros(n, np.uint8) for n in layout.slots]
        for place, slot, shape, dtype, offset, strides in layout.inside:
            self.table[place] = np.ndarray(shape, dtype, arrays[slot], offset, strides)
        for place, view in layout.constants:
            self.table[place] = view


def _take_out(identity: int, idle: weakref.ref[deque[Workspace]]) -> None:
    """Take a workspace out of those that no run uses, if it is there."""
    workspaces = idle()
    for workspace in [*workspaces] if workspaces is not None else ():
        if id(workspace) == identity:
            with contextlib.suppress(ValueError):  # a run has just taken it
                workspaces.remove(workspace)


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


def byte_view(array: np.ndarray) -> np.ndarray:
    """A flat byte view (ml_dtypes types have no buffer protocol of their own)."""
    return array.reshape(-1).view(np.uint8)
