"""Plots of benchmark records that say where each number comes from.

A time measured on this host, one measured on a device, one from a model and one from a paper are
different things. Each kind has its own colour and hatching, or its own line and marker, and the
axis or the legend names it. :func:`timing` compares a few times, :func:`sweep` shows how they grow.
"""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, StrMethodFormatter

from nkibook.bench import Kind, Record, format_seconds
from nkibook.plots.figure import (
    COLORS,
    INK,
    WIDTH,
    Figure,
    Figures,
    plain_number,
    show,
    subplots,
)

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline

_LOOK = {
    Kind.HOST: (COLORS["blue"], ""),
    Kind.DEVICE: (COLORS["green"], ""),
    Kind.CORE: (COLORS["sky"], ".."),
    Kind.MODELLED: (COLORS["orange"], "//"),
    Kind.PUBLISHED: (COLORS["purple"], "\\\\"),
}
# The axis ends at most this many times the slowest median.
_REACH = 2.0
_LINEAR_UP_TO = 50  # beyond this ratio of the medians the shortest bar would not be seen
_SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


_LINES = (  # color, marker: curves of one figure, in turn
    ("blue", "o"),
    ("vermillion", "s"),
    ("green", "^"),
    ("purple", "D"),
    ("orange", "v"),
    ("sky", "P"),
)
_WRITTEN_OUT = 100_000  # from here on labels are round: powers of two would run into each other
_DASHES = ("--", ":", "-.")  # bounds of one figure, in turn


def timing(records: Sequence[Record], *, alt: str | None = None) -> Figure:
    """Draw one bar a record: the median, with a line from the 20th to the 80th percentile.

    A bound is drawn as a broken line across the bars, each in dashes of its own. Small dots are the
    samples. The axis follows the medians: samples far beyond them are counted at the right edge,
    next to the median, instead of being drawn. Where the medians differ by more than a factor of
    50 the axis is logarithmic, and says so. Machine, versions and dates go in the caption; the text
    alternative holds no measured number, so it is the same in every run.

    Args:
        records: what to compare, from top to bottom; at least one that is not a bound.
        alt: text alternative; by default it is written from the labels, kinds and times.

    Raises:
        ValueError: when there is no record to draw as a bar.
    """
    bars = [record for record in records if record.kind is not Kind.BOUND]
    bounds = [record for record in records if record.kind is Kind.BOUND]
    if not bars:
        raise ValueError(
            f"records is {'empty' if not bounds else 'all bounds'}: timing needs at least one "
            "benchmark record that is not a bound."
        )
    medians = [record.median for record in (*bars, *bounds)]
    fastest, slowest = min(medians), max(medians)
    logarithmic = slowest > _LINEAR_UP_TO * fastest
    end = 1.15 * min(max(r.p80 for r in (*bars, *bounds)), _REACH * slowest)
    scale, unit = next((s for s in _SCALES if slowest >= s[0]), _SCALES[-1])

    # Of few bars, the legend of the bounds would leave the axes no height.
    height = max(1.1 + 0.5 * len(bars), 1.3 + 0.3 * len(bars) + 0.4 * len(bounds))
    fig, axes = subplots(size=(WIDTH, height))
    for row, record in enumerate(bars):
        _draw(axes, row, record, scale, end)
    handles: list[Line2D | Patch] = [
        _across(axes, record, scale, dashes)
        for record, dashes in zip(bounds, itertools.cycle(_DASHES), strict=False)
    ]
    axes.set_yticks(range(len(bars)), [record.label for record in bars])
    axes.set_ylim(len(bars) - 0.4, -0.6)
    if logarithmic:
        axes.set_xscale("log")
        unit += ", logarithmic axis"
    axes.set_xlim(fastest / scale / 3 if logarithmic else 0, end / scale)
    axes.grid(axis="x")
    origins = {record.origin: record.kind for record in bars}
    if len(origins) == 1:
        axes.set_xlabel(f"time, {unit} ({bars[0].origin})")
    else:
        axes.set_xlabel(f"time, {unit}")
        looks = {_wrap(origin): _LOOK[kind] for origin, kind in origins.items()}
        handles[:0] = [
            Patch(facecolor=color, hatch=hatch, edgecolor=INK, label=label)
            for label, (color, hatch) in looks.items()
        ]
    if handles:
        fig.legend(handles=handles, loc="outside lower left", ncols=1)
    listed = "; ".join(_said(record) for record in (*bars, *bounds))
    what = "median time" if any(len(record.samples) > 1 for record in bars) else "time"
    return show(fig, alt or f"Bars of {what}: {listed}.", _caption(bars))


