"""The checks: consumers of the instruction stream that refuse what hardware or the compiler would.

Each check is a class with `on_instruction`; `Checker` runs them as instructions are written down,
so an error points at the kernel line. `checks(name="warn")` or the environment variable
NKISIM_CHECKS ("race=warn,uninitialized=off") turns one down.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

import numpy as np

from nkisim.errors import (
    IndexingError,
    KernelError,
    MemorySpaceError,
    OutOfBoundsError,
    OutputError,
    RaceError,
    TileSizeError,
    UninitializedReadError,
    warn,
)
from nkisim.instruction import Instruction
from nkisim.memory import Buffer, Role, Space
from nkisim.tensor import Tensor
from nkisim.views import view_of

if TYPE_CHECKING:
    from nkisim.trace import Trace

Mode = Literal["error", "warn", "off"]
_MODES = ("error", "warn", "off")

CHECKS = {
    "bounds": "an access pattern stays inside its tensor",
    "tile": "tiles fit the partitions and bytes of their memory, partition axis first",
    "memory": "operands live in a memory the instruction reaches",
    "uninitialized": "nothing is read before it is written",
    "race": "SPMD instances do not write what another one writes or reads",
    "output": "every output is written",
}


def _from_environment() -> dict[str, Mode]:
    text = os.environ.get("NKISIM_CHECKS", "")
    settings = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
    return _validated({k.strip(): v.strip() for k, v in settings.items()})


def _validated(settings: dict[str, str]) -> dict[str, Mode]:
    for name, mode in settings.items():
        if name not in CHECKS or mode not in _MODES:
            raise ValueError(
                f"unknown check setting {name}={mode!r}: "
                f"checks are {', '.join(CHECKS)}; modes are {', '.join(_MODES)}"
            )
    return settings


_settings: dict[str, Mode] = {name: "error" for name in CHECKS} | _from_environment()


def settings_key() -> tuple[str, ...]:
    """The current modes, in the order of CHECKS: part of a specialisation's identity."""
    return tuple(_settings[name] for name in CHECKS)


@contextlib.contextmanager
def checks(**modes: Mode) -> Iterator[None]:
    """Turn checks to "error", "warn" or "off" inside a `with` block.

    Args:
        **modes: check name (see CHECKS) to mode.

    Raises:
        ValueError: no such check or mode.
    """
    before = dict(_settings)
    _settings.update(_validated(modes))
    try:
        yield
    finally:
        _settings.update(before)


class Checker:
    """All checks, over one trace."""

    def __init__(self) -> None:
        self.modes = dict(_settings)

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


# -- stateless checks: (instruction, trace) -> error or None


def _operands(instr: Instruction) -> Iterator[Tensor]:
    yield from instr.outs
    yield from instr.tiles_in


def check_bounds(instr: Instruction, trace: Trace) -> KernelError | None:
    """Every coordinate of every operand lies in its tensor, where the mask is true."""
    for tensor in _operands(instr):
        out = tensor.escape()
        if out is None:
            continue
        axis, low, high, size = out
        where = instr.where_of(tensor)
        if where is not None:
            values = np.full(tensor.shape, tensor.offsets[axis], dtype=np.int64)
            for d, c in enumerate(tensor.coefs[axis]):
                line = np.arange(tensor.shape[d], dtype=np.int64) * c
                values += line.reshape((-1,) + (1,) * (tensor.ndim - d - 1))
            inside = values[where]
            low, high = int(inside.min()), int(inside.max())
            if low >= 0 and high < size:
                continue
        reached = f"{high}" if high >= size else f"{low}"
        return OutOfBoundsError(
            f"{instr.label}: axis {axis} of {tensor.describe()} is reached at {reached}, "
            f"but its size is {size}",
            rule=f"coordinates lie in 0..{size - 1} on this axis, wherever the mask is true",
            fix=f"mask the edge, e.g. mask=(index < {size}), or launch fewer tiles"
            if high >= size
            else "start the index at 0 or above",
        )
    return None


def check_memory(instr: Instruction, trace: Trace) -> KernelError | None:
    """Engines read and write SBUF and PSUM only; DMA moves data to and from HBM."""
    if not instr.spec.on_chip:
        return None
    for tensor in _operands(instr):
        if not tensor.space.on_chip:
            return MemorySpaceError(
                f"{instr.label} on the {instr.engine.value} Engine is given {tensor.describe()}",
                rule="compute engines reach SBUF and PSUM only; HBM is reached by DMA",
                fix="nl.load the tensor into SBUF before computing, and nl.store the result",
            )
    return None


def check_tiles(instr: Instruction, trace: Trace) -> KernelError | None:
    """On-chip operands have their partition axis first, and not more partitions than exist."""
    pmax = trace.machine.partitions
    for tensor in _operands(instr):
        if not tensor.space.on_chip or tensor.base_shape is not tensor.buffer.shape:
            continue
        if tensor.shape[0] > pmax:
            return _too_many_partitions(tensor.describe(), tensor.shape[0], pmax)
        par = tensor.buffer.par_axis
        for axis, row in enumerate(tensor.coefs):
            for d, c in enumerate(row):
                if c and tensor.shape[d] > 1 and (axis == par) != (d == 0):
                    return IndexingError(
                        f"{instr.label}: axis {d} of a view of {tensor.describe()} walks its "
                        f"axis {axis}, but its partition axis is {par}",
                        rule="the first axis of a tile walks partitions, the others walk the "
                        "free axes",
                        fix="index so that the partition axis comes first, e.g. "
                        "t[nl.arange(128)[:, None], nl.arange(512)[None, :]]",
                        code="err_failed_to_infer_tile_from_local_tensor",
                    )
    return None


