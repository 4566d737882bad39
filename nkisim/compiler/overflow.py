"""Results that leave PSUM early, for SBUF, where more of them are alive than it holds.

A kernel may keep more in `nl.psum` arrays than there is. The one needed again last, of those that
are complete, goes to SBUF as soon as it is; who needs it from then on reads it there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from nkisim.cost.storage import Operation, Storage
from nkisim.cost.tasks import Memory, Work
from nkisim.ir.memory import Space

TO_SBUF = "spill to SBUF"  # what such a copy is called


class Leaving(NamedTuple):
    """A tile of PSUM that is copied to SBUF.

    Attributes:
        source, target: its number, and that of the copy.
        memory: what it is in.
    """

    source: int
    target: int
    memory: Memory


def leave_psum(
    steps: Sequence[Operation], storage: Storage, work: Work, capacity: int
) -> dict[int, list[Leaving]]:
    """Choose the tiles that leave PSUM, and have those that read them later read the copies.

    Args:
        steps: in program order.
        storage: of what they touch.
        work: takes notes of how many leave.
        capacity: bytes a partition that PSUM holds.

    Returns:
        By the position of the last step that writes a tile: what is to be copied after it.
    """
    lives = _lives(steps, work)
    dying: dict[int, list[int]] = {}
    for number, life in lives.items():
        dying.setdefault(life.uses[-1], []).append(number)
    here: set[int] = set()
    copies: dict[int, int] = {}  # tile -> its copy
    leaving: dict[int, list[Leaving]] = {}
    level = 0
    for at, step in enumerate(steps):
        touched = {n for n, _ in (*step.reads, *step.writes) if n in lives}
        new = touched - here - copies.keys()
        here |= new
        level += sum(work.memory[number].nbytes for number in new)
        while new and level > capacity:
            complete = [n for n in here - touched if lives[n].written < at]
            if not complete:
                break
            away = max(complete, key=lambda n: (lives[n].next_use(at), n))
            memory = work.memory[away]
            copies[away] = storage.scratch(memory.nbytes, Space.SBUF, memory.rows)
            leaving.setdefault(lives[away].written, []).append(Leaving(away, copies[away], memory))
            here.discard(away)
            level -= memory.nbytes
        if not copies.keys().isdisjoint(touched):
            step.reads = [(copies.get(n, n), part) for n, part in step.reads]
        for number in dying.get(at, ()):
            if number in here:
                here.discard(number)
                level -= work.memory[number].nbytes
    if copies:
        work.choices["result in PSUM spilled to SBUF"] += len(copies)
    return leaving


class _Life:
    """When a tile is used, and written for the last time, in positions of steps."""

    __slots__ = ("_seen", "uses", "written")

    def __init__(self) -> None:
        self.uses: list[int] = []
        self.written = -1
        self._seen = 0

    def next_use(self, at: int) -> int:
        """The first use after `at`, which never goes back."""
        while self.uses[self._seen] <= at:
            self._seen += 1
        return self.uses[self._seen]


def _lives(steps: Sequence[Operation], work: Work) -> dict[int, _Life]:
    memory, psum = work.memory, Space.PSUM
    lives: dict[int, _Life] = {n: _Life() for n, m in memory.items() if m.space is psum}
    for at, step in enumerate(steps):
        for number, _ in step.reads:
            if number in lives:
                lives[number].uses.append(at)
        for number, _ in step.writes:
            if number in lives:
                lives[number].uses.append(at)
                lives[number].written = at
    return {n: life for n, life in lives.items() if life.uses}
