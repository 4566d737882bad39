"""Plots of benchmark records that say where each number comes from.

A time measured on this host, one measured on a device, one from a model and one from a paper are
different things. Each kind has its own colour and hatching, and the axis or the legend names it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.patches import Patch

from kernels.bench import Kind, Record
from kernels.plots.figure import COLORS, INK, WIDTH, Figure, show, subplots

_LOOK = {
    Kind.HOST: (COLORS["blue"], ""),
    Kind.DEVICE: (COLORS["green"], ""),
    Kind.MODELLED: (COLORS["orange"], "//"),
    Kind.PUBLISHED: (COLORS["purple"], "\\\\"),
}
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


def timing(records: Sequence[Record], *, alt: str | None = None) -> Figure:
    """Draw one bar a record: the median, with a line from the 20th to the 80th percentile.

    Small dots are the samples. Machine, versions and dates go in the caption; the text
    alternative names the records and their kinds only, so it is the same in every run.

    Args:
        records: what to compare, from top to bottom; at least one.
        alt: text alternative; by default it is written from the labels and kinds.

    Raises:
        ValueError: when there is no record.
    """
    records = list(records)
    if not records:
        raise ValueError("records is empty: timing needs at least one benchmark record.")
    origins = {record.origin: record.kind for record in records}
    largest = max(record.p80 for record in records)
    scale, unit = next((s for s in _SCALES if largest >= s[0]), _SCALES[-1])

    fig, axes = subplots(size=(WIDTH, 1.1 + 0.5 * len(records)))
    for row, record in enumerate(records):
        color, hatch = _LOOK[record.kind]
        look = {"color": color, "hatch": hatch, "edgecolor": INK, "linewidth": 0.8}
        axes.barh(row, record.median / scale, height=0.55, **look)
        if len(record.samples) > 1:
            axes.plot(
                [sample / scale for sample in record.samples],
                [row] * len(record.samples),
                linestyle="",
                marker=".",
                markersize=4,
                color=INK,
                alpha=0.35,
            )
            axes.plot([record.p20 / scale, record.p80 / scale], [row, row], color=INK)
    axes.set_yticks(range(len(records)), [record.label for record in records])
    axes.set_ylim(len(records) - 0.4, -0.6)
    axes.set_xlim(left=0, right=1.25 * largest / scale)
    axes.grid(axis="x")
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
