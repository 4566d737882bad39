"""A process that is forked while other threads run kernels runs its own."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
import time
import warnings

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.ir import settings
from nkisim.numerics import blas, program
from nkisim.runtime.kernel import Kernel

SECONDS = 20  # until a child counts as hung


@nki.jit
def gram(x):
    out = nl.ndarray((x.shape[1],) * 2, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.copy(nisa.nc_matmul(t, t)))
    return out


def exit_status(child):
    """What a forked process ends with, None where it hangs."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # JAX and Python 3.12 warn of any fork with threads
        pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            child()
            os._exit(0)
        os._exit(1)
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return None


def locks():
    """Those that a kernel's call takes."""
    yield program._kept._lock
    yield settings._lock
    yield blas._running.lock
    for owner in (program.Program, Kernel):  # of Python 3.11
        for found in vars(owner).values():
            if isinstance(found, functools.cached_property) and hasattr(found, "lock"):
                yield found.lock


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("columns", [3, 5])  # a trace that is kept, and a new one
def test_a_child_does_not_wait_for_locks_of_other_threads(columns):
    gram(np.ones((4, 3), np.float32))
    x = np.arange(4.0 * columns, dtype=np.float32).reshape(4, columns)
    held, leave = threading.Event(), threading.Event()

    def hold():
        with contextlib.ExitStack() as stack:
            for lock in locks():
                stack.enter_context(lock)
            held.set()
            leave.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    try:
        status = exit_status(lambda: np.testing.assert_array_equal(gram(x), x.T @ x))
    finally:
        leave.set()
        thread.join()
    assert status == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_has_the_threads_of_blas_that_its_parent_had():
    """Forked while a program of another thread runs, when BLAS has one."""
    number = [library.num_threads for library in blas.controller().lib_controllers]
    inside, leave = threading.Event(), threading.Event()

    def run():
        with blas.OneThread():
            inside.set()
            leave.wait()

    def child():
        gram(np.ones((4, 3), np.float32))
        assert [x.num_threads for x in blas.controller().lib_controllers] == number

    thread = threading.Thread(target=run)
    thread.start()
    inside.wait()
    try:
        status = exit_status(child)
    finally:
        leave.set()
        thread.join()
    assert status == 0