def sweep(
    curves: Mapping[str, Mapping[float, Record]], *, xlabel: str, alt: str | None = None
) -> Figure:
    """Draw how times grow with size, on two logarithmic axes.

    Modelled and measured times are joined by a line. Published ones are hollow markers, as each
    was taken on its own; bounds are dashed lines. The legend says the kind of each curve.

    Args:
        curves: for each label, the records by size.
        xlabel: what a size counts, with its unit.
        alt: text alternative; by default it names the curves, their kinds and their ends.

    Raises:
        ValueError: when there is no curve, a curve has no point, a size is not positive, or a
            curve mixes kinds.
    """
    if not curves:
        raise ValueError("curves is empty: sweep needs at least one.")
    scale, unit = 1e-6, "µs"
    kinds = {label: _kind_of(label, points) for label, points in curves.items()}
    only = set(kinds.values()) if len(set(kinds.values())) == 1 else set()

    fig, axes = subplots(size=(WIDTH, 3.2 + 0.22 * len(curves)))
    looks, dashes = itertools.cycle(_LINES), itertools.cycle(_DASHES)
    for label, points in curves.items():
        kind, sizes = kinds[label], sorted(points)
        times = [points[size].median / scale for size in sizes]
        said = label if only else _wrap(f"{label}: {points[sizes[0]].origin}")
        if kind is Kind.BOUND:
            axes.plot(sizes, times, color=INK, linestyle=next(dashes), linewidth=1.3, label=said)
            continue
        color, marker = next(looks)
        style = {"color": COLORS[color], "marker": marker, "markersize": 5, "label": said}
        if kind is Kind.PUBLISHED:
            style |= {"linestyle": "", "markersize": 9, "fillstyle": "none", "markeredgewidth": 2}
        axes.plot(sizes, times, **style)
    axes.set_xscale("log")
    axes.set_yscale("log")
    _label_powers(axes.xaxis, [size for points in curves.values() for size in points])
    _label_powers(axes.yaxis, [r.median / scale for p in curves.values() for r in p.values()])
    axes.grid()
    axes.set_xlabel(f"{xlabel}, logarithmic axis")
    axes.set_ylabel(f"latency, {unit}" + "".join(f" ({kind})" for kind in only))
    fig.legend(loc="outside lower left", ncols=1)
    listed = "; ".join(_ends(label, points) for label, points in curves.items())
    return show(fig, alt or f"Latency against {xlabel}, on logarithmic axes: {listed}.")


def timeline(profile: Timeline, *, alt: str | None = None, **kwargs: Any) -> Figure:
    """Draw what each engine does when, from a modelled profile.

    Args:
        profile: what `nkisim.profile` returned.
        alt: text alternative; by default kernel, time and busy shares.
        **kwargs: passed on to `nkisim.report.figure.draw`: start_us, end_us, axis_us, title, size.
    """
    from nkisim.report.figure import alt_text

    shown = {name: kwargs[name] for name in ("start_us", "end_us") if name in kwargs}
    return show(profile.plot(**kwargs), alt=alt or alt_text(profile, **shown))


def timelines(*profiles: Timeline, titles: Sequence[str | None] | None = None) -> Figures:
    """Draw the timelines of several kernels below one another, on one axis of time.

    Args:
        profiles: what `nkisim.profile` returned.
        titles: of the pictures; by default kernel and latency.
    """
    end = max(profile.body_us for profile in profiles)
    named = zip(profiles, titles or [None] * len(profiles), strict=True)
    return Figures([timeline(profile, axis_us=end, title=title) for profile, title in named])


