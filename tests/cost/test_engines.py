"""Which engine tasks run on that several may run."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.cost.compute import Cost
from nkisim.cost.engines import ENGINES, assign_engines
from nkisim.cost.tasks import Kind, Memory, Task, Work
from nkisim.instruction import Engine
from nkisim.memory import Space

VECTOR, SCALAR, GPSIMD = Engine.VECTOR, Engine.SCALAR, Engine.GPSIMD


def kind(**busy):
    """A sort of task, by the nanoseconds that it takes on each engine that may run it."""
    costs = tuple((Engine[name.upper()], Cost(ns, ns, ns)) for name, ns in busy.items())
    return Kind("copy", costs)


def work(kinds):
    instr = SimpleNamespace(location=None)
    tasks = [Task(instr, k, [], [(n, None)]) for n, k in enumerate(kinds)]
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


@given(st.lists(FREE, min_size=1, max_size=7), st.lists(FIXED, max_size=7))
def test_few_tasks_go_where_less_is_to_do(free, fixed):
    """As long as no sort comes again often, the rule is the plain one."""
    load = {VECTOR: 0.0, SCALAR: 0.0}
    for k in fixed:
        engine, cost = k.costs[0]
        load[engine] += cost.busy
    expected = []
    for k in free:
        costs = dict(k.costs)
        best = min((VECTOR, SCALAR), key=lambda e: load[e] + costs[e].busy)
        load[best] += costs[best].busy
        expected.append(best)
    assert engines([*fixed, *free])[len(fixed) :] == expected


@given(
    st.lists(FREE, min_size=1, max_size=4),
    st.lists(FIXED, max_size=4),
    st.integers(1, 200),
    st.data(),
)
def test_loads_stay_balanced(free, fixed, times, data):
    """Choices that stay as they were put no engine ahead by more than one task and a hundredth of
    all there is to do."""
    body = data.draw(st.permutations([*free, *fixed]))
    kinds = body * times
    alone = loads([k for k in kinds if len(k.costs) == 1])
    found = loads(kinds)
    total = sum(min(cost.busy for _, cost in k.costs) for k in kinds)
    longest = max(cost.busy for k in free for _, cost in k.costs)
    first, second = (VECTOR, SCALAR) if found[VECTOR] >= found[SCALAR] else (SCALAR, VECTOR)
    ahead = found[first] - found[second]
    assert found[first] == alone[first] or ahead <= longest + 0.01 * total + 1e-6


@pytest.mark.parametrize(("vector", "scalar"), [(100.0, 100.0), (130.0, 217.0), (313.7, 95.1)])
@pytest.mark.parametrize("ahead", [0, 20_000])
def test_a_long_loop_has_the_same_engines_again_and_again(vector, scalar, ahead):
    """Nearly every task runs where the one eight before did."""
    kinds = [kind(vector=float(ahead)), *[kind(vector=vector, scalar=scalar)] * 4096]
    found = np.array([ENGINES.index(e) for e in engines(kinds)][1:])
    assert {ENGINES[e] for e in found} == {VECTOR, SCALAR}
    assert np.count_nonzero(found[8:] != found[:-8]) <= 40


def test_one_sort_each_iteration_takes_turns_as_two_do():
    """Two copies in a body are side by side on two engines, in all of its iterations."""
    copy = kind(vector=100.0, scalar=100.0)
    found = engines([copy, copy] * 100)
    assert found == [VECTOR, SCALAR] * 100


def test_what_only_one_engine_can_do_runs_there():
    product, sums = kind(tensor=400.0), kind(vector=90.0)
    assert engines([product, sums] * 50) == [Engine.TENSOR, VECTOR] * 50


def test_choices_are_told():
    w = work([kind(vector=100.0), *[kind(vector=100.0, scalar=100.0)] * 3, kind(gpsimd=1.0)])
    assign_engines(w)
    assert w.choices == {"copy on Vector": 1, "copy on Scalar": 2}
