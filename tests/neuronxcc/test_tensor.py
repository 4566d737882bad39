"""Access patterns against NumPy: any indexing of a tensor names the elements NumPy's would."""

from __future__ import annotations

import math

import neuronxcc.nki.language  # noqa: F401  which has the functions that messages name
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from nkisim.errors import (
    ControlFlowError,
    DTypeError,
    IndexingError,
    KernelError,
    OutOfBoundsError,
    ParameterError,
    ShapeError,
)
from nkisim.frontends.neuronxcc.tensors.ranges import DynSlice, MGrid, arange
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Buffer, Space
from nkisim.ir.views import view_of

mgrid = MGrid()
F32 = np.dtype(np.float32)


def tensor(*shape):
    return Tensor(Buffer(0, shape, F32, Space.SHARED_HBM, name="x"))


def numbers(*shape):
    return np.arange(int(np.prod(shape))).reshape(shape)


def elements(t):
    """Flat positions in the buffer of the elements that `t` names."""
    return view_of(np.arange(t.buffer.size), t)


@st.composite
def basic_keys(draw, shape):
    """(key for a Tensor, the same key for NumPy) of integers, slices, nl.ds, None and `...`."""
    mine, theirs = [], []
    for extent in shape:
        if draw(st.integers(0, 4)) == 0:
            mine.append(None)
            theirs.append(None)
        start = draw(st.integers(0, max(0, extent - 1)))
        stop = draw(st.integers(start, extent))
        kind = draw(st.sampled_from(["int", "slice", "step", "ds", "all", "negative"]))
        if kind == "int" and extent:
            entry = draw(st.sampled_from([start, np.int32(start)]))
            mine.append(entry)
            theirs.append(start)
        elif kind == "ds":
            mine.append(DynSlice(start, stop - start))
            theirs.append(slice(start, stop))
        else:
            entry = {
                "step": slice(start, stop, draw(st.integers(1, 3))),
                "all": slice(None),
                "negative": slice(start - extent if start else None, stop - extent or None),
            }.get(kind, slice(start, stop))
            mine.append(entry)
            theirs.append(entry)
    dropped = draw(st.integers(0, len(mine)))
    if dropped and all(
        k is not None and isinstance(k, slice) and k == slice(None) for k in theirs[-dropped:]
    ):
        tail = [...] if draw(st.booleans()) else []
        mine, theirs = mine[:-dropped] + tail, theirs[:-dropped] + tail
    return tuple(mine), tuple(theirs)


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_slicing_any_number_of_times_is_numpys(data, shape):
    t, a = tensor(*shape), numbers(*shape)
    for _ in range(data.draw(st.integers(1, 3))):
        if not t.ndim:
            break
        mine, theirs = data.draw(basic_keys(t.shape))
        t, a = t[mine], a[theirs]
    np.testing.assert_array_equal(elements(t), a)
    assert t.escape() is None


@st.composite
def advanced_keys(draw, shape):
    """Keys with index tensors, any of them beside integers, new axes and axes left out."""
    rank = draw(st.integers(1, 3))
    block = tuple(draw(st.integers(1, 3)) for _ in range(rank))
    mine, theirs = [], []
    used = False
    for extent in shape[: draw(st.integers(1, len(shape)))]:
        if draw(st.integers(0, 5)) == 0:
            mine.append(None)
            theirs.append(None)
        kind = draw(st.sampled_from(["index", "index", "int"]))
        if kind == "index":
            used = True
            axes = [d for d in range(rank) if draw(st.booleans())] or [0]
            start = draw(st.integers(0, extent - 1))
            i, j = start, np.asarray(start)
            for d in axes:
                key = tuple(slice(None) if e == d else None for e in range(rank))
                step = draw(st.integers(-2, 2))
                i = i + step * arange(block[d])[key]
                j = j + step * np.arange(block[d])[key]
            low = j.min()  # shifted to start at 0 or above, as NumPy would wrap around
            i, j = (i - int(low), j - low) if low < 0 else (i, j)
            assume(j.max() < extent)
            mine.append(i)
            theirs.append(j)
        else:
            entry = draw(st.integers(0, extent - 1))
            mine.append(entry)
            theirs.append(entry)
    assume(used)
    if draw(st.booleans()):
        mine.append(...)
        theirs.append(...)
    return tuple(mine), tuple(theirs)


