"""Fills are left out where nothing needs them, and done everywhere else."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import nkisim
from nkisim.machine import GEN2, GEN3
from nkisim.runtime.kernel import Kernel

P, N = 128, 64
WRITTEN_OVER = "fill of a tile that is all written over left out"


def around(work):
    """A kernel that loads x, has `work` write a tile that was filled, and stores it."""

    def kernel(x, filled):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        made = (nl.zeros if filled else nl.ndarray)((P, N), dtype=x.dtype)
        work(made, tile)
        nl.store(out, made)
        return out

    return Kernel(kernel)


def profile(work, filled=True, machine=GEN2):
    x = nkisim.TensorSpec((P, N), np.dtype(np.float32))
    return nkisim.profile(around(work).on(machine), x, filled)


def left_out(timeline):
    return timeline.choices.get(WRITTEN_OVER, 0)


def at_once(made, tile):
    made[...] = nl.exp(tile)


def by_columns(made, tile):
    for i in nl.affine_range(N):
        made[:, nl.ds(i, 1)] = nisa.activation(nl.exp, tile[:, nl.ds(i, 1)])


def by_halves(made, tile):
    for part in (nl.ds(N // 2, N // 2), nl.ds(0, N // 2)):
        made[:, part] = nl.exp(tile[:, part])


def by_partitions(made, tile):
    for part in (nl.ds(0, 64), nl.ds(64, 64)):
        made[part, :] = nl.exp(tile[part, :])


def every_other_column(made, tile):
    p, f = nl.mgrid[0:P, 0 : N // 2]
    for first in range(2):
        made[p, 2 * f + first] = nl.exp(tile[p, 2 * f + first])


def overlapping(made, tile):
    for part in (nl.ds(0, 48), nl.ds(16, 48)):
        made[:, part] = nl.exp(tile[:, part])


def by_one_column(made, tile):
    made[...] = nl.copy(tile[:, 0:1].broadcast_to((P, N)))


@pytest.mark.parametrize("machine", [GEN2, GEN3])
@pytest.mark.parametrize(
    "work",
    [at_once, by_columns, by_halves, by_partitions, every_other_column, overlapping, by_one_column],
)
def test_fill_that_is_all_written_over_costs_nothing(work, machine):
    found, unfilled = (profile(work, filled, machine) for filled in (True, False))
    assert left_out(found) == 1
    assert found.latency_us == unfilled.latency_us
    assert not any(task.label == "memset" for task in found._core.work.tasks)


def all_but_a_column(made, tile):
    made[:, 1:N] = nl.exp(tile[:, 1:N])


def all_but_a_partition(made, tile):
    made[0 : P - 1, :] = nl.exp(tile[0 : P - 1, :])


def twice_the_same(made, tile):
    for _ in range(2):
        made[:, 0 : N // 2] = nl.exp(tile[:, 0 : N // 2])


def overlapping_too_much(made, tile):
    for part in (nl.ds(0, 40), nl.ds(20, 40)):
        made[:, part] = nl.exp(tile[:, part])


def read_before(made, tile):
    made[:, 0:1] = nl.exp(tile[:, 0:1])
    total = nl.sum(made, axis=1, keepdims=True)
    made[...] = nl.add(tile, total)


def added_to(made, tile):
    made[...] += tile


def added_to_in_a_loop(made, tile):
    for _ in nl.sequential_range(3):
        made[...] = nl.add(made, tile)


def where_a_condition_holds(made, tile):
    p, f = nl.mgrid[0:P, 0:N]
    made[p, f] = nl.exp(tile[p, f], mask=(p + f < 100))


def where_data_says(made, tile):
    chosen = nl.greater(tile, 0.0, dtype=nl.uint8)
    nisa.tensor_copy_predicated(src=tile, dst=made, predicate=chosen)


@pytest.mark.parametrize(
    "work",
    [all_but_a_column, all_but_a_partition, twice_the_same, overlapping_too_much, read_before,
     added_to, added_to_in_a_loop, where_a_condition_holds, where_data_says],
)  # fmt: skip
def test_fills_that_are_done(work):
    found = profile(work)
    assert left_out(found) == 0
    assert sum(task.label == "memset" for task in found._core.work.tasks) == 1


def test_each_iteration_has_its_own_fill():
    """Every other one is written over."""

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(20):
            rows = nl.ds(i * P, P)
            tile, made = nl.load(x[rows, :]), nl.zeros((P, N), dtype=x.dtype)
            by_halves(made, tile)
            nl.store(out[rows, :], made)
            other = nl.zeros((P, N), dtype=x.dtype)
            other[:, 1:N] = nl.exp(tile[:, 1:N])
            nl.store(out[rows, :], other)
        return out

    found = nkisim.profile(Kernel(kernel), nkisim.TensorSpec((20 * P, N), np.dtype(np.float32)))
    assert left_out(found) == 20
    assert sum(task.label == "memset" for task in found._core.work.tasks) == 20


def test_tiles_that_are_written_alike_for_long():
    """The first and the last are written over; of the others a column is missing, other ones."""
    columns = 1200

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        column = nl.load(x[:, 0:1])
        for missing in (None, columns - 1, 600, None):
            made = nl.zeros((P, columns), dtype=x.dtype)
            for i in nl.static_range(columns):
                if i != missing:
                    made[:, nl.ds(i, 1)] = nl.exp(column)
            nl.store(out, made)
        return out

    x = nkisim.TensorSpec((P, columns), np.dtype(np.float32))
    found = nkisim.profile(Kernel(kernel), x)
    assert left_out(found) == 2


def test_a_fill_replaces_the_one_before_when_nothing_was_read():
    def work(made, tile):
        made[:, 0:1] = nl.exp(tile[:, 0:1])
        made[...] = 1.0
        made[:, 1:2] = nl.exp(tile[:, 0:1])

    found = profile(work)
    assert left_out(found) == 1
    assert sum(task.label == "memset" for task in found._core.work.tasks) == 1


STEPS = st.tuples(
    st.sampled_from(["write", "write", "write", "read"]),
    st.integers(0, 7),
    st.integers(1, 8),
    st.integers(1, 3),
)


@given(st.lists(st.lists(STEPS, min_size=1, max_size=8), min_size=1, max_size=3))
def test_fill_is_done_when_an_element_is_read_that_nothing_else_wrote(tiles):
    """Writes and reads of every n-th column, of tiles of eight; in the end a tile is read."""

    def kernel(x):
        out = nl.ndarray((P, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        source, total = nl.load(x), nl.zeros((P, 8), dtype=x.dtype)
        for steps in tiles:
            made = nl.full((P, 8), 2.0, dtype=x.dtype)
            for what, first, count, step in steps:
                columns = list(range(first, 8, step))[:count]
                p, f = nl.mgrid[0:P, 0 : len(columns)]
                part = p, first + step * f
                if what == "write":
                    made[part] = nl.exp(source[part])
                else:
                    total[part] = nl.add(total[part], made[part])
            total[...] = nl.add(total, made)
        nl.store(out, total)
        return out

    wanted = 1  # for the total
    for steps in tiles:
        missing = set(range(8))
        for what, first, count, step in [*steps, ("read", 0, 8, 1)]:
            columns = set(list(range(first, 8, step))[:count])
            if what == "write":
                missing -= columns
            elif missing:  # read while some are missing: it stays, whichever columns are read
                break
        wanted += bool(missing)
    found = nkisim.profile(Kernel(kernel), nkisim.TensorSpec((P, 8), np.dtype(np.float32)))
    assert sum(task.label == "memset" for task in found._core.work.tasks) == wanted
