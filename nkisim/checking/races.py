"""Instances of a launch grid run in no promised order: what one writes, no other may touch."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import Location, RaceError
from nkisim.ir.access import AccessPattern
from nkisim.ir.barriers import Interleaving
from nkisim.ir.boxes import in_cells
from nkisim.ir.instruction import Instruction, OpKind, picking
from nkisim.ir.memory import Role
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
        strict: whether races that results decide about (`Rules.results_decide`) are decided when
            the trace runs: by what is written (`Instruction.contested`), and by what comes out in
            either order (`Trace.unsettled`).

    Yields:
        The error, and whether it is a mild one of that kind.
    """
    if trace.grid.size == 1:
        return
    for uses in _unordered(trace):
        if all(instr.where_of(t) is None for instr, t, _ in uses):
            found = in_cells(uses[0][1].buffer.shape, ((t.form, t.offsets) for _, t, _ in uses))
            if found is not None and not _clash_in_cells(uses, *found):
                continue
        yield from _clashes(trace, uses, simulated, strict)


def _unordered(trace: Trace) -> Iterator[list[_Use]]:
    """Uses of one shared tensor that is written, by instances that nothing orders: of all
    instances, or, where there are fences, of two between theirs; each in program order."""
    clocks = _clocks(trace)
    by_buffer: dict[int, dict[tuple[int, int], list[_Use]]] = {}
    passed = [0] * trace.grid.size  # fences, of each instance
    for instr in _sharing(trace):
        if instr.spec.kind is OpKind.BARRIER:
            passed[instr.program] += 1
            continue
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                if t.buffer.program is not None or t.buffer.role is Role.EXCHANGE:
                    continue
                # Which elements a tile's indices touch, data decides.
                if instr.settings.walked is None and 0 not in t.shape:
                    part = instr.program, passed[instr.program]
                    parts = by_buffer.setdefault(t.buffer.number, {})
                    parts.setdefault(part, []).append((instr, t, writes))
    for parts in by_buffer.values():
        if not any(passed):
            groups = [list(parts)]
        else:
            # What stands behind a fence that one never comes to does not run: another error.
            reached = sorted((p, i) for p, i in parts if i < len(clocks[p]))
            groups = [
                [(p, i), (q, j)]
                for (p, i), (q, j) in itertools.combinations(reached, 2)
                if p != q and clocks[p][i][q] <= j and clocks[q][j][p] <= i
            ]
        for group in groups:
            uses = [use for part in group for use in parts[part]]
            if any(writes for _, _, writes in uses):
                yield uses


def _sharing(trace: Trace) -> list[Instruction]:
    """Fences, and uses of shared tensors that some instruction writes."""
    touching = [at for at, _, _ in picking(trace.instructions, lambda t: t.buffer.program is None)]
    fences = [at for at, i in enumerate(trace.instructions) if _is_fence(i)]
    sharing = [trace.instructions[at] for at in sorted(touching + fences)]
    written = {
        t.buffer.number for i in sharing for t in i.outs if t.buffer.role is not Role.EXCHANGE
    }
    return [
        i
        for i in sharing
        if _is_fence(i) or any(t.buffer.number in written for t in (*i.outs, *i.tiles_in))
    ]


def _is_fence(instr: Instruction) -> bool:
    """Whether an instruction is a fence: a barrier that orders the instances' use of shared HBM."""
    return instr.spec.kind is OpKind.BARRIER and instr.settings.fence