@given(st.data(), st.lists(st.integers(2, 7), min_size=2, max_size=4))
def test_index_tensors_are_numpys_fancy_indexing(data, shape):
    t, a = tensor(*shape), numbers(*shape)
    mine, theirs = data.draw(advanced_keys(shape))
    if a[theirs].ndim < 2:  # NumPy has 1-D results, tiles do not
        with pytest.raises(IndexingError, match="err_1d_arange_not_supported"):
            t[mine]
        return
    t, a = t[mine], a[theirs]
    np.testing.assert_array_equal(elements(t), a)
    if t.ndim and 0 not in t.shape and data.draw(st.booleans()):  # and indexed again
        mine, theirs = data.draw(basic_keys(t.shape))
        np.testing.assert_array_equal(elements(t[mine]), a[theirs])


@pytest.mark.parametrize("part", [slice(None), slice(0, 4), DynSlice(0, 4)])
def test_slices_and_index_tensors_do_not_mix(part):
    with pytest.raises(IndexingError, match="err_unsupported_mixing"):
        tensor(4, 8)[arange(4)[:, None], part]
    with pytest.raises(IndexingError, match="err_unsupported_mixing"):
        tensor(4, 8)[part, arange(8)[None, :]]


def test_mgrid_with_offsets_is_numpys():
    p, f = mgrid[0:3, 0:4]
    q, g = np.mgrid[0:3, 0:4]
    t, a = tensor(8, 20), numbers(8, 20)
    np.testing.assert_array_equal(elements(t[p + 5, 2 * f + 3]), a[q + 5, 2 * g + 3])
    np.testing.assert_array_equal(elements(t[p + f, f + p]), a[q + g, g + q])


def test_overlapping_windows():
    # The access pattern of pooling: five axes over a two-dimensional image.
    t, a = tensor(2, 6, 8), numbers(2, 6, 8)

    def key(make):
        c, h, w, kh, kw = (
            make(n)[tuple(slice(None) if e == d else None for e in range(5))]
            for d, n in enumerate((2, 2, 3, 3, 2))
        )
        return c, 3 * h + kh, 2 * w + kw

    np.testing.assert_array_equal(elements(t[key(arange)]), a[key(np.arange)])


# -- bounds


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.integers(-4, 8),
    st.integers(-3, 3),
    st.integers(-3, 3),
)
def test_escape_is_true_when_an_index_leaves_its_axis(rows, columns, offset, a, b):
    i, j = arange(2)[:, None], arange(3)[None, :]
    values = offset + a * np.arange(2)[:, None] + b * np.arange(3)[None, :]
    t = tensor(rows, columns)
    out = t[i * 0, offset + a * i + b * j].escape()
    if values.min() < 0 or values.max() >= columns:
        assert out == (1, values.min(), values.max(), columns)
    else:
        assert out is None


@pytest.mark.parametrize(
    ("key", "want"),
    [
        (np.s_[0:5, :], (0, 0, 4, 4)),  # a slice does not clip at the end, as NumPy's would
        (np.s_[:, DynSlice(2, 5)], (1, 2, 6, 6)),
        (np.s_[4, :], (0, 4, 4, 4)),
        (np.s_[-1, :], (0, -1, -1, 4)),  # a negative integer is an address, not "the last"
        (np.s_[:, -9:], (1, -3, 5, 6)),
        (np.s_[:, 9:9], None),  # nothing is reached
        (np.s_[3, 5:6], None),
    ],
)
def test_escape_of_slices(key, want):
    assert tensor(4, 6)[key].escape() == want


def test_leaving_a_part_is_not_leaving_the_tensor():
    # Bounds are those of the declared axes: a view is an access pattern, not an array.
    part = tensor(4, 6)[0:2]
    assert part[arange(4)[:, None], arange(6)[None, :]].escape() is None


# -- errors


@pytest.mark.parametrize(
    ("key", "error", "message"),
    [
        (np.s_[::-1], IndexingError, "slice step -1"),
        (np.s_[0:4:0], IndexingError, "slice step 0"),
        (np.s_[0, 0, 0], IndexingError, "3 indices for 'x'"),
        (np.s_[..., 0, ...], IndexingError, "at most one `...`"),
        (1.5, IndexingError, r"1\.5 \(float\)"),
        ("p", IndexingError, r"'p' \(str\)"),
        ([0, 1], IndexingError, "list"),
        (np.array([0, 1]), IndexingError, "ndarray"),
        (np.s_[0:2.0], IndexingError, "not known integers"),
        (np.s_[arange(3) :], IndexingError, "not known integers"),
        (np.s_[DynSlice(arange(2)[:, None], 3)], IndexingError, "not a range of known integers"),
        (np.s_[arange(3), 0], IndexingError, "1-D nl.arange"),
        (np.s_[arange(3), arange(3)], IndexingError, "1-D nl.arange"),
        (np.s_[arange(3)[:, None], arange(4)[:, None]], ShapeError, "do not broadcast"),
        (arange(4)[:, None] < arange(6)[None, :], IndexingError, "mask that is not a box"),
        (np.s_[DynSlice(0, -2)], IndexingError, "-2"),
    ],
)
def test_wrong_indices_are_diagnosed(key, error, message):
    with pytest.raises(error, match=message) as caught:
        tensor(4, 6)[key]
    assert isinstance(caught.value, KernelError)
    assert caught.value.rule
    assert caught.value.fix


