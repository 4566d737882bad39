"""Which engine tasks run on that several may run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.cost.compute import Cost
from nkisim.cost.tasks import Kind, Memory, ScheduledTask, Work
from nkisim.ir.instruction import Engine
from nkisim.ir.memory import Space
from nkisim.schedule.engines import ENGINES, assign_engines

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD


def kind(**busy):
    """A sort of task, by the nanoseconds that it takes on each engine that may run it."""
    costs = tuple((Engine[name.upper()], Cost(ns, ns, ns)) for name, ns in busy.items())
    return Kind("copy", costs)


def work(kinds):
    instr = SimpleNamespace(location=None)
    tasks = [ScheduledTask(instr, k, [], [(n, None)]) for n, k in enumerate(kinds)]
    return Work(tasks, {n: Memory(Space.SBUF, 4) for n in range(len(tasks))})


def engines(kinds):
    return [ENGINES[job.engine] for job in assign_engines(work(kinds))]


def loads(kinds):
    """What each engine has to do."""
    found = dict.fromkeys(ENGINES, 0.0)
    for k, engine in zip(kinds, engines(kinds), strict=True):
        found[engine] += dict(k.costs)[engine].busy
    return found


FREE = st.builds(
    kind,
    vector=st.integers(1, 500).map(float),
    scalar=st.integers(1, 500).map(float),
)
FIXED = st.sampled_from([VECTOR, SCALAR]).flatmap(
    lambda e: st.integers(0, 500).map(lambda ns: kind(**{e.name.lower(): float(ns)}))
)


BODIES = st.tuples(st.lists(FREE, min_size=1, max_size=4), st.lists(FIXED, max_size=4)).flatmap(
    lambda kinds: st.permutations([*kinds[0], *kinds[1]])
)


@given(BODIES, st.integers(1, 50))
def test_no_choice_is_far_from_where_least_is_to_do(body, times):
    """Not by more than a hundredth of all that is to do. In a kernel of few tasks that is nothing:
    the rule is the plain one."""
    kinds = body * times
    load = loads([k for k in kinds if len(k.costs) == 1])
    total = sum(min(cost.busy for _, cost in k.costs) for k in kinds)
    for k, engine in zip(kinds, engines(kinds), strict=True):
        if len(k.costs) > 1:
            tops = {e: load[e] + cost.busy for e, cost in k.costs}
            assert tops[engine] <= min(tops.values()) + 0.01 * total + 1e-6
            load[engine] = tops[engine]


@given(BODIES, st.integers(1, 200))
def test_loads_stay_balanced(body, times):
    """No engine is ahead, by what it could have left to others, by more than one task and a
    hundredth of all there is to do."""
    kinds = body * times
    alone, found = loads([k for k in kinds if len(k.costs) == 1]), loads(kinds)
    total = sum(min(cost.busy for _, cost in k.costs) for k in kinds)
    longest = max(cost.busy for k in kinds if len(k.costs) > 1 for _, cost in k.costs)
    first, second = sorted((VECTOR, SCALAR), key=found.__getitem__, reverse=True)
    ahead = found[first] - found[second]
    assert found[first] == alone[first] or ahead <= longest + 0.01 * total + 1e-6


@pytest.mark.parametrize(("vector", "scalar"), [(100.0, 100.0), (130.0, 217.0), (313.7, 95.1)])
@pytest.mark.parametrize("ahead", [0, 20_000])
def test_a_long_loop_has_the_same_engines_again_and_again(vector, scalar, ahead):
    """Nearly every task runs where the one sixteen before did."""
    kinds = [kind(vector=float(ahead)), *[kind(vector=vector, scalar=scalar)] * 4096]
    found = np.array([ENGINES.index(e) for e in engines(kinds)][1:])
    assert {ENGINES[e] for e in found} == {VECTOR, SCALAR}
    assert np.mean(found[16:] != found[:-16]) <= 0.02


@pytest.mark.parametrize("gap", [0.0, 3.7])
def test_two_copies_in_a_body_are_side_by_side(gap):
    """One on each engine, in nearly all iterations; so they are if one takes somewhat longer."""
    kinds = [kind(vector=100.0, scalar=100.0), kind(vector=100.0 + gap, scalar=100.0 + gap)]
    found = engines(kinds * 500)
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert sum(len(set(pair)) == 2 for pair in pairs) >= 450


def test_a_sort_that_there_is_little_of_takes_turns_too():
    """Tasks so short that they take no step each."""
    body = [kind(vector=900.0, scalar=800.0), *[kind(vector=1.0, scalar=1.0)] * 3]
    found = loads(body * 400)
    assert abs(found[VECTOR] - found[SCALAR]) <= 900 + 0.01 * 400 * 803


def test_tasks_may_take_no_time():
    """As do those that a finding supposes to be done along with others."""
    nothing, work_of_vector = kind(vector=0.0, scalar=0.0), kind(vector=90.0)
    assert engines([work_of_vector, nothing, nothing]) == [VECTOR, SCALAR, SCALAR]


def test_what_only_one_engine_can_do_runs_there():
    product, sums = kind(tensor=400.0), kind(vector=90.0)
    assert engines([product, sums] * 50) == [Engine.TENSOR, VECTOR] * 50


def test_choices_are_told():
    w = work([kind(vector=100.0), *[kind(vector=100.0, scalar=100.0)] * 3, kind(gpsimd=1.0)])
    assign_engines(w)
    assert w.choices == {"copy on Vector": 1, "copy on Scalar": 2}
