"""Numbers that a loop counts in Python: as to the compiler, which traces a body once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from traces import like, spec

import nkisim
from nkisim.errors import CounterError, NkiWarning
from nkisim.frontends.neuronxcc.nki import compiler as ncc
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

X = np.random.default_rng(0).standard_normal((4, 128, 8)).astype(np.float32)
ONCE = [nl.affine_range, nl.sequential_range]
UNROLLED = [nl.static_range, range]


def adds(loop, count):
    """A kernel that adds to each tile what `count`, a generator, has counted so far."""

    def kernel(x):
        y, counted = like(x), count()
        total = next(counted)
        for i in loop(4):
            nl.store(y[i], nl.load(x[i]) + total)
            total = counted.send(total)
        return y

    return Kernel(kernel)


def by_ones():
    total = 0
    while True:
        total = (yield total) + 1


def by_halves():
    total = 1.0
    while True:
        total = (yield total) / 2


@pytest.mark.parametrize("loop", ONCE, ids=lambda f: f.__name__)
@pytest.mark.parametrize(("count", "first"), [(by_ones, 0), (by_halves, 1.0)])
def test_each_iteration_begins_with_the_numbers_in_front_of_the_loop(loop, count, first):
    with pytest.warns(NkiWarning, match=rf"total is {first} in front of an nl.{loop.__name__}"):
        found = adds(loop, count)(X)
    np.testing.assert_array_equal(found, X + np.float32(first))


@pytest.mark.parametrize("loop", UNROLLED, ids=lambda f: f.__name__)
def test_loops_that_are_unrolled_count(loop):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        found = adds(loop, by_ones)(X)
    np.testing.assert_array_equal(found, X + np.arange(4, dtype=np.float32)[:, None, None])


def test_a_number_behind_the_loop_is_that_of_one_iteration():
    def kernel(x):
        n, y = 0, like(x)
        for i in nl.affine_range(4):
            n += 3
            nl.store(y[i], nl.load(x[i]))
        nl.store(y[0], nl.full((128, 8), n, x.dtype))
        return y

    with pytest.warns(NkiWarning, match="n is 0 in front of .* makes it 3"):
        assert (Kernel(kernel)(X)[0] == 3).all()


def test_the_first_iteration_alone_is_no_flag():
    """A slip of those who know loops that run."""

    def kernel(x):
        is_first, y = True, like(x)
        total = nl.zeros((128, 8), nl.float32)
        for i in nl.sequential_range(4):
            if is_first:
                total[...] = nl.load(x[i])
            else:
                total[...] += nl.load(x[i])
            is_first = False
            nl.store(y[i], total)
        return y

    with pytest.warns(NkiWarning, match="is_first is True .* makes it False"):
        np.testing.assert_array_equal(Kernel(kernel)(X), X)


def test_loops_in_loops():
    """The inner one counts for each iteration of the outer one, once."""

    def kernel(x):
        total, y = 0, like(x)
        for i in nl.affine_range(2):
            for j in nl.affine_range(2):
                nl.store(y[2 * i + j], nl.load(x[2 * i + j]) + total)
                total += 1
            total += 10
        nl.store(y[3], nl.full((128, 8), total, x.dtype))
        return y

    with pytest.warns(NkiWarning) as seen:
        found = Kernel(kernel)(X)
    np.testing.assert_array_equal(found[:3], X[:3])
    assert (found[3] == 11).all()
    assert sum("total is" in str(w.message) for w in seen) == 2  # once a line


def test_an_index_that_is_handed_on():
    def kernel(x):
        before, y = 0, like(x)
        for i in nl.sequential_range(4):
            nl.store(y[i], nl.load(x[before]))
            before = i
        return y

    with pytest.warns(NkiWarning, match="before is 0 in front of .* makes it 1"):
        found = Kernel(kernel)(X)
    np.testing.assert_array_equal(found, np.broadcast_to(X[0], X.shape))


def test_a_number_that_an_inner_function_reads():
    def kernel(x):
        total, y = 0, like(x)

        def plus(tile):
            return tile + total

        for i in nl.affine_range(4):
            nl.store(y[i], plus(nl.load(x[i])))
            total = total + 1
        return y

    with pytest.warns(NkiWarning, match="total is 0"):
        np.testing.assert_array_equal(Kernel(kernel)(X), X)


def test_without_the_source_iterations_begin_with_the_same_numbers():
    """As in a kernel that a program makes up; there, nothing tells what they are used for."""
    text = """
