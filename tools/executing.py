"""Execute the pages of the book that are not in the cache, and say how long that takes.

Pages run side by side, one a processor, the longest first, so that none is left over at the end.
On Linux their kernels are forks of a process that has imported the frameworks (forks.py).
How long each takes is in page_seconds.json, written by `build_book.py --record` on two cores of
2.9 GHz. On another machine the guess gets better with each page that ends.
"""

from __future__ import annotations

import json
import logging
import multiprocessing
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import dialects
import forks

# jupyter_cache, with its database, is imported to execute pages. Who asks for their seconds, as
# every run of tests does, waits for none of it.
if TYPE_CHECKING:
    from jupyter_cache.base import JupyterCacheAbstract
    from jupyter_cache.executors.basic import ProcessData

SECONDS_FILE = Path(__file__).with_name("page_seconds.json")
UNKNOWN = 10.0  # seconds for a page that the file does not have
WRITING = 2.2  # seconds for a page to be read, written and checked, measured as the others


class Run(NamedTuple):
    """A page in one of its dialects, and the cache that its results go into."""

    page: str
    dialect: str
    cache: JupyterCacheAbstract

    def __str__(self) -> str:
        return f"{self.page}{' (import nki)' * (self.dialect != dialects.NEURONXCC)}"


class Ended(NamedTuple):
    """A page that was executed, the seconds it took, and the error that ended it."""

    run: str
    seconds: float
    error: str


def page_seconds() -> dict[str, float]:
    """Seconds that the cells of each page took where `--record` was last used."""
    return json.loads(SECONDS_FILE.read_text()) if SECONDS_FILE.is_file() else {}


def record(results: Iterable[Ended]) -> None:
    """Keep how long the pages took that were executed now."""
    seconds = page_seconds()
    for result in results:
        if not result.error:
            seconds[result.run] = round(result.seconds, 1)
    SECONDS_FILE.write_text(json.dumps(seconds, indent=1, sort_keys=True) + "\n")


def duration(seconds: float) -> str:
    """A guessed time in words, no more exact than the guess.

    >>> duration(4), duration(47), duration(200)
    ('10 s', '50 s', '3 min')
    """
    if seconds < 90:
        return f"{max(10, round(seconds, -1)):.0f} s"
    return f"{seconds / 60:.0f} min"


class Progress:
    """What remains of `expected`, seconds by page, when `processors` pages run at a time."""

    def __init__(self, expected: dict[str, float], processors: int) -> None:
        self.expected = expected
        self.processors = max(1, min(processors, len(expected)))
        self.ended: dict[str, float] = {}

    def left(self, elapsed: float = 0.0) -> float:
        """Seconds until the last page ends, `elapsed` seconds after the first began."""
        planned = sum(self.expected[page] for page in self.ended)
        speed = sum(self.ended.values()) / planned if planned else 1.0
        total = max(sum(self.expected.values()) / self.processors, *self.expected.values(), 0.0)
        return max(0.0, total * speed - elapsed)


def _execute(job: tuple[ProcessData, str, str]) -> Ended:
    """Execute one page, in a process of its own; into the cache if no cell raised."""
    from jupyter_cache.executors.basic import ExecutionWorkerLocalMProc

    data, dialect, name = job
    start = time.monotonic()
    with dialects.started_in(dialect):
        status, _ = ExecutionWorkerLocalMProc()(data)
    error = ""
    if status:
        record = data.cache.get_project_record(data.pk)
        error = record.traceback or "it could not be executed: see the error above"
    return Ended(name, time.monotonic() - start, error)


@contextmanager
def _kernels_forked(jobs: int) -> Iterator[None]:
    """Have the kernels that start in this block forked, where that is safe and saves time."""
    if sys.platform != "linux" or jobs < 3:
        yield
        return
    with (
        forks.serving(os.environ) as socket,
        mock.patch.dict(os.environ, forks.asking(socket, os.environ)),
    ):
        yield


def execute(runs: Sequence[Run], root: Path, timeout: int) -> list[Ended]:
    """Execute those of `runs` that are not in their caches; return an `Ended` for each.

    Prints a line for each page that ends. On a terminal, one more line counts the seconds.
    """
    from jupyter_cache.executors.basic import ProcessData

    caches = {run.dialect: run.cache for run in runs}
    missing = {
        (dialect, record.uri): ProcessData(record.pk, record.uri, cache, timeout, False)
        for dialect, cache in caches.items()
        for record in cache.list_unexecuted()
    }
    wanted = [(run, (run.dialect, str(root / f"{run.page}.md"))) for run in runs]
    jobs = [(missing[key], run.dialect, str(run)) for run, key in wanted if key in missing]
    if not jobs:
        return []
    seconds = page_seconds()
    expected = {name: seconds.get(name, UNKNOWN) for *_, name in jobs}
    jobs.sort(key=lambda job: -expected[job[2]])
    pages = {run.page for run in runs}
    progress = Progress(expected, os.cpu_count() or 1)
    print(
        f"==> executing {len(jobs)} pages, {progress.processors} at a time: "
        f"about {duration(progress.left())}, then {duration(WRITING * len(pages))} to write "
        f"{len(pages)} pages",
        flush=True,
    )
    multiprocessing.log_to_stderr(logging.ERROR)  # a cell that raises is reported at the end
    results: list[Ended] = []
    live = sys.stdout.isatty()
    start = time.monotonic()
    with _kernels_forked(len(jobs)), multiprocessing.Pool(progress.processors) as pool:
        running = pool.imap_unordered(_execute, jobs)
        while len(results) < len(jobs):
            try:
                ended = running.next(timeout=1)
            except multiprocessing.TimeoutError:
                if live:
                    elapsed = time.monotonic() - start
                    left = duration(progress.left(elapsed))
                    print(f"\r    {elapsed:.0f} s, about {left} left  ", end="", flush=True)
                continue
            results.append(ended)
            progress.ended[ended.run] = ended.seconds
            left = progress.left(time.monotonic() - start)
            state = "failed" if ended.error else ""
            if len(results) < len(jobs) and not ended.error:
                state = f"about {duration(left)} left"
            done = f"[{len(results):2}/{len(jobs)}]"
            line = f"    {done} {ended.seconds:4.0f} s  {ended.run:32} {state}"
            print(("\r" if live else "") + line.rstrip(), flush=True)
    return results
