"""Pictures of timelines. matplotlib is imported when one is drawn, not before."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from nkisim.cost.timeline import Interval, Timeline

# Okabe and Ito's palette: colours that the common forms of colour blindness keep apart.
_COLORS = {
    "Tensor": "#009e73",
    "Vector": "#0072b2",
    "Scalar": "#e69f00",
    "GpSimd": "#cc79a7",
    "load": "#56b4e9",
    "store": "#d55e00",
}
_MOST = 4000  # rectangles a track; beyond that a pixel holds several
_LEAST = 0.005  # of the time shown: an engine that is busy for less would be an empty row


def draw(
    timeline: Timeline,
    *,
    start_us: float = 0.0,
    end_us: float | None = None,
    title: str | None = None,
    size: tuple[float, float] = (5.6, 2.9),
) -> Figure:
    """The engine timeline: a row an engine, one for loads and one for stores.

    An engine that is busy for less than half a percent of the time shown has none.

    Args:
        timeline: what to draw.
        start_us, end_us: the part to show, in microseconds of the body.
        title: above the picture; kernel and latency when None.
        size: inches.

    Returns:
        A figure whose backgrounds are transparent. Ink is black; `kernels.plots.show` turns it
        into the colour of the page's text.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    end = timeline.body_us if end_us is None else end_us
    tracks = _tracks(timeline, start_us, end)
    figure = Figure(figsize=size, layout="constrained")
    figure.patch.set_alpha(0)
    axes = figure.subplots()
    axes.patch.set_alpha(0)
    for row, (name, bars) in enumerate(tracks):
        color = _COLORS.get(name, "#999999")
        axes.broken_barh(bars, (row - 0.4, 0.8), facecolor=color, linewidth=0)
    uses = timeline.engines
    labels = []
    for name, _ in tracks:
        use = uses.get(name)
        labels.append(f"{name} {use.utilisation:.0%}" if use else f"DMA {name}")
    axes.set_yticks(range(len(tracks)), labels)
    axes.invert_yaxis()
    axes.set_xlim(start_us, end)
    axes.set_xlabel("time from the first instruction (µs)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if title is None:
        title = f"{timeline.kernel}: {timeline.latency_us:.1f} µs with launch"
    axes.set_title(f"{title}\n{timeline.kind}", fontsize=10, loc="left")
    handles = [Patch(facecolor=_COLORS.get(n, "#999999"), label=n) for n, _ in tracks]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=6,
        frameon=False,
        fontsize=8,
        handlelength=1,
        columnspacing=1,
    )
    return figure


def alt_text(timeline: Timeline) -> str:
    """What the picture shows, for readers who cannot see it."""
    uses = [u for u in timeline.engines.values() if u.utilisation >= _LEAST and u.name != "Sync"]
    parts = ", ".join(f"{u.name} {u.utilisation:.0%}" for u in uses)
    return (
        f"Modelled engine timeline of {timeline.kernel}, {timeline.body_us:.1f} microseconds. "
        f"Busy share of each resource: {parts}."
    )


def _tracks(
    timeline: Timeline, start: float, end: float
) -> list[tuple[str, list[tuple[float, float]]]]:
    rows: dict[str, list[Interval]] = defaultdict(list)
    for i in timeline.intervals:
        if i.end_us < start or i.start_us > end or i.track == "Sync":
            continue
        if i.track.startswith("DMA"):
            # The queues of one direction share a row.
            rows["store" if i.label in ("store", "spill") else "load"].append(i)
        else:
            rows[i.track].append(i)
    shown = end - start
    bars = {name: _merged(rows[name], shown / _MOST) for name in _COLORS if name in rows}
    return [
        (name, parts)
        for name, parts in bars.items()
        if name in ("load", "store") or sum(length for _, length in parts) >= _LEAST * shown
    ]


def _merged(intervals: list[Interval], gap: float) -> list[tuple[float, float]]:
    """(start, length) of what overlaps or lies closer than can be seen, joined."""
    bars: list[list[float]] = []
    for i in sorted(intervals, key=lambda i: i.start_us):
        if bars and i.start_us - bars[-1][1] <= gap:
            bars[-1][1] = max(bars[-1][1], i.end_us)
        else:
            bars.append([i.start_us, i.end_us])
    return [(a, b - a) for a, b in bars]