def _label_powers(axis: Axis, values: Sequence[float]) -> None:
    """Label powers of ten; more where the values span less than two decades: powers of two, or
    of large values 1, 2 and 5 of each decade."""
    axis.set_minor_formatter(NullFormatter())
    if max(values) >= 100 * min(values):
        return
    if max(values) < _WRITTEN_OUT:
        axis.set_major_locator(LogLocator(base=2))
        axis.set_major_formatter(StrMethodFormatter("{x:,g}"))
    else:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def _kind_of(label: str, points: Mapping[float, Record]) -> Kind:
    """The kind of all points of a curve."""
    if not points:
        raise ValueError(f"curve {label!r} has no point: give it a record for each size.")
    kinds = {record.kind for record in points.values()}
    if len(kinds) > 1:
        raise ValueError(
            f"curve {label!r} mixes {', '.join(sorted(kinds))}: draw a curve for each kind."
        )
    if min(points) <= 0:
        raise ValueError(f"curve {label!r} has size {min(points)!r}: a logarithmic axis has none.")
    return kinds.pop()


def _caption(records: Sequence[Record]) -> str:
    """What all records say; labels of which the same is said are listed before it. Then notes."""
    labels: dict[str, list[str]] = {}
    for record in records:
        own = f"{record.label}: "
        text = record.circumstances
        named = text.startswith(own)
        labels.setdefault(text.removeprefix(own), []).extend([record.label] * named)
    said = [
        f"{', '.join(f'“{name}”' for name in dict.fromkeys(names))}: {text}" if names else text
        for text, names in labels.items()
    ]
    return " ".join([*said, *(f"{record.note}." for record in records if record.note)])


def _said(record: Record) -> str:
    """A record for a text alternative: with its time where that is the same in every run."""
    fixed = record.kind in (Kind.MODELLED, Kind.PUBLISHED, Kind.BOUND)
    time = f" {format_seconds(record.median)}" if fixed else ""
    return f"{record.label}{time} ({record.origin})"


def _ends(label: str, points: Mapping[float, Record]) -> str:
    """A curve for a text alternative."""
    ends = dict.fromkeys((min(points), max(points)))
    origin = points[min(points)].origin
    if points[min(points)].kind in (Kind.HOST, Kind.DEVICE, Kind.CORE):
        return f"{label} ({origin})"
    times = " to ".join(f"{format_seconds(points[size].median)} at {size:,}" for size in ends)
    return f"{label} {times} ({origin})"


def _wrap(text: str) -> str:
    return textwrap.fill(text, 60)


def _across(axes: Axes, record: Record, scale: float, dashes: str) -> Line2D:
    """Draw a bound as a line across the bars; return what stands for it in the legend."""
    label = f"{record.label}: {format_seconds(record.median)} ({record.how}, {record.kind})"
    look: dict[str, Any] = {"color": INK, "linestyle": dashes, "linewidth": 1.2}
    axes.axvline(record.median / scale, **look)
    return Line2D([], [], **look, label=_wrap(label))


def _draw(axes: Axes, row: int, record: Record, scale: float, end: float) -> None:
    """Draw one record; `scale` is the unit of the axis and `end` its end, both in seconds."""
    color, hatch = _LOOK[record.kind]
    look: dict[str, Any] = {"color": color, "hatch": hatch, "edgecolor": INK, "linewidth": 0.8}
    axes.barh(row, record.median / scale, height=0.55, **look)
    said = format_seconds(record.median)
    if len(record.samples) > 1:
        near = [sample / scale for sample in record.samples if sample <= end]
        dots: dict[str, Any] = {
            "linestyle": "",
            "marker": ".",
            "markersize": 4,
            "color": INK,
            "alpha": 0.35,
        }
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
