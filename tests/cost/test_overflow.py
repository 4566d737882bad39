"""Kernels that keep more results in PSUM than it holds."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim
from nkisim.compiler.overflow import TO_SBUF
from nkisim.ir.memory import Space
from nkisim.schedule.scheduler import MORE_THAN_THERE_IS
from nkisim.schedule.touches import Touches

BANKS = 8  # of PSUM, each of 512 fp32 numbers a partition
SPILLED = "result in PSUM spilled to SBUF"


@nki.jit
def all_at_once(x, weights, order):
    """exp of the products of each tile of x with the weights, summed over rows: all products in
    PSUM, and only then used, in the order given."""
    rows, count = x.shape[0], x.shape[1] // 128
    out = nl.ndarray((128, count), dtype=nl.float32, buffer=nl.shared_hbm)
    made = nl.ndarray((count, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
    sums = nl.ndarray((128, count), dtype=nl.float32)
    w, x = nl.load(weights), nl.load(x)
    for i in nl.static_range(count):
        made[i] = nisa.nc_matmul(x[0:rows, nl.ds(i * 128, 128)], w)
    for i in order:
        power = nisa.activation(nl.exp, made[i])
        sums[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.add, power, axis=(1,))
    nl.store(out, sums)
    return out


def _profile(kernel, *args):
    with nkisim.checks(psum="off"):
        return nkisim.profile(kernel, *args)


def _all_at_once(order):
    x = nkisim.TensorSpec((128, len(order) * 128), nl.bfloat16)
    weights = nkisim.TensorSpec((128, 512), nl.bfloat16)
    return _profile(all_at_once, x, weights, order)


def _tasks(timeline):
    return timeline._core.work.tasks


def _spilled(timeline):
    """Which results leave PSUM: by the order in which they are made."""
    tasks = _tasks(timeline)
    made = [t.writes[0][0] for t in tasks if t.label == "nc_matmul"]
    return [made.index(t.reads[0][0]) for t in tasks if t.label == TO_SBUF]


def test_results_that_fit_stay():
    timeline = _all_at_once(range(BANKS))
    assert _spilled(timeline) == []
    assert SPILLED not in timeline.choices
    assert not any("PSUM overflows" in f.text for f in timeline.findings)


def test_those_needed_last_leave():
    order = [*range(4), *range(11, 3, -1)]
    timeline = _all_at_once(order)
    # Made when PSUM is full: the ninth and those after it. Each time the one read last goes.
    assert sorted(_spilled(timeline)) == [4, 5, 6, 7]
    assert timeline.choices[SPILLED] == 4


def test_what_left_is_read_from_sbuf():
    timeline = _all_at_once(range(BANKS + 3))
    memory = timeline._core.work.memory
    away = {t.reads[0][0]: t.writes[0][0] for t in _tasks(timeline) if t.label == TO_SBUF}
    assert len(away) == 3
    assert all(memory[n].space is Space.PSUM for n in away)
    assert all(memory[n].space is Space.SBUF for n in away.values())
    readers = [t for t in _tasks(timeline) if t.label == "activation(exp)"]
    assert sum(t.reads[0][0] in away.values() for t in readers) == 3
    assert not any(t.reads[0][0] in away for t in readers)
    assert [t.psum for t in readers].count(False) == 3  # and holds no port to PSUM


def test_the_copies_take_time_and_are_told():
    fits, more = _all_at_once(range(BANKS)), _all_at_once(range(2 * BANKS))
    copies = [i for i in more.intervals if i.label == TO_SBUF]
    assert len(copies) == BANKS
    assert {i.track for i in copies} <= {"Vector", "Scalar"}
    # 512 elements a lane take at least as many cycles, of the faster of the two.
    assert all(i.end_us - i.start_us >= 512 / 1.4e3 for i in copies)
    assert more.body_us > fits.body_us
    (found,) = [f for f in more.findings if "PSUM overflows" in f.text]
    assert "8 results of 16,384 bytes a partition in all are copied to SBUF" in found.text
    assert "made[i] = nisa.nc_matmul" in found.location.text


def test_sums_that_are_not_complete_stay():
    """A partial sum is no use in SBUF, where no matmul can add to it."""

    @nki.jit
    def sums(x, weights):
        count = 2 * BANKS
        out = nl.ndarray((count, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((count, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
        w = nl.load(weights)
        for k in nl.static_range(2):
            for i in nl.static_range(count):
                total[i] += nisa.nc_matmul(nl.load(x[k, i]), w)
        for i in nl.static_range(count):
            nl.store(out[i], nl.copy(total[i]))
        return out

    x = nkisim.TensorSpec((2, 2 * BANKS, 128, 128), np.dtype(np.float32))
    weights = nkisim.TensorSpec((128, 512), np.dtype(np.float32))
    assert _spilled(_profile(sums, x, weights)) == []


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40).flatmap(lambda n: st.permutations(range(n))))
def test_what_stays_fits(order):
    timeline = _all_at_once(order)
    work, machine = timeline._core.work, timeline.machine
    assert Touches.of(work).peak(Space.PSUM) <= machine.psum_bytes
    assert MORE_THAN_THERE_IS.format("PSUM") not in timeline.choices
    spilled = _spilled(timeline)
    # No more than it takes, if all are made before one is read.
    assert len(spilled) == len(set(spilled)) == max(0, len(order) - BANKS)


@pytest.mark.parametrize("rounds", [2, 5])
def test_results_of_rounds_share_psum(rounds):
    """Results of one round only are alive at a time."""

    @nki.jit
    def kernel(x, weights):
        out = nl.ndarray((rounds, BANKS, 128, 512), dtype=nl.float32, buffer=nl.shared_hbm)
        w = nl.load(weights)
        for r in nl.affine_range(rounds):
            made = nl.ndarray((BANKS, nl.par_dim(128), 512), dtype=nl.float32, buffer=nl.psum)
            for i in nl.affine_range(BANKS):
                made[i] = nisa.nc_matmul(nl.load(x[r, i]), w)
            for i in nl.affine_range(BANKS):
                nl.store(out[r, i], nl.copy(made[i]))
        return out

    x = nkisim.TensorSpec((rounds, BANKS, 128, 128), np.dtype(np.float32))
    weights = nkisim.TensorSpec((128, 512), np.dtype(np.float32))
    assert _spilled(_profile(kernel, x, weights)) == []
