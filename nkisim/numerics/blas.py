"""Matrix products that have the same bits at each call, on any number of threads.

The last bits of a product depend on how many threads BLAS hands it out to (OpenBLAS on processors
with AVX2), and that number belongs to the process. So BLAS has one thread while programs with
products run, from the first of them that begins to the last one that ends. A large product is
computed in pieces, which depend on its shape alone, and the pieces are handed out here.

For tiles one thread is the faster choice, too: OpenBLAS hands out products of 128 by 128 by 512
and waits for them in a busy loop. Where other work shares the machine, a run took forty times as
long.
"""

from __future__ import annotations

import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np

from nkisim.ir.forks import in_child
from nkisim.numerics.floating import DefaultEnvironment

if TYPE_CHECKING:
    import threadpoolctl

PIECE = 1 << 25
"""Multiplications of a piece, four times those of a tile: about 1 ms, of which a wait for another
core is a part, and not a multiple."""


def multiply(a: np.ndarray, b: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """The product `a.T @ b`, of which each element has the same bits whatever the arrays' addresses
    and the number of threads are.

    Args:
        a: (k, m), one axis contiguous.
        b: (k, n), of the same dtype.
        out: (m, n), to write to; made when not given.
    """
    (k, m), n = a.shape, b.shape[1]
    if out is None:
        out = np.empty((m, n), a.dtype)
    if m == n and np.may_share_memory(a, b):
        b = b.copy()  # NumPy computes a triangle of x.T @ x, in another order
    longest = max(m, n)
    width = max(PIECE * longest // max(k * m * n, 1) // 64 * 64, 64)
    if longest <= width or np.may_share_memory(out, a) or np.may_share_memory(out, b):
        return np.matmul(a.T, b, out=out)
    pieces = [slice(start, start + width) for start in range(0, longest, width)]

    def piece(at: slice) -> None:
        with np.errstate(all="ignore"):
            if n >= m:
                np.matmul(a.T, b[:, at], out=out[:, at])
            else:
                np.matmul(a[:, at].T, b, out=out[at])

    pool = _pool()
    for _ in map(piece, pieces) if pool is None else pool.map(piece, pieces):
        pass
    return out


class _Running:
    """How many programs with products run, and how many threads BLAS had before the first."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.programs = 0
        self.threads: list[int] = []


_running = _Running()


class OneThread:
    """A context in which BLAS has one thread. It has as many as before once all such contexts, of
    all threads, are left."""

    __slots__ = ()

    def __enter__(self) -> None:
        with _running.lock:
            libraries = controller().lib_controllers
            if not _running.programs and not _running.threads:
                _running.threads = [library.num_threads for library in libraries]
            _running.programs += 1
            for library in libraries:
                if library.num_threads != 1:
                    _set(library, 1)

    def __exit__(self, *error: object) -> None:
        with _running.lock:
            _running.programs -= 1
            for library, number in zip(controller().lib_controllers, _running.threads, strict=True):
                # With OpenMP, each thread of the process has a number of its own.
                own = getattr(library, "threading_layer", None) == "openmp"
                if not _running.programs or own:
                    _set(library, number)
            if not _running.programs:
                _running.threads = []


def _set(library: threadpoolctl.LibController, number: int) -> None:
    # From 3.8 on, threadpoolctl lets only the thread that has set a number change it again.
    clear = getattr(library, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)
    library.set_num_threads(number)
    if clear is not None:
        clear(force=True)


@functools.cache
def controller() -> threadpoolctl.ThreadpoolController:
    """Controls the BLAS libraries that the process had loaded when this was first called."""
    import threadpoolctl  # here, so that importing nkisim needs NumPy and ml_dtypes only

    return threadpoolctl.ThreadpoolController().select(user_api="blas")


@functools.cache
def _pool() -> ThreadPoolExecutor | None:
    """Computes pieces, on as many threads as BLAS may have; None where that is one."""
    threads = max(_running.threads, default=1)
    if threads < 2:
        return None
    return ThreadPoolExecutor(threads, "nkisim-blas", DefaultEnvironment().__enter__)


@in_child
def _begin_anew() -> None:
    """None of the other threads is there, nor the programs that they ran."""
    _running.lock = threading.Lock()
    _running.programs = 0
    _pool.cache_clear()
