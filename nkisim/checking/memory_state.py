"""Definedness of memory: reads of uninitialised elements, unwritten outputs."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from nkisim.checking.written import WrittenElements
from nkisim.errors import UninitializedReadError
from nkisim.ir.access import AccessPattern
from nkisim.ir.barriers import in_order
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.memory import Buffer, Role
from nkisim.ir.restriction import Restriction, bounding_box
from nkisim.numerics.ranges import has_range

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


def _all_of(missing: np.ndarray, where: np.ndarray | None) -> bool:
    """Whether every element that an operation touches is missing."""
    return int(missing.sum()) == (missing.size if where is None else int(where.sum()))


class MemoryState:
    """The defined elements of each buffer.

    A tile that a masked load fills in part may be computed on as a whole, as on hardware: the
    result is undefined where the operand was. The error comes when undefined elements would leave
    the chip, or when nothing that is read was ever written. That a mask has left nothing of the
    instruction that was to write it, in the last round of a loop, makes no difference to the rest
    of the round: its results are as undefined, and the mask of the store drops them.

    An instance may hand another one a tile that is written in part: what is undefined in it is
    undefined where it arrives. Instances are traced one after the other, so that this is looked at
    in the end, over the instructions in the order in which they run.

    Args:
        checker: which reports.
        trace: the instructions.
        in_order: whether instructions come in the order in which they run.
    """

    def __init__(self, checker: Any, trace: Trace, in_order: bool = False) -> None:
        self.checker = weakref.proxy(checker)  # in no cycle, as the trace is large
        self.trace = trace
        self.check_reads = checker.modes["uninitialized"] != "off"
        self.check_ranges = checker.modes["range"] != "off"
        trace.strict_ranges = checker.modes["range"] == "error"
        self.followed = {Role.LOCAL, Role.EXCHANGE} if in_order else {Role.LOCAL}
        self.sent_in_part = False  # whether an instance has sent a tile that is written in part
        self.written = WrittenElements()
        self.reported: set[int] = set()
        self.scattered: set[int] = set()
        self.masked_off: set[int] = set()  # what instructions were to write that a mask left out
        self.computed: set[int] = set()  # results of instructions that did run, on such tiles
        # Instances behind a fence may read what others, traced later, write before it.
        self.fenced: set[int] = set()
        self.late: list[tuple[Instruction, AccessPattern]] = []

    def on_instruction(self, instr: Instruction) -> None:
        tiles = instr.tiles_in
        if instr.spec.kind is OpKind.BARRIER and instr.settings.fence:
            self.fenced.add(instr.program)
        for tensor in tiles:
            if tensor.buffer.role in self.followed and not self.written.knows(tensor):
                missing = [self._undefined(instr, tensor) for tensor in tiles]
                if any(m is not None for m in missing):
                    undefined = self._flow(instr, tiles, missing)
                    for out, unknown in zip(instr.outs, undefined, strict=True):
                        self._define(instr, out, unknown)
                    return
                break
        if self.check_ranges and has_range(instr):
            instr.watched = True
        for tensor in instr.outs:
            self._define(instr, tensor, None)

    def is_known(self, tensor: AccessPattern) -> bool:
        """Whether all of a tile was surely written, told without looking at flags."""
        return self.written.knows(tensor)

    def _undefined(self, instr: Instruction, tensor: AccessPattern) -> np.ndarray | None:
        """Elements of an operand that nothing wrote; None when all are defined."""
        buffer = tensor.buffer
        if buffer.role not in self.followed:
            return None
        if self.written.knows(tensor):
            return None
        if buffer.program is None and instr.program in self.fenced:
            self.late.append((instr, tensor))
            return None
        written = self.written.part(tensor)
        if written is True or 0 in tensor.shape:
            return None
        missing = np.ones(tensor.shape, bool) if written is False else ~written
        where = instr.where_of(tensor)
        if where is not None:
            missing &= where
        if not missing.any():
            return None
        self.trace.read_undefined.add(buffer.number)
        return missing

    def _flow(
        self, instr: Instruction, tiles: tuple[AccessPattern, ...], missing: list[np.ndarray | None]
    ) -> list[np.ndarray | None]:
        """Undefined elements of the outputs. Reports when there is no use in computing on.

        What comes of elements that were reported, or that nobody is to report, counts as defined:
        another message, about outputs or loops, would blame what is not at fault.
        """
        if not self.check_reads:
            return [None] * len(instr.outs)
        flow = instr.spec.flow
        sends = instr.settings.sends
        stays = flow is not None and (sends or all(t.space.on_chip for t in instr.outs))
        if sends and not _all_of(missing[0], None):  # type: ignore[arg-type]
            self.sent_in_part = True
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
            if m is None:
                continue
            if tensor.buffer.number not in self.reported and (
                not stays
                or _all_of(m, instr.where_of(tensor))
                or (useless and not instr.spec.elementwise)
            ):
                self._report_read(instr, tensor, m)
        if any(
            m is not None and t.buffer.number in self.reported
            for t, m in zip(tiles, missing, strict=True)
        ):
            return [None] * len(instr.outs)
        return undefined

    def left_out(self, tensor: AccessPattern) -> bool:
        """Whether a tile holds nothing, because a mask left nothing of what was to write it."""
        number = tensor.buffer.number
        return (
            number not in self.computed and self.untouched(tensor) and self._is_masked_off(tensor)
        )

    def _is_masked_off(self, tensor: AccessPattern) -> bool:
        """Whether a mask has left nothing of the instruction that would have written a tile."""
        number = tensor.buffer.number
        return number in self.masked_off or (
            not self.written.touched(tensor.buffer) and not tensor.buffer.declared
        )

    def _report_read(self, instr: Instruction, tensor: AccessPattern, missing: np.ndarray) -> None:
        self.reported.add(tensor.buffer.number)
        index = tuple(int(i) for i in np.argwhere(missing)[0])
        where = list(tensor.coordinates(index))
        made = tensor.buffer.location
        count = int(missing.sum())
        words = self.trace.rules.words
        self.checker.report(
            "uninitialized",
            UninitializedReadError(
                f"{instr.label} reads {count:,} of {missing.size:,} elements of "
                f"{tensor.describe()} that nothing wrote, the first at {where}"
                + (f"; the tensor was made at {made}" if made else ""),
                rule="fresh memory holds whatever was there before; only written elements may "
                "be read or stored",
                fix="write the elements first, or "
                + (words.of_each if instr.spec.kind is OpKind.PRODUCT else words.written_only),
                location=instr.location,
            ),
            mild=self.checker.as_sdk and not _all_of(missing, instr.where_of(tensor)),
        )

    def _define(
        self, instr: Instruction, tensor: AccessPattern, undefined: np.ndarray | None
    ) -> None:
        buffer = tensor.buffer
        number = buffer.number
        if buffer.role not in self.followed:
            if number not in self.trace.written_arguments:
                self.trace.written_arguments.append(number)
            return
        if instr.spec.partial:
            self.scattered.add(number)
            if not self.written.is_whole(buffer):
                self.trace.read_undefined.add(number)
        where = instr.where_of(tensor)
        if undefined is None and where is None:
            if tensor.covers_buffer:
                self.written.add_all(buffer)
            else:
                self.written.note(tensor)
            return
        if undefined is None:
            if self.written.is_whole(buffer):
                return
        elif undefined.all() and not self.written.touched(buffer):
            return  # as undefined as it was
        self.written.add(tensor, True if undefined is None else ~undefined, where)

    def partly_written(self) -> set[int]:
        """Numbers of the local buffers that are not, or not surely, written everywhere."""
        whole, buffers = self.written.whole, self.trace.buffers
        left = [b for b in buffers if b.number not in whole and b.role is Role.LOCAL]
        open_ = {b.number for b in left if not self.written.is_whole(b)}
        return open_ | self.scattered

    def finish(self) -> None:
        """Look at what is read behind fences. Then note the buffers that are defined in part; used
        to poison what outputs leave open."""
        self.fenced.clear()
        for instr, tensor in self.late:
            missing = self._undefined(instr, tensor)
            if missing is not None and tensor.buffer.number not in self.reported:
                self._report_read(instr, tensor, missing)
        self.trace.partly_written |= self.partly_written()

    def follow_exchanges(self, checker: Any) -> None:
        """Look again, at what instances hand each other as well, if any of it is undefined."""
        if not self.sent_in_part:
            return
        again = MemoryState(checker, self.trace, in_order=True)
        again.reported, again.masked_off = self.reported, self.masked_off
        for instr in in_order(self.trace):
            again.on_instruction(instr)
        again.finish()

    def defined_part(self, tensor: AccessPattern) -> Restriction | None:
        """The part of a tile that something wrote; None when it is all, or nothing."""
        inside = self.written.part(tensor)
        if isinstance(inside, bool) or tensor.buffer.role is not Role.LOCAL:
            return None
        if inside.all() or not inside.any():
            return None
        box, part = bounding_box(inside)
        return Restriction(box, None if part.all() else part.copy())

    def untouched(self, tensor: AccessPattern) -> bool:
        """Whether nothing wrote any element of a tile."""
        return tensor.buffer.role is Role.LOCAL and not self.written.touches(tensor)

    def missing_part(self, buffer: Buffer) -> tuple[int, int]:
        """(elements that nothing wrote, all elements) of a buffer."""
        if buffer.role is not Role.LOCAL:
            return 0, buffer.size
        return self.written.missing(buffer), buffer.size
