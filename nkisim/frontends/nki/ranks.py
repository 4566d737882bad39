"""Ranks of a job in one process: a thread each, of which one runs at a time.

A kernel is traced on the data of its rank. At a collective its rank posts values and waits until
the others of its group have come to theirs. Ranks are the calls of `nkisim.run_ranks`, or the
devices of JAX on which one computation runs.

A rank that waits is told of a deadlock when no rank that it needs can come any more. What
`run_ranks` calls is known: a rank can come while it runs, or when all that it waits for can. A
device of JAX may be anywhere in its computation, of which XLA says nothing; it is taken to come
as long as any thread of the process is at work (`_at_work`).
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from nkisim.errors import Location, ParameterError

# Of this thread, and of the threads in which its kernel's other cores are traced.
_rank: ContextVar[Rank | None] = ContextVar("rank", default=None)
_jobs: dict[int, Job] = {}  # of computations of XLA that are running, by their number
_jobs_lock = threading.Lock()
_STATES = Path("/proc/self/task")  # of the threads of this process, on Linux
_LOOKS, _BETWEEN = 20, 0.05  # so often is looked for a thread at work; seconds between two looks
# Threads in which ranks wait, as the system counts them -> the rank's first one, as Python does.
_waiting: dict[int, int] = {}


class Rank(NamedTuple):
    """One participant.

    Attributes:
        job: what it is part of; None outside of one.
        number: from 0.
    """

    job: Job | None
    number: int


class Post(NamedTuple):
    """The contribution of a rank to a collective.

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
        size: how many; None where they are devices of JAX, whose number is not known here.
    """

    def __init__(self, size: int | None = None) -> None:
        self.size = size
        self.inside: set[int] = set()
        # Who holds it runs. No thread owns it: a rank's other core may wait at a collective.
        self._turn = threading.Condition(threading.Lock())
        self._meetings: dict[tuple, dict[int, Post]] = {}  # those that some have not come to
        self._visits: Counter[tuple] = Counter()
        self._waits: dict[int, tuple] = {}  # rank -> the meeting at which it waits for others
        self._thread: dict[int, int] = {}  # rank -> the one that it began in
        self._ended: set[int] = set()
        self._failure: BaseException | None = None  # of the first rank that failed

    def run(self, number: int, work: Any) -> Any:
        """Run `work()` as one of the ranks, and return its result."""
        with self._turn:
            before = _rank.set(Rank(self, number))
            self._thread[number] = threading.get_ident()
            try:
                return work()
            except BaseException as error:
                self._failure = self._failure or error
                raise
            finally:
                _rank.reset(before)
                self._ended.add(number)
                self._turn.notify_all()

    def stop(self, reason: BaseException) -> None:
        """End the ranks that wait: nobody waits for their results."""
        with self._turn:
            self._failure = self._failure or reason
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
            for rank in posts.keys() & self._waits.keys():
                del self._waits[rank]
        else:
            self._waits[number] = meeting
        self._turn.notify_all()
        here = threading.get_native_id()
        _waiting[here] = self._thread[number]
        try:
            self._wait(number, group, posts)
        finally:
            del _waiting[here]
        return [posts[r].values for r in group]

    def _wait(self, number: int, group: tuple[int, ...], posts: dict[int, Post]) -> None:
        """Until all of a group have posted."""
        idle = 0  # looks in a row that have found no thread at work
        while len(posts) < len(group):
            if self._failure is not None:
                raise Abandoned(f"another rank failed: {self._failure}")
            if self._in_vain(number) if self.size is not None else idle == _LOOKS:
                missing = [r for r in group if r not in posts]
                raise ParameterError(
                    f"deadlock: rank {number} waits at {_text(posts[number])} for ranks {missing}, "
                    "which have ended, wait elsewhere or are no device of the mesh",
                    rule="the ranks of a group make the same collective calls in the same order",
                    fix="call it on every rank of the group, outside of branches on the rank",
                )
            told = self._turn.wait(_BETWEEN if self.size is None else None)
            idle = 0 if told or _at_work() else idle + 1

    def _in_vain(self, number: int) -> bool:
        """Whether a rank waits for one that cannot come: a rank can that runs, or that waits for
        ranks that all can."""
        can = set(range(self.size or 0)) - self._ended - self._waits.keys()
        more = True
        while more:
            more = False
            for rank, meeting in self._waits.items():
                here = self._meetings[meeting]
                if rank not in can and all(r in can or r in here for r in meeting[0]):
                    can.add(rank)
                    more = True
        return number not in can


def _at_work() -> bool:
    """Whether a thread of this process does something, other than those in which ranks wait.

    It does if it runs, or is ready to, or waits for a disk (Linux tells); or if XLA has called a
    function in it, as a callback, which may sleep. Where the system does not tell, it may be.
    """
    if not _STATES.exists():
        return True
    for entry in _STATES.iterdir():
        if int(entry.name) == threading.get_native_id() or int(entry.name) in _waiting:
            continue
        try:
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except (OSError, IndexError):  # it has ended
            continue
        if state in "RD":
            return True
    waiting = set(_waiting.values())
    frames = sys._current_frames().items()
    return any(_called_by_xla(frame) for thread, frame in frames if thread not in waiting)


def _called_by_xla(frame: FrameType) -> bool:
    """Whether the first function of a thread is JAX's or the simulator's: XLA calls no others."""
    while frame.f_back is not None:
        frame = frame.f_back
    return frame.f_globals.get("__name__", "").partition(".")[0] in ("jax", "nkisim")


def on_device(run: int, device: int, work: Any) -> Any:
    """Run `work()` as the rank of a device, and return its result.

    Args:
        run: number of the computation that runs on several devices.
        device: number of this one.
        work: a function without arguments.
    """
    with _jobs_lock:
        job = _jobs.setdefault(run, Job())
        job.inside.add(device)
    try:
        return job.run(device, work)
    finally:
        with _jobs_lock:
            job.inside.discard(device)
            if not job.inside:
                _jobs.pop(run, None)


def _text(post: Post) -> str:
    name, *settings = post.call
    return f"{name}({', '.join(map(str, settings))}) at {post.place}"


def this_rank() -> Rank | None:
    """The rank that runs here; None outside of a job."""
    return _rank.get()
