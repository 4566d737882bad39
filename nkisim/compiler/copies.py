"""Copies from SBUF to SBUF that the compiler leaves out.

* An `nl.copy` that converts nothing, of a tile that does not change afterwards: those who read the
  copy read the tile. A limit in AWS's tests of attention shows it (see [W] in
  `nkisim.machine.timing`).
* A copy that rounds fp32, when nothing else reads the tile: the instruction that makes the tile
  rounds its result as it writes it, which engines do anyway. Autocomp's attention of small heads
  shows it: with such a copy of all powers it takes 424 us, without one 437.

Copies that the kernel asks for as instructions, with `nisa.tensor_copy`, stay if they convert
nothing; with an engine, all of them stay. So do those of parts of tiles, and of tiles that the
kernel places by hand.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from nkisim.cost.storage import Operation, OperationForm, Storage
from nkisim.cost.tasks import Work
from nkisim.ir.dtypes import F32, FLOATS
from nkisim.ir.instruction import Instruction, OpKind
from nkisim.ir.memory import Role, Space


def without_copies(steps: list[Operation], storage: Storage, work: Work) -> list[Operation]:
    """Leave out copies that need not be done.

    Args:
        steps: in program order.
        storage: of what they touch.
        work: takes notes of what was left out.
    """
    found = [form for form in storage.forms.values() if _copies_tile(form.instr, storage)]
    moves = {form for form in found if _changes_nothing(form.instr)}
    rounds = {form for form in found if _rounds(form.instr)}
    if not moves and not rounds:
        return steps
    return _Copies(steps, storage, moves, rounds).left_out(work)


def _copies_tile(i: Instruction, storage: Storage) -> bool:
    """Whether an instruction copies all of one tile of SBUF to all of another one, on an engine
    that the compiler chooses."""
    if i.spec.kind is not OpKind.COPY or i.engine_asked or i.where is not None:
        return False
    return not i.settings.accumulate and all(
        t.space is Space.SBUF
        and t.buffer.role is Role.LOCAL
        and not t.buffer.placed
        and storage.whole_tile(t)
        for t in (i.tiles_in[0], i.outs[0])
    )


def _changes_nothing(i: Instruction) -> bool:
    return i.tiles_in[0].dtype == i.outs[0].dtype and i.settings.left_to_compiler


def _rounds(i: Instruction) -> bool:
    before, after = i.tiles_in[0].dtype, i.outs[0].dtype
    return before == F32 and after != F32 and after in FLOATS


class _Copies:
    """One walk over the steps that leaves out redundant copies.

    Args:
        steps: in program order.
        storage: of what they touch.
        moves, rounds: the forms of copies of whole tiles that convert nothing, and that round fp32.
    """

    def __init__(
        self,
        steps: list[Operation],
        storage: Storage,
        moves: set[OperationForm],
        rounds: set[OperationForm],
    ) -> None:
        self._steps = steps
        self._storage = storage
        self._moves, self._rounds = moves, rounds
        # By the number of a memory: who writes it, and how often it is read.
        self._writers: dict[int, list[int]] = defaultdict(list)
        self._reads: Counter[int] = Counter()
        for at, step in enumerate(steps):
            for number, _ in step.writes:
                self._writers[number].append(at)
            for number, _ in step.reads:
                self._reads[number] += 1
        self._forms: dict[
            tuple[OperationForm, OperationForm], OperationForm
        ] = {}  # of what rounds its result

    def left_out(self, work: Work) -> list[Operation]:
        """The steps without redundant copies."""
        same: dict[int, int] = {}  # number of a copy -> of the tile that it is a copy of
        kept: list[Operation | None] = []
        for at, step in enumerate(self._steps):
            if same and any(number in same for number, _ in step.reads):
                step.reads = [(same.get(number, number), part) for number, part in step.reads]
            kept.append(step)
            if step.form in self._moves and self._stays(at, step):
                source, copy = step.reads[0][0], step.writes[0][0]
                same[copy] = source
                self._reads[source] += self._reads[copy] - 1
                kept[at] = None
                work.choices["copy that changes nothing left out"] += 1
            elif step.form in self._rounds and self._stays(at, step):
                made_at, rounded = self._rounded(step, kept)
                if rounded is not None:
                    kept[made_at], kept[at] = rounded, None
                    self._writers[step.writes[0][0]] = [made_at]
                    work.choices["rounding of a tile left to the instruction that makes it"] += 1
        return [step for step in kept if step is not None]

    def _stays(self, at: int, copy: Operation) -> bool:
        """Whether source and target of a copy have the same values from the copy on."""
        source, target = copy.reads[0][0], copy.writes[0][0]
        made = self._writers[source]
        return bool(made) and made[-1] < at and len(self._writers[target]) == 1

    def _rounded(
        self, copy: Operation, kept: list[Operation | None]
    ) -> tuple[int, Operation | None]:
        """The position of the step that makes the source of a rounding copy, and that step with the
        target of the copy as its output; None where it cannot write that."""
        source = copy.reads[0][0]
        made_at = self._writers[source][0]
        made = kept[made_at]
        if made is None or len(self._writers[source]) > 1 or self._reads[source] > 1:
            return made_at, None
        i = made.instr
        where = [k for k, (number, _) in enumerate(made.writes) if number == source]
        k = where[0]
        if (
            len(where) > 1
            or i.spec.kind is OpKind.TRANSFER
            or i.spec.kind is OpKind.TRANSPOSE  # which writes the type that it reads
            or i.spec.partial
            or i.where is not None
            or i.where_out is not None
            or not self._storage.whole_tile(i.outs[k])
        ):
            return made_at, None
        outs = (*i.outs[:k], copy.instr.outs[0], *i.outs[k + 1 :])
        rounding = i.again(outs, i.ins, i.tiles_in, i.program, i.loops, i.location)
        key = made.form, copy.form
        form = self._forms.get(key)
        if form is None:
            form = self._forms[key] = self._storage.forms[key] = OperationForm(rounding, [], [])
        writes = [*made.writes[:k], copy.writes[0], *made.writes[k + 1 :]]
        return made_at, Operation(rounding, form, made.reads, writes)