def kernel(x):
    row, y, k = 0, like(x), 0
    for i in nl.sequential_range(4):
        k = 3 - i
        nl.store(y[k], nl.load(x[row]))
        row += 1
    nl.store(y[0], nl.load(x[k]) + row)
    return y
"""
    names = {"nl": nl, "like": like}
    exec(text, names)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        found = Kernel(names["kernel"])(X)
    np.testing.assert_array_equal(found, np.stack([X[0] + 1, X[0], X[0], X[0]]))


def test_as_an_error_it_names_the_loop():
    with nkisim.checks(counter="error"), pytest.raises(CounterError) as caught:
        adds(nl.affine_range, by_ones)(X)
    error = caught.value
    assert error.location.text == "for i in loop(4):"
    assert "an iteration makes it 1" in error.problem
    assert "from the loop index" in error.fix


def test_a_use_far_behind_the_loop_is_one():
    def kernel(x):
        n, y = 0, like(x)
        if x.shape[0]:
            with nkisim.checks(bounds="error"):
                for i in nl.affine_range(4):
                    n += 3
                    nl.store(y[i], nl.load(x[i]))
        nl.store(y[0], nl.full((128, 8), n, x.dtype))
        return y

    with pytest.warns(NkiWarning, match="n is 0"):
        Kernel(kernel)(X)


def test_the_check_can_be_turned_off():
    with nkisim.checks(counter="off"), warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        np.testing.assert_array_equal(adds(nl.affine_range, by_ones)(X), X)


def places(x):
    """Tiles side by side in each iteration, and one behind those of an iteration, after all."""
    at, y = 0, like(x)
    for i in nl.affine_range(x.shape[0]):
        first = nl.ndarray((128, 2048), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=at))
        at += 2048 * 4
        second = nl.ndarray((128, 2048), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=at))
        at += 2048 * 4
        first[...] = nl.load(x[i])
        second[...] = nl.multiply(first, 2.0)
        nl.store(y[i], second)
    last = nl.ndarray((128, 2048), x.dtype, buffer=ncc.sbuf.mod_alloc(base_addr=at))
    last[...] = nl.load(x[0])
    nl.store(y[0], last)
    return y


def test_addresses_are_those_of_the_first_iteration():
    """40 iterations would need 640 KiB of SBUF if each had its own."""
    trace = Kernel(places).specialize((spec(40, 128, 2048),), {}).program.trace
    found = [b.placed[0].address for b in trace.buffers if b.placed]
    assert found == [0, 8192] * 40 + [16384]


def test_names_and_messages_are_no_use(capsys):
    def kernel(x):
        n, y = 0, like(x)
        for i in nl.affine_range(4):
            assert n >= 0
            tile = nl.ndarray((128, 8), x.dtype, name=f"tile_{n}")
            tile[...] = nl.load(x[i])
            print(n, end=" ")
            n = n + 1
            nl.store(y[i], tile)
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        np.testing.assert_array_equal(Kernel(kernel)(X), X)
    assert capsys.readouterr().out == "0 0 0 0 "


def test_what_each_iteration_sets_anew_is_no_count():
    def kernel(x):
        y, late, masked = like(x), False, False
        for i in nl.affine_range(4):
            if x.shape[0] > 1:
                late = i > 1
            if x.shape[0] > 2:
                masked = bool(x.shape[1] > 1) and not late
            tile = nl.load(x[i])
            nl.store(y[i], tile * 2.0 if late else tile * (1.0 + masked))
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        np.testing.assert_array_equal(Kernel(kernel)(X), X * 2)


@pytest.mark.parametrize("given", [None, True])
def test_a_mask_is_that_of_its_iteration(given):
    """As AWS's blockwise matmul makes its masks, which do not add up on a device."""

    def kernel(x, mask):
        y = like(x)
        row, column = nl.mgrid[0:128, 0:8]
        for k in nl.affine_range(4):
            i = 3 - k
            nl.store(y[i], nl.zeros((128, 8), x.dtype))
            wide = column <= 7 - 2 * i
            mask = wide if mask is None else wide & mask
            nl.store(y[i, row, column], nl.load(x[i, row, column], mask=mask), mask=mask)
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        if given is not None:  # a number, of which it cannot be told whether it is a mask
            warnings.filterwarnings("ignore", "mask is True in front of")
        found = Kernel(kernel)(X, given)
    inside = np.arange(8) <= 7 - 2 * np.arange(4)[:, None, None]
    np.testing.assert_array_equal(found, np.where(inside, X, 0))