def check_allocation(
    shape: tuple[int, ...],
    dtype: np.dtype,
    space: Space,
    par_axis: int,
    name: str,
    trace: Trace,
) -> KernelError | None:
    """A tile fits 128 partitions and the bytes of one partition."""
    if not space.on_chip:
        return None
    what = f"{name + ': ' if name else ''}a {dtype}{list(shape)} tile in {space.label}"
    machine = trace.machine
    if len(shape) < 2:
        return TileSizeError(
            f"{what} has {len(shape)} axes",
            rule="on-chip memory is two-dimensional: a partition axis and at least one free axis",
            fix="declare (partitions, elements), e.g. (128, 1)",
        )
    if shape[par_axis] > machine.partitions:
        return _too_many_partitions(what, shape[par_axis], machine.partitions)
    need = int(np.prod(shape[par_axis + 1 :], dtype=np.int64)) * dtype.itemsize
    room = machine.psum_bank_bytes if space is Space.PSUM else machine.sbuf_usable_bytes
    if need > room:
        unit = "a PSUM bank" if space is Space.PSUM else "SBUF"
        return TileSizeError(
            f"{what} needs {need:,} bytes a partition",
            rule=f"{unit} of {machine.name} gives a tile {room:,} bytes a partition",
            fix="cut the free axes in smaller tiles, or use a narrower dtype",
        )
    return None


def _all_of(missing: np.ndarray, where: np.ndarray | None) -> bool:
    """Whether every element that an operation touches is missing."""
    return int(missing.sum()) == (missing.size if where is None else int(where.sum()))


def _too_many_partitions(what: str, size: int, pmax: int) -> TileSizeError:
    return TileSizeError(
        f"{what} has a partition axis of {size}",
        rule=f"the partition axis (the first) is at most {pmax}: SBUF and PSUM have {pmax} "
        "partitions",
        fix=f"cut the axis in tiles of {pmax} (nl.tile_size.pmax) with a loop or a launch grid",
        code="err_num_partition_exceed_arch_limit",
    )


# -- what has been written, and by whom


