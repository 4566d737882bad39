"""Rolled traces of kernels that keep state of any kind in Python, or take loop indices otherwise
than by a `for` statement."""

from __future__ import annotations

import itertools
import random
from collections import deque
from fractions import Fraction
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from traces import Tally, like, rolled, same, spec

import nkisim
from nkisim.errors import ScopeError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

N = 24
COUNT = 0


def moved(x, y, i, adds=False):
    tile = nl.load(x[i])
    nl.store(y[i], nl.add(tile, 1.0) if adds else tile)


def by_a_list(x, y):
    for i in list(nl.affine_range(N)):
        moved(x, y, i)


def by_a_list_backwards(x, y):
    indices = list(nl.static_range(N))
    indices.reverse()
    for i in indices:
        moved(x, y, i)


def by_a_comprehension(x, y):
    places = [i * 1 for i in nl.affine_range(N)]
    for i in places:
        moved(x, y, i)


def in_a_comprehension(x, y):
    assert len([moved(x, y, i) for i in nl.affine_range(N)]) == N


def by_a_star(x, y):
    for i in [*nl.affine_range(N)]:
        moved(x, y, i)


def unpacked(x, y):
    first, *others = nl.affine_range(N)
    for i in others:
        moved(x, y, i)
    moved(x, y, first)


def counted_by_sum(x, y):
    for i in range(sum(1 for _ in nl.static_range(N))):
        moved(x, y, i)


