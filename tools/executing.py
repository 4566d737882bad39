"""Execute pages in their dialects, and say how long that takes.

Pages run side by side, one a processor, the longest first, so that none is left over at the end.
On Linux their kernels are forks of a process that has imported the frameworks (forks.py).
How long each takes is in page_seconds.json, written by `--record` of build_book.py or notebooks.py
on two cores of 2.9 GHz, and of a new page when its result is first stored. On another machine the
guess gets better with each page that ends.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, ProcessPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import forks
from pages import ROOT

import results

SECONDS_FILE = Path(__file__).with_name("page_seconds.json")
UNKNOWN = 10.0  # seconds for a page that the file does not have
TIMEOUT = 600  # seconds for a cell

# What kernels are to find in their environment, wherever they are started from.
ENVIRONMENT = {
    "PYTHONHASHSEED": "0",
    "JUPYTER_PREFER_ENV_PATH": "1",
    "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    "IPYTHONDIR": str(ROOT / "tools/.ipython"),
}

ANSI = re.compile(r"\x1b\[[0-9;]*m")


def environment() -> dict[str, str]:
    """The variables that kernels are started with, beside those of this process."""
    found = {**ENVIRONMENT}
    if not any(Path("/dev").glob("neuron*")):
        found["PJRT_DEVICE"] = os.environ.get("PJRT_DEVICE", "CPU")  # torch_xla warns otherwise
    return found


class Ended(NamedTuple):
    """A page that was executed in a dialect: its result or the error that ended it, and seconds."""

    page: str
    dialect: str
    seconds: float
    result: results.Result | None
    error: str

    def __str__(self) -> str:
        return f"{self.page} ({self.dialect})"


def page_seconds() -> dict[str, dict[str, float]]:
    """Seconds that each page took in each dialect when that was last recorded."""
    return json.loads(SECONDS_FILE.read_text()) if SECONDS_FILE.is_file() else {}


def record(ended: Iterable[Ended], anew: bool = True) -> None:
    """Keep how long pages took that were executed now: all, or without `anew` those not known."""
    seconds = page_seconds()
    for run in ended:
        if not run.error and (anew or run.dialect not in seconds.get(run.page, {})):
            seconds.setdefault(run.page, {})[run.dialect] = round(run.seconds, 1)
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


def _execute(job: tuple[str, str, Path]) -> Ended:
    """Execute the notebook of one page in one dialect, in a process of its own."""
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

    import notebooks

    page, dialect, root = job
    notebook = notebooks.skeleton(page, dialect, root)
    start = time.monotonic()
    error, result = "", None
    # In an empty folder, as a notebook is where it was downloaded.
    with tempfile.TemporaryDirectory() as folder:
        client = NotebookClient(
            notebook,
            timeout=TIMEOUT,
            kernel_name="python3",
            resources={"metadata": {"path": folder}},
            store_widget_state=False,
        )
        try:
            client.execute()
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as raised:
            error = ANSI.sub("", str(raised)).strip()
    if not error:
        outputs = notebooks.outputs_of_page(notebook)
        said = [o.text for cell in outputs for o in cell if o.get("name") == "stderr"]
        if said:
            error = f"it wrote to standard error:\n{''.join(said).strip()}"
        outputs = [results.kept(found) for found in outputs]
        result = results.Result(results.digest(page, dialect, root), outputs)
    return Ended(page, dialect, time.monotonic() - start, result, error)


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


def execute(runs: Sequence[tuple[str, str]], root: Path = ROOT) -> Iterator[Ended]:
    """Execute pages in dialects, and yield each as it ends, whether it raised or not.

    Prints a line for each page that ends. On a terminal, one more line counts the seconds.
    """
    if not runs:
        return
    known = page_seconds()
    seconds = {run: known.get(run[0], {}).get(run[1], UNKNOWN) for run in runs}
    jobs = sorted(((*run, root) for run in runs), key=lambda job: -seconds[job[:2]])
    progress = Progress(
        {f"{page} ({d})": seconds[page, d] for page, d in runs}, os.cpu_count() or 1
    )
    print(
        f"==> executing {len(jobs)} notebooks, {progress.processors} at a time: "
        f"about {duration(progress.left())}",
        flush=True,
    )
    live = sys.stdout.isatty()
    start = time.monotonic()
    count = 0
    context = multiprocessing.get_context("fork" if sys.platform == "linux" else None)
    with (
        _kernels_forked(len(jobs)),
        ProcessPoolExecutor(progress.processors, context) as pool,
    ):
        waiting = {pool.submit(_execute, job) for job in jobs}
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=1, return_when=FIRST_COMPLETED)
                if live and not done:
                    elapsed = time.monotonic() - start
                    left = duration(progress.left(elapsed))
                    print(f"\r    {elapsed:.0f} s, about {left} left  ", end="", flush=True)
                for future in done:
                    ended = future.result()
                    count += 1
                    _said(ended, count, len(jobs), progress, time.monotonic() - start)
                    yield ended
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _said(ended: Ended, count: int, jobs: int, progress: Progress, elapsed: float) -> None:
    """Say that a page has ended, and how long the others will take."""
    progress.ended[str(ended)] = ended.seconds
    state = "failed" if ended.error else ""
    if count < jobs and not ended.error:
        state = f"about {duration(progress.left(elapsed))} left"
    line = f"    [{count:2}/{jobs}] {ended.seconds:4.0f} s  {ended!s:40} {state}"
    print(("\r" if sys.stdout.isatty() else "") + line.rstrip(), flush=True)
