"""One BLAS thread while a program runs.

The matmuls of a program are of tiles, 128 by 128 by 512 at most. OpenBLAS hands even these out to
all cores, and then waits for them in a busy loop: where other work shares the machine, a run took
forty times as long with two threads as with one. threadpoolctl sets the number for any BLAS; this
module does so for the OpenBLAS in NumPy's wheels, so that NumPy stays the only thing to install.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

_lock = threading.Lock()
_running = 0  # how many programs are
_before = 0  # threads to go back to when the last of them is done


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Let NumPy's BLAS use one thread. In nested or simultaneous uses the last one to end gives
    back the threads that were there before."""
    global _running, _before
    controls = thread_controls()
    if controls is None:
        yield
        return
    get, put = controls
    with _lock:
        if not _running:
            _before = get()
            put(1)
        _running += 1
    try:
        yield
    finally:
        with _lock:
            _running -= 1
            if not _running:
                put(_before)


@functools.cache
def thread_controls() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """What gets and what sets the number of threads of the OpenBLAS in NumPy's wheel; None for a
    NumPy that was built with another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):  # Linux, macOS
        for path in folder.glob("*openblas*"):
            library = ctypes.CDLL(str(path))  # NumPy has loaded it: this is one more handle to it
            for form in ("scipy_openblas_{}_num_threads64_", "openblas_{}_num_threads64_"):
                if hasattr(library, form.format("get")):
                    return getattr(library, form.format("get")), getattr(
                        library, form.format("set")
                    )
    return None
