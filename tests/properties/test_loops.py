"""Loops of drawn updates of one accumulator: whatever comes out differently in another order of
the iterations is refused in an affine_range, and what uses one operator on it is not."""

from __future__ import annotations

import itertools

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from neuronxcc import nki

from nkisim.errors import LoopError

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
TRIPS = 3
X = np.random.default_rng(0).uniform(0.5, 2, (TRIPS, 8, 8)).astype(np.float32)

UPDATES = ("+=", "*=", "max", "acc + t", "acc + acc", "half")
statements = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(UPDATES), st.sampled_from([None, 0, 1, 2])),
        st.tuples(st.just("read"), st.sampled_from([0, 1, 2])),
    ),
    min_size=1,
    max_size=3,
)


def runs(only, i):
    return only is None or only == i


def interpreted(body, order):
    acc, seen = np.zeros((8, 8)), np.zeros((TRIPS, 8, 8))
    for i in order:
        t = X[i].astype(float)
        for what, only in body:
            if not runs(only, i):
                continue
            if what in ("+=", "acc + t"):
                acc = acc + t
            elif what == "*=":
                acc = acc * t
            elif what == "max":
                acc = np.maximum(acc, t)
            elif what == "acc + acc":
                acc = acc + acc
            elif what == "half":
                acc[:4] += acc[4:]
            else:
                seen[i] = acc
    return np.concatenate([acc[None], seen])


def traced(body):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((TRIPS + 1, 8, 8), x.dtype, buffer=nl.shared_hbm)
        zero = nl.zeros((8, 8), x.dtype)
        for i in nl.static_range(TRIPS + 1):
            nl.store(out[i], zero)
        acc = nl.zeros((8, 8), x.dtype)
        for i in nl.affine_range(TRIPS):
            t = nl.load(x[i])
            for what, only in body:
                if not runs(only, i):
                    continue
                if what == "+=":
                    acc += t
                elif what == "acc + t":
                    acc[...] = acc + t
                elif what == "*=":
                    acc *= t
                elif what == "max":
                    acc[...] = nl.maximum(acc, t)
                elif what == "acc + acc":
                    acc[...] = nl.add(acc, acc)
                elif what == "half":
                    high = nl.copy(acc)
                    nisa.dma_copy(dst=high[0:4], src=acc[4:8])
                    acc[0:4, :] += high[0:4, :]
                else:
                    nl.store(out[i + 1], acc)
        nl.store(out[0], acc)
        return out

    return kernel(X)


@given(statements)
@example([("+=", None), ("*=", None)])
@example([("+=", None), ("read", 2)])
@example([("+=", None), ("read", 0)])
@example([("+=", None), ("acc + acc", None)])
@example([("+=", None), ("acc + t", 1)])
@example([("+=", 0), ("+=", 1)])
@settings(max_examples=120, deadline=None)
def test_what_depends_on_the_order_is_refused(body):
    orders = [interpreted(body, order) for order in itertools.permutations(range(TRIPS))]
    alike = all(np.allclose(found, orders[0], rtol=1e-9) for found in orders)
    try:
        got = traced(body)
    except LoopError:
        used = {"+=" if what == "acc + t" else what for what, _ in body}
        assert not (len(used) == 1 and used <= {"+=", "*=", "max"})
        return
    assert alike
    np.testing.assert_allclose(got, orders[0], rtol=1e-5)