def test_a_place_may_be_told_by_any_name_of_the_functions():
    from nkisim.frontends.neuronxcc.nki.compiler import sbuf

    at_bytes = sbuf.mod_alloc

    def kernel(x):
        at, y = 0, like(x)
        for i in nl.affine_range(4):
            tile = nl.ndarray((128, 8), x.dtype, buffer=at_bytes(base_addr=at))
            at += 32
            tile[...] = nl.load(x[i])
            nl.store(y[i], tile)
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*never read")
        np.testing.assert_array_equal(Kernel(kernel)(X), X)


class Count:
    def __init__(self):
        self.n = 0

    def step(self):
        self.n += 1
        return self.n - 1


def counted_by(how, loop, x, y):
    """Store rows of x that are counted in an object of some kind."""
    if how == "list":
        n = [0]
        for i in loop(4):
            nl.store(y[i], nl.load(x[n[0]]))
            n[0] += 1
    elif how == "dict":
        n = {"row": 0}
        for i in loop(4):
            nl.store(y[i], nl.load(x[n["row"]]))
            n["row"] = n["row"] + 1
    elif how == "array":
        n = np.zeros(2, int)
        for i in loop(4):
            nl.store(y[i], nl.load(x[int(n[1])]))
            n[1] += 1
    elif how == "attribute":
        n = Count()
        for i in loop(4):
            nl.store(y[i], nl.load(x[n.n]))
            n.n += 1
    elif how == "method":
        n = Count()
        for i in loop(4):
            row = n.step()
            nl.store(y[i], nl.load(x[row]))
    elif how == "nonlocal":
        n = 0

        def step():
            nonlocal n
            n += 1
            return n - 1

        for i in loop(4):
            row = step()
            nl.store(y[i], nl.load(x[row]))
    elif how == "range iterator":
        rows = iter(range(4))
        for i in loop(4):
            row = next(rows)
            nl.store(y[i], nl.load(x[row]))
    else:
        rows = iter([0, 1, 2, 3])
        for i in loop(4):
            nl.store(y[i], nl.load(x[next(rows)]))


HOLDERS = ["list", "dict", "array", "attribute", "method", "nonlocal", "range iterator", "iterator"]


@pytest.mark.parametrize("how", HOLDERS)
@pytest.mark.parametrize("loop", ONCE + UNROLLED, ids=lambda f: f.__name__)
def test_numbers_that_objects_hold_are_counted(how, loop):
    """The compiler sees the first iteration, whatever holds the number."""

    def kernel(x):
        y = like(x)
        counted_by(how, loop, x, y)
        return y

    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        found = Kernel(kernel)(X)
    told = [str(w.message) for w in shown if "in front of an nl." in str(w.message)]
    assert len(told) == (loop in ONCE)
    np.testing.assert_array_equal(found, X[[0, 0, 0, 0]] if loop in ONCE else X)
    with nkisim.checks(counter="error"):
        if loop in ONCE:
            with pytest.raises(CounterError):
                Kernel(kernel)(X)


def test_what_a_helper_captures_of_the_loop_is_no_counter():
    """A closure that reads the loop index, and a list of results that the loop fills in."""

    def kernel(x):
        y, i = like(x), 0
        widths = [8, 8]

        def row():
            return nl.load(x[i])

        for _ in range(2):
            for i in nl.affine_range(4):
                twice = 2 * widths[0]
                nl.store(y[i], row() + twice)
        return y

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(Kernel(kernel)(X), X + np.float32(16))
