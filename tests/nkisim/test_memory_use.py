"""What the simulator keeps of kernels that are gone, with nobody looking for garbage."""

from __future__ import annotations

import gc

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
import nkisim.runtime.kernel
from nkisim.ir.instruction import Instruction
from nkisim.trace.recent import Recent

ROUNDS = 300


def doubled(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0]):
        nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


def doubled_by_python(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0]):
        nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


def doubled_on_a_grid(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    nl.store(out[i], nl.load(x[i]) * 2.0)
    return out


@pytest.fixture
def no_collection():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def kept(monkeypatch):
    """What keeps traces for profiles: one of up to a thousand instructions, or the last one."""
    recent = Recent(1000)
    monkeypatch.setattr(nkisim.runtime.kernel, "_rolled", recent)
    return recent


def instructions():
    return sum(type(x) is Instruction for x in gc.get_objects())


@pytest.mark.parametrize("func", [doubled, doubled_by_python, doubled_on_a_grid])
def test_profiles_leave_nothing_behind(func, kept, no_collection):
    before = instructions()
    for rows in range(ROUNDS, ROUNDS + 4):
        kernel = nki.jit(func)[rows] if func is doubled_on_a_grid else nki.jit(func)
        timeline = nkisim.profile(kernel, nkisim.TensorSpec((rows, 128, 64), np.dtype("float32")))
        assert timeline.instructions == 3 * rows
    assert 3 * ROUNDS <= instructions() - before < 4 * ROUNDS  # the last one
    del kernel, timeline
    kept.use("another one", 1000)
    assert instructions() - before < ROUNDS / 10


@pytest.mark.parametrize("func", [doubled, doubled_by_python])
def test_a_kernel_that_is_gone_takes_its_traces_along(func, no_collection):
    before = instructions()
    kernel = nki.jit(func)
    x = np.ones((ROUNDS, 128, 4), np.float32)
    np.testing.assert_array_equal(kernel(x), 2 * x)
    assert instructions() - before >= 3 * ROUNDS
    del kernel
    assert instructions() - before < ROUNDS / 10


def test_a_profile_again_uses_the_trace_that_was_used_last(kept):
    kernel = nki.jit(doubled)
    specs = [nkisim.TensorSpec((n, 128, 64), np.dtype("float32")) for n in (300, 30, 20)]
    traces = [nkisim.runtime.profiling.trace_of(kernel, spec) for spec in specs]
    again = [nkisim.runtime.profiling.trace_of(kernel, spec) for spec in specs]
    assert all(a is b for a, b in zip(traces, again, strict=True))
    del traces, again
    assert len(kernel._cache.rolled) == 2  # 300 rounds were used last before the other two
    large = nkisim.TensorSpec((400, 128, 64), np.dtype("float32"))
    nkisim.profile(kernel, large)
    assert len(kernel._cache.rolled) == 1


def test_what_was_used_last_is_kept_as_far_as_it_fits():
    recent = Recent(10)
    a, b, c = things = [object() for _ in range(3)]
    for thing in things:
        recent.use(thing, 4)
    assert list(recent._sizes) == [b, c]
    recent.use(b, 4)
    recent.use(a, 4)
    assert list(recent._sizes) == [b, a]
    recent.use(c, 100)  # alone, if need be
    assert list(recent._sizes) == [c]
    recent.use(c, 3)
    recent.use(a, 7)
    assert list(recent._sizes) == [c, a]
