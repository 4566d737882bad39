"""Limits of a process: time, of `python -m nkisim`; memory, of that and of judged kernels."""

from __future__ import annotations

import faulthandler
import signal
from collections.abc import Callable
from types import FrameType

from nkisim.errors import LimitError, locate

GRACE = 10
"""Seconds after the limit of time, at which a program that goes on is ended without a word of its
own: one that catches the error, or that does not return from C."""


def limit_time(seconds: float) -> Callable[[], None]:
    """Raise LimitError in the main thread after so many seconds, at the line that runs.

    Returns:
        A function that lifts the limit.
    """

    def stop(number: int, frame: FrameType | None) -> None:
        raise LimitError(
            f"the program has run for {seconds:g} s, and goes on",
            rule="it is given that long: --time-limit",
            fix="look whether a loop ends; if it takes longer, raise --time-limit",
            location=locate(),
        )

    signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(seconds + GRACE, exit=True)

    def lift() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()

    return lift


def limit_memory(megabytes: int) -> None:
    """Limit the memory that this process and its children each may take: then MemoryError is
    raised. Linux holds it; macOS does not, and Windows has none."""
    import resource

    size = megabytes << 20
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    if most != resource.RLIM_INFINITY:
        size = min(size, most)
    resource.setrlimit(resource.RLIMIT_DATA, (size, size))
