"""Computations and loads that the compiler does not repeat.

* A computation that an iteration repeats on the same inputs as the one before is done once, and so
  is a load that an innermost loop repeats.
* What was loaded for the Tensor Engine alone is kept, and not loaded again in whatever loop. That
  goes for what was used last, up to `Timing.kept_operand_bytes` a partition; a later load of what
  had to go is the compiler's, whose transfers have queues of their own. A row that is broadcast is
  such an operand, too; it is broadcast anew each time. On v2 nothing is kept: loads are done where
  the text has them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from nkisim.compiler.moves import is_spread
from nkisim.cost.storage import Operation, OperationForm, Storage
from nkisim.cost.tasks import Work
from nkisim.ir.access import AccessPattern
from nkisim.ir.instruction import Engine, Instruction, OpKind, TransferKind
from nkisim.ir.memory import Role

# An iteration's result is kept for the next one when it takes at most this much of a partition.
_KEEP_BYTES = 32 * 1024

# What every iteration does anew, whatever its inputs are.
_ANEW = (OpKind.PRODUCT, OpKind.TRANSPOSE, OpKind.FILL, OpKind.RANDOM)


def without_repeats(
    steps: Sequence[Operation], storage: Storage, work: Work, room: int = 0
) -> tuple[list[Operation], dict[OperationForm, int]]:
    """Drop what the next iteration of a loop would compute again from the same inputs, and what a
    later one of any loop would load again of the newest operands of matmuls.

    A tile that is found to equal another one goes by that one's number from there on.

    Args:
        steps: in program order.
        storage: of what they touch.
        work: takes notes of what was dropped.
        room: bytes a partition of such operands that are kept.

    Returns:
        The steps that are left, and how many of each form were dropped.
    """
    _find_shared(storage)
    # HBM may hold something before it is written.
    written = {n for n, memory in work.memory.items() if not memory.space.on_chip}
    version: dict[int, int] = {}  # of what is written more than once
    for step in steps:
        for number, _ in step.writes:
            if number in written:
                version[number] = 0
            else:
                written.add(number)
    operands = _Operands(steps, room)
    found: dict[tuple, tuple[int, tuple]] = {}
    same: dict[int, int] = {}
    hoisted: dict[OperationForm, int] = defaultdict(int)
    kept = []
    for step in steps:
        i, form, reads = step.instr, step.form, step.reads
        if same:
            for number, _ in reads:
                if number in same:
                    reads = step.reads = [(same.get(n, n), part) for n, part in reads]
                    break
        if form.shared is not None and i.loops and step.writes[0][0] not in version:
            key = (form.shared, *reads)
            if version:
                for number, _ in reads:
                    if number in version:
                        key += (version[number],)
            result = step.writes[0][0]
            before = found.get(key)
            load = i.spec.cost is TransferKind.COPY
            held = load and room and operands.holds(key, step)
            if load and room and not held and before is not None and operands.reloads(step):
                step.form = storage.reloading(form)
            if before is not None and (held or _next_iteration(before[1], i.loops, load)):
                same[result] = before[0]
                work.kept.add(before[0])
                if held and operands.is_row(step):
                    work.rows.add(before[0])
                found[key] = (before[0], i.loops)
                hoisted[form] += 1
                continue
            found[key] = (result, i.loops)
        if version:
            for number, _ in step.writes:
                if number in version:
                    version[number] += 1
        kept.append(step)
    for form, times in hoisted.items():
        work.choices[f"{form.label} hoisted out of a loop"] += times
    return kept, hoisted


class _Operands:
    """Tiles that were loaded for the Tensor Engine alone, as far as they are kept.

    Args:
        steps: of the program.
        room: bytes a partition for them. Those used last stay.
    """

    def __init__(self, steps: Sequence[Operation], room: int) -> None:
        self._left = room
        self._nbytes: dict[tuple, int] = {}  # by what was loaded
        tensor = Engine.TENSOR
        # Tiles that other engines, or stores, read; and rows that the Tensor Engine broadcasts to
        # other engines.
        self._others: set[int] = set()
        self._rows: set[int] = set()
        for step in steps if room else ():
            if step.instr.engine is not tensor:
                for t, (number, _) in zip(step.instr.tiles_in, step.reads, strict=True):
                    (self._rows if is_spread(t) else self._others).add(number)

    def reloads(self, load: Operation) -> bool:
        """Whether a load is a reload by the compiler, of an operand that was loaded before and
        evicted. A load into a tile that the kernel declares is the kernel's own."""
        return self.keeps(load) and not load.instr.outs[0].buffer.declared

    def is_row(self, load: Operation) -> bool:
        """Whether a load is of a row that is broadcast."""
        return load.writes[0][0] in self._rows

    def keeps(self, load: Operation) -> bool:
        """Whether a load is of an operand of the Tensor Engine alone."""
        return load.writes[0][0] not in self._others

    def holds(self, key: tuple, load: Operation) -> bool:
        """Whether what a load brings is there. It is from now on, for a while.

        Args:
            key: what it loads.
            load: the load.
        """
        if not self.keeps(load):
            return False
        nbytes = self._nbytes.pop(key, None)
        held = nbytes is not None
        if nbytes is None:
            nbytes = load.instr.outs[0].buffer.partition_bytes
            self._left -= nbytes
        self._nbytes[key] = nbytes
        while self._left < 0:
            self._left += self._nbytes.pop(next(iter(self._nbytes)))
        return held


def _find_shared(storage: Storage) -> None:
    """Number the computations that a later iteration may share, up to the tiles they read."""
    numbers: dict[tuple, int] = {}
    for form in storage.forms.values():
        key = _computation(form.instr, storage)
        if key is not None:
            try:
                form.shared = numbers.setdefault(key, len(numbers))
            except TypeError:  # a setting that cannot be compared
                continue


def _computation(i: Instruction, storage: Storage) -> tuple | None:
    """The value number of an instruction, for common subexpressions; None if it is not to be
    shared."""
    load = i.spec.cost is TransferKind.COPY and not i.ins[0].space.on_chip
    if i.spec.kind in _ANEW or (i.spec.kind is OpKind.TRANSFER and not load) or len(i.outs) != 1:
        return None
    out = i.outs[0]
    b = out.buffer
    if (
        b.role is not Role.LOCAL
        or not b.space.on_chip
        or b.placed
        or i.where is not None
        or b.partition_bytes > _KEEP_BYTES
        or not storage.whole_tile(out)
        # Of memory that several tiles placed by hand share, parts are not told apart.
        or not all(map(storage.alone, i.tiles_in))
    ):
        return None
    # Which part of a tile it reads is compared with the tile's number.
    ins = [None if isinstance(x, AccessPattern) else x for x in i.ins]
    return i.opcode, out.shape, out.dtype, *ins, *i.settings.given.values()


def _next_iteration(before: tuple, now: tuple, innermost: bool) -> bool:
    """Whether one loop only has moved on, by one iteration, between two places in the loops."""
    if len(before) != len(now):
        return False
    moved = -1
    for depth, (loop, i) in enumerate(before):
        same, j = now[depth]
        if i != j:
            if moved >= 0 or loop != same or j != i + 1:
                return False
            moved = depth
    return moved == len(now) - 1 if innermost else moved >= 0