def test_a_tile_of_floats_is_no_index():
    with pytest.raises(DTypeError, match="used as an index"):
        tensor(4, 6)[tensor(4, 1), 0]


def test_a_part_of_a_part_stays_in_it():
    # The elements exist, but they are not the part's.
    with pytest.raises(OutOfBoundsError, match="indexed at 2, but its size is 2"):
        tensor(4, 6)[0:2][2]
    with pytest.raises(OutOfBoundsError, match="indexed at -1"):
        tensor(4, 6)[1:3][-1]
    assert tensor(4, 6)[0:2][9:9].shape == (0, 6)


def test_a_mask_as_an_index_cuts_a_box():
    t, a = tensor(4, 6), numbers(4, 6)
    i, j = arange(4)[:, None], arange(6)[None, :]
    np.testing.assert_array_equal(elements(t[(i >= 1) & (j < 5) & (j > 2)]), a[1:, 3:5])


@pytest.mark.parametrize(
    "use", [lambda t: bool(t), lambda t: t > 1 and t < 3, lambda t: 1 if t else 0]
)
def test_control_flow_on_a_tile_is_refused(use, monkeypatch):
    t = tensor(2, 2)
    # Comparisons are instructions, which need a kernel; here only the test of truth matters.
    monkeypatch.setattr(Tensor, "__gt__", lambda s, o: s)
    with pytest.raises(ControlFlowError, match="tile values are not known"):
        use(t)


# -- other views


@pytest.mark.parametrize(
    ("shape", "to"),
    [((3, 1), (3, 5)), ((1, 4), (2, 4)), ((4,), (3, 4)), ((1, 1), (2, 3)), ((2, 3), (4, 2, 3))],
)
def test_broadcast_to_is_numpys(shape, to):
    t = tensor(*shape).broadcast_to(to)
    np.testing.assert_array_equal(elements(t), np.broadcast_to(numbers(*shape), to))


def test_broadcast_of_a_part():
    t, a = tensor(4, 6)[1:3, 5:6], numbers(4, 6)[1:3, 5:6]
    np.testing.assert_array_equal(elements(t.broadcast_to((2, 7))), np.broadcast_to(a, (2, 7)))


@pytest.mark.parametrize("to", [(3, 5), (2,), (), (4, 4), (4, 6, 1)])
def test_broadcast_to_what_does_not_fit(to):
    with pytest.raises(ShapeError, match="does not broadcast"):
        tensor(4, 6).broadcast_to(to)


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -2, -3])
def test_expand_dims_is_numpys(axis):
    got = elements(tensor(4, 6).expand_dims(axis))
    np.testing.assert_array_equal(got, np.expand_dims(numbers(4, 6), axis))


@pytest.mark.parametrize("axis", [3, -4])
def test_expand_dims_past_the_axes(axis):
    with pytest.raises(ShapeError, match="axis"):
        tensor(4, 6).expand_dims(axis)


@pytest.mark.parametrize("to", [(24,), (2, 12), (3, 2, 4), (-1, 8), (8, -1), (4, 6, 1)])
def test_reshape_is_numpys(to):
    t, a = tensor(4, 6), numbers(4, 6)
    np.testing.assert_array_equal(elements(t.reshape(to)), a.reshape(to))
    np.testing.assert_array_equal(elements(t.reshape(*to)), a.reshape(to))


def test_reshape_takes_its_shape_by_name():
    assert tensor(4, 6).reshape(shape=(2, 12)).shape == tensor(4, 6).reshape(2, 12).shape == (2, 12)


def test_a_reshape_can_be_indexed():
    t, a = tensor(4, 6).reshape(2, 12), numbers(4, 6).reshape(2, 12)
    np.testing.assert_array_equal(elements(t[1:, 3:9:2]), a[1:, 3:9:2])
    i, j = arange(2)[:, None], arange(5)[None, :]
    k, m = np.arange(2)[:, None], np.arange(5)[None, :]
    np.testing.assert_array_equal(elements(t[i, 2 * j + i]), a[k, 2 * m + k])
    assert t[i, 3 * j].escape() == (1, 0, 12, 12)


