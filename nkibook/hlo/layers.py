"""Layered layout of a directed acyclic graph, after Sugiyama: who stands in which row, and where.

Rows come from the longest path, order within a row from repeated barycentres, positions from a
least-squares fit to the neighbours. Edges that span several rows run through dummy nodes, so they
bend around boxes. Everything is deterministic. Enough for graphs of a few dozen nodes, which is as
many as a page can show; it saves the book a dependency on the graphviz program.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

Edge = tuple[int, int]

_SWEEPS = 24


@dataclasses.dataclass(frozen=True)
class Layout:
    """Row and horizontal centre of each node, and for each edge the points it runs through.

    Rows count from 0 at the top. Positions have the unit of the widths and start at 0. A route is
    a list of (x, row), from the edge's source to its target, both included.
    """

    row: tuple[int, ...]
    x: tuple[float, ...]
    routes: Mapping[Edge, tuple[tuple[float, int], ...]]
    width: float


def layout(
    widths: Sequence[float],
    edges: Sequence[Edge],
    *,
    sink_near_use: Sequence[int] = (),
    gap: float = 24.0,
    dummy_width: float = 12.0,
) -> Layout:
    """Places nodes 0 .. len(widths)-1, drawn as boxes of the given widths, in rows.

    Args:
        widths: width of each box.
        edges: (source, target) pairs with source < target, so that the graph has no cycle.
        sink_near_use: nodes without inputs to place in the row above their first use; others
            without inputs go to the top.
        gap: space between neighbours in a row.
        dummy_width: space that a passing edge takes in a row.

    Raises:
        ValueError: an edge does not go from a lower to a higher node number.
    """
    edges = list(dict.fromkeys(edges))
    for source, target in edges:
        if not 0 <= source < target < len(widths):
            raise ValueError(f"edge ({source}, {target}): nodes must be numbered in order of use")
    rows = _rows(len(widths), edges, set(sink_near_use))
    widths = list(widths)
    chains = _chains(rows, widths, edges, dummy_width)
    links = [link for chain in chains.values() for link in itertools.pairwise(chain)]
    order = _order(rows, links)
    x = _positions(order, links, widths, gap)
    left = min((x[n] - widths[n] / 2 for n in range(len(widths))), default=0.0)
    right = max((x[n] + widths[n] / 2 for n in range(len(widths))), default=0.0)
    x = [value - left for value in x]
    routes = {edge: tuple((x[n], rows[n]) for n in chain) for edge, chain in chains.items()}
    nodes = len(rows) - sum(len(chain) - 2 for chain in chains.values())
    return Layout(tuple(rows[:nodes]), tuple(x[:nodes]), routes, right - left)


def _rows(count: int, edges: Sequence[Edge], sink: set[int]) -> list[int]:
    rows = [0] * count
    for source, target in sorted(edges, key=lambda edge: edge[1]):
        rows[target] = max(rows[target], rows[source] + 1)
    for node in sink:
        uses = [rows[target] for source, target in edges if source == node]
        rows[node] = min(uses, default=1) - 1
    return rows


def _chains(
    rows: list[int], widths: list[float], edges: Sequence[Edge], dummy_width: float
) -> dict[Edge, list[int]]:
    """The nodes each edge runs through; appends the dummies to `rows` and `widths`."""
    chains = {}
    for source, target in edges:
        chain = [source]
        for row in range(rows[source] + 1, rows[target]):
            chain.append(len(rows))
            rows.append(row)
            widths.append(dummy_width)
        chains[source, target] = [*chain, target]
    return chains


def _neighbours(links: Sequence[Edge]) -> tuple[dict[int, list[int]], dict[int, list[int]]]:
    above: dict[int, list[int]] = {}
    below: dict[int, list[int]] = {}
    for upper, lower in links:
        above.setdefault(lower, []).append(upper)
        below.setdefault(upper, []).append(lower)
    return above, below


def _order(rows: Sequence[int], links: Sequence[Edge]) -> list[list[int]]:
    """Nodes of each row from left to right, with few crossings."""
    order: list[list[int]] = [[] for _ in range(max(rows, default=-1) + 1)]
    for node, row in enumerate(rows):
        order[row].append(node)
    above, below = _neighbours(links)
    best, fewest = [list(row) for row in order], _crossings(order, links)
    for sweep in range(_SWEEPS):
        if fewest == 0:
            break
        down = sweep % 2 == 0
        place = {n: i for row in order for i, n in enumerate(row)}
        for nodes in order if down else reversed(order):
            neighbours = above if down else below
            key = {
                n: _mean([place[m] for m in neighbours.get(n, [])], default=place[n]) for n in nodes
            }
            nodes.sort(key=key.__getitem__)
            place.update({n: i for i, n in enumerate(nodes)})
        crossings = _crossings(order, links)
        if crossings < fewest:
            best, fewest = [list(row) for row in order], crossings
    return best


def _crossings(order: Sequence[Sequence[int]], links: Sequence[Edge]) -> int:
    place = {n: (r, i) for r, row in enumerate(order) for i, n in enumerate(row)}
    count = 0
    by_row: dict[int, list[Edge]] = {}
    for upper, lower in links:
        by_row.setdefault(place[upper][0], []).append((place[upper][1], place[lower][1]))
    for pairs in by_row.values():
        for i, (a, b) in enumerate(pairs):
            count += sum((a - c) * (b - d) < 0 for c, d in pairs[i + 1 :])
    return count


def _positions(
    order: Sequence[Sequence[int]],
    links: Sequence[Edge],
    widths: Sequence[float],
    gap: float,
) -> list[float]:
    """Centres that keep the order and the gaps, near to the neighbours' centres."""
    x = [0.0] * len(widths)
    for row in order:
        _fit(x, row, [0.0] * len(row), widths, gap)
    above, below = _neighbours(links)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in order if down else reversed(order):
            wanted = [_mean([x[m] for m in neighbours.get(n, [])], default=x[n]) for n in row]
            _fit(x, row, wanted, widths, gap)
    return x


def _fit(
    x: list[float],
    row: Sequence[int],
    wanted: Sequence[float],
    widths: Sequence[float],
    gap: float,
) -> None:
    """Sets the centres of a row as close to `wanted` (least squares) as the gaps allow.

    Without the offsets that the gaps force, this is isotonic regression, solved by pooling
    adjacent violators (Barlow et al., Statistical Inference under Order Restrictions, 1972).
    """
    offsets = [0.0]
    for left, right in itertools.pairwise(row):
        offsets.append(offsets[-1] + (widths[left] + widths[right]) / 2 + gap)
    blocks: list[tuple[float, int]] = []  # (sum, count), means increasing
    for value, offset in zip(wanted, offsets, strict=False):
        total, count = value - offset, 1
        while blocks and blocks[-1][0] / blocks[-1][1] >= total / count:
            previous = blocks.pop()
            total, count = total + previous[0], count + previous[1]
        blocks.append((total, count))
    fitted = [total / count for total, count in blocks for _ in range(count)]
    for node, value, offset in zip(row, fitted, offsets, strict=False):
        x[node] = value + offset


def _mean(values: Sequence[float], *, default: float) -> float:
    return sum(values) / len(values) if values else default
