"""What piles up in a long session: kept traces, warnings of one line, loops that are to stop."""

from __future__ import annotations

import signal
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.numerics import program
from nkisim.numerics.program import _INSTRUCTION
from nkisim.numerics.recent import Recent
from nkisim.runtime import kernel as runtime
from nkisim.runtime.kernel import Kernel


@given(
    st.lists(st.tuples(st.sampled_from([0, 1]), st.integers(1, 9)), min_size=1, max_size=12),
    st.sampled_from([20, 60, 10_000]),
)
@settings(max_examples=40, deadline=None)
def test_traces_are_kept_as_far_as_they_fit(calls, most):
    def rows(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0]):
            nl.store(out[i : i + 1], 2 * nl.load(x[i : i + 1]))
        return out

    kernels = Kernel(rows), Kernel(rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(program, "_TRACE", 0)
        patch.setattr(runtime, "_kept", Recent(most * _INSTRUCTION), raising=False)
        for which, n in calls:
            x = np.arange(4 * n, dtype=np.float32).reshape(n, 4)
            np.testing.assert_array_equal(kernels[which](x), 2 * x)
            kept = [
                len(special.program.trace.instructions)
                for kernel in kernels
                for special in kernel._cache.traces.values()
            ]
            assert kept
            assert sum(kept) <= most or len(kept) == 1


@given(st.lists(st.integers(1, 6), min_size=1, max_size=3))
@settings(max_examples=20, deadline=None)
def test_a_line_warns_once_with_how_often(times):
    def kernel(x):
        out = nl.ndarray((3, 6, 16, 1), x.dtype, buffer=nl.shared_hbm)
        nl.store(out[0, 0], nl.load(x[:, 0:1]))
        i, j = nl.mgrid[0:16, 0:4]
        column = nl.sum(nl.load(x), axis=1)
        for k in nl.sequential_range(times[0]):
            nl.store(out[0, k, i, 0 * j], column)
        for k in nl.sequential_range(times[1] if len(times) > 1 else 0):
            nl.store(out[1, k, i, 0 * j], column)
        for k in nl.sequential_range(times[2] if len(times) > 2 else 0):
            nl.store(out[2, k, i, 0 * j], column)
        return out

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        Kernel(kernel)(np.ones((16, 4), np.float32))
    told = [str(w.message) for w in shown if "4 times" in str(w.message)]
    assert len(told) == len(times)
    for text, n in zip(told, times, strict=True):
        assert (f"(the first of {n} like it in this line)" in text) == (n > 1), text


@pytest.fixture
def interrupts():
    """A shell ignores interrupts in what it runs in the background; here they come."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interrupts")
@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range, nl.static_range, range])
@pytest.mark.parametrize("at", [0, 1, 700])
def test_an_interrupt_stops_a_loop_in_the_iteration_that_it_comes_in(loop, at):
    begun = []

    def kernel(x):
        tile = nl.load(x)
        for _ in loop(10**9):
            begun.append(0)
            nl.exp(tile)
            if len(begun) == at + 1:
                signal.raise_signal(signal.SIGINT)
        return tile

    with pytest.raises(KeyboardInterrupt):
        Kernel(kernel)(np.ones((4, 4), np.float32))
    assert len(begun) == at + 1
