"""What has been written, and by which SPMD instance: uninitialised reads, races, outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from nkisim.checking.ranges import has_range
from nkisim.checking.written import WrittenElements, as_read
from nkisim.errors import RaceError, UninitializedReadError
from nkisim.index import Restriction, bounding_box
from nkisim.instruction import Instruction
from nkisim.memory import Buffer, Role
from nkisim.tensor import Tensor
from nkisim.views import view_of

if TYPE_CHECKING:
    from nkisim.checking.checker import Checker
    from nkisim.trace import Trace


def _all_of(missing: np.ndarray, where: np.ndarray | None) -> bool:
    """Whether every element that an operation touches is missing."""
    return int(missing.sum()) == (missing.size if where is None else int(where.sum()))


class MemoryState:
    """Which elements of each buffer are defined, and which SPMD instance wrote them.

    A tile that a masked load fills in part may be computed on as a whole, as on hardware: the
    result is undefined where the operand was. The error comes when undefined elements would leave
    the chip, or when nothing that is read was ever written. That a mask has left nothing of the
    instruction that was to write it, in the last round of a loop, makes no difference to the rest
    of the round: its results are as undefined, and the mask of the store drops them.
    """

    def __init__(self, checker: Checker, trace: Trace) -> None:
        self.checker = checker
        self.trace = trace
        self.check_reads = checker.modes["uninitialized"] != "off"
        self.check_ranges = checker.modes["range"] != "off"
        trace.strict_ranges = checker.modes["range"] == "error"
        self.check_races = checker.modes["race"] != "off" and trace.grid.size > 1
        self.written = WrittenElements()
        self.owners: dict[int, np.ndarray] = {}
        self.read: set[int] = set()  # shared tensors that an instance reads
        self.redundant: set[int] = set()  # those that all instances write the same to
        self.reported: set[int] = set()
        self.scattered: set[int] = set()
        self.masked_off: set[int] = set()  # what instructions were to write that a mask left out
        self.repeated = False  # whether there were instances that were not traced
        self.computed: set[int] = set()  # results of instructions that did run, on such tiles

    def on_instruction(self, instr: Instruction) -> None:
        tiles = instr.tiles_in
        missing = [self._undefined(instr, tensor) for tensor in tiles]
        undefined: list[np.ndarray | None] = [None] * len(instr.outs)
        if any(m is not None for m in missing):
            undefined = self._flow(instr, tiles, missing)
        elif self.check_ranges and has_range(instr):
            instr.watched = True
        # Which elements a tile's indices touch, data decides: races cannot be told from here.
        if self.check_races and "walked" not in instr.attrs:
            for tensor in tiles:
                if tensor.buffer.program is None and tensor.buffer.role is not Role.EXCHANGE:
                    self._race(instr, tensor, "reads")
            for tensor in instr.outs:
                if tensor.buffer.program is None and tensor.buffer.role is not Role.EXCHANGE:
                    self._race(instr, tensor, "writes")
        for tensor, unknown in zip(instr.outs, undefined, strict=True):
            self._define(instr, tensor, unknown)

    def _undefined(self, instr: Instruction, tensor: Tensor) -> np.ndarray | None:
        """Elements of an operand that nothing wrote; None when all are defined."""
        buffer = tensor.buffer
        if buffer.role is not Role.LOCAL:
            return None
        known = self.written.of(buffer)
        if known is None or 0 in tensor.shape:
            return None
        if known is False:
            missing = np.ones(tensor.shape, bool)
        else:
            missing = ~view_of(as_read(known, tensor), tensor)
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
        if stays and any(
            m is not None and self._is_masked_off(t) for t, m in zip(tiles, missing, strict=True)
        ):
            for t in instr.outs:
                self.masked_off.add(t.buffer.number)
                self.computed.add(t.buffer.number)
            return undefined
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

    def left_out(self, tensor: Tensor) -> bool:
        """Whether a tile holds nothing, because a mask left nothing of what was to write it."""
        number = tensor.buffer.number
        return (
            number not in self.computed and self.untouched(tensor) and self._is_masked_off(tensor)
        )

    def _is_masked_off(self, tensor: Tensor) -> bool:
        """Whether a mask has left nothing of the instruction that would have written a tile."""
        number = tensor.buffer.number
        return number in self.masked_off or (
            not self.written.touched(tensor.buffer) and not tensor.buffer.declared
        )

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
            mild=self.checker.as_sdk and not _all_of(missing, instr.where_of(tensor)),
        )

    def _define(self, instr: Instruction, tensor: Tensor, undefined: np.ndarray | None) -> None:
        buffer = tensor.buffer
        number = buffer.number
        if buffer.role is not Role.LOCAL:
            if number not in self.trace.written_arguments:
                self.trace.written_arguments.append(number)
            return
        if instr.spec.partial:
            self.scattered.add(number)
        where = instr.where_of(tensor)
        if undefined is None and where is None:
            if tensor.covers_buffer:
                self.written.add_all(buffer)
            else:
                self.written.note(tensor)
            return
        known = self.written.of(buffer)
        if known is None and undefined is None:
            return
        if known is False and undefined is not None and undefined.all():
            return  # as undefined as it was
        self.written.add(tensor, True if undefined is None else ~undefined, where)

    def on_repeat(self, tensors: Tensor, programs: np.ndarray, like: Tensor) -> bool:
        """See Checker.on_repeat."""
        number = like.buffer.number
        if like.buffer.program is None and number in self.owners:
            self.repeated = True
            mine = programs.reshape(programs.shape + (1,) * (tensors.ndim - programs.ndim))
            owner = view_of(self.owners[number], tensors)
            if ((owner >= 0) & (owner != mine)).any():
                return False
            owner[...] = mine
            if (owner != mine).any():  # they overlap
                return False
        if not self.written.noted(like):
            known = self.written.of(like.buffer)
            if known is None:
                return True
            if known is False or not view_of(as_read(known, like), like).all():
                return False
        self.written.note(tensors)
        return True

    def _race(self, instr: Instruction, tensor: Tensor, verb: str) -> None:
        """Shared HBM touched by two instances, at least one writing."""
        number = tensor.buffer.number
        if verb == "reads":
            self.read.add(number)
        elif number in self.redundant and number not in self.read:
            return
        owner = self.owners.get(number)
        if owner is None:
            if verb == "reads":
                return
            owner = self.owners[number] = np.full(tensor.buffer.size, -1, np.int32)
        view = view_of(owner, tensor)
        self._report_race(instr, tensor, verb, view, (view >= 0) & (view != instr.program))
        if verb == "writes":
            where = instr.where_of(tensor)
            if where is None:
                view[...] = instr.program
            else:
                np.copyto(view, instr.program, where=where)

    def _report_race(
        self, instr: Instruction, tensor: Tensor, verb: str, owner: np.ndarray, clash: np.ndarray
    ) -> None:
        """Report the elements where `clash` is true, which the instances in `owner` write."""
        where = instr.where_of(tensor)
        if where is not None:
            clash &= where
        if not clash.any():
            return
        index = tuple(int(i) for i in np.argwhere(clash)[0])
        other = self.trace.grid.coordinates(int(owner[index]))
        mine = self.trace.grid.coordinates(instr.program)
        # Instances that all do the same, none of which reads what another one writes: it is of no
        # consequence which of them writes last.
        number = tensor.buffer.number
        redundant = (
            self.checker.simulated and not self.trace.tells_apart and number not in self.read
        )
        if redundant:
            self.redundant.add(number)
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
                location=instr.location,
            ),
            mild=redundant,
        )

    def partly_written(self) -> set[int]:
        """Numbers of the local buffers that are not, or not surely, written everywhere."""
        open_ = {
            b.number
            for b in self.trace.buffers
            if b.role is Role.LOCAL and self.written.of(b) is not None
        }
        return open_ | self.scattered

    def finish(self) -> None:
        """Note the buffers that are defined in part; used to poison what outputs leave open.
        Reads that came before another instance's write are known only now."""
        if self.check_races and self.owners:
            self._races_of_early_reads()
        self.trace.partly_written |= self.partly_written()

    def _races_of_early_reads(self) -> None:
        for instr in self.trace.instructions:
            if "walked" in instr.attrs:
                continue
            for tensor in instr.tiles_in:
                owner = self.owners.get(tensor.buffer.number)
                if owner is not None:
                    view = view_of(owner, tensor)
                    late = view > instr.program
                    if self.repeated:
                        late |= (view >= 0) & (view != instr.program)
                    self._report_race(instr, tensor, "reads", view, late)

    def defined_part(self, tensor: Tensor) -> Restriction | None:
        """The part of a tile that something wrote; None when it is all, or nothing."""
        known = self.written.of(tensor.buffer)
        if known is None or known is False or tensor.buffer.role is not Role.LOCAL:
            return None
        inside = view_of(as_read(known, tensor), tensor)
        if inside.all() or not inside.any():
            return None
        box, part = bounding_box(inside)
        return Restriction(box, None if part.all() else part.copy())

    def untouched(self, tensor: Tensor) -> bool:
        """Whether nothing wrote any element of a tile."""
        known = self.written.of(tensor.buffer)
        if known is None or tensor.buffer.role is not Role.LOCAL:
            return False
        return known is False or not view_of(as_read(known, tensor), tensor).any()

    def missing_part(self, buffer: Buffer) -> tuple[int, int]:
        """(elements that nothing wrote, all elements) of a buffer."""
        if buffer.role is not Role.LOCAL:
            return 0, buffer.size
        return self.written.missing(buffer), buffer.size
