"""Kernels whose iterations differ in the middle, where a rolled trace does not look by itself."""

import itertools
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import like, same, spec

import nkisim
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

pytestmark = pytest.mark.filterwarnings(r"ignore:(.|\n)*never written:nkisim.NkiWarning")

N = 16
WIDTHS = [8] * 9 + [4] + [8] * 6  # iteration 9 is not like the others
ORDER = [*range(8), 9, 8, *range(10, N)]


class Settings:
    def __init__(self):
        self.widths = WIDTHS
        self.count = 0


for _at, _width in enumerate(WIDTHS):
    setattr(Settings, f"width{_at}", _width)
GLOBAL = Settings()


def step(x, y, i, width):
    """What an iteration does: other instructions where it is narrow."""
    t = nl.load(x[i, :, 0:width])
    nl.store(y[i, :, 0:width], nl.exp(t) if width == 8 else nl.sin(t))


def width_of(i):
    return WIDTHS[i]


def in_loop(width):
    """A kernel with one loop, from what an iteration's width is."""

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(N):
            step(x, y, i, width(i))
        return y

    return kernel


ARRAY = np.array(WIDTHS)
TEXT = "wwwwwwwwwnwwwwww"
NESTED = [[w, w] for w in WIDTHS]
LOOKED_UP = {
    "in a list": lambda i: WIDTHS[i],
    "in a list, from the end": lambda i: WIDTHS[::-1][-1 - i],
    "by a function": width_of,
    "in an array": lambda i: int(ARRAY[i]),
    "in text": lambda i: 8 if TEXT[i] == "w" else 4,
    "in lists of lists": lambda i: NESTED[i][0],
    "in an attribute": lambda i: GLOBAL.widths[i],
    "in a part": lambda i: WIDTHS[i : i + 1][0],
    "by a method": lambda i: WIDTHS.__getitem__(i),
    "of a list's items": lambda i: next(w for at, w in enumerate(WIDTHS) if at == i),
    "in a dictionary": lambda i: dict(enumerate(WIDTHS))[i],
    "in a set": lambda i: 4 if i in {9, 30} else 8,
    "by joining sets": lambda i: 4 if {i} & {9, 30} else 8,
    "by its text": lambda i: 4 if str(i) == "9" else 8,
    "by a name made of it": lambda i: getattr(GLOBAL, f"width{i}"),
    "as an int": lambda i: 4 if int(i) == 9 else 8,
    "as a float": lambda i: 4 if abs(float(i) - 9) < 0.5 else 8,
    "times a float": lambda i: 4 if i * 1.0 == 9.0 else 8,
    "by its root": lambda i: 4 if math.sqrt(i) == 3 else 8,
    "as a number of NumPy": lambda i: 4 if np.int64(i) == 9 else 8,
    "by its bits": lambda i: 4 if i.bit_length() == 4 and i < 10 and i > 8 else 8,
    "by how long a list is": lambda i: 4 if len([0] * i) == 9 else 8,
    "rounded": lambda i: 4 if round(i) == 9 else 8,
}


@pytest.mark.parametrize("width", LOOKED_UP.values(), ids=LOOKED_UP)
def test_what_is_looked_up_by_a_loop_index_is_that_of_each_iteration(width):
    same(Kernel(in_loop(width)), spec(N, 128, 8))


def zipped(x):
    y = like(x)
    for width, i in zip(WIDTHS, nl.affine_range(N), strict=True):
        step(x, y, i, width)
    return y


def from_an_iterator(x):
    y, widths = like(x), iter(WIDTHS)
    for i in nl.affine_range(N):
        step(x, y, i, next(widths))
    return y


def from_a_generator(x):
    y, widths = like(x), (w for w in WIDTHS)
    for i in nl.affine_range(N):
        for width in widths:
            step(x, y, i, width)
            break
    return y


def chained(x):
    y, half = like(x), N // 2
    for i in itertools.chain(nl.affine_range(half), nl.affine_range(half, N)):
        step(x, y, i, 8 if i != 9 else 4)
    return y


def counted_in_an_attribute(x):
    y, state = like(x), Settings()
    for i in nl.affine_range(N):
        step(x, y, i, WIDTHS[state.count])
        state.count += 1
    return y


def counted_in_an_attribute_of_a_global(x):
    y = like(x)
    GLOBAL.count = 0
    for i in nl.affine_range(N):
        step(x, y, i, 4 if GLOBAL.count == 9 else 8)
        GLOBAL.count += 1
    return y


