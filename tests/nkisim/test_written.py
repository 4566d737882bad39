"""Which elements were written, against a flag an element set by NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.checking.written import WrittenElements
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.memory import Buffer, Space

SHAPE = (6, 8)
TILES = (3, 4, 2, 5)  # with two block axes


@st.composite
def parts(draw, shape):
    """Slices of all axes, the steps mostly one."""
    key = []
    for n in shape:
        start = draw(st.integers(0, n - 1))
        stop = draw(st.sampled_from([start + 1, n]) | st.integers(start + 1, n))
        key.append(slice(start, stop, draw(st.sampled_from([1, 1, 1, 2]))))
    return tuple(key)


@st.composite
def histories(draw):
    """A tensor, what is done to it, and parts of it to look at."""
    shape, par_axis = draw(st.sampled_from([(SHAPE, 0), (TILES, 2)]))
    space = Space.SBUF if par_axis else Space.PRIVATE_HBM
    buffer = Buffer(0, shape, np.dtype(np.float32), space, par_axis=par_axis)
    kinds = st.sampled_from(["note", "note", "note", "note", "add", "look", "mask", "mix", "none"])
    actions = draw(st.lists(st.tuples(kinds, parts(shape)), max_size=12))
    if draw(st.booleans()):  # what is known to be written everywhere is kept in another way
        actions.insert(0, ("note", tuple(slice(0, n) for n in shape)))
    return buffer, actions, draw(st.lists(parts(shape), min_size=1, max_size=3))


@given(histories())
def test_what_is_known_does_not_depend_on_when_it_is_looked_at(history):
    buffer, actions, probes = history
    whole = Tensor(buffer)
    written, expected = WrittenElements(), np.zeros(buffer.shape, bool)
    for action, key in actions:
        part = whole[key]
        if action == "note":
            written.note(part)
            assert written.knows(part)
            assert written.touches(part)
            expected[key] = True
        elif action == "add":
            written.add(part)
            expected[key] = True
        elif action == "mask":
            where = np.indices(part.shape).sum(0) % 2 == 0
            written.add(part, where=where)
            expected[key] |= where
        elif action == "mix":
            fresh = np.indices(part.shape).sum(0) % 3 > 0
            written.add(part, fresh)
            expected[key] = fresh
        elif action == "none":
            written.add(part, False)
            expected[key] = False
        else:
            written.part(whole)
        for probe in probes:
            assert not written.knows(whole[probe]) or expected[probe].all()
    for probe in probes:
        assert written.touches(whole[probe]) == expected[probe].any()
        of_each = np.broadcast_to(written.part(whole[probe]), expected[probe].shape)
        np.testing.assert_array_equal(of_each, expected[probe])
    assert written.is_whole(buffer) == expected.all()
    assert written.touched(buffer) or not expected.any()
    assert written.missing(buffer) == int((~expected).sum())


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
    assert written.touches(whole[3:7])
    assert not written.is_whole(buffer)


def test_parts_of_several_tiles_are_found_by_the_axes_they_go_along():
    """Of tensors with two block axes, each row of tiles was written at once, or each column."""
    dtype, shape = np.dtype(np.float32), (40, 30, 128, 1 << 20)
    for along in (0, 1):
        buffer = Buffer(along, shape, dtype, Space.SBUF, par_axis=2)
        whole, written = Tensor(buffer), WrittenElements()
        for at in range(0, shape[1 - along], 2):
            written.note(whole[:, at] if along == 0 else whole[at])
        for at in (0, 7, 24):
            tile = whole[11, at] if along == 0 else whole[at, 11]
            assert written.knows(tile) == (at % 2 == 0)


def test_tiles_that_cover_a_tensor_need_no_flags():
    """What is noted of a large tensor takes no memory of the tensor's size."""
    shape = (1 << 20, 1 << 20)  # a flag an element would be a tebibyte
    buffer = Buffer(0, shape, np.dtype(np.float32), Space.SHARED_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    for i in range(4):
        for j in range(4):
            rows, columns = (slice(k << 18, k + 1 << 18) for k in (i, j))
            written.note(whole[rows, columns])
    assert written.is_whole(buffer)


def test_views_with_gaps_are_taken_apart():
    """The rows of one view are the gaps between those of another one."""
    half = 1 << 17
    buffer = Buffer(0, (8 * half, 1 << 20), np.dtype(np.float32), Space.SHARED_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    for start in (0, half):
        rows = whole.view_as((4, half, 1 << 20), (start, 0), ((2 * half, 1, 0), (0, 0, 1)))
        written.note(rows)
    assert written.is_whole(buffer)


def test_flags_are_kept_in_place():
    """Marking a part never copies the flags of the whole."""
    buffer = Buffer(0, SHAPE, np.dtype(np.float32), Space.PRIVATE_HBM)
    whole, written = Tensor(buffer), WrittenElements()
    written.add(whole[0:2])
    flags = written.part(whole)
    written.add(whole[2:4])
    assert np.shares_memory(written.part(whole), flags)
    written.add(whole[4:6])
    assert written.is_whole(buffer)


@pytest.mark.parametrize("is_whole", [False, True])
def test_elements_may_be_seen_as_wider_or_narrower_ones(is_whole):
    """A wide element is written when all that it is made of is; a narrow one with what it is part
    of, and that one with the first of its parts."""
    for dtype, other in ((np.int8, np.float32), (np.float32, np.int8)):
        buffer = Buffer(0, (4, 16), np.dtype(dtype), Space.SBUF)
        whole, written, expected = Tensor(buffer), WrittenElements(), np.full((4, 64), is_whole)
        if is_whole:
            written.add_all(buffer)
        seen = whole.view(other)
        width, size = seen.itemsize, whole.itemsize
        nbytes = 16 * size
        expected = expected[:, :nbytes]
        written.add(whole[0:2, 0:8], False)
        expected[0:2, : 8 * size] = False
        written.add(seen[1:3, 0:3])
        expected[1:3, : 3 * width] = True
        as_whole = expected.reshape(4, 16, size).any(-1)
        np.testing.assert_array_equal(written.part(whole), as_whole)
        as_bytes = as_whole.repeat(size, axis=1)
        as_seen = as_bytes.reshape(4, nbytes // width, width).all(-1)
        np.testing.assert_array_equal(written.part(seen), as_seen)
        assert written.missing(buffer) == int((~as_whole).sum())


def test_tiles_written_in_other_parts_are_not_alike():
    """Of two tiles of one shape, with as many parts, one is written everywhere."""
    written = WrittenElements()
    for number, starts in enumerate([(0, 3), (0, 0), (3, 0)]):
        tile = Tensor(Buffer(number, SHAPE, np.dtype(np.float32), Space.SBUF))
        for start, shift in zip(starts, (0, number == 1), strict=True):
            written.note(tile[start : start + 3, 0 : 8 - shift])
        assert written.missing(tile.buffer) == (24 if number == 1 else 0)