def by_pairs(x, y):
    for i, j in list(itertools.product(nl.static_range(4), nl.static_range(N // 4))):
        moved(x, y, i * (N // 4) + j)


def by_a_zip(x, y):
    pairs = zip(nl.static_range(N), range(N), strict=True)
    for i, j in pairs:
        moved(x, y, i, j == 7)


def by_a_map(x, y):
    for i in map(abs, nl.affine_range(N)):
        moved(x, y, i)


TAKEN = [
    by_a_list, by_a_list_backwards, by_a_comprehension, in_a_comprehension, by_a_star, unpacked,
    counted_by_sum, by_pairs, by_a_zip, by_a_map,
]  # fmt: skip


def steps(start, step, tells):
    """A kernel whose state goes from one iteration to the next by `step`."""

    def kernel(x, y):
        state = start() if callable(start) else start
        for i in nl.static_range(N):
            state = step(state)
            moved(x, y, i, tells(state))

    return kernel


def changes(make, change, tells):
    """A kernel that changes a container in each iteration."""

    def kernel(x, y):
        state = make()
        for i in nl.static_range(N):
            change(state)
            state[0] = state[0]  # that it is changed is told from the loop
            moved(x, y, i, tells(state))

    return kernel


def global_count(x, y):
    global COUNT
    COUNT = 0
    for i in nl.static_range(N):
        COUNT += 1
        moved(x, y, i, COUNT % 7 == 0)


def array_count(x, y):
    count = np.zeros(1)
    for i in nl.static_range(N):
        count[0] += 1
        moved(x, y, i, count[0] % 7 == 0)


def nested_count(x, y):
    count = {"of": [0]}
    for i in nl.static_range(N):
        count["of"][0] += 1
        moved(x, y, i, count["of"][0] % 7 == 0)


def count_in_a_long_list(x, y):
    count = [0] * 20
    for i in nl.static_range(N):
        count[3] += 1
        moved(x, y, i, count[3] % 7 == 0)


STATES = {
    "NumPy number": steps(np.int64(0), lambda n: n + 1, lambda n: n % 7 == 0),
    "text": steps("", lambda s: s + "x", lambda s: len(s) % 7 == 0),
    "tuple": steps((0,), lambda t: (t[0] + 1,), lambda t: t[0] % 7 == 0),
    "longer and longer tuple": steps((), lambda t: (*t, None), lambda t: len(t) % 7 == 0),
    "complex": steps(0j, lambda c: c + 1j, lambda c: c.imag % 7 == 0),
    "fraction": steps(Fraction(0), lambda q: q + Fraction(1, 7), lambda q: q.denominator == 1),
    "None by turns": steps(None, lambda s: () if s is None else None, lambda s: s is None),
    "names": steps("a", {"a": "b", "b": "c", "c": "a"}.__getitem__, lambda s: s == "a"),
    "deque": changes(lambda: deque([0, 1, 2]), lambda d: d.rotate(1), lambda d: d[0] == 1),
    "bytes": changes(lambda: bytearray(2), lambda b: b.append(1), lambda b: len(b) % 7 == 0),
    "global": global_count,
    "array": array_count,
    "nested": nested_count,
    "long list": count_in_a_long_list,
}


def kernel_of(body):
    """A kernel whose output `body` fills."""

    def kernel(x):
        y = like(x)
        body(x, y)
        return y

    return Kernel(kernel)


@pytest.mark.parametrize("body", [*TAKEN, *STATES.values()],
                         ids=[f.__name__ for f in TAKEN] + [*STATES])  # fmt: skip
def test_all_iterations_count(body):
    same(kernel_of(body), spec(N, 128, 8))


def test_tuples_of_tiles_are_handed_on_in_rolled_loops():
    def kernel(x):
        y, state = like(x), (nl.zeros((128, 8), x.dtype), "sum")
        for i in nl.static_range(N):
            total, name = state
            total[...] = nl.add(total, nl.load(x[i]))
            state = total, name
            nl.store(y[i], state[0])
        return y

    found = same(Kernel(kernel), spec(N, 128, 8))
    assert any(i.origin is not None for i in found.instructions)


@pytest.mark.parametrize("named", [True, False])
def test_a_loop_may_have_a_name(named):
    def kernel(x):
        y = like(x)
        if named:
            loop = nl.affine_range(N)
            for i in loop:
                moved(x, y, i)
        else:
            for i in (_ := nl.affine_range(N)):
                moved(x, y, i)
        return y

    found = same(Kernel(kernel), spec(N, 128, 8))
    assert any(i.origin is not None for i in found.instructions)


# -- state that no assignment of the loop's function changes
EVERY = 6  # calls, of which the last one is another


class Calls:
    """Counts its calls, in all ways that an object can."""

    made = 0

    def __init__(self):
        self.count, self.order, self.places = 0, itertools.cycle([0] * (EVERY - 1) + [1]), {}

    def next(self):
        self.count += 1
        return self.count % EVERY == 0

    def by_setattr(self):
        setattr(self, "count", self.count + 1)  # noqa: B010
        return self.count % EVERY == 0

    def by_iterator(self):
        return next(self.order)

    def by_dict(self):
        self.places[len(self.places)] = None
        return len(self.places) % EVERY == 0

    @classmethod
    def by_class(cls):
        cls.made += 1
        return cls.made % EVERY == 0


class Slots:
    __slots__ = ("count",)

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1
        return self.count % EVERY == 0


def closure():
    count = 0

    def next_one():
        nonlocal count
        count += 1
        return count % EVERY == 0

    return next_one


def closure_over_an_iterator():
    numbers = itertools.count(1)
    return lambda: next(numbers) % EVERY == 0


def closure_over_an_array():
    count = np.zeros(1)

    def next_one():
        count[0] += 1
        return count[0] % EVERY == 0

    return next_one


def attribute():
    def next_one():
        next_one.count += 1
        return next_one.count % EVERY == 0

    next_one.count = 0
    return next_one


def default():
    def next_one(seen=[]):  # noqa: B006
        seen.append(None)
        return len(seen) % EVERY == 0

    return next_one


def deep_inside():
    holder = SimpleNamespace(of={"x": (SimpleNamespace(f=closure()),)})
    return lambda: holder.of["x"][0].f()


def own_class():
    class Own:
        count = 0

        def __call__(self):
            Own.count += 1
            return Own.count % EVERY == 0

    return Own()


def by_class():
    return type("Fresh", (Calls,), {}).by_class


def generator():
    return (n % EVERY == EVERY - 1 for n in itertools.count())


def drawn(source):
    return lambda: source.random() < 0.15


KEPT = {
    "method": lambda: Calls().next,
    "setattr": lambda: Calls().by_setattr,
    "iterator of an object": lambda: Calls().by_iterator,
    "dict of an object": lambda: Calls().by_dict,
    "class method": by_class,
    "own class": own_class,
    "slots": Slots,
    "partial": lambda: partial(Calls.next, Calls()),
    "namespace": lambda: SimpleNamespace(next=Calls().next).next,
    "deep inside": deep_inside,
    "in a table": lambda: {"x": [Calls()]}["x"][0].next,
    "closure": closure,
    "closure over an iterator": closure_over_an_iterator,
    "closure over an array": closure_over_an_array,
    "attribute of a function": attribute,
    "default of a function": default,
    "generator": lambda: generator().__next__,
    "next of a generator": lambda: partial(next, generator()),
    "random numbers": lambda: drawn(random.Random(0)),
    "random numbers of NumPy": lambda: drawn(np.random.default_rng(0)),
}


def keeping(make, inside):
    """A kernel that decides by what a function keeps between its calls, which it makes itself or
    finds outside."""
    made = None if inside else make()

    def kernel(x):
        next_one, y = make() if inside else made, like(x)
        for i in nl.affine_range(N):
            moved(x, y, i, next_one())
        return y

    return Kernel(kernel)


def keeping_on_a_grid(make):
    next_one = make()

    def kernel(x):
        y = like(x)
        moved(x, y, nl.program_id(0), next_one())
        return y

    return Kernel(kernel)[N]


@pytest.mark.parametrize("name", KEPT)
@pytest.mark.parametrize("where", ["inside", "outside", "on a grid"])
def test_what_functions_and_objects_keep_counts(name, where):
    def kernel():  # a new one each time, as what was traced goes on counting
        if where == "on a grid":
            return keeping_on_a_grid(KEPT[name])
        return keeping(KEPT[name], where == "inside")

    x = spec(N, 128, 8)
    found = kernel().specialize((x,), {}, rolled=True).program.trace.instructions
    if "random" in name:
        assert all(i.origin is None for i in found)  # each iteration is traced
    else:
        assert len(found) == 2 * N + N // EVERY


class Hook:
    """Counts only while it is on."""

    def __init__(self):
        self.on, self.count = True, 0

    def next(self):
        self.count += self.on
        return self.on and self.count % EVERY == 0

    def tick(self):
        self.count += 1

    def advance(self):
        self.count += 1
        return self


SHARED = Hook()


def set_back_at_the_start(x, y):
    SHARED.count = 0
    for i in nl.affine_range(N):
        moved(x, y, i, SHARED.next())


def set_back_at_the_end(x, y):
    for i in nl.affine_range(N):
        moved(x, y, i, SHARED.next())
    SHARED.count = 0


def comes_round(x, y):
    calls = itertools.cycle([0, 0, 0, 0, 1])  # as many as are traced of a loop
    for i in nl.affine_range(N):
        moved(x, y, i, next(calls))


def changed_in_every_other_iteration(x, y):
    hook = Hook()
    for i in nl.static_range(N):
        if i % 2 == 0:
            hook.tick()
            moved(x, y, i)
        else:
            moved(x, y, i, hook.count % EVERY == 0)


def changed_in_one_iteration(x, y):
    hook = Hook()
    for i in nl.affine_range(N):
        if i == 12:
            hook.tick()
        moved(x, y, i, hook.count == 1)


def changed_in_short_loops(x, y):
    hook = Hook()
    for i in nl.affine_range(8):
        for j in range(3):
            moved(x, y, i * 3 + j, hook.next())


def changed_from_some_layer_on(x, y):
    hook = Hook()
    for layer in range(4):
        hook.on = layer >= 2
        for i in nl.affine_range(N):
            moved(x, y, i, hook.next())


def handed_on_by_name(x, y):
    hook = Hook()
    for i in nl.affine_range(N):
        hook = hook.advance()
        moved(x, y, i, hook.count % EVERY == 0)


def turned_by_other_loops(x, y):
    turn = (0, 0, 1)
    for _ in nl.affine_range(8):
        for j in nl.static_range(8):
            moved(x, y, j, turn[0])
            for _ in range(nl.program_id(0) // 2 + 1):
                turn = (*turn[1:], turn[0])


CHANGING = [
    set_back_at_the_start, set_back_at_the_end, comes_round, changed_in_every_other_iteration,
    changed_in_one_iteration, changed_in_short_loops, changed_from_some_layer_on,
    handed_on_by_name,
]  # fmt: skip


@pytest.mark.parametrize("body", CHANGING, ids=lambda f: f.__name__)
def test_changes_are_seen_wherever_they_happen(body):
    SHARED.count = 0

    same(kernel_of(body), spec(N, 128, 8))


def test_a_tuple_that_turns_in_some_instances_only():
    def kernel(x):
        y = like(x, (nl.num_programs(0), *x.shape))
        turned_by_other_loops(x, y[nl.program_id(0)])
        return y

    with nkisim.checks(output="off", loop="off"):
        same(Kernel(kernel)[7], spec(N, 128, 8))


def test_what_is_made_once_for_later_calls_is_in_the_first_profile():
    started = []

    def kernel(x):
        y = like(x)
        if not started:
            started.append(True)
            moved(x, y, 0, True)
        for i in nl.affine_range(N):
            moved(x, y, i)
        return y

    assert nkisim.profile(Kernel(kernel), spec(N, 128, 8)).instructions == 2 * N + 3


def refused_the_second_time(kernel):
    kernel = Kernel(kernel)
    kernel.specialize((spec(N, 128, 8),), {})
    with pytest.raises(ScopeError, match="of an earlier trace") as caught:
        kernel.specialize((spec(2 * N, 128, 8),), {})
    assert caught.value.location.text.endswith("# here")


def test_a_tile_of_an_earlier_trace_is_refused():
    kept = {}

    def kernel(x):
        y = like(x)
        if not kept:
            kept["row"] = nl.load(x[0])
        for i in nl.affine_range(x.shape[0]):
            row = nl.load(x[i])
            nl.store(y[i], nl.add(row, kept["row"]))  # here
        return y

    refused_the_second_time(kernel)


def test_a_sum_of_an_earlier_trace_is_refused():
    kept = {}

    def kernel(x):
        y, tile = like(x), nl.load(x[0])
        total = kept.setdefault("sum", nl.zeros((8, 8), nl.float32, buffer=nl.psum))
        for _ in nl.static_range(4):
            total += nisa.nc_matmul(tile, tile)  # here
        for i in nl.affine_range(x.shape[0]):
            nl.store(y[i], nl.add(nl.load(x[i]), 1.0))
        return y

    refused_the_second_time(kernel)


def test_what_stays_the_same_does_not_count():
    """Objects and functions that a kernel asks, and what it makes but once."""
    ran, sizes = Tally(), {}

    def size(n):
        return sizes.setdefault(n, 2 * n)

    def kernel(x):
        calls, y, tiles = Calls(), like(x), SimpleNamespace()
        double = partial(lambda of, tile: nl.multiply(tile, of.made + 2.0), calls)
        for i in nl.affine_range(N):
            ran.note()
            tiles.last = nl.load(x[i, :, 0 : size(4)])
            nl.store(y[i, :, 0 : size(4)], double(tiles.last))
        return y

    with nkisim.checks(output="off"):
        found = rolled(Kernel(kernel), spec(N, 128, 8))
        assert ran.times == 5
        ran.reset()
        same(Kernel(kernel), spec(N, 128, 8))
        assert ran.times == 5 + N
    assert any(i.origin is not None for i in found.instructions)
