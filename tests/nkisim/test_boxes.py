"""Views as blocks of few cells, against the elements that they name."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir import boxes as boxes_module
from nkisim.ir.boxes import covered, in_cells
from nkisim.ir.memory import Buffer, Space

SHAPE = (4, 3, 5)
WHOLE = Tensor(Buffer(0, SHAPE, np.dtype(np.float32), Space.PRIVATE_HBM))


@st.composite
def boxes(draw):
    key = []
    for n in SHAPE:
        start = draw(st.integers(0, n - 1))
        key.append(draw(st.sampled_from([start, slice(start, draw(st.integers(start + 1, n)))])))
    return tuple(key)


@st.composite
def tiles(draw):
    """Boxes of one size, that mostly lie on a grid."""
    size = [draw(st.integers(1, n)) for n in SHAPE]
    on_grid = draw(st.booleans())
    origin = [draw(st.sampled_from([0, 0, s // 2])) for s in size]

    def box():
        step = size if on_grid else [1] * len(SHAPE)
        most = [(n - s - o) // d for n, s, o, d in zip(SHAPE, size, origin, step, strict=True)]
        at = [draw(st.integers(0, max(0, n))) for n in most]
        first = [
            min(o + d * k, n - s)
            for o, d, k, n, s in zip(origin, step, at, SHAPE, size, strict=True)
        ]
        return tuple(slice(f, f + s) for f, s in zip(first, size, strict=True))

    return [box() for _ in range(draw(st.integers(1, 8)))]


def part(key):
    view = WHOLE[key]
    return view.form, view.offsets


def elements(key):
    return set(np.arange(np.prod(SHAPE)).reshape(SHAPE)[key].ravel().tolist())


@pytest.mark.parametrize("many", [1, 64])
@given(st.lists(boxes(), min_size=1, max_size=6) | tiles(), st.booleans())
def test_views_share_cells_where_they_share_elements(many, keys, whole):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes_module, "_MANY", many)
        compare(keys, whole)


def compare(keys, whole):
    count, cells = in_cells(SHAPE, map(part, keys), whole)
    assert all(0 <= cell < count for place in cells for cell in place)
    for key, place in zip(keys, cells, strict=True):
        assert len(place) == len(set(place)) <= len(elements(key))
        for other, there in zip(keys, cells, strict=True):
            assert set(place).isdisjoint(there) == elements(key).isdisjoint(elements(other))
            assert (set(place) <= set(there)) == (elements(key) <= elements(other))


@pytest.mark.parametrize("many", [1, 64])
@given(st.lists(boxes(), max_size=10) | tiles())
def test_views_cover_a_tensor(many, keys):
    every = set().union(*map(elements, keys))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes_module, "_MANY", many)
        assert covered(SHAPE, list(map(part, keys))) == (len(every) == np.prod(SHAPE))


@pytest.mark.parametrize("missing", [0, 1])
def test_the_tiles_of_a_grid_cover_it_but_for_those_that_are_missing(missing):
    keys = [(slice(None), slice(i, i + 1), slice(j, j + 1)) for i in range(3) for j in range(5)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(boxes_module, "_MANY", 1)
        assert covered(SHAPE, list(map(part, keys[missing:]))) is (not missing)


@pytest.mark.parametrize("marked", [0, 1 << 22])
def test_a_view_with_gaps_is_no_box_but_boxes(marked, monkeypatch):
    monkeypatch.setattr(boxes_module, "_MARKED", marked)
    halves = [part((slice(k, None, 2),)) for k in (0, 1)]
    assert in_cells(SHAPE, halves) is None
    assert covered(SHAPE, halves)
    assert not covered(SHAPE, [halves[0], halves[0]])
