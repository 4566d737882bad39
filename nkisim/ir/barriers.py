"""Meetings of kernel instances: points at which several instances wait for each other.

Instances of a launch grid are traced one after the other. `interleave` puts their instructions in
an order in which they can run: what each party of a meeting does before it precedes what any
party does after it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from nkisim.errors import ParameterError
from nkisim.ir.instruction import Instruction, OpKind, TransferKind
from nkisim.ir.memory import Role

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace


class Meeting(NamedTuple):
    """The identity of a meeting. Each party has one `barrier` instruction, whose attribute
    "meeting" equals that of the other parties.

    Attributes:
        name: what the kernel calls to meet, e.g. "nl.all_reduce"; for messages, too.
        parties: numbers of the instances that take part, ascending.
        number: how many meetings of this name and these parties the instance had before.
    """

    name: str
    parties: tuple[int, ...]
    number: int


def interleave(trace: Trace) -> None:
    """Put the instructions of a trace in the order of `in_order`."""
    trace.instructions = in_order(trace)


def in_order(trace: Trace) -> list[Instruction]:
    """The instructions of a trace, instance by instance, in the order of `Interleaving`.

    Raises:
        ParameterError: an instance waits for another one that never comes (a deadlock).
    """
    if not any(i.spec.kind is OpKind.BARRIER for i in trace.instructions):
        return trace.instructions
    order = Interleaving(trace.grid.size)
    result = order.add(trace.instructions)
    if order.waiting:
        raise _deadlock(trace, order.waiting)
    return result


class Interleaving:
    """An order in which the instructions of several instances can run.

    Each instance keeps its own order. The barriers of a meeting become neighbours. They are
    followed by the transfers that receive what other parties left in exchange buffers, and only
    then by anything else, which might overwrite what was sent.

    Args:
        size: how many instances there are.

    Attributes:
        waiting: the barrier at which an instance stands, by its number.
    """

    def __init__(self, size: int) -> None:
        self.waiting: dict[int, Instruction] = {}
        self._streams: list[list[Instruction]] = [[] for _ in range(size)]
        self._at = [0] * size

    def add(self, instructions: list[Instruction]) -> list[Instruction]:
        """Append instructions of the trace. Returns those that become ready to run."""
        for instr in instructions:
            self._streams[instr.program].append(instr)
        streams, at, waiting = self._streams, self._at, self.waiting
        order: list[Instruction] = []
        ready = [program for program in range(len(streams)) if program not in waiting]
        while ready:
            for program in ready:
                stream, here = streams[program], at[program]
                while here < len(stream) and stream[here].spec.kind is not OpKind.BARRIER:
                    here += 1
                order += stream[at[program] : here]
                at[program] = here
                if here < len(stream):
                    waiting[program] = stream[here]
            ready = []
            for instr in list(waiting.values()):
                parties = _complete(instr, waiting)
                order += [waiting.pop(program) for program in parties]
                for program in parties:
                    stream, here = streams[program], at[program] + 1
                    end = here
                    while end < len(stream) and _receives(stream[end]):
                        end += 1
                    order += stream[here:end]
                    at[program] = end
                ready += parties
        return order


def _complete(instr: Instruction, waiting: dict[int, Instruction]) -> tuple[int, ...]:
    """The parties of a barrier's meeting if all of them stand at it; else none."""
    meeting: Meeting = instr.settings.meeting
    for program in meeting.parties:
        other = waiting.get(program)
        if other is None or other.settings.meeting != meeting:
            return ()
    return meeting.parties


def _receives(instr: Instruction) -> bool:
    """Whether an instruction only copies out of exchange buffers."""
    return instr.spec.cost is TransferKind.COPY and all(
        t.buffer.role is Role.EXCHANGE for t in instr.tiles_in
    )


def _deadlock(trace: Trace, waiting: dict[int, Instruction]) -> ParameterError:
    """The error of the first instance that waits for ever."""
    program = min(waiting)
    instr = waiting[program]
    meeting: Meeting = instr.settings.meeting
    absent = next(
        p for p in meeting.parties if p not in waiting or waiting[p].settings.meeting != meeting
    )
    other = waiting.get(absent)
    if other is None:
        does = "ends without it"
        last = next((i for i in reversed(trace.instructions) if i.program == absent), None)
        if last is not None and last.location is not None:
            does += f"; its last instruction is at {last.location}"
    else:
        theirs: Meeting = other.settings.meeting
        with_whom = ", ".join(_named(trace, p) for p in theirs.parties if p != absent)
        does = (
            f"waits at {other.location} for {theirs.name} number {theirs.number} with {with_whom}"
        )
    return ParameterError(
        f"deadlock: {_named(trace, program)} waits at {instr.location} for {meeting.name} number "
        f"{meeting.number}, and {_named(trace, absent)} {does}",
        rule=f"every party of {meeting.name} calls it, as often as the others and in the same "
        "order: they wait for each other",
        fix="call it outside of conditions on the program id, with a mask if need be",
        location=instr.location,
    )


def _named(trace: Trace, program: int) -> str:
    return f"instance {trace.grid.coordinates(program)}"
