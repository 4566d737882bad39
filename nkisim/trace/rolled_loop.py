"""One execution of a loop that is traced in part: which iterations are, and what they change.

See nkisim.trace.rolling for what becomes of it.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from enum import IntEnum
from types import FrameType, ModuleType, NoneType
from typing import TYPE_CHECKING

import numpy as np

from nkisim.errors import Location, NotUniform
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Buffer, Role
from nkisim.trace.carried import Carried, Names, carried, names_set
from nkisim.trace.counting import Counts, Numbers, numbers, state
from nkisim.trace.loop_index import LoopIndex, Variable, decisions
from nkisim.trace.strands import SHORTEST, Mark, Strand
from nkisim.trace.watching import Watch

if TYPE_CHECKING:
    from nkisim.trace.rolling import Rolls

_MOST = 64  # strands of a loop
_WIDEST = 16  # steps from one iteration of a strand to the next

# Of these, items may be assigned; a module has functions called `add`, which change no module.
_HARMLESS = (Tensor, NoneType, ModuleType)
_PLAIN = (*_HARMLESS, int, str)  # in a container, these can be replaced only
_UNKNOWN = object()


def _contents(x: object) -> list:
    """A container of Python, and what is in it; `_UNKNOWN` where that does not tell all of it."""
    if isinstance(x, _HARMLESS):
        return []
    if type(x) is list:
        items = x
    elif type(x) is dict:
        items = [*x, *x.values()]
    else:
        return [_UNKNOWN]
    return [x, *items] if all(isinstance(i, _PLAIN) for i in items) else [_UNKNOWN]


class Closeness(IntEnum):
    """How much of a long loop is traced."""

    BRIEF = 0  # five iterations of the first execution, one to four of each later one
    FIVE = 1  # five of each execution
    WHOLE = 2


class Loop:
    """One execution of a rolled loop, while it is traced.

    Args:
        rolls: the trace.
        key: as in `Rolls.found`.
        line: the loop, as NotUniform names it.
        indices: all of its indices.
        brief: whether what earlier executions have shown is relied on.
        frame: of the function that loops, called by others of the kernel; None for instances.

    Attributes:
        start: where the trace stood before it.
        marks: the start of the iteration that is being traced.
        stale: numbers of Python code whose values mean nothing to what follows.
        changes: whether calls in the iteration that was traced last have changed something.
    """

    def __init__(
        self,
        rolls: Rolls,
        key: tuple[int, int],
        line: Location | int,
        indices: range,
        brief: bool,
        frame: FrameType | None,
    ) -> None:
        self.rolls = rolls
        self.key = key
        self.indices = indices
        self.brief = brief
        self.variable = Variable(line)
        self.first_buffer = len(rolls.tracer.trace.buffers)
        self.start = rolls.now()
        self.marks: list[Mark] = []
        self.strands: list[Strand] = []
        self._values = np.arange(indices.start, indices.stop, indices.step)
        self._free = np.ones(len(indices), bool)  # iterations without a strand
        self._plans = 0
        self._frame = frame
        self._source = None if frame is None else (frame.f_code, frame.f_lineno)
        self._carried: Carried | None = None
        self._held: list = []  # what `kept` names stood for before the loop
        self._contained: list = []  # of containers, then
        self._handed_on: list[list] = []  # values of such names behind each traced iteration
        self._watches: Sequence[Watch] = ()
        self._versions: list[int] = []  # of these, at the end of the iteration before
        self._is_whole = False  # whether all are traced, as calls change what is kept in Python
        self._states: list[list] = []  # what the last two iterations have left in Python
        self.stale: set[tuple[int, str]] = set()
        self.changes = False

    def steps(self) -> Iterator[int]:
        """The indices to trace."""
        strands: list[Strand | None] = [None] * len(self.indices)
        before = None  # numbers at the end of the iteration that was traced before
        rolls = self.rolls
        if self.variable.line in rolls.settled:
            before = self._numbers()
            self._hold()
        if self.names is not None:
            self._states = [state(self._frame, self.names)]
        self._watches = rolls.watches.of_loop(self.variable.line, self._frame, self.names)
        self._versions = [watch.version() for watch in self._watches]
        for k, index in enumerate(self.indices):
            strand = strands[k]
            if strand is not None and not strand.wants(index):
                self.variable.must_be = True
                continue
            self.marks = [rolls.now()]
            yield LoopIndex(index, self.variable)
            if not self.variable.is_followed:
                yield from self.indices[k + 1 :]
                return
            if strand is None:
                places = self._decided_alike(k)
                at = slice(places.start, places.stop, places.step)
                strand = Strand(self, self.indices[at])
                strands[at] = [strand] * len(places)
                self._free[at] = False
                self.strands.append(strand)
                if self._is_whole:
                    strand.be_whole()
            if not self._is_whole:
                self._look_for_changes(k)
            after = self._numbers()
            if self.names is not None and strand.is_open:
                self._states = [*self._states[-1:], state(self._frame, self.names)]
            if self.names is not None and self.names.handed_on:
                values = self._frame.f_locals
                self._handed_on.append([values.get(name) for name in self.names.handed_on])
            self.marks.append(rolls.now())
            strand.traced_one(self.marks, Counts(before, after))
            before = after

    def _look_for_changes(self, k: int) -> None:
        """Where calls in the iteration that has just ended have changed something in Python, those
        that are to come may see it: all are traced. What the first one makes, the others find.

        Args:
            k: which iteration it was.

        Raises:
            NotUniform: some were left out already.
        """
        versions = [watch.version() for watch in self._watches]
        self.changes = versions != self._versions
        self._versions = versions
        if self.changes and k > 0 and not self._is_whole:
            line = self.variable.line
            self._is_whole = True
            self.rolls.closeness[line] = Closeness.WHOLE
            if any(strand.leaves_out for strand in self.strands):
                raise NotUniform("calls change what is kept in Python", line)
            for strand in self.strands:
                strand.be_whole()

    def _numbers(self) -> Numbers:
        """What the kernel counts in Python."""
        try:
            return numbers(self._frame, {} if self.names is None else self.names.attributes)
        except NotUniform as error:
            error.loop = self.variable.line
            raise

    def _decided_alike(self, k: int) -> range:
        """The iterations of a new strand, which begins with the one that was traced last: those
        that follow it evenly and decide alike.

        Args:
            k: which iteration it was.
        """
        longest = range(k, k + 1)
        free = self._free[k + 1 :].copy()
        if not free.any() or len(self.strands) >= _MOST:
            return longest
        values, rest = self._values[k + 1 :], self.indices[k + 1 :]
        for decision in decisions()[self.marks[0].decisions :]:
            if decision.holds_throughout(self.variable, rest):
                continue
            if decision.depends_on(self.variable):
                free &= decision.holds(self.variable, values)
                if not free.any():
                    return longest
        if free.all():
            return range(k, len(self.indices))
        for step in (np.flatnonzero(free[:_WIDEST]) + 1).tolist():
            evenly = free[step - 1 :: step]
            more = len(evenly) if evenly.all() else int(np.argmin(evenly))
            if more >= len(longest):
                longest = range(k, k + 1 + more * step, step)
            if len(longest) >= SHORTEST:
                break
        return longest

    def forget(self) -> None:
        """The loop is over. It is in no cycle with what the kernel's function holds, which would
        wait for the garbage collector: the trace of a kernel is large."""
        self._frame = None
        self.strands = []

    def next_plan(self) -> tuple[int, int, int]:
        """The name of a plan for one of its strands."""
        self._plans += 1
        return *self.key, self._plans

    def _hold(self) -> None:
        """Note what the loop is not to change, for leaves_nothing."""
        if self._source is not None:
            self._carried = carried(*self._source)
        if self._carried is not None:
            values = self._frame.f_locals
            self._held = [values.get(name) for name in self._carried.kept]
            self._contained = self._containers()

    def _containers(self) -> list:
        """What is in the containers that an iteration may change."""
        values = self._frame.f_locals
        return [x for name in self._carried.changed for x in _contents(values.get(name))]

    def _keeps_containers(self) -> bool:
        """Whether these have in them what they had before the loop, as far as can be told."""
        now, before = self._containers(), self._contained
        return len(now) == len(before) and all(
            a is b and a is not _UNKNOWN for a, b in zip(now, before, strict=True)
        )

    def leaves_nothing(self, changing: set[tuple[int, str]]) -> bool:
        """Whether nothing that an iteration leaves behind in Python is read later, so that any
        one of those that are alike may be the last.

        Args:
            changing: the numbers that iterations change.
        """
        known = self._carried
        if known is None:
            return False
        values = self._frame.f_locals
        return (
            all(depth == 0 and name in known.dead for depth, name in changing)
            and self._keeps_containers()
            and all(values.get(n) is v for n, v in zip(known.kept, self._held, strict=True))
        )

    @property
    def keeps_state(self) -> bool:
        """Whether the last traced iteration has left in Python what the one before has, but for
        tiles and numbers."""
        return len(self._states) < 2 or self._states[0] == self._states[1]

    def settle(self) -> None:
        """What this execution leaves behind is no longer that of its last iteration."""
        names = {(0, name) for name in self._carried.dead}
        for loop in self.rolls.around(self):
            if loop._frame is self._frame:
                loop.stale |= names

    @functools.cached_property
    def names(self) -> Names | None:
        """The names that an iteration sets; None where that is not known."""
        return None if self._source is None else names_set(*self._source)

    def check_counts(self) -> None:
        """Where iterations differ, none that is left out may have left anything behind for others.

        Raises:
            NotUniform: the kernel counts in Python, or hands tiles on.
        """
        if len(self.strands) == 1 or all(
            s.plan is None or s.plan.is_complete for s in self.strands
        ):
            return
        settled = any(s.plan is not None and s.plan.is_settled for s in self.strands)
        if settled and not self._keeps_containers():
            raise NotUniform("an iteration changes what is in a list")
        for counts in [counts for strand in self.strands for counts in strand.counts]:
            for depth, name in counts.changed():
                if depth > 0 or self.names is None or name not in self.names.anew:
                    raise NotUniform(f"{name} depends on the iterations before")
        for before, after in itertools.pairwise(self._handed_on):
            for name, a, b in zip(self.names.handed_on, before, after, strict=True):
                if a is not b and not isinstance(b, (int, float)):  # those were looked at above
                    raise NotUniform(f"{name} is that of the iteration before")

    def outlives(self, buffer: Buffer) -> bool:
        """Whether what is written of a buffer matters behind the iteration."""
        return buffer.role is Role.LOCAL and (
            buffer.number < self.first_buffer
            or buffer.program is None
            or buffer.number in self.rolls.tracer.trace.hidden
        )
