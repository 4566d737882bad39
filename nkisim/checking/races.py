"""Instances of a launch grid run in no promised order: what one writes, no other may touch."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nkisim.checking.cells import in_cells
from nkisim.errors import RaceError
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Instruction, picking
from nkisim.ir.memory import Role
from nkisim.ir.regions import BEGIN
from nkisim.ir.views import view_of

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

_Use = tuple[Instruction, AccessPattern, bool]  # and whether it writes


def check_races(
    trace: Trace, simulated: bool, strict: bool = False
) -> Iterator[tuple[RaceError, bool]]:
    """Shared HBM touched by two instances, at least one of which writes.

    Args:
        trace: instance by instance.
        simulated: whether the SDK's simulator runs it, where instances that all write the same
            do no harm.
        strict: where instances may write the same (`Rules.equal_is_harmless`), compare what they
            write when the trace runs (`Instruction.contested`).

    Yields:
        The error, and whether it is a mild one of that kind.
    """
    if trace.grid.size == 1:
        return
    for uses in _uses(trace).values():
        if all(instr.where_of(t) is None for instr, t, _ in uses):
            found = in_cells(uses[0][1].buffer.shape, ((t.form, t.offsets) for _, t, _ in uses))
            if found is not None and not _clash_in_cells(uses, *found):
                continue
        yield from _clashes(trace, uses, simulated, strict)


def _uses(trace: Trace) -> dict[tuple[int, int], list[_Use]]:
    """All uses of each shared tensor that is written, in program order; those that a fence of all
    instances keeps apart from the others by themselves."""
    touching = [at for at, _, _ in picking(trace.instructions, lambda t: t.buffer.program is None)]
    fences = [at for at, i in enumerate(trace.instructions) if _is_fence(i, trace)]
    sharing = [trace.instructions[at] for at in sorted(touching + fences)]
    written = {t.buffer.number for i in sharing for t in i.outs if t.buffer.program is None}
    uses: dict[tuple[int, int], list[_Use]] = {}
    passed = [0] * trace.grid.size  # fences, of each instance
    for instr in sharing:
        if instr.opcode == "barrier":
            passed[instr.program] += 1
            continue
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                buffer = t.buffer
                if buffer.number not in written or buffer.role is Role.EXCHANGE:
                    continue
                # Which elements a tile's indices touch, data decides.
                if "walked" not in instr.attrs and 0 not in t.shape:
                    uses.setdefault((buffer.number, passed[instr.program]), []).append(
                        (instr, t, writes)
                    )
    return uses


def _is_fence(instr: Instruction, trace: Trace) -> bool:
    """Whether all instances wait for each other's use of shared HBM."""
    return (
        instr.opcode == "barrier"
        and instr.attrs["fence"]
        and len(instr.attrs["meeting"].parties) == trace.grid.size
    )


def _clash_in_cells(uses: list[_Use], cells: int, places: list[list[int]]) -> bool:
    """Whether there is a clash, as `_clashes` looks for it."""
    owner = [-1] * cells
    for (instr, _, writes), place in zip(uses, places, strict=True):
        program = instr.program
        for cell in place:
            if owner[cell] != program:
                if owner[cell] >= 0:
                    return True
                if writes:
                    owner[cell] = program
    return any(
        not writes and any(owner[cell] > instr.program for cell in place)
        for (instr, _, writes), place in zip(uses, places, strict=True)
    )


def _clashes(
    trace: Trace, uses: list[_Use], simulated: bool, strict: bool
) -> Iterator[tuple[RaceError, bool]]:
    size = uses[0][1].buffer.size
    owner = np.full(size, -1, np.int32)
    # Those that several write, if all must write the same.
    shared = np.zeros(size, bool) if _may_be_equal(trace) else None
    is_read = redundant = False
    for instr, tensor, writes in uses:
        is_read |= not writes
        if writes and redundant and (not is_read or trace.rules.alike_is_harmless):
            continue
        view = view_of(owner, tensor)
        clash = (view >= 0) & (view != instr.program)
        where = instr.where_of(tensor)
        if where is not None:
            clash &= where
        if clash.any():
            # Instances that all do the same, none of which reads what another one writes: it is of
            # no consequence which of them writes last.
            harmless = not is_read or trace.rules.alike_is_harmless
            redundant = simulated and not trace.tells_apart and harmless
            equal = shared is not None and writes and len(instr.outs) == 1 and not redundant
            error = _error(trace, instr, tensor, writes, view, clash, equal)
            if equal and shared is not None:
                view_of(shared, tensor)[clash] = True
                if strict:
                    instr.contested = clash, _differing(error)
            yield error, redundant or equal
        if writes:
            np.copyto(view, instr.program, where=True if where is None else where)
    latest = np.full(size, -1, np.int32)
    for instr, tensor, writes in uses:
        where = instr.where_of(tensor)
        if writes:
            if shared is not None:
                mask = True if where is None else where
                np.copyto(view_of(latest, tensor), instr.program, where=mask)
            continue
        view = view_of(owner, tensor)
        clash = view > instr.program
        if where is not None:
            clash &= where
        if shared is not None:  # it reads what it has written itself, and the other one as well
            clash &= ~(view_of(shared, tensor) & (view_of(latest, tensor) == instr.program))
        if clash.any():
            harmless = trace.rules.alike_is_harmless and not trace.tells_apart
            yield _error(trace, instr, tensor, writes, view, clash), harmless


def _may_be_equal(trace: Trace) -> bool:
    """Whether instances may write the same element, if what they write is equal. It is compared
    when the trace runs, where each instruction runs once."""
    return trace.rules.equal_is_harmless and all(i.opcode != BEGIN for i in trace.instructions)


def _differing(error: RaceError) -> RaceError:
    """The error where instances do not write the same, given the warning that they must."""
    return RaceError(
        f"{error.problem}: not the same values",
        rule="instances of a launch grid run in no promised order: where several write an element, "
        "all must write the same value",
        fix=error.fix,
        location=error.location,
    )


def _error(
    trace: Trace,
    instr: Instruction,
    tensor: AccessPattern,
    writes: bool,
    owner: np.ndarray,
    clash: np.ndarray,
    equal: bool = False,
) -> RaceError:
    """`instr` touches elements, where `clash` is true, that the instances in `owner` write;
    `equal`: which is right if all write the same."""
    index = tuple(int(i) for i in np.argwhere(clash)[0])
    other = trace.grid.coordinates(int(owner[index]))
    mine = trace.grid.coordinates(instr.program)
    error = RaceError(
        f"instance {mine} {'writes' if writes else 'reads'} {int(clash.sum()):,} elements of "
        f"{tensor.describe()} that instance {other} writes, the first at "
        f"{list(tensor.coordinates(index))}",
        rule="instances of a launch grid run in no promised order: what one writes, "
        "no other may write or read" + (", unless all write the same value" if equal else ""),
        fix="make each instance's offset depend on nl.program_id of every grid axis, "
        "and its tile no larger than the step between offsets",
        location=instr.location,
    )
    error.instruction = instr
    return error
