"""Dependences between iterations of affine_range (`RULE`): they run in any order, or at once.

The check keeps, for each element of a tensor that such a loop writes and that was made outside of
it, an iteration that wrote it, in program order and once more in reverse: the last one, or the
first one of those that accumulate in it.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nkisim.errors import LoopError
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.boxes import Part, in_cells, is_box
from nkisim.ir.instruction import Instruction, TransferKind
from nkisim.ir.loops import Path
from nkisim.ir.memory import Buffer
from nkisim.ir.views import view_of

if TYPE_CHECKING:
    from nkisim.ir.trace import Trace

RULE = (
    "iterations of affine_range may run in any order, or at once: no iteration reads or writes an "
    "element that another iteration writes. One exception: all of them may apply one operator (a "
    "matmul, +=, *=, maximum) to a tile that is created before the loop and read after it"
)

# Operators whose order of application does not matter: `t op= x` may be done in any order. An
# accumulation is told by its number here; 0 is none.
_OPERATORS = {"add": 1, "multiply": 2, "maximum": 3, "minimum": 4} | {
    f"{kind}_{gate}": number
    for number, (kind, gate) in enumerate(
        itertools.product(("logical", "bitwise"), ("and", "or", "xor")), start=5
    )
}
_KINDS = len(_OPERATORS) + 1

# An instruction, the part of a tensor that it uses, and whether it writes it.
Use = tuple[Instruction, Tensor, bool]


def check_affine_loops(trace: Trace) -> Iterator[tuple[LoopError, bool]]:
    """Each tensor that has a dependence between iterations of an affine_range loop, once; and
    whether all it takes is that they keep their order: one writes elements, later ones read them,
    and none writes them again."""
    affine = {n for n, loop in enumerate(trace.loops) if loop.kind == "affine_range"}
    if not affine:
        return
    known: dict[_Pattern, bool] = {}  # tiles made in the same place, in turn, have one pattern
    for number, uses in _uses_of_shared(trace, affine).items():
        buffer = trace.buffers[number]
        error = _clash(buffer, uses, affine, known)
        if error is not None:
            yield error, _is_in_order(buffer, uses, affine)


def _uses_of_shared(trace: Trace, affine: set[int]) -> dict[int, list[Use]]:
    """The uses, in program order, of each tensor that is written in an affine loop outside of which
    it was made, by its number.

    Of the loops around such writes, the outermost ones in which the tensor is not made anew count:
    uses in different ones are never in different iterations of one loop.
    """
    shared: dict[int, set[int]] = {}  # by the tensor, these loops
    for instr in trace.instructions:
        loops = instr.loops
        if not loops:
            continue
        for t in instr.outs:
            inner = loops[len(t.buffer.loops) :]
            if inner and not affine.isdisjoint([n for n, _ in inner]):
                shared.setdefault(t.buffer.number, set()).add(inner[0][0])
    for number in trace.hidden:
        shared.pop(number, None)
    uses: dict[int, list[Use]] = {number: [] for number in shared}
    for instr in trace.instructions:
        loops = instr.loops
        if (
            not loops or instr.settings.walked is not None
        ):  # data decides which elements that one touches
            continue
        for tiles, writes in ((instr.tiles_in, False), (instr.outs, True)):
            for t in tiles:
                buffer = t.buffer
                outermost = shared.get(buffer.number)
                depth = len(buffer.loops)
                if (
                    outermost is not None
                    and depth < len(loops)
                    and loops[depth][0] in outermost
                    and t.dtype.itemsize == buffer.dtype.itemsize
                ):
                    uses[buffer.number].append((instr, t, writes))
    return uses


def _is_in_order(buffer: Buffer, uses: list[Use], affine: set[int]) -> bool:
    writes = [use for use in uses if use[2]]
    return (
        # A sum that is read in between is not what all of them add up to, whatever the order.
        _first_clash(buffer, writes, affine, "after", adds_up=False) is None
        and _first_clash(buffer, uses[::-1], affine, "before") is None
    )


def _clash(
    buffer: Buffer, uses: list[Use], affine: set[int], known: dict[_Pattern, bool]
) -> LoopError | None:
    """A dependence between iterations, given all uses of a tensor."""
    if not uses or _are_apart([t for _, t, _ in uses]):
        return None
    accumulates = [_accumulates(i, t) for i, t, _ in uses]
    if accumulates[0] and len(set(accumulates)) == 1:  # in any order
        return None
    if all([i.where_of(t) is None for i, t, _ in uses]):
        pattern = _pattern(buffer, uses, accumulates, affine)
        if pattern not in known:
            known[pattern] = _do_not_clash(pattern)
        if known[pattern]:
            return None
    error = _first_clash(buffer, uses, affine, "after")
    if error is None and any(not writes for _, _, writes in uses):
        error = _first_clash(buffer, uses[::-1], affine, "before")
    return error


def _are_apart(tensors: list[Tensor]) -> bool:
    """Whether views of one tensor are easily seen to be different boxes of a regular tiling."""
    form = tensors[0].form
    if not all([t.form is form for t in tensors]) or not is_box(form):
        return False
    starts = {t.offsets for t in tensors}
    return len(starts) == len(tensors) and all(
        len({o % (up - down + 1) for o in column}) == 1
        for column, (down, up) in zip(zip(*starts, strict=True), form.reach, strict=True)
    )


def _first_clash(
    buffer: Buffer, uses: list[Use], affine: set[int], order: str, adds_up: bool = True
) -> LoopError | None:
    # _KINDS * the writing instruction's path + how it accumulates
    owner = np.full(buffer.size, -1, np.int32)
    paths: dict[Path, int] = {}
    known: list[tuple[Path, Instruction]] = []
    for instr, tensor, writes in uses:
        if 0 in tensor.shape:
            continue
        accumulates = _accumulates(instr, tensor) if adds_up else 0
        number = paths.setdefault(instr.loops, len(known))
        if number == len(known):
            known.append((instr.loops, instr))
        mine = _KINDS * number + accumulates
        kept = None  # the elements to which another iteration has added
        view, where = view_of(owner, tensor), instr.where_of(tensor)
        first = int(view.flat[0])
        seen = {first}
        if not (view == first).all():  # by np.unique, numpy.ma would be imported: some 40 ms
            seen = set((np.flatnonzero(np.bincount(view.reshape(-1) + 1)) - 1).tolist())
        for other in seen - {-1, mine}:
            path, writer = known[other // _KINDS]
            level = _parted(path, instr.loops, affine)
            if level is None or level < len(buffer.loops):
                continue
            hit = view == other
            if accumulates and other % _KINDS == accumulates:
                kept = hit if kept is None else kept | hit
                continue
            if where is not None:
                hit &= where
            if hit.any():
                index = tuple(int(i) for i in np.argwhere(hit)[0])
                place = list(tensor.coordinates(index))
                return _error(instr, tensor, writes, writer, path, level, place, order)
        if writes:
            if kept is not None:
                where = ~kept if where is None else where & ~kept
            np.copyto(view, mine, where=True if where is None else where)
    return None


class _Pattern(NamedTuple):
    """A memo key of the dependence test: all of a tensor's uses that decides on it, loops
    renumbered.

    Attributes:
        shape: of the tensor.
        paths: for each iteration that uses it, a number for the loops that the tensor was made in,
            and the loops inside of these.
        affine: which of the inner loops are affine.
        uses: in program order, the part; whether it is written; and _KINDS * path + how it
            accumulates.
    """

    shape: tuple[int, ...]
    paths: tuple[tuple[int, Path], ...]
    affine: frozenset[int]
    uses: tuple[tuple[Part, bool, int], ...]


def _pattern(buffer: Buffer, uses: list[Use], accumulates: list[int], affine: set[int]) -> _Pattern:
    depth = len(buffer.loops)
    scopes: dict[Path, int] = {}
    loops: dict[int, int] = {}
    numbers: dict[int, int] = {}  # by identity, which instructions of an iteration share
    paths: list[tuple[int, Path]] = []
    parts: list[tuple[Part, bool, int]] = []
    for (instr, t, writes), adds in zip(uses, accumulates, strict=True):
        number = numbers.setdefault(id(instr.loops), len(paths))
        if number == len(paths):
            outer, inner = instr.loops[:depth], instr.loops[depth:]
            renamed = tuple([(loops.setdefault(n, len(loops)), i) for n, i in inner])
            paths.append((scopes.setdefault(outer, len(scopes)), renamed))
        parts.append(((t.form, t.offsets), writes, _KINDS * number + adds))
    local = frozenset([new for n, new in loops.items() if n in affine])
    return _Pattern(buffer.shape, tuple(paths), local, tuple(parts))


def _do_not_clash(pattern: _Pattern) -> bool:
    """Whether there surely is no dependence between iterations, as `_first_clash` looks for it in
    both orders. No use is masked."""
    found = in_cells(pattern.shape, [part for part, _, _ in pattern.uses])
    if found is None:
        return False
    _, places = found
    used = list(itertools.chain.from_iterable(places))
    if len(set(used)) == len(used):
        return True

    def share(a: int, b: int) -> bool:
        """Whether two uses are in different iterations of an affine loop."""
        if a == b:
            return False
        mine, theirs = pattern.paths[a // _KINDS], pattern.paths[b // _KINDS]
        return mine[0] == theirs[0] and _parted(mine[1], theirs[1], pattern.affine) is not None

    in_order = [(writes, m, at) for (_, writes, m), at in zip(pattern.uses, places, strict=True)]
    for uses in (in_order, reversed(in_order)):
        writer: dict[int, int] = {}  # of each cell: _KINDS * path + how it accumulates
        for writes, mine, place in uses:
            kept: set[int] = set()  # those that another iteration wrote, and this one adds to it
            for other in {writer[cell] for cell in place if cell in writer}:
                if share(other, mine):
                    if mine % _KINDS != other % _KINDS or not mine % _KINDS:
                        return False
                    kept.add(other)
            if writes:
                writer.update({cell: mine for cell in place if writer.get(cell) not in kept})
    return True


def _parted(a: Path, b: Path, affine: Set[int]) -> int | None:
    """The level at which two instructions are in different iterations of one affine loop."""
    for level, (p, q) in enumerate(zip(a, b, strict=False)):
        if p != q:
            return level if p[0] == q[0] and p[0] in affine else None
    return None


def _accumulates(instr: Instruction, tensor: Tensor) -> int:
    """The operator of an update that may be done in any order, if `tensor` is its accumulator;
    else 0. `acc = acc + acc` is none."""
    settings = instr.settings
    if not any([tensor.same_elements(t) for t in instr.outs]):
        return 0
    if settings.accumulate or instr.spec.cost is TransferKind.SUM:
        return _OPERATORS.get(settings.reduce_op or settings.op, _OPERATORS["add"])
    times = sum([tensor.same_elements(t) for t in instr.tiles_in])
    return _OPERATORS.get(settings.op, 0) if times == 1 and instr.spec.elementwise else 0


def _error(
    instr: Instruction,
    tensor: Tensor,
    writes: bool,
    writer: Instruction,
    path: Path,
    level: int,
    place: list[int],
    order: str,
) -> LoopError:
    mine, theirs = instr.loops[level][1], path[level][1]
    at = f" at {writer.location}" if writer.location else ""
    where = f"element {place} of {tensor.describe()}"
    if writes:
        return LoopError(
            f"iterations {theirs} and {mine} of an nl.affine_range loop both write {where}; the "
            f"other write is{at}",
            rule=RULE,
            fix="index the destination with the loop index, or loop with nl.sequential_range",
            code="err_unexpected_output_dependencies",
            location=instr.location,
        )
    then = "has written" if order == "after" else "writes later"
    return LoopError(
        f"{instr.label} in iteration {mine} of an nl.affine_range loop reads {where}, which "
        f"iteration {theirs} {then}{at}",
        rule=RULE,
        fix="loop with nl.sequential_range, where each iteration sees what the ones before it "
        "wrote",
        code="err_unexpected_output_dependencies",
        location=instr.location,
    )
