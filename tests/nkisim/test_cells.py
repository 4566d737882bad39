"""Views as blocks of few cells, against the elements that they name."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nkisim.checking.cells import covered, in_cells
from nkisim.memory import Buffer, Space
from nkisim.tensor import Tensor

SHAPE = (4, 3, 5)
WHOLE = Tensor(Buffer(0, SHAPE, np.dtype(np.float32), Space.PRIVATE_HBM))


@st.composite
def boxes(draw):
    key = []
    for n in SHAPE:
        start = draw(st.integers(0, n - 1))
        key.append(draw(st.sampled_from([start, slice(start, draw(st.integers(start + 1, n)))])))
    return tuple(key)


def part(key):
    view = WHOLE[key]
    return view.form, view.offsets


def elements(key):
    return set(np.arange(np.prod(SHAPE)).reshape(SHAPE)[key].ravel().tolist())


@given(st.lists(boxes(), min_size=1, max_size=6), st.booleans())
def test_views_share_cells_where_they_share_elements(keys, whole):
    count, cells = in_cells(SHAPE, map(part, keys), whole)
    assert all(0 <= cell < count for place in cells for cell in place)
    for key, place in zip(keys, cells, strict=True):
        assert len(place) == len(set(place)) <= len(elements(key))
        for other, there in zip(keys, cells, strict=True):
            assert set(place).isdisjoint(there) == elements(key).isdisjoint(elements(other))
            assert (set(place) <= set(there)) == (elements(key) <= elements(other))


@given(st.lists(boxes(), max_size=10))
def test_views_cover_a_tensor(keys):
    every = set().union(*map(elements, keys))
    assert covered(SHAPE, list(map(part, keys))) == (len(every) == np.prod(SHAPE))


def test_a_view_with_gaps_is_no_box_but_boxes():
    halves = [part((slice(k, None, 2),)) for k in (0, 1)]
    assert in_cells(SHAPE, halves) is None
    assert covered(SHAPE, halves)
    assert not covered(SHAPE, [halves[0], halves[0]])
