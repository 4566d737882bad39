"""Ranks of a job in one process: a thread each, of which one runs at a time.

A kernel is traced on the data of its rank. At a collective its rank posts values and waits until
the others of its group have come to theirs.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any, NamedTuple

from nkisim.errors import Location, ParameterError

_local = threading.local()


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
        size: how many.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._turn = threading.Condition()  # who holds it runs
        self._meetings: dict[tuple, dict[int, Post]] = {}  # those that some have not come to
        self._visits: Counter[tuple] = Counter()
        self._waiting: set[int] = set()  # ranks at a meeting that some have not come to
        self._ended: set[int] = set()
        self._failed = False

    def run(self, number: int, work: Any) -> Any:
        """What `work()` returns, as one of the ranks."""
        with self._turn:
            _local.rank = Rank(self, number)
            try:
                return work()
            except BaseException:
                self._failed = True
                raise
            finally:
                _local.rank = None
                self._ended.add(number)
                self._turn.notify_all()

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
            self._turn.notify_all()
        else:
            self._waiting.add(number)
        while len(posts) < len(group):
            if self._failed:
                raise Abandoned
            if len(self._waiting | self._ended) == self.size:
                missing = [r for r in group if r not in posts]
                raise ParameterError(
                    f"deadlock: rank {number} waits at {_text(post)} for ranks {missing}, which "
                    "have ended or wait elsewhere",
                    rule="the ranks of a group make the same collective calls in the same order",
                    fix="call it on every rank of the group, outside of branches on the rank",
                )
            self._turn.wait()
        return [posts[r].values for r in group]


def _text(post: Post) -> str:
    name, *settings = post.call
    return f"{name}({', '.join(map(str, settings))}) at {post.place}"


def this_rank() -> Rank | None:
    """The rank that runs in this thread; None outside of a job."""
    return getattr(_local, "rank", None)
