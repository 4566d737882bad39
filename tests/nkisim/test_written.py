"""Which elements were written, against a flag an element set by NumPy."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nkisim.checking.written import WrittenElements
from nkisim.memory import Buffer, Space
from nkisim.tensor import Tensor

SHAPE = (6, 8)


@st.composite
def parts(draw):
    """Slices of both axes, the steps mostly one."""
    key = []
    for n in SHAPE:
        start = draw(st.integers(0, n - 1))
        stop = draw(st.integers(start + 1, n))
        key.append(slice(start, stop, draw(st.sampled_from([1, 1, 1, 2]))))
    return tuple(key)


ACTIONS = st.tuples(st.sampled_from(["note", "note", "add", "look", "mask"]), parts())


@given(st.lists(ACTIONS, max_size=12), parts())
def test_what_is_known_does_not_depend_on_when_it_is_looked_at(actions, probe):
    buffer = Buffer(0, SHAPE, np.dtype(np.float32), Space.PRIVATE_HBM)
    whole = Tensor(buffer)
    written, expected = WrittenElements(), np.zeros(SHAPE, bool)
    for action, key in actions:
        part = whole[key]
        if action == "note":
            written.note(part)
            assert written.knows(part)
            expected[key] = True
        elif action == "add":
            written.add(part)
            expected[key] = True
        elif action == "mask":
            where = np.indices(part.shape).sum(0) % 2 == 0
            written.add(part, where=where)
            expected[key] |= where
        else:
            written.of(buffer)
        assert not written.knows(whole[probe]) or expected[probe].all()
        assert written.is_whole(buffer) == expected.all()
    assert written.touched(buffer) == expected.any()
    assert written.missing(buffer) == int((~expected).sum())
    known = written.of(buffer)
    if known is None:
        assert expected.all()
    elif known is False:
        assert not expected.any()
    else:
        np.testing.assert_array_equal(known.reshape(SHAPE), expected)


def test_a_part_is_known_from_the_boxes_around_it():
    """Of a tensor that would take a tebibyte of flags, some tiles, in two parts each."""
    shape = (1 << 13, 128, 1 << 20)
    buffer = Buffer(0, shape, np.dtype(np.float32), Space.SBUF, par_axis=1)
    whole, written = Tensor(buffer), WrittenElements()
    half = 1 << 19
    for block in (0, 1, 3):
        for start in (0, half):
            written.note(whole[block, :, start : start + half])
    written.note(whole[5:40])
    assert written.knows(whole[1])
    assert written.knows(whole[0:2])
    assert written.knows(whole[3, 7:9, half - 5 : half + 5])
    assert written.knows(whole[20:33, 0:64])
    assert not written.is_whole(buffer)


def test_tiles_that_cover_a_tensor_need_no_flags():
    """What is noted of a large tensor takes no memory of the tensor's size."""
    shape = (1 << 20, 1 << 20)  # a flag an element would be a tebibyte
    buffer = Buffer(0, shape, np.dtype(np.float32), Space.SHARED_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    for i in range(4):
        for j in range(4):
            rows, columns = (slice(k << 18, k + 1 << 18) for k in (i, j))
            written.note(whole[rows, columns])
    assert written.of(buffer) is None


def test_views_with_gaps_are_taken_apart():
    """The rows of one view are the gaps between those of another one."""
    half = 1 << 17
    buffer = Buffer(0, (8 * half, 1 << 20), np.dtype(np.float32), Space.SHARED_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    for start in (0, half):
        rows = whole.view_as((4, half, 1 << 20), (start, 0), ((2 * half, 1, 0), (0, 0, 1)))
        written.note(rows)
    assert written.of(buffer) is None


def test_flags_are_kept_in_place():
    """Marking a part never copies the flags of the whole."""
    buffer = Buffer(0, SHAPE, np.dtype(np.float32), Space.PRIVATE_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    written.add(whole[0:2])
    flags = written.of(buffer)
    written.add(whole[2:4])
    assert written.of(buffer) is flags
    written.add(whole[4:6])
    assert written.of(buffer) is None


def test_tiles_written_in_other_parts_are_not_alike():
    """Of two tiles of one shape, with as many parts, one is written everywhere."""
    written = WrittenElements()
    for number, starts in enumerate([(0, 3), (0, 0), (3, 0)]):
        tile = Tensor(Buffer(number, SHAPE, np.dtype(np.float32), Space.SBUF))
        for start, shift in zip(starts, (0, number == 1), strict=True):
            written.note(tile[start : start + 3, 0 : 8 - shift])
        assert written.missing(tile.buffer) == (24 if number == 1 else 0)
