"""Index tensors and masks against NumPy arrays built the same way."""

from __future__ import annotations

import operator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import ControlFlowError, IndexingError, ShapeError
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.ranges import MGrid, arange
from nkisim.ir.restriction import boxes

mgrid = MGrid()
SHAPE = (3, 4, 5)


def axis_pair(axis, start, size):
    """An index along one axis of SHAPE-like indices, and the NumPy array of its values."""
    key = tuple(slice(None) if d == axis else None for d in range(3))
    return arange(start, start + size)[key], np.arange(start, start + size)[key]


@st.composite
def expressions(draw, sizes=SHAPE, depth=4):
    """(index, array): the same affine expression over index tensors and over NumPy arrays."""
    axis = draw(st.integers(0, 2))
    mine, theirs = axis_pair(axis, draw(st.integers(-3, 3)), sizes[axis])
    for _ in range(draw(st.integers(0, depth))):
        kind = draw(st.sampled_from(["add", "sub", "radd", "rsub", "mul", "rmul", "neg", "join"]))
        number = draw(st.integers(-4, 4))
        number = draw(st.sampled_from([number, np.int32(number), np.int64(number)]))
        plain = int(number)
        if kind == "neg":
            mine, theirs = -mine, -theirs
        elif kind == "join":
            other = draw(st.integers(0, 2))
            a, b = axis_pair(other, draw(st.integers(-3, 3)), sizes[other])
            if draw(st.booleans()):
                mine, theirs = mine + a, theirs + b
            else:
                mine, theirs = a - mine, b - theirs
        elif kind == "add":
            mine, theirs = mine + number, theirs + plain
        elif kind == "sub":
            mine, theirs = mine - number, theirs - plain
        elif kind == "radd":
            mine, theirs = number + mine, plain + theirs
        elif kind == "rsub":
            mine, theirs = number - mine, plain - theirs
        elif kind == "mul":
            mine, theirs = mine * number, theirs * plain
        else:
            mine, theirs = number * mine, plain * theirs
    return mine, theirs


@given(expressions())
def test_affine_expressions_have_numpy_values(pair):
    mine, theirs = pair
    assert isinstance(mine, IndexTensor)
    assert mine.shape == theirs.shape
    np.testing.assert_array_equal(mine.values(), theirs)


@given(expressions(sizes=(1, 4, 1)))
def test_axes_of_size_one_do_not_grow(pair):
    # Broadcasting an axis of size 1 must repeat its value, whatever it was multiplied with.
    mine, theirs = pair
    wide = np.broadcast_shapes(theirs.shape, (2, 4, 3))
    np.testing.assert_array_equal(mine.expand(wide).values(), np.broadcast_to(theirs, wide))


@pytest.mark.parametrize(
    "key",
    [
        np.s_[0:3, 0:4],
        np.s_[2:5, 1:2],
        np.s_[0:6:2, 1:8:3],
        np.s_[0:4],
        np.s_[:3, 0:2, 5:9],
    ],
)
def test_mgrid_is_numpys(key):
    mine, theirs = mgrid[key], np.mgrid[key]
    if not isinstance(key, tuple):
        theirs = theirs[None]
    assert len(mine) == len(theirs)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(a.values(), b)


def test_mgrid_of_an_empty_range_is_empty():
    assert [i.values().shape for i in mgrid[5:2, 0:3]] == [(0, 3), (0, 3)]


def test_mgrid_axes_have_names():
    grid = mgrid[0:2, 0:3, 0:4]
    assert grid.p is grid[0]
    assert grid.x is grid[1]
    assert grid.y is grid[2]
    with pytest.raises(AttributeError, match="no axis 'z'"):
        _ = grid.z


@pytest.mark.parametrize("key", [np.s_[:], np.s_[0:4:0], np.s_[0:2.5], 3, np.s_[0 : arange(3)]])
def test_mgrid_refuses_what_is_not_a_range_of_integers(key):
    with pytest.raises(IndexingError, match=r"range of known integers|has a step"):
        mgrid[key]


@pytest.mark.parametrize("args", [(), (1, 2, 3), (2.0,), ("4",), (None,), (arange(3),)])
def test_arange_refuses_what_is_not_a_range_of_integers(args):
    with pytest.raises(IndexingError, match=r"range of known integers|has a step"):
        arange(*args)


def test_arange_of_an_empty_range_is_empty():
    assert arange(5, 2).values().shape == (0,)


@pytest.mark.parametrize(
    "key", [np.s_[:, None], np.s_[None, :], np.s_[None, :, None], np.s_[..., None], np.s_[None]]
)
def test_new_axes_are_numpys(key):
    np.testing.assert_array_equal(arange(2, 7)[key].values(), np.arange(2, 7)[key])


@pytest.mark.parametrize(
    "key", [0, np.s_[1:3], np.s_[::2], np.s_[:, :], arange(3), np.s_[arange(3) :], np.s_[..., 0]]
)
def test_an_index_takes_nothing_but_new_axes(key):
    with pytest.raises(IndexingError, match="only take new axes"):
        arange(5)[key]


IP, JF = arange(4)[:, None], arange(5)[None, :]


@pytest.mark.parametrize(
    "make",
    [
        lambda: IP * JF,
        lambda: IP * 2.5,
        lambda: 1.5 * IP,
        lambda: IP // 2,
        lambda: IP % 2,
        lambda: IP / 2,
        lambda: 7 // IP,
        lambda: 7 % IP,
        lambda: 1 / IP,
        lambda: IP**2,
        lambda: 2**IP,
    ],
)
def test_what_is_not_affine_is_refused(make):
    with pytest.raises(IndexingError, match="not an affine expression"):
        make()


