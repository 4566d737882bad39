"""The figure and the tables of the validation page."""

from __future__ import annotations

import html
from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator

from nkibook import plots
from nkibook.plots.figure import COLORS, INK, Figure
from nkibook.validation.pairs import Comparison, Gain, Pick, worth
from nkibook.validation.point import Point

Row = tuple[Point, float]

_MARKS = {
    "matmul": ("o", COLORS["green"]),
    "Mamba": ("s", COLORS["blue"]),
    "attention": ("X", INK),
    "normalisation": ("D", COLORS["orange"]),
    "elementwise": ("^", COLORS["vermillion"]),
    "convolution": ("P", COLORS["purple"]),
    "DMA": ("v", COLORS["sky"]),
}


def scatter(rows: Iterable[Row], instances: str, alt: str, names: bool = True) -> Figure:
    """Modelled against published latency, both in microseconds on log axes.

    Args:
        rows: points and their modelled latencies.
        instances: what the published ones were measured on.
        alt: of the picture.
        names: whether points far from the line are named.
    """
    rows = list(rows)
    fig, axes = plots.subplots(size=(5.6, 5.2))
    ends = np.array([1.0, 1e5])
    axes.fill_between(ends, ends * 0.65, ends * 1.35, color=COLORS["yellow"], alpha=0.25, lw=0)
    axes.plot(ends, ends, color="black", lw=1)
    for family, (mark, color) in _MARKS.items():
        mine = [(p.published_us, m, p.name) for p, m in rows if p.family == family]
        if mine:
            x, y, _ = zip(*mine, strict=True)
            marks = axes.scatter(x, y, 49, color, mark, label=family, alpha=0.85, linewidths=0)
            marks.hover_titles = [
                f"{name}: {microseconds(a)} µs published, {microseconds(b)} modelled"
                for a, b, name in mine
            ]
    if names:
        _name_outliers(axes, rows)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(*ends)
    axes.set_ylim(*ends)
    axes.set_aspect("equal")
    axes.set_xlabel(f"published latency, µs (measured on {instances})")
    axes.set_ylabel("latency modelled by nkisim, µs")
    axes.legend(loc="lower right")
    return plots.show(fig, alt=alt, caption="Line: equal. Band: within 35 %.")


def _name_outliers(axes: Axes, rows: list[Row]) -> None:
    """Name the points far from the line, with leaders: near them there is no room for text."""
    far = sorted(
        ((p.published_us, m, p.name) for p, m in rows if not 0.6 <= m / p.published_us <= 1.6),
        key=lambda point: -point[1],
    )
    for above in (True, False):
        side = [point for point in far if (point[1] > point[0]) == above]
        if not above:
            side.reverse()  # the points at the right have the names at the right
        for i, (x, y, name) in enumerate(side):
            # Below the line, leaders of lower names pass at the right of the names above them.
            right = 0.97 - 0.05 * (len(side) - 1 - i)
            place = (0.03, 0.96 - 0.06 * i) if above else (right, 0.56 - 0.06 * i)
            axes.annotate(
                name,
                (x, y),
                xytext=place,
                textcoords="axes fraction",
                ha="left" if above else "right",
                va="center",
                fontsize=10.5,
                arrowprops={
                    "arrowstyle": "-",
                    "color": INK,
                    "lw": 0.7,
                    "alpha": 0.6,
                    "relpos": (1, 0.5),
                },
                annotation_clip=False,
            ).set_in_layout(False)


LONG = 30  # rows; a longer table is folded


class Table:
    """Rows of text, as an HTML table on a page, folded when it is long, and as one line elsewhere.

    Args:
        name: what it shows.
        head: names of the columns.
        rows: their texts.
        style: a class of book.css.
    """

    def __init__(
        self, name: str, head: Iterable[str], rows: Iterable[Iterable[str]], style: str = ""
    ) -> None:
        self.name = name
        self.head = list(head)
        self.rows = [list(r) for r in rows]
        self.style = style

    def __repr__(self) -> str:
        return f"Table: {self.name}, {len(self.rows)} rows"

    def _repr_html_(self) -> str:
        head = "".join(f'<th scope="col">{html.escape(h)}</th>' for h in self.head)
        body = "".join(f"<tr>{self._cells(r)}</tr>" for r in self.rows)
        style = f"dataframe {self.style}".rstrip()
        table = (
            f'<table class="{style}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
        )
        if len(self.rows) <= LONG:
            return table
        said = html.escape(f"All {len(self.rows)} rows: {self.name}")
        return f"<details><summary>{said}</summary>{table}</details>"

    def _cells(self, row: list[str]) -> str:
        # data-name: on a narrow screen cells of some tables stand below one another.
        return "".join(
            f'<td data-name="{html.escape(name)}">{html.escape(cell)}</td>'
            for name, cell in zip(self.head, row, strict=True)
        )


