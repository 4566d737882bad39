"""Plots of benchmark records that say where each number comes from.

A time measured on this host, one measured on a device, one from a model and one from a paper are
different things. Each kind has its own colour and hatching, and the axis or the legend names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from kernels.bench import Kind, Record, format_seconds
from kernels.plots.figure import COLORS, INK, WIDTH, Figure, show, subplots

_LOOK = {
    Kind.HOST: (COLORS["blue"], ""),
    Kind.DEVICE: (COLORS["green"], ""),
    Kind.MODELLED: (COLORS["orange"], "//"),
    Kind.PUBLISHED: (COLORS["purple"], "\\\\"),
}
# The axis ends at most this many times the slowest median.
_REACH = 2.0
_LINEAR_UP_TO = 50  # beyond this ratio of the medians the shortest bar would not be seen
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def timing(records: Sequence[Record], *, alt: str | None = None) -> Figure:
    """Draw one bar a record: the median, with a line from the 20th to the 80th percentile.

    Small dots are the samples. The axis follows the medians: samples far beyond them are counted
    at the right edge, next to the median, instead of being drawn. Where the medians differ by more
    than a factor of 50 the axis is logarithmic, and says so. Machine, versions and dates go
    in the caption; the text alternative names the records and their kinds only, so it is the same
    in every run.

    Args:
        records: what to compare, from top to bottom; at least one.
        alt: text alternative; by default it is written from the labels and kinds.

    Raises:
        ValueError: when there is no record.
    """
    records = list(records)
    if not records:
        raise ValueError("records is empty: timing needs at least one benchmark record.")
    medians = [record.median for record in records]
    fastest, slowest = min(medians), max(medians)
    logarithmic = slowest > _LINEAR_UP_TO * fastest
    end = 1.15 * min(max(record.p80 for record in records), _REACH * slowest)
    scale, unit = next((s for s in _SCALES if slowest >= s[0]), _SCALES[-1])

    fig, axes = subplots(size=(WIDTH, 1.1 + 0.5 * len(records)))
    for row, record in enumerate(records):
        _draw(axes, row, record, scale, end)
    axes.set_yticks(range(len(records)), [record.label for record in records])
    axes.set_ylim(len(records) - 0.4, -0.6)
    if logarithmic:
        axes.set_xscale("log")
        unit += ", logarithmic axis"
    axes.set_xlim(fastest / scale / 3 if logarithmic else 0, end / scale)
    axes.grid(axis="x")
    origins = {record.origin: record.kind for record in records}
    if len(origins) == 1:
        axes.set_xlabel(f"time, {unit} ({records[0].origin})")
    else:
        axes.set_xlabel(f"time, {unit}")
        handles = []
        for origin, kind in origins.items():
            color, hatch = _LOOK[kind]
            handles.append(Patch(facecolor=color, hatch=hatch, edgecolor=INK, label=origin))
        fig.legend(handles=handles, loc="outside lower left", ncols=1)
    listed = "; ".join(f"{record.label} ({record.origin})" for record in records)
    captions = dict.fromkeys(record.caption for record in records)
    return show(fig, alt or f"Bars of median time: {listed}.", " ".join(captions))


def _draw(axes: Axes, row: int, record: Record, scale: float, end: float) -> None:
    """Draw one record; `scale` is the unit of the axis and `end` its end, both in seconds."""
    color, hatch = _LOOK[record.kind]
    look = {"color": color, "hatch": hatch, "edgecolor": INK, "linewidth": 0.8}
    axes.barh(row, record.median / scale, height=0.55, **look)
    said = format_seconds(record.median)
    if len(record.samples) > 1:
        near = [sample / scale for sample in record.samples if sample <= end]
        dots = {"linestyle": "", "marker": ".", "markersize": 4, "color": INK, "alpha": 0.35}
        axes.plot(near, [row] * len(near), **dots)
        axes.plot([record.p20 / scale, min(record.p80, end) / scale], [row, row], color=INK)
        beyond = len(record.samples) - len(near)
        said += f"\n{beyond} beyond" if beyond else ""
    axes.annotate(
        said,
        (1, row),
        xycoords=axes.get_yaxis_transform(),
        xytext=(6, 0),
        textcoords="offset points",
        va="center",
        fontsize=10,
    )