class MemoryState:
    """Which elements of each buffer are defined, and which SPMD instance wrote them.

    A tile that a masked load fills in part may be computed on as a whole, as on hardware: the
    result is undefined where the operand was. The error comes when undefined elements would leave
    the chip, or when nothing that is read was ever written.
    """

    def __init__(self, checker: Checker, trace: Trace) -> None:
        self.checker = checker
        self.trace = trace
        self.check_reads = checker.modes["uninitialized"] != "off"
        self.check_races = checker.modes["race"] != "off" and trace.grid.size > 1
        self.defined: dict[int, np.ndarray | None] = {}  # None: every element
        self.remaining: dict[int, int] = {}  # undefined elements of the arrays above
        self.owners: dict[int, np.ndarray] = {}
        self.reported: set[int] = set()

    def on_instruction(self, instr: Instruction) -> None:
        tiles = instr.tiles_in
        missing = [self._undefined(instr, tensor) for tensor in tiles]
        undefined: list[np.ndarray | None] = [None] * len(instr.outs)
        if any(m is not None for m in missing):
            undefined = self._flow(instr, tiles, missing)
        if self.check_races:
            for tensor in tiles:
                if tensor.buffer.program is None:
                    self._race(instr, tensor, "reads")
            for tensor in instr.outs:
                if tensor.buffer.program is None:
                    self._race(instr, tensor, "writes")
        for tensor, unknown in zip(instr.outs, undefined, strict=True):
            self._define(instr, tensor, unknown)

    def _undefined(self, instr: Instruction, tensor: Tensor) -> np.ndarray | None:
        """Elements of an operand that nothing wrote; None when all are defined."""
        buffer = tensor.buffer
        if buffer.role is not Role.LOCAL:
            return None
        known = self.defined.get(buffer.number, False)
        if known is None or 0 in tensor.shape:
            return None
        if known is False:
            missing = np.ones(tensor.shape, bool)
        else:
            missing = ~view_of(known.reshape(-1), tensor)
        where = instr.where_of(tensor)
        if where is not None:
            missing &= where
        return missing if missing.any() else None

    def _flow(
        self, instr: Instruction, tiles: tuple[Tensor, ...], missing: list[np.ndarray | None]
    ) -> list[np.ndarray | None]:
        """Undefined elements of the outputs. Reports when there is no use in computing on."""
        flow = instr.spec.flow
        stays = flow is not None and all(t.space.on_chip for t in instr.outs)
        undefined = flow(instr, missing) if flow is not None else [None] * len(instr.outs)
        useless = any(
            u is not None and _all_of(u, instr.where_of(t))
            for t, u in zip(instr.outs, undefined, strict=True)
        )
        for tensor, m in zip(tiles, missing, strict=True):
            if m is None or tensor.buffer.number in self.reported:
                continue
            if (
                not stays
                or _all_of(m, instr.where_of(tensor))
                or (useless and not instr.spec.elementwise)
            ):
                self._report_read(instr, tensor, m)
        return undefined

    def _report_read(self, instr: Instruction, tensor: Tensor, missing: np.ndarray) -> None:
        if not self.check_reads:
            return
        self.reported.add(tensor.buffer.number)
        index = tuple(int(i) for i in np.argwhere(missing)[0])
        where = list(tensor.coordinates(index))
        made = tensor.buffer.location
        count = int(missing.sum())
        self.checker.report(
            "uninitialized",
            UninitializedReadError(
                f"{instr.label} reads {count:,} of {missing.size:,} elements of "
                f"{tensor.describe()} that nothing wrote, the first at {where}"
                + (f"; the tensor was made at {made}" if made else ""),
                rule="fresh memory holds whatever was there before; only written elements may "
                "be read or stored",
                fix="write the elements first, or give this operation the mask that the write had",
            ),
        )

    def _define(self, instr: Instruction, tensor: Tensor, undefined: np.ndarray | None) -> None:
        buffer = tensor.buffer
        number = buffer.number
        known = self.defined.get(number, False)
        if buffer.role is not Role.LOCAL:
            if number not in self.trace.written_arguments:
                self.trace.written_arguments.append(number)
            return
        if known is None and undefined is None:
            return
        whole = undefined is None and instr.where_of(tensor) is None
        if known is False and whole and tensor.covers_buffer:
            self.defined[number] = None
            return
        if known is False or known is None:
            state = np.full(buffer.size, known is None)
            self.defined[number] = known = state
            self.remaining[number] = 0 if state.size and state[0] else buffer.size
        view = view_of(known, tensor)
        before = int(view.sum())
        fresh = True if undefined is None else ~undefined
        where = instr.where_of(tensor)
        if where is None:
            view[...] = fresh
        else:
            np.copyto(view, fresh, where=where)
        self.remaining[number] -= int(view.sum()) - before
        if self.remaining[number] == 0:
            self.defined[number] = None

    def _race(self, instr: Instruction, tensor: Tensor, verb: str) -> None:
        """Shared HBM touched by two instances, at least one writing."""
        number = tensor.buffer.number
        owner = self.owners.get(number)
        if owner is None:
            if verb == "reads":
                return
            owner = self.owners[number] = np.full(tensor.buffer.size, -1, np.int32)
        view = view_of(owner, tensor)
        clash = (view >= 0) & (view != instr.program)
        where = instr.where_of(tensor)
        if where is not None:
            clash &= where
        if clash.any():
            index = tuple(int(i) for i in np.argwhere(clash)[0])
            other = self.trace.grid.coordinates(int(view[index]))
            mine = self.trace.grid.coordinates(instr.program)
            self.checker.report(
                "race",
                RaceError(
                    f"instance {mine} {verb} {int(clash.sum()):,} elements of {tensor.describe()} "
                    f"that instance {other} writes, the first at "
                    f"{list(tensor.coordinates(index))}",
                    rule="instances of a launch grid run in no promised order: what one writes, "
                    "no other may write or read",
                    fix="make each instance's offset depend on nl.program_id of every grid axis, "
                    "and its tile no larger than the step between offsets",
                ),
            )
        if verb == "writes":
            if where is None:
                view[...] = instr.program
            else:
                np.copyto(view, instr.program, where=where)

    def finish(self) -> None:
        """Note the buffers that are defined in part; used to poison what outputs leave open."""
        for buffer in self.trace.buffers:
            if buffer.role is Role.LOCAL and self.defined.get(buffer.number, False) is not None:
                self.trace.partly_written.add(buffer.number)

    def missing_part(self, buffer: Buffer) -> tuple[int, int]:
        """(elements that nothing wrote, all elements) of a buffer."""
        known = self.defined.get(buffer.number, False)
        if known is None or buffer.role is not Role.LOCAL:
            return 0, buffer.size
        return (buffer.size if known is False else int((~known).sum())), buffer.size


def check_output(checker: Checker, tensor: Tensor) -> None:
    """An HBM tensor that the kernel returns has been written."""
    missing, size = checker._memory_state.missing_part(tensor.buffer)
    if not missing or not size:
        return
    place = tensor.buffer.location
    if missing == size:
        checker.report(
            "output",
            OutputError(
                f"the kernel returns {tensor.describe()}, which nothing writes",
                rule="an output is HBM that the kernel fills with nl.store or a DMA",
                fix="store the result into it before returning",
                location=place,
            ),
        )
    elif checker.modes["output"] != "off":
        warn(
            OutputError(
                f"{missing:,} of {size:,} elements of the output {tensor.describe()} are never "
                "written and hold garbage on hardware",
                rule="an output should be written everywhere",
                fix="check the launch grid and the masks of the stores",
                location=place,
            )
        )
