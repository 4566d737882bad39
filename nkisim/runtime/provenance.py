"""The provenance of an output element: the argument elements that it was computed from.

The instruction stream is followed backwards from the element. Where an instruction's own pattern of
reading is not known here (a scan, a gather), all of the operand that it could have read is counted,
so the answer may name too many elements and never too few.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction
from nkisim.ir.memory import Buffer, Role
from nkisim.ir.views import view_of
from nkisim.numerics.program import Program


@dataclass(frozen=True)
class Origin:
    """What an output element was computed from.

    Attributes:
        writer: the last instruction that wrote it; None when nothing did.
        reads: for each argument of the program, in order, a boolean array of its shape: true where
            the element depends on it.
        undefined: whether it also depends on memory that nothing wrote.
    """

    writer: Instruction | None
    reads: tuple[np.ndarray, ...]
    undefined: bool


def origin(program: Program, output: int, index: tuple[int, ...]) -> Origin:
    """Follow element `index` of output number `output` back to the arguments.

    Raises:
        IndexError: there is no such output, or no such element.
    """
    wanted: dict[int, np.ndarray] = {}
    buffer = program.output_buffers[output]
    _flat(wanted, buffer).reshape(buffer.shape)[index] = True
    writer = None
    for instr in reversed(program.instructions):
        needed = [_needed(wanted, instr, t) for t in instr.outs]
        if not any(n is not None for n in needed):
            continue
        writer = writer or instr
        for tile, part in zip(instr.tiles_in, instr.spec.reads(instr, needed), strict=True):
            _want(wanted, tile, part)
    arguments = [t.buffer for t in program.trace.arguments]
    reads = tuple(_flat(wanted, b).reshape(b.shape) for b in arguments)
    local = (b.number for b in program.trace.buffers if b.role is Role.LOCAL)
    # What is still wanted at the start of the kernel, nothing has written.
    undefined = any(number in wanted and wanted[number].any() for number in local)
    return Origin(writer, reads, undefined)


def unused(program: Program) -> tuple[np.ndarray, ...]:
    """For each argument, a boolean array of its shape: what is read of it, to no purpose.

    True where an instruction reads the element and no element of an output depends on it: a tile
    that was overwritten before anything was stored of it, say.
    """
    wanted: dict[int, np.ndarray] = {}
    for buffer in program.output_buffers:
        _flat(wanted, buffer)[:] = True
    read: dict[int, np.ndarray] = {}
    arguments = [t.buffer for t in program.trace.arguments]
    numbers = {b.number for b in arguments}
    for instr in reversed(program.instructions):
        for tile in instr.tiles_in:
            if tile.buffer.number in numbers:
                where = instr.where_of(tile)
                _want(read, tile, np.ones(tile.shape, bool) if where is None else where)
        needed = [_needed(wanted, instr, t) for t in instr.outs]
        if any(n is not None for n in needed):
            for tile, part in zip(instr.tiles_in, instr.spec.reads(instr, needed), strict=True):
                _want(wanted, tile, part)
    return tuple((_flat(read, b) & ~_flat(wanted, b)).reshape(b.shape) for b in arguments)


def touched(instr: Instruction, tensor: AccessPattern) -> np.ndarray:
    """A boolean array of the shape of `tensor`'s buffer: what `instr` touches of it as `tensor`."""
    mark: dict[int, np.ndarray] = {}
    where = instr.where_of(tensor)
    _want(mark, tensor, np.ones(tensor.shape, bool) if where is None else where)
    return _flat(mark, tensor.buffer).reshape(tensor.buffer.shape)


def _flat(wanted: dict[int, np.ndarray], buffer: Buffer) -> np.ndarray:
    """One flag an element of the buffer."""
    if buffer.number not in wanted:
        wanted[buffer.number] = np.zeros(buffer.size, bool)
    return wanted[buffer.number]


def _needed(
    wanted: dict[int, np.ndarray], instr: Instruction, out: AccessPattern
) -> np.ndarray | None:
    """The mask of the wanted elements that `instr` writes; None for none. Elements that it surely
    overwrites are removed from `wanted`."""
    flags = wanted.get(out.buffer.number)
    if flags is None or not flags.any():
        return None
    if out.itemsize != out.buffer.dtype.itemsize:  # the bytes under another type
        return np.ones(out.shape, bool)
    view = view_of(flags, out)
    where = instr.where_of(out)
    found = view.copy() if where is None else view & where
    if not found.any():
        return None
    if not instr.spec.partial:
        view[found] = False
    return found


def _want(wanted: dict[int, np.ndarray], tensor: AccessPattern, part: np.ndarray) -> None:
    if not part.any():
        return
    flags = _flat(wanted, tensor.buffer)
    if tensor.itemsize != tensor.buffer.dtype.itemsize:
        flags[:] = True
        return
    view = view_of(flags, tensor)
    view[part] = True