def microseconds(value: float) -> str:
    """A time in microseconds, in about three digits."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def families(rows: Iterable[Row]) -> Table:
    """How good the model is for each kind of kernel."""
    errors: dict[str, list[float]] = {}
    for p, m in rows:
        errors.setdefault(p.family, []).append(m / p.published_us - 1)
    return Table(
        "the model's error by kind of kernel",
        ["kind", "points", "median error", "within 35 %", "largest error"],
        (
            [
                family,
                str(len(found)),
                f"{np.median(np.abs(found)):.0%}",
                f"{np.mean(np.abs(found) <= 0.35):.0%}",
                f"{max(found, key=abs):+.0%}",
            ]
            for family, found in errors.items()
        ),
        style="points",
    )


def trust(
    chips: dict[str, tuple[Iterable[Row], Iterable[Comparison], Iterable[Pick]]],
) -> Table:
    """For what the model may be trusted, a column for each chip: its points, the pairs of forms,
    and the picks among all forms of a kernel."""
    columns = []
    for rows, compared, picked in chips.values():
        size = np.array([abs(m / p.published_us - 1) for p, m in rows])
        compared, losses = list(compared), [pick.loss for pick in picked]
        cells = [
            f"{sum(c.in_order for c in compared)} of {len(compared)} pairs",
            f"{max(losses):.0%}, of {len(losses)} kernels",
        ]
        for _, n, right, apart in worth(compared):
            cells.append(f"{right} of {n}; {apart:.0%}" if n else "no pair")
        cells += [
            f"{np.median(size):.0%}",
            f"{np.sum(size <= 0.25)} of {len(size)} points",
            f"{size.max():.0%}",
        ]
        columns.append(cells)
    questions = [
        "forms of one kernel: in the published order",
        "the pick among all forms: slower than the best one by at most",
        *(f"forms modelled {name} apart: in order; published" for name, *_ in worth([])),
        "latency: median error",
        "latency: within 25 %",
        "latency: largest error",
    ]
    return Table(
        "for what the model may be trusted",
        ["question", *chips],
        ([q, *cells] for q, *cells in zip(questions, *columns, strict=True)),
        style="points trust",
    )


def kinds(chips: dict[str, Iterable[Comparison]]) -> Table:
    """How many pairs of forms are in the published order, by what the forms differ in."""
    found: dict[tuple[str, str], list[Comparison]] = {}
    for chip, compared in chips.items():
        for c in compared:
            found.setdefault((c.ladder.differs, chip), []).append(c)
    return Table(
        "pairs of forms by what they differ in",
        ["the forms differ in", "chip", "pairs", "in order", "median error of the gain"],
        (
            [
                differs,
                chip,
                str(len(some)),
                str(sum(c.in_order for c in some)),
                f"{np.median([abs(np.log(c.modelled / c.published)) for c in some]):.2f}",
            ]
            for (differs, chip), some in sorted(found.items())
        ),
        style="points",
    )


def pairs(gains: Iterable[Gain]) -> Table:
    """Two forms of each kernel: what the second one gains by its source, and in the model."""
    return Table(
        "gains, modelled against published",
        ["from", "to", "gain, published", "gain, modelled", "log error", "same order", "kind"],
        (
            [
                g.pair.before.name,
                g.pair.after.name,
                f"{g.published:.3g}",
                f"{g.modelled:.3g}",
                f"{g.error:+.2f}",
                "yes" if g.in_order else "no",
                g.pair.kind,
            ]
            for g in gains
        ),
        style="points pairs",
    )


def table(rows: Iterable[Row]) -> Table:
    """Each point: published, modelled, and the error of the model."""
    return Table(
        "modelled against published latency",
        ["kernel", "error", "modelled, µs", "published, µs", "trust", "source"],
        (
            [
                p.name,
                f"{m / p.published_us - 1:+.0%}",
                microseconds(m),
                microseconds(p.published_us),
                p.trust,
                p.source,
            ]
            for p, m in rows
        ),
        style="points",
    )
