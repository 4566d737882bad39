"""Loops of which executions before have told how far addresses move: one iteration of each strand
is traced, where nothing that it leaves behind in Python is read."""

import numpy as np
import pytest
from traces import Tally, like, rolled, same, spec

from nkisim.errors import OutOfBoundsError
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

pytestmark = pytest.mark.filterwarnings("ignore:.*are never written")


def traced(kernel, *args):
    """How many instructions were traced; the others are copies."""
    return sum(i.origin is None for i in same(Kernel(kernel), *args).instructions)


def triangle(x):
    y = like(x)
    for i in nl.affine_range(x.shape[0]):
        for j in nl.affine_range(x.shape[1]):
            if j < i:
                nl.store(y[i, j], nl.load(x[i, j]))
    return y


def test_one_iteration_is_traced_of_each_execution():
    n = 20
    # Of strands of 1, 2 and 3 iterations each one; of 4 both ends, which confirm what those of 3
    # have shown; of longer ones the first.
    iterations = 1 + 2 + 3 + 2 + (n - 5)
    assert traced(triangle, spec(n, n, 128, 8)) == 2 * iterations


def test_strands_of_different_lengths_follow_one_that_is_known():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in range(x.shape[0]):
            for j in nl.affine_range(x.shape[1]):
                ran.note()
                if j < i:
                    nl.store(y[i, j], nl.load(x[i, j]))
        return y

    same(Kernel(kernel), spec(30, 30, 128, 8))
    assert ran.times < 30 * 30 + 30 * 4  # the whole trace, and four a row