def _clocks(trace: Trace) -> list[list[list[int]]]:
    """For each instance, and for each part of it between two fences: how many parts of each other
    instance have ended before (a vector clock)."""
    size = trace.grid.size
    clocks = [[[0] * size] for _ in range(size)]
    fences = [i for i in trace.instructions if _is_fence(i)]
    for instr in Interleaving(size).add(fences):
        parties = instr.settings.meeting.parties
        if instr.program != parties[0]:
            continue  # its neighbours, the other parties
        ended = [max(column) for column in zip(*(clocks[p][-1] for p in parties), strict=True)]
        for p in parties:
            ended[p] = len(clocks[p])
        for p in parties:
            clocks[p].append([*ended])
    return clocks


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
    # Instances may write the same element, if what they write is equal, and one may read what
    # another one writes, if all that comes out is the same in either order: the run compares.
    shared = np.zeros(size, bool) if trace.rules.results_decide else None
    alike_is_harmless = trace.rules.alike_is_harmless
    is_read = redundant = told = False
    for instr, tensor, writes in uses:
        is_read |= not writes
        if writes and redundant and (not is_read or alike_is_harmless):
            continue
        view = view_of(owner, tensor)
        clash = (view >= 0) & (view != instr.program)
        where = instr.where_of(tensor)
        if where is not None:
            clash &= where
        if clash.any():
            # Instances that all do the same, none of which reads what another one writes: it is of
            # no consequence which of them writes last.
            if not writes and shared is not None:  # not what it has written itself
                alike_is_harmless = False
            harmless = not is_read or alike_is_harmless
            redundant = simulated and not trace.tells_apart and harmless
            equal = shared is not None and writes and len(instr.outs) == 1 and not redundant
            if equal and shared is not None:
                view_of(shared, tensor)[clash] = True
            if not (told and shared is not None and not writes):
                by_order = shared is not None and not writes and not redundant
                error = _error(trace, uses, (instr, tensor, writes), view, clash, equal, by_order)
                if equal and strict:
                    instr.contested = clash, _differing(error)
                if by_order and strict:
                    _unsettled(trace, error)
                told |= by_order
                yield error, redundant or equal or by_order
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
        if clash.any() and not (told and shared is not None):
            harmless = trace.rules.alike_is_harmless and not trace.tells_apart
            by_order = shared is not None and not harmless
            error = _error(trace, uses, (instr, tensor, writes), view, clash, by_order=by_order)
            if by_order and strict:
                _unsettled(trace, error)
            told |= by_order
            yield error, harmless or by_order


def _unsettled(trace: Trace, warning: RaceError) -> None:
    """Have the race decided when the trace runs."""
    if trace.unsettled is None:
        trace.unsettled = RaceError(
            f"{warning.problem}: results depend on which comes first",
            rule=warning.rule,
            fix=warning.fix,
            location=warning.location,
        )


def _differing(error: RaceError) -> RaceError:
    """The error for instances that write different values, given the warning that they must
    agree."""
    return RaceError(
        f"{error.problem}, and the values differ",
        rule="instances of a launch grid run in no promised order: where several write an element, "
        "all must write the same value",
        fix=error.fix,
        location=error.location,
    )


def _error(
    trace: Trace,
    uses: list[_Use],
    use: _Use,
    owner: np.ndarray,
    clash: np.ndarray,
    equal: bool = False,
    by_order: bool = False,
) -> RaceError:
    """The error for an instruction that touches elements, where `clash` is true, that the instances
    in `owner` write. `equal`: the race is harmless if all write the same; `by_order`: it is
    harmless if results are the same in any order of the instances."""
    instr, tensor, writes = use
    index = tuple(int(i) for i in np.argwhere(clash)[0])
    writer = int(owner[index])
    other = trace.grid.coordinates(writer)
    mine = trace.grid.coordinates(instr.program)
    between = trace.rules.words.between
    error = RaceError(
        f"instance {mine} {'writes' if writes else 'reads'} {int(clash.sum()):,} elements of "
        f"{tensor.describe()} that instance {other} writes at "
        f"{_where_written(uses, writer, tensor, index)}, the first at "
        f"{list(tensor.coordinates(index))}",
        rule="instances of a launch grid run in no promised order: what one writes, "
        "no other may write or read"
        + (", unless all write the same value" if equal else "")
        + (", unless no result depends on which comes first" if by_order else ""),
        fix=(f"put {between} between the two, or " if between else "")
        + "make each instance's offset depend on nl.program_id of every grid axis, "
        "and its tile no larger than the step between offsets",
        location=instr.location,
    )
    error.instruction = instr
    return error


def _where_written(
    uses: list[_Use], writer: int, tensor: AccessPattern, index: tuple[int, ...]
) -> Location | None:
    """The line at which an instance writes an element of a tensor."""
    size = uses[0][1].buffer.size
    for instr, t, writes in uses:
        if writes and instr.program == writer:
            touched = np.zeros(size, bool)
            where = instr.where_of(t)
            np.copyto(view_of(touched, t), True, where=True if where is None else where)
            if view_of(touched, tensor)[index]:
                return instr.location
    return None
