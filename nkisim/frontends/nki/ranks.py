"""Ranks of a job in one process: a thread each, of which one runs at a time.

A kernel is traced on the data of its rank. At a collective its rank posts values and waits until
the others of its group have come to theirs. Ranks are the calls of `nkisim.run_ranks`, or the
devices of JAX on which one computation runs.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextvars import ContextVar
from typing import Any, NamedTuple

from nkisim.errors import Location, ParameterError

# Of this thread, and of the threads in which its kernel's other cores are traced.
_rank: ContextVar[Rank | None] = ContextVar("rank", default=None)
# Who holds it runs. No thread owns it: a rank's other core may wait at a collective.
_turn = threading.Condition(threading.Lock())
_jobs: dict[int, Job] = {}  # of computations of XLA that are running, by their number
_PATIENCE = 5.0  # seconds in which a device comes to a computation that others wait in


class Rank(NamedTuple):
    """One participant.

    Attributes:
        job: what it is part of; None outside of one.
        number: from 0.
    """

    job: Job | None
    number: int


class Post(NamedTuple):
    """What a rank brings to a collective.

    Attributes:
        call: the name of the collective and its settings, which all have to agree on.
        values: its tensors.
        place: the line of the call.
    """

    call: tuple
    values: list
    place: Location | None


class Abandoned(Exception):
    """Another rank failed, so this one cannot go on."""


class Job:
    """Ranks that exchange data.

    Args:
        size: how many; None where they are devices, which nobody has counted.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size
        self._meetings: dict[tuple, dict[int, Post]] = {}  # those that some have not come to
        self._visits: Counter[tuple] = Counter()
        self._waiting: set[int] = set()  # ranks at a meeting that some have not come to
        self._ended: set[int] = set()
        self.inside: set[int] = set()
        self._failure: BaseException | None = None  # of the first rank that failed

    def run(self, number: int, work: Any) -> Any:
        """What `work()` returns, as one of the ranks."""
        with _turn:
            return self.take_part(number, work)

    def take_part(self, number: int, work: Any) -> Any:
        """As `run`, for a caller that holds the turn."""
        before = _rank.set(Rank(self, number))
        self.inside.add(number)
        try:
            return work()
        except BaseException as error:
            self._failure = self._failure or error
            raise
        finally:
            _rank.reset(before)
            self.inside.discard(number)
            self._ended.add(number)
            _turn.notify_all()

    def exchange(self, number: int, group: tuple[int, ...], post: Post) -> list[list]:
        """The values of all ranks of a group, in its order, once each has come here.

        Raises:
            ParameterError: the ranks call different collectives, or one never comes.
            Abandoned: another rank failed.
        """
        visit = self._visits[group, number]
        self._visits[group, number] += 1
        meeting = (group, visit)
        posts = self._meetings.setdefault(meeting, {})
        for other, theirs in posts.items():
            if theirs.call != post.call:
                raise ParameterError(
                    f"rank {number} calls {_text(post)}, rank {other} {_text(theirs)}",
                    rule="the ranks of a group make the same collective calls in the same order, "
                    "with the same settings, shapes and dtypes",
                    fix="call it on every rank of the group, outside of branches on the rank",
                )
        posts[number] = post
        if len(posts) == len(group):
            del self._meetings[meeting]
            self._waiting -= posts.keys()
            _turn.notify_all()
        else:
            self._waiting.add(number)
        in_vain = False
        while len(posts) < len(group):
            if self._failure is not None:
                raise Abandoned(f"another rank failed: {self._failure}")
            if self.size is None:
                deadlock = in_vain and self.inside <= self._waiting
            else:
                deadlock = len(self._waiting | self._ended) == self.size
            if deadlock:
                missing = [r for r in group if r not in posts]
                raise ParameterError(
                    f"deadlock: rank {number} waits at {_text(post)} for ranks {missing}, which "
                    "have ended, wait elsewhere or are no device of the mesh",
                    rule="the ranks of a group make the same collective calls in the same order",
                    fix="call it on every rank of the group, outside of branches on the rank",
                )
            in_vain = not _turn.wait(_PATIENCE if self.size is None else None)
        return [posts[r].values for r in group]


def on_device(run: int, device: int, work: Any) -> Any:
    """What `work()` returns, as the rank of a device.

    Args:
        run: number of the computation that runs on several devices.
        device: number of this one.
        work: a function without arguments.
    """
    with _turn:
        job = _jobs.setdefault(run, Job())
        try:
            return job.take_part(device, work)
        finally:
            if not job.inside:
                _jobs.pop(run, None)


def _text(post: Post) -> str:
    name, *settings = post.call
    return f"{name}({', '.join(map(str, settings))}) at {post.place}"


def this_rank() -> Rank | None:
    """The rank that runs here; None outside of a job."""
    return _rank.get()