def test_loops_in_a_loop_that_turns_out_to_have_different_iterations():
    """`loop_reduce` fills its result in the first iteration, and adds to it in the others. That is
    found when the loop has been executed once; its index is a number like any other then."""
    ran = Tally()

    def kernel(x):
        y = like(x)
        sums = nl.ndarray((9, 12, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        tiles = nl.ndarray((9, 4, 12, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(9):
            for j in nl.affine_range(4):
                for k in nl.affine_range(12):
                    ran.note()
                    tiles[i, j, k] = nl.load(x[i, j, k])
                    sums[i, k] = nl.loop_reduce(tiles[i, j, k], np.add, loop_indices=[j])
            for k in nl.affine_range(12):
                nl.store(y[i, 0, k], sums[i, k])
        return y

    same(Kernel(kernel), spec(9, 4, 12, 128, 8))
    # Besides the whole trace: of five outer iterations, in the first one 5 for each kind, and 2 to
    # confirm the second; in the next one 2 for each; else 1 each time.
    assert ran.times == 9 * 4 * 12 + (5 + 5 + 2 + 1) + (2 + 2 + 1 + 1) + 3 * 4


# -- what an iteration leaves behind --------------------------------------------------------------


def a_view_is_read_behind_the_loop(x):
    y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(x.shape[0]):
        part = rows[:, 0:8]
        for j in nl.sequential_range(8):
            part = rows[:, nl.ds(j * 8, 8)]
            nl.store(y[i, j], nl.load(x[i, j]))
        nl.store(y[i, 0], part)
    return y


def a_view_is_read_in_the_next_iteration(x):
    y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
    for i in nl.sequential_range(x.shape[0]):
        part = rows[:, 0:8]
        for j in nl.sequential_range(8):
            if j < 5:
                nl.store(y[i, j], part)
            part = rows[:, nl.ds(j * 8, 8)]
    return y


def a_view_is_kept_in_a_list(x):
    y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
    last = [rows[:, 0:8]]
    for i in nl.sequential_range(x.shape[0]):
        for j in nl.sequential_range(8):
            last[0] = rows[:, nl.ds(j * 8, 8)]
            nl.store(y[i, j], nl.load(x[i, j]))
        nl.store(y[i, 0], last[0])
    return y


def an_item_is_set_for_others(x):
    """Of iterations that take turns, one sets what the others read, from the fifth row on."""
    y, a, b = like(x), nl.zeros((128, 8), x.dtype), nl.zeros((128, 8), x.dtype)
    for i, late in enumerate([a, a, a, a, b, b, a]):
        tiles = {"here": a}
        for j in range(8):
            if j % 2 == 1:
                tiles["here"] = late
            nl.store(y[i, j], tiles["here"])
    return y


def a_list_in_a_list_changes(x):
    y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
    tiles = [[rows[:, 0:8]]]
    for i in nl.sequential_range(x.shape[0]):
        for j in nl.sequential_range(8):
            tiles[0][0] = rows[:, nl.ds(j * 8, 8)]
            nl.store(y[i, j], nl.load(x[i, j]))
        nl.store(y[i, 0], tiles[0][0])
    return y


def an_index_is_read_behind_the_loop(x):
    y = like(x)
    for i in nl.sequential_range(x.shape[0]):
        for j in nl.sequential_range(6):
            nl.store(y[i, j], nl.load(x[i, j]))
        nl.store(y[i, j + 1], nl.load(x[i, j]))
    return y


def a_closure_reads_a_name(x):
    y = like(x)

    def write(i):
        nl.store(y[i, j], nl.load(x[i, 0]))

    for i in nl.sequential_range(x.shape[0]):
        for j in nl.sequential_range(6):
            nl.store(y[i, j], nl.load(x[i, j]))
        write(i)
    return y


def the_pace_changes(x):
    y = like(x)
    for i in nl.sequential_range(x.shape[0]):
        pace = 1 if i < 5 else 2
        for j in nl.sequential_range(4):
            nl.store(y[i, j * pace], nl.load(x[i, j * pace]))
    return y


def the_pace_changes_unseen(x):
    y = like(x)
    for i in nl.sequential_range(x.shape[0]):
        for j in nl.sequential_range(4):
            nl.store(y[i, j * len("x" * (1 + int(i) // 5))], nl.load(x[i, j]))
    return y


def the_tensor_changes(x):
    y, wide = like(x), like(x, (x.shape[0], x.shape[1] // 2, 2, *x.shape[2:]))
    for i in nl.sequential_range(x.shape[0]):
        to = y[i] if i < 5 else wide[i].reshape((x.shape[1], *x.shape[2:]))
        for j in nl.sequential_range(4):
            nl.store(to[j], nl.load(x[i, j]))
    return y


def a_count_is_kept_elsewhere(x):
    y, count = like(x), 0

    def add():
        nonlocal count
        count += 1

    for i, counts in enumerate([False, False, False, True, True, False]):
        copies_a_row(x, y, i, add if counts else None)
    nl.store(y[0, count % 7], nl.load(x[0, 0]))
    return y


def copies_a_row(x, y, i, each):
    for j in nl.sequential_range(5):
        nl.store(y[i, j], nl.load(x[i, j]))
        if each is not None:
            each()


def views_in_turns(x):
    y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
    part = rows[:, 0:8]
    for i in nl.sequential_range(x.shape[0]):
        for j in range(10):
            if j < 2:
                nl.store(y[i, j], nl.load(x[i, j]))
            nl.store(y[j, 7], part)
            part = rows[:, nl.ds(j % 3 * 8, 8)]
    return y


def a_limit_changes(x):
    y, limit = like(x), 2
    for i in nl.affine_range(x.shape[0]):
        if i % 3 <= limit:
            limit = 0
            nl.store(y[i, 0], nl.load(x[i, 0]))
        else:
            nl.store(y[i, 1], nl.load(x[i, 1]))
    return y


def a_sum_of_indices(x):
    y, count = like(x), 0
    for i in nl.sequential_range(6):
        nl.store(y[i, 0], nl.load(x[i, 0]))
        count += i
    nl.store(y[0, count % 8], nl.load(x[0, 0]))
    return y


@pytest.mark.parametrize(
    "kernel",
    [
        a_view_is_read_behind_the_loop,
        a_view_is_read_in_the_next_iteration,
        a_view_is_kept_in_a_list,
        an_item_is_set_for_others,
        a_list_in_a_list_changes,
        an_index_is_read_behind_the_loop,
        a_closure_reads_a_name,
        the_pace_changes,
        the_pace_changes_unseen,
        the_tensor_changes,
        a_count_is_kept_elsewhere,
        views_in_turns,
        a_limit_changes,
        a_sum_of_indices,
    ],
)
def test_what_iterations_leave_behind_is_that_of_the_last_one(kernel):
    same(Kernel(kernel), spec(10, 8, 128, 8))


def test_names_that_nobody_reads_do_not_matter():
    ran = Tally()

    def kernel(x):
        y, rows = like(x), nl.zeros((128, 64), x.dtype, buffer=nl.sbuf)
        for i in range(x.shape[0]):
            for j in nl.sequential_range(8):
                ran.note()
                part = rows[:, nl.ds(j * 8, 8)]
                part[...] = nl.load(x[i, j])
            nl.store(y[i, 0], rows[:, 0:8])
            for j in nl.sequential_range(8):
                part = rows[:, nl.ds(j * 8, 8)]
                nl.store(y[i, j], part)
        return y

    rolled(Kernel(kernel), spec(30, 8, 128, 8))
    assert ran.times == 5 + 2 + 3  # of executions 0, 1, 2, 28 and 29


def test_sums_in_a_list_do_not_matter():
    ran = Tally()

    def kernel(x):
        y = like(x)
        for i in range(x.shape[0]):
            sums = [nl.zeros((128, 8), x.dtype, buffer=nl.sbuf) for _ in range(2)]
            for j in nl.sequential_range(x.shape[1]):
                ran.note()
                for tile in range(2):
                    sums[tile] += nl.load(x[i, j])
            for tile in range(2):
                nl.store(y[i, tile], sums[tile])
        return y

    same(Kernel(kernel), spec(30, 8, 128, 8))
    assert ran.times == 30 * 8 + 5 + 2 + 3  # all, and those of executions 0, 1, 2, 28 and 29


def test_modules_that_a_kernel_imports_itself_do_not_matter():
    """As compilers write it; `nl.add` is no method that changes what it is called of."""
    ran = Tally()

    def kernel(x):
        import neuronxcc.nki.language as nl
        import numpy as np

        y = nl.ndarray(x.shape, np.float32, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0]):
            for j in nl.affine_range(8):
                ran.note()
                p, f = nl.mgrid[0:128, 0:8]
                tile = nl.load(x[i, j, p, f])
                nl.store(y[i, j, p, f], nl.add(tile, np.add(1, 1)))
            nl.store(y[i, 0, p, f], nl.load(x[i, 0, p, f]))
        return y

    rolled(Kernel(kernel), spec(30, 8, 128, 8))
    assert ran.times == 5 + 2 + 3  # of executions 0, 1, 2, 28 and 29


# -- errors in iterations that are left out -------------------------------------------------------


def test_an_address_outside_of_the_tensor_is_found():
    def kernel(x):
        y = like(x)
        for first in [0, 0, 0, 0, 0, 5, 0, 0]:
            for j in nl.sequential_range(8):
                nl.store(y[first + j], nl.load(x[first + j]))
        return y

    with pytest.raises(OutOfBoundsError) as whole:
        Kernel(kernel).specialize([spec(8, 128, 8)], {})
    with pytest.raises(OutOfBoundsError) as short:
        Kernel(kernel).specialize([spec(8, 128, 8)], {}, rolled=True)
    assert str(short.value) == str(whole.value)
