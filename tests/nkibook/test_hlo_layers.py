"""nkibook.hlo.layers: rows, order and positions of a drawn graph."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkibook.hlo.layers import layout


@st.composite
def dags(draw):
    count = draw(st.integers(1, 14))
    widths = draw(st.lists(st.floats(10, 200), min_size=count, max_size=count))
    pairs = [(a, b) for b in range(count) for a in range(b)]
    edges = draw(st.lists(st.sampled_from(pairs), max_size=25)) if pairs else []
    return widths, edges


@settings(deadline=None)
@given(dags())
def test_layout_points_down_and_never_overlaps(graph):
    widths, edges = graph
    placed = layout(widths, edges, gap=24.0)
    for source, target in edges:
        route = placed.routes[source, target]
        rows = [row for _, row in route]
        assert rows == list(range(placed.row[source], placed.row[target] + 1))
        assert len(rows) >= 2
        assert (route[0][0], route[-1][0]) == (placed.x[source], placed.x[target])
    for row in set(placed.row):
        boxes = sorted((placed.x[n], widths[n]) for n in range(len(widths)) if placed.row[n] == row)
        for (x0, w0), (x1, w1) in itertools.pairwise(boxes):
            assert x1 - x0 >= (w0 + w1) / 2 + 24.0 - 1e-6
    assert all(x - w / 2 >= -1e-6 for x, w in zip(placed.x, widths, strict=True))
    assert all(x + w / 2 <= placed.width + 1e-6 for x, w in zip(placed.x, widths, strict=True))


def test_layout_draws_a_tree_without_crossings():
    # A complete binary tree, its leaves numbered so that the first order crosses everywhere.
    edges = [(0, 8), (4, 8), (1, 9), (5, 9), (2, 10), (6, 10), (3, 11), (7, 11)]
    edges += [(8, 12), (9, 12), (10, 13), (11, 13), (12, 14), (13, 14)]
    placed = layout([40.0] * 15, edges)
    for a, b in edges:
        for c, d in edges:
            if placed.row[a] == placed.row[c] and a != c and b != d:
                assert (placed.x[a] < placed.x[c]) == (placed.x[b] < placed.x[d])


def test_layout_places_a_constant_above_its_use():
    edges = [(0, 2), (2, 3), (3, 4), (1, 4)]
    assert layout([10.0] * 5, edges).row[1] == 0
    assert layout([10.0] * 5, edges, sink_near_use=[1]).row == (0, 2, 1, 2, 3)


def test_layout_refuses_a_cycle():
    with pytest.raises(ValueError, match=r"edge \(2, 1\)"):
        layout([1.0] * 3, [(2, 1)])
