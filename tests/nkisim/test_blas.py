"""How many threads NumPy's BLAS has while programs run."""

from __future__ import annotations

import contextlib
import threading

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.numerics import blas, program


@pytest.fixture
def three_threads():
    """The function that tells how many threads there are, which are three."""

    def threads():
        (number,) = {library["num_threads"] for library in blas.controller().info()}
        return number

    if not blas.controller().info():
        pytest.skip("this NumPy has a BLAS that threadpoolctl does not know")
    with blas.controller().limit(limits=3):
        yield threads


def test_one_thread_inside_and_as_before_outside(three_threads):
    with blas.one_thread():
        assert three_threads() == 1
        with blas.one_thread():
            assert three_threads() == 1
        assert three_threads() == 1
    assert three_threads() == 3


def test_an_error_gives_the_threads_back(three_threads):
    with contextlib.suppress(KeyError), blas.one_thread():
        raise KeyError
    assert three_threads() == 3


def test_of_programs_that_run_at_once_none_keeps_them(three_threads):
    inside, leave = threading.Event(), threading.Event()

    def other():
        with blas.one_thread():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with blas.one_thread():
        thread.start()
        inside.wait()
    leave.set()
    thread.join()
    assert three_threads() == 3


@nki.jit
def square(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.multiply(t, t))
    return out


@nki.jit
def gram(x):
    out = nl.ndarray((x.shape[1],) * 2, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nl.store(out, nl.copy(nisa.nc_matmul(t, t)))
    return out


def test_programs_that_multiply_matrices_use_it(monkeypatch):
    entered = []

    @contextlib.contextmanager
    def noted():
        entered.append(True)
        yield

    monkeypatch.setattr(program, "one_thread", noted)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    np.testing.assert_array_equal(square(x), x * x)
    assert not entered
    np.testing.assert_array_equal(gram(x), x.T @ x)
    assert len(entered) == 1