def another_order(x):
    y = like(x)
    for i in nl.affine_range(N):
        step(x, y, ORDER[i], 8)
    return y


def from_an_index_on(x):
    y = like(x)
    for i in nl.affine_range(N // 2):
        for j in nl.affine_range(2 * i, 2 * i + 2):
            step(x, y, j, 4 if j == 9 else 8)
    return y


def from_an_index_on_in_python(x):
    y = like(x)
    for i in range(N // 2):
        for j in range(2 * i, 2 * i + 2):
            step(x, y, j, 4 if j == 9 else 8)
    return y


def up_to_an_index(x):
    y = like(x)
    for i in nl.affine_range(N // 2):
        for j in nl.affine_range(2 * i, min(2 * i + 2, 13)):
            step(x, y, j, 8)
    return y


def with_all_exceptions_caught(x):
    y = like(x)
    for i in nl.affine_range(N):
        try:
            width = WIDTHS[i]
        except Exception:
            width = 8
        step(x, y, i, width)
    return y


def by_an_index(x):
    y = like(x)
    for i in nl.affine_range(1, N // 2):
        for j in nl.affine_range(0, N, i):
            nl.store(y[j, :, i], nl.load(x[j, :, i]))
    return y


def as_data(x):
    y = like(x)
    for i in nl.affine_range(N):
        nl.store(y[i], nl.load(x[i]) + (i // 5) % 3)
    return y


def as_the_value_to_fill_with(x):
    y = like(x)
    for i in nl.affine_range(N):
        nl.store(y[i], nl.full((128, 8), (i // 5) % 3, x.dtype))
    return y


OTHERS = [
    zipped, from_an_iterator, from_a_generator, chained,
    counted_in_an_attribute, counted_in_an_attribute_of_a_global,
    with_all_exceptions_caught, another_order,
    from_an_index_on, from_an_index_on_in_python, up_to_an_index, by_an_index,
    as_data, as_the_value_to_fill_with,
]  # fmt: skip


@pytest.mark.parametrize("function", OTHERS, ids=lambda f: f.__name__)
def test_no_iteration_is_taken_for_another(function):
    same(Kernel(function), spec(N, 128, 8))


@pytest.mark.parametrize("width", [LOOKED_UP["in a list"], LOOKED_UP["by its text"]])
def test_instances_are_not_taken_for_others(width):
    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        step(x, y, i, width(i))
        return y

    same(Kernel(kernel)[N], spec(N, 128, 8))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([4, 8]), min_size=12, max_size=24),
    st.sampled_from([nl.affine_range, nl.sequential_range, nl.static_range, range]),
    st.data(),
)
def test_tables_are_looked_up(widths, loop, data):
    order = data.draw(st.permutations(range(len(widths))))

    def kernel(x):
        y = like(x)
        for i in loop(len(widths)):
            step(x, y, order[i], widths[i])
        return y

    same(Kernel(kernel), spec(len(widths), 128, 8))


def at_its_number(x):
    """Some instances read, in a loop, the tile that it adds to: only number 4."""
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tiles = nl.zeros((N, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
    t = nl.load(x[i])
    for _ in nl.affine_range(4):
        nl.exp(tiles[4])
        tiles[i] += t
    nl.store(y[i], t)
    return y


def of_a_part(x):
    """Some instances read what they have not written: those with a number below 8."""
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    i = nl.program_id(0)
    tiles = nl.ndarray((N, nl.par_dim(128), 8), x.dtype, buffer=nl.sbuf)
    for j in nl.static_range(N):
        if j != 8:
            tiles[j] = nl.load(x[j])
    nl.store(y[i], tiles[i])
    return y


@pytest.mark.parametrize("function", [at_its_number, of_a_part], ids=lambda f: f.__name__)
def test_what_some_instances_do_to_their_own_tiles_is_found(function):
    found = []
    for rolled in (True, False):
        with pytest.raises(nkisim.KernelError) as caught:
            Kernel(function)[N].specialize((spec(N, 128, 8),), {}, rolled=rolled)
        found.append(str(caught.value))
    assert re.sub(r"#\d+", "", found[0]) == re.sub(r"#\d+", "", found[1])


def test_instances_may_look_up_their_own_tiles(caplog):
    def kernel(x):
        y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i = nl.program_id(0)
        table = nl.load(x[0])
        nl.store(y[i, :, 0:1], nl.exp(table[:, nl.ds(i, 1)]))
        return y

    with caplog.at_level("INFO"):
        same(Kernel(kernel)[N], spec(N, 128, N))
    assert not caplog.messages