def test_reshape_takes_numpy_integers():
    assert tensor(4, 6).reshape(np.int64(24)).shape == (24,)


@pytest.mark.parametrize("to", [(5, 5), (-1, 7), (-1, -1), (-4, -6), (0, 24)])
def test_reshape_keeps_the_number_of_elements(to):
    with pytest.raises(ShapeError):
        tensor(4, 6).reshape(to)


@given(st.data(), st.lists(st.integers(1, 6), min_size=1, max_size=3))
def test_reshape_of_a_part_is_numpys_or_is_refused(data, shape):
    t, a = tensor(*shape), numbers(*shape)
    mine, theirs = data.draw(basic_keys(t.shape))
    t, a = t[mine], a[theirs]
    assume(a.size and a.ndim)
    first = data.draw(st.sampled_from([d for d in range(1, a.size + 1) if a.size % d == 0]))
    to = data.draw(st.sampled_from([(a.size,), (first, -1), (first, 1, -1)]))
    if np.shares_memory(a.reshape(to), a):
        np.testing.assert_array_equal(elements(t.reshape(to)), a.reshape(to))
    else:  # NumPy copies when no strides give the new shape; an access pattern cannot
        with pytest.raises(ShapeError, match="no view of shape"):
            t.reshape(to)


def test_one_element_has_any_shape_of_ones():
    t = tensor(4, 6)[2, 3]
    assert t.shape == ()
    np.testing.assert_array_equal(elements(t.reshape(1, 1)), [[15]])
    np.testing.assert_array_equal(elements(t.reshape(-1)), [15])


def test_restrict_is_slicing():
    t = tensor(8, 9)[arange(3)[:, None] + 2, 2 * arange(4)[None, :]]
    a = numbers(8, 9)[np.arange(3)[:, None] + 2, 2 * np.arange(4)[None, :]]
    np.testing.assert_array_equal(elements(t.restrict(((1, 3), (0, 2)))), a[1:3, 0:2])


def test_coordinates_say_where_an_element_is():
    t = tensor(8, 9)[2:6, 1::3]
    assert t.coordinates((1, 2)) == (3, 7)
    assert elements(t)[1, 2] == 3 * 9 + 7


def test_compose_is_indexing_twice():
    outer = tensor(8, 9)[1:7, 2:9:2]
    base = Tensor(Buffer(1, outer.shape, F32, Space.SBUF))
    inner = base[arange(2)[:, None] + 3, 3 - arange(4)[None, :]]
    want = numbers(8, 9)[1:7, 2:9:2][np.arange(2)[:, None] + 3, 3 - np.arange(4)[None, :]]
    np.testing.assert_array_equal(elements(outer.compose(inner)), want)


def test_shape_questions():
    t = tensor(4, 6)
    assert (t.ndim, t.size, t.itemsize, len(t), t.name) == (2, 24, 4, 4, "x")
    assert t.assert_shape((4, 6)) is t
    with pytest.raises(ShapeError, match="does not have the shape"):
        t.assert_shape((6, 4))
    assert t.describe() == "'x' (float32[4, 6] in HBM)"
    assert t[1:2].describe() == "a [1, 6] part of 'x' (float32[4, 6] in HBM)"


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (0,)])
def test_empty_tensors_have_empty_views(shape):
    t = tensor(*shape)
    assert elements(t).shape == shape
    assert t.escape() is None


@pytest.mark.parametrize(
    ("compute", "name"),
    [
        (np.exp, "exp"),
        (np.absolute, "abs"),
        (np.sum, "sum"),
        (np.max, "max"),
        (lambda t: np.maximum(t, t), "maximum"),
        (lambda t: np.multiply(2.0, t), "multiply"),
    ],
)
def test_numpy_has_no_use_for_a_tile(compute, name):
    with pytest.raises(
        ParameterError, match=f"NumPy's .* is given 'x' (?s:.*)nl.{name}$"
    ) as caught:
        compute(tensor(4, 6))
    assert caught.value.location.filename == __file__


@pytest.mark.parametrize("compute", [lambda a, t: a * t, lambda a, t: t - a, np.maximum])
def test_arrays_are_no_operands(compute):
    with pytest.raises(ParameterError, match="are operands of one operation"):
        compute(np.ones((4, 6), np.float32), tensor(4, 6))


@pytest.mark.parametrize("number", [float, int, math.exp])
def test_a_tile_is_no_number(number):
    with pytest.raises(ControlFlowError, match="a number is made of 'x'"):
        number(tensor(1, 1))