def test_clashing_index_shapes():
    with pytest.raises(ShapeError, match="do not broadcast"):
        arange(4)[:, None] + arange(5)[:, None]


def test_an_index_is_not_memory():
    i = arange(4)
    with pytest.raises(IndexingError, match="cannot be assigned to"):
        i[:] = 3


@pytest.mark.parametrize(
    "use",
    [
        lambda: bool(IP),
        lambda: list(IP),
        lambda: bool(IP < 3),
        lambda: (IP < 3) and (JF < 2),
        lambda: 0 < IP < 3,
        lambda: not (IP < 3),
        lambda: max(IP, JF),
    ],
)
def test_control_flow_on_an_index_is_refused(use):
    with pytest.raises(ControlFlowError):
        use()


@pytest.mark.parametrize("use", [lambda: IP < 2.5, lambda: IP == "3", lambda: IP >= None])
def test_an_index_compares_with_integers_only(use):
    with pytest.raises((TypeError, IndexingError)):
        use()


@pytest.mark.parametrize("use", [lambda: (IP < 3) | (JF < 2), lambda: ~(IP < 3), lambda: IP != 2])
def test_masks_are_conjunctions(use):
    with pytest.raises(IndexingError, match="mask"):
        use()


# -- masks

COMPARE = [operator.lt, operator.le, operator.gt, operator.ge, operator.eq]


@st.composite
def conditions(draw):
    """(mask, boolean array) of one comparison, the number on either side."""
    mine, theirs = draw(expressions(depth=3))
    compare = draw(st.sampled_from(COMPARE))
    form = draw(st.sampled_from(["right", "left", "both"]))
    if form == "both":
        other, array = draw(expressions(depth=2))
        return compare(mine, other), compare(theirs, array)
    number = draw(st.integers(-12, 12))
    if form == "left":
        return compare(number, mine), compare(number, theirs)
    return compare(mine, np.int64(number)), compare(theirs, number)


def dense(mask, shape):
    """The elements of a tile of `shape` that are left, as a boolean array."""
    box, inner = mask.restrict(shape)
    out = np.zeros(shape, bool)
    out[tuple(slice(lo, hi) for lo, hi in box)] = True if inner is None else inner
    return out


@given(st.lists(conditions(), min_size=1, max_size=4))
def test_masks_select_what_the_conditions_say(parts):
    mask, want = parts[0]
    for other, array in parts[1:]:
        mask, want = mask & other, want & array
    got = dense(mask, SHAPE)
    np.testing.assert_array_equal(got, np.broadcast_to(want, SHAPE))
    left = mask.restrict(SHAPE)
    assert left.empty == (not got.any())
    assert all(0 <= lo <= hi for lo, hi in left.box)


def test_a_condition_on_one_axis_is_a_box():
    # What shrinks to a box costs nothing: no boolean array is kept.
    left = ((IP < 3) & (JF >= 2) & (IP >= 1)).restrict((4, 5))
    assert left.box == ((1, 3), (2, 5))
    assert left.dense is None


def test_a_triangle_is_dense_over_its_box():
    left = ((JF <= IP) & (IP >= 2)).restrict((4, 5))
    assert left.box == ((2, 4), (0, 5))
    np.testing.assert_array_equal(left.dense, np.tri(4, 5, dtype=bool)[2:])


def test_a_coupled_condition_that_is_true_everywhere_needs_no_array():
    assert (IP + JF >= 0).restrict((4, 5)).dense is None


@pytest.mark.parametrize("flag", [True, False, np.True_, np.False_])
def test_a_mask_joins_with_a_flag(flag):
    want = np.broadcast_to((np.arange(4)[:, None] < 2) & flag, (4, 5))
    np.testing.assert_array_equal(dense((IP < 2) & flag, (4, 5)), want)
    np.testing.assert_array_equal(dense(flag & (IP < 2), (4, 5)), want)


@given(st.tuples(st.integers(1, 4), st.integers(1, 5), st.integers(1, 3)), st.data())
def test_boxes_cover_the_true_elements_once(shape, data):
    bits = data.draw(st.lists(st.booleans(), min_size=60, max_size=60))
    true = np.array(bits[: int(np.prod(shape))]).reshape(shape)
    count = np.zeros(shape, int)
    for box in boxes(true):
        count[tuple(slice(lo, hi) for lo, hi in box)] += 1
    np.testing.assert_array_equal(count, true)


def test_a_vector_cut_inside_a_row_is_two_boxes():
    assert list(boxes(np.arange(12).reshape(3, 4) < 10)) == [
        ((0, 2), (0, 4)),
        ((2, 3), (0, 2)),
    ]


def test_a_mask_of_another_tile_is_refused():
    with pytest.raises(ShapeError, match="does not fit a tile"):
        (IP < 3).restrict((7, 5))
    with pytest.raises(ShapeError, match="does not fit a tile"):
        (IP < 3).restrict((4,))


def test_messages_show_the_expression():
    assert repr(2 * IP - JF + 3) == "index[4, 5](2*i0 + -1*i1 + 3)"
    assert isinstance(IP < 3, Mask)
    assert repr((IP < 3) & (JF >= 1)) == (
        "(index[4, 1](-1*i0 + 2) >= 0) & (index[1, 5](1*i1 + -1) >= 0)"
    )
