"""Who reads and who writes what in a launch, from the instructions that nkisim recorded."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer, Role, Space
from nkisim.ir.trace import Trace
from nkisim.numerics.program import Program
from nkisim.runtime.provenance import origin, touched, unused

_MOST_FOLLOWED = 1024  # elements
Box = tuple[int, int, int, int]  # row0, row1, col0, col1; row1 and col1 exclusive


@dataclass
class Panel:
    """What happens to one HBM tensor: an argument, or the output.

    Attributes:
        name: of the tensor, with the leading indices that were fixed to make it two-dimensional.
        shape: rows and columns.
        tiles: for each instance, by its program ids, what it loads or stores: a boolean array.
        outside: for each instance, boxes of accesses that leave the tensor.
        several: how many elements several instances write.
        read: what the answer computed the element from; None in the panel of the output.
        wanted: what the solution computes it from; None where that is not known.
        wrong: elements that are wrong; None in the panels of arguments.
        mark: the first wrong element.
    """

    name: str
    shape: tuple[int, int]
    tiles: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)
    outside: list[tuple[tuple[int, ...], Box]] = field(default_factory=list)
    several: int = 0
    read: np.ndarray | None = None
    wanted: np.ndarray | None = None
    wrong: np.ndarray | None = None
    mark: tuple[int, int] | None = None

    @property
    def tells(self) -> bool:
        """Whether there is more to draw than a tensor that one instance loads or stores whole."""
        parts = (self.read, self.wanted, self.wrong)
        covered = len(self.tiles) <= 1 and all(mask.all() for mask in self.tiles.values())
        return bool(self.outside) or any(part is not None for part in parts) or not covered


@dataclass
class Access:
    """Who reads what, as panels to draw and as sentences.

    Attributes:
        panels: the arguments, then the output.
        sentences: the same in words.
    """

    panels: list[Panel]
    sentences: list[str]


def access(
    program: Program,
    solution: Program | None,
    output: int,
    index: tuple[int, ...],
    wrong: np.ndarray,
) -> Access:
    """Describe a launch around its first wrong element.

    Args:
        program: what ran.
        solution: what the solution runs on the same data, when that is one launch too.
        output: number of the output.
        index: the element.
        wrong: which elements of the output are wrong.
    """
    trace = program.trace
    arguments = [t.buffer for t in trace.arguments]
    names = [b.name for b in arguments]
    found = origin(program, output, index)
    read: Sequence[np.ndarray | None] = found.reads
    returned = program.output_buffers[output]
    if any(returned is buffer for buffer in arguments):
        sentences = [_RETURNED.format(returned.name)]
    else:
        sentences = [_written(trace, found.writer)]
    if found.writer is not None:
        sentences.append(f"It was computed from {elements(names, found.reads)}.")
    theirs = _of_solution(solution, program, output, index)
    wanted: Sequence[np.ndarray | None] = theirs or [None] * len(arguments)
    if theirs and any((r != w).any() for r, w in zip(found.reads, theirs, strict=True)):
        sentences.append(f"The solution computes it from {elements(names, theirs)}.")
    dropped = unused(program)
    if any(mask.any() for mask in dropped):
        sentences.append(f"{elements(names, dropped)}: read, but not used for the output.")
    panels = [
        _panel(trace, b, r, w) for b, r, w in zip(arguments, read, wanted, strict=True) if b.shape
    ]
    panels.append(_output_panel(trace, returned, index, wrong))
    return Access(panels, sentences + _conflicts(panels))


def undefined_elements(program: Program, output: int) -> np.ndarray | None:
    """Which elements of an output come from memory that nothing wrote.

    None for outputs that are too large to follow element by element.
    """
    shape = program.outputs[output].shape
    if math.prod(shape) > _MOST_FOLLOWED:
        return None
    found = [origin(program, output, index).undefined for index in np.ndindex(shape)]
    return np.array(found, bool).reshape(shape)


def refused(trace: Trace, last: Instruction | None) -> Access:
    """Describe a launch that was refused, as far as it came.

    Args:
        trace: what was written down of it.
        last: the instruction that was refused, when it is not in the trace.
    """
    if last is not None:
        trace = dataclasses.replace(trace, instructions=[*trace.instructions, last])
    shared = [b for b in trace.buffers if b.space is Space.SHARED_HBM and b.shape]
    panels = [_panel(trace, b, None, None) for b in shared if b.role is not Role.CONSTANT]
    return Access(panels, _conflicts(panels))


def output_only(name: str, index: tuple[int, ...], wrong: np.ndarray) -> Access:
    """The same when no single launch made the output: where it is wrong, and nothing more."""
    at = _slice(wrong.shape, wrong, index)
    panel = Panel(f"{name}{_label(at)}", _shape2(wrong.shape))
    panel.wrong = _flat(wrong, at)
    panel.mark = _flat_index(wrong.shape, index)
    return Access([panel], [])


def elements(names: Sequence[str], masks: Sequence[np.ndarray]) -> str:
    """The true elements in words: `x[1, 0:3] and row[0, 0:3]`."""
    parts = [f"{n}{_extent(m)}" for n, m in zip(names, masks, strict=True) if m.any()]
    if not parts:
        return "no argument"
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _extent(mask: np.ndarray) -> str:
    """The box around the true elements, and how many there are when they do not fill it."""
    where = np.argwhere(mask)
    low, high = where.min(axis=0), where.max(axis=0)
    spans = [f"{a}" if a == b else f"{a}:{b + 1}" for a, b in zip(low, high, strict=True)]
    text = f"[{', '.join(spans)}]"
    inside = math.prod(int(b - a + 1) for a, b in zip(low, high, strict=True))
    return text if inside == len(where) else f"{text} ({len(where):,} elements of these)"


_RETURNED = (
    "The kernel returns its argument {0} as it came. Make an output with nl.ndarray(…, "
    "buffer=nl.shared_hbm), write the result there, and return that."
)


def _written(trace: Trace, writer: Instruction | None) -> str:
    if writer is None:
        return "No instruction writes this element."
    who = "This element was written"
    if trace.grid.size > 1:
        who += f" by instance {ids(trace.grid.coordinates(writer.program))}"
    line = re.sub(r"\s+#.*$", "", writer.location.text) if writer.location else ""
    return f"{who}: {line}" if line else f"{who} by {writer.label}."


def ids(coordinates: tuple[int, ...]) -> str:
    """The program ids of an instance: `2`, or `(0, 1)` in a grid of several dimensions."""
    return str(coordinates[0] if len(coordinates) == 1 else coordinates)


def _conflicts(panels: list[Panel]) -> list[str]:
    """What several instances write, and accesses that leave a tensor."""
    found = []
    for panel in panels:
        if panel.several:
            found.append(f"Several instances write the same {panel.several:,} elements.")
    # One is enough: the same index most often leaves every tensor.
    return found + [line for panel in panels for line in _outside(panel)][:1]


def _outside(panel: Panel) -> list[str]:
    """The first access that leaves the tensor."""
    if not panel.outside:
        return []
    owner, (r0, r1, c0, c1) = panel.outside[0]
    who = f"Instance {ids(owner)}" if owner else "The kernel"
    return [f"{who} reaches {panel.name}[{r0}:{r1}, {c0}:{c1}], of shape {panel.shape}."]


def _of_solution(
    solution: Program | None, program: Program, output: int, index: tuple[int, ...]
) -> tuple[np.ndarray, ...] | None:
    if solution is None or output >= len(solution.outputs):
        return None
    same = [s.shape for s in solution.inputs] == [s.shape for s in program.inputs]
    if not same or solution.outputs[output].shape != program.outputs[output].shape:
        return None
    return origin(solution, output, index).reads


def _panel(
    trace: Trace, buffer: Buffer, read: np.ndarray | None, wanted: np.ndarray | None
) -> Panel:
    at = _slice(buffer.shape, read if read is not None and read.any() else wanted)
    panel = Panel(f"{buffer.name or 'output'}{_label(at)}", _shape2(buffer.shape))
    _fill(panel, trace, buffer, at)
    panel.read = None if read is None else _flat(read, at)
    panel.wanted = None if wanted is None else _flat(wanted, at)
    return panel


def _output_panel(trace: Trace, buffer: Buffer, index: tuple[int, ...], wrong: np.ndarray) -> Panel:
    at = _slice(buffer.shape, wrong, index)
    panel = Panel(f"{buffer.name or 'output'}{_label(at)}", _shape2(buffer.shape))
    _fill(panel, trace, buffer, at)
    panel.wrong = _flat(wrong, at)
    panel.mark = _flat_index(buffer.shape, index)
    return panel


def _fill(panel: Panel, trace: Trace, buffer: Buffer, at: tuple[int, ...]) -> None:
    """Note which instance touches what of a tensor."""
    writers: dict[int, np.ndarray] = {}
    for instr in trace.instructions:
        for tensor in (*instr.outs, *instr.tiles_in):
            if tensor.buffer is not buffer or not tensor.size:
                continue
            owner = trace.grid.coordinates(instr.program)
            if tensor.escape() is not None:
                panel.outside += [(owner, box) for box in _box(tensor)]
                continue
            mask = touched(instr, tensor)
            _join(panel.tiles, owner, _flat(mask, at))
            if any(tensor is out for out in instr.outs):
                _join(writers, instr.program, mask)
    if writers:
        panel.several = int((np.sum(list(writers.values()), axis=0) > 1).sum())


def _join(masks: dict[Any, np.ndarray], key: Any, mask: np.ndarray) -> None:
    if mask.any():
        masks[key] = masks[key] | mask if key in masks else mask


def _box(tensor: AccessPattern) -> list[Box]:
    """The box around an access, when its tensor is a matrix."""
    bounds = tensor.bounds()
    if len(bounds) != 2:
        return []
    (r0, r1), (c0, c1) = bounds
    return [(r0, r1 + 1, c0, c1 + 1)]


# -- tensors of any number of axes as matrices: the leading indices are fixed


def _slice(
    shape: tuple[int, ...], mask: np.ndarray | None, index: tuple[int, ...] | None = None
) -> tuple[int, ...]:
    """The leading indices of the matrix to show: that of the element, or of the first true one."""
    if len(shape) <= 2:
        return ()
    if index is None:
        found = np.argwhere(mask) if mask is not None else np.empty((0, len(shape)))
        index = tuple(int(i) for i in found[0]) if len(found) else (0,) * len(shape)
    return tuple(index[: len(shape) - 2])


def _label(at: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, at))}]" if at else ""


def _shape2(shape: tuple[int, ...]) -> tuple[int, int]:
    padded = (1, 1, *shape)
    return padded[-2], padded[-1]


def _flat(mask: np.ndarray, at: tuple[int, ...]) -> np.ndarray:
    return mask[at].reshape(_shape2(mask.shape))


def _flat_index(shape: tuple[int, ...], index: tuple[int, ...]) -> tuple[int, int]:
    padded = (0, 0, *index)
    return padded[-2], padded[-1]
