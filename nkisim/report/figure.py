"""Pictures of timelines. matplotlib is imported when one is drawn, not before."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from nkisim.errors import ParameterError
from nkisim.report.report import core_shown, shortened

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties

    from nkisim.report.times import Interval, Times

# Okabe and Ito's palette: colours that the common forms of colour blindness keep apart.
COLORS = {
    "Tensor": "#009e73",
    "Vector": "#0072b2",
    "Scalar": "#e69f00",
    "GpSimd": "#cc79a7",
    "Sync": "#999999",
    "load": "#56b4e9",
    "store": "#d55e00",
}
_DMA = ("load", "store")
_GAPS = 1000  # parts of the time axis: a gap shorter than one cannot be seen
_PIXELS = 400  # about, of the time axis: nothing longer is joined over gaps
_LEAST = 0.005  # of the time shown: an engine that is busy for less would be an empty row
_LEAST_OF_SYNC = 0.1  # which only starts transfers
_SIZE = (5.6, 2.9)  # inches; in a smaller figure letters are smaller, too
_SMALLEST = 0.7  # times their usual size: any smaller, they could not be read
_SPARE = 1.06  # letters are wider than they should be where pixels are few
_NAME = 12  # characters of a kernel's name that are always shown


def draw(
    timeline: Times,
    *,
    start_us: float = 0.0,
    end_us: float | None = None,
    axis_us: float | None = None,
    title: str | None = None,
    size: tuple[float, float] = _SIZE,
) -> Figure:
    """The engine timeline: a row an engine, one for loads and one for stores.

    What is busy for less than half a percent of the time shown has none; Sync, which starts
    transfers, for less than a tenth. Beside a name is the busy share of the body; for loads
    and for stores, of the busiest DMA queue. A picture of a part has no shares.

    Args:
        timeline: what to draw.
        start_us, end_us: the part to show, in microseconds of the body.
        axis_us: where the time axis ends, if later than the part: give the same to the pictures of
            two kernels, and a length means the same in both.
        title: above the picture; kernel and latency when None, of a long name both ends.
        size: inches.

    Raises:
        ParameterError: there is nothing between start_us and end_us.

    Returns:
        A figure whose backgrounds are transparent. Ink is black; `nkibook.plots.show` turns it
        into the colour of the page's text, and makes of `hover_titles`, an attribute of each row of
        blocks, what a browser shows of the block under the pointer.
    """
    import matplotlib
    from matplotlib.font_manager import FontProperties

    end = timeline.body_us if end_us is None else end_us
    _check_part(timeline, start_us, end)
    tracks = _tracks(timeline, start_us, end)
    figure = figure_class()(figsize=size, layout="constrained", facecolor="none")
    axes = figure.subplots()
    axes.set_facecolor("none")
    right = max(end, axis_us or end)
    visible = (right - start_us) / _PIXELS / 3  # a shorter block would be too pale to be seen
    for row, (name, bars) in enumerate(tracks):
        spans = [(bar.start, max(bar.length, visible)) for bar in bars]
        blocks: Any = axes.broken_barh(spans, (row - 0.4, 0.8), facecolor=COLORS[name], linewidth=0)
        blocks.hover_titles = [bar.said() for bar in bars]
    labels = [f"{'DMA ' * (name in _DMA)}{name}" for name, _ in tracks]
    if _is_whole(timeline, start_us, end):
        shares = {use.name: use.utilisation for use in timeline.engines.values()}
        shares |= _transfer_shares(timeline)
        labels = [
            f"{label} {shares.get(name, 0.0):.0%}"
            for label, (name, _) in zip(labels, tracks, strict=True)
        ]
    axes.set_yticks(range(len(tracks)), labels)
    axes.invert_yaxis()
    axes.set_xlim(start_us, right)
    axes.set_xlabel("time from the first instruction (µs)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    scale = max(_SMALLEST, min(1.0, size[0] / _SIZE[0], size[1] / _SIZE[1]))
    usual = matplotlib.rcParams["font.size"] * scale
    if scale < 1:
        axes.xaxis.label.set_fontsize(usual)
        axes.tick_params(labelsize=usual)
    # The title starts where the axes do: right of the labels, their ticks and the margin.
    beside = max((_points(label, FontProperties(size=usual)) for label in labels), default=0.0)
    ink = FontProperties(size=10.5 * scale)

    def fits(line: str) -> bool:
        return _SPARE * _points(line, ink) <= 72 * size[0] - beside - 14

    if title is None:
        title = _name_and_latency(timeline, fits)
    said = (title, *core_shown(timeline), timeline.kind)
    lines = [line for text in said for line in _wrapped(text, fits)]
    axes.set_title("\n".join(lines), fontproperties=ink, loc="left")
    return figure


@cache
def figure_class() -> type[Figure]:
    """matplotlib's Figure, shown by a notebook also where pyplot does not draw into it."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        def _repr_png_(self) -> bytes:
            data = BytesIO()
            self.savefig(data, format="png", dpi=144, facecolor="white")  # ink is black
            return data.getvalue()

    return Picture


def _check_part(timeline: Times, start: float, end: float) -> None:
    body = timeline.body_us
    if not (start < end and start < body) and body:
        raise ParameterError(
            f"plot(start_us={start!r}, end_us={end!r}) of a body of {body:.1f} µs",
            rule="the part to show has a start before its end and before the end of the body",
            fix="leave both out to see all of it",
        )


def alt_text(timeline: Times, start_us: float = 0.0, end_us: float | None = None) -> str:
    """A description of the picture, for readers who cannot see it.

    Args:
        timeline: what is drawn.
        start_us, end_us: the part that is shown, in microseconds of the body.
    """
    end = timeline.body_us if end_us is None else end_us
    what = " ".join([f"Modelled engine timeline of {timeline.kernel}", *core_shown(timeline)])
    if not _is_whole(timeline, start_us, end):
        rows = ", ".join(name for name, _ in _tracks(timeline, start_us, end))
        span = f"{start_us:g} to {end:g} of {timeline.body_us:.1f} microseconds"
        return f"{what}, {span}. Rows: {rows}."
    uses = [u for u in timeline.engines.values() if u.utilisation >= _least(u.name)]
    parts = ", ".join(f"{u.name} {u.utilisation:.0%}" for u in uses)
    return f"{what}, {timeline.body_us:.1f} microseconds. Busy share of each resource: {parts}."


def _is_whole(timeline: Times, start: float, end: float) -> bool:
    """Whether the whole body is shown."""
    return start <= 0 and end >= timeline.body_us


def _least(name: str) -> float:
    """The busy share from which an engine is shown."""
    return _LEAST_OF_SYNC if name == "Sync" else _LEAST


def _tracks(timeline: Times, start: float, end: float) -> list[tuple[str, list[_Block]]]:
    rows: dict[str, list[Interval]] = defaultdict(list)
    for i in timeline.intervals:
        if i.end_us < start or i.start_us > end:
            continue
        if i.track.startswith("DMA"):
            # The queues of one direction share a row.
            rows[_direction(i.label)].append(i)
        else:
            rows[i.track].append(i)
    shown = end - start
    bars = {name: _merged(rows[name], shown) for name in COLORS if name in rows}
    return [
        (name, parts)
        for name, parts in bars.items()
        if sum(part.length for part in parts) >= _least(name) * shown
    ]


def _direction(label: str) -> str:
    """The row of the picture, of the two for DMA, that a transfer is on."""
    return "store" if label in ("store", "spill") else "load"


def _transfer_shares(timeline: Times) -> dict[str, float]:
    """The shares of loads and stores in the time of the busiest DMA queue, 0 to 1: together, its
    busy time."""
    work, s = timeline._core.work, timeline._core.schedule
    busiest = max(range(len(s.queue_busy)), key=s.queue_busy.__getitem__)
    shares = dict.fromkeys(_DMA, 0.0)
    for task, queues in zip(work.tasks, s.queues_of, strict=True):
        if task.transfer is not None and busiest in queues:
            shares[_direction(task.label)] += task.transfer.engine_ns / max(s.span, 1e-9)
    return shares


def _points(text: str, font: FontProperties) -> float:
    """Width of a line of text, in points."""
    from matplotlib.textpath import text_to_path

    return text_to_path.get_text_width_height_descent(text, font, ismath=False)[0]


def _name_and_latency(timeline: Times, fits: Callable[[str], bool]) -> str:
    """The title of a figure: on one line, if that leaves enough of the kernel's name."""
    for most in range(len(timeline.kernel), _NAME, -1):
        title = f"{shortened(timeline.kernel, most)}: {timeline.latency_us:.1f} µs with launch"
        if fits(title):
            return title
    return f"{shortened(timeline.kernel, _NAME)}: {timeline.latency_us:.1f} µs with launch"


def _wrapped(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Lines that fit, as far as single words do."""
    lines = []
    for line in text.split("\n"):
        words = line.split(" ")
        taken = words[0]
        for word in words[1:]:
            if fits(f"{taken} {word}"):
                taken += f" {word}"
            else:
                lines.append(taken)
                taken = word
        lines.append(taken)
    return lines


@dataclass
class _Block:
    """Intervals of a row that are drawn as one, since what is between them cannot be seen."""

    start: float
    end: float
    first: Interval
    gaps: float = 0.0
    count: int = 1
    lines: set[str] = field(default_factory=set)
    others: bool = False  # whether some of them have another label than the first

    @property
    def length(self) -> float:
        """The time in which something happens: gaps in a pixel make it shorter, so paler, and never
        so pale that it could not be seen."""
        span = self.end - self.start
        return max(span - self.gaps, span / 3)

    def said(self) -> str:
        """Which instruction, of which kernel line, when."""
        what = f"{self.count} x " * (self.count > 1) + self.first.label
        what += " and others" * self.others
        where: dict[str, list[str]] = {}  # lines of each file
        for place in sorted(self.lines):
            file = place.rstrip("0123456789")
            where.setdefault(file, []).append(place.removeprefix(file))
        places = [
            f"{file}{', '.join(lines[:3])}{', …' * (len(lines) > 3)}"
            for file, lines in where.items()
        ]
        said = f" ({'; '.join(places)})" if places else ""
        return f"{what}{said}: {self.start:.2f} to {self.end:.2f} µs"


def _merged(intervals: list[Interval], shown: float) -> list[_Block]:
    """What overlaps, joined, and what lies closer than can be seen, up to a pixel."""
    gap, pixel = shown / _GAPS, shown / _PIXELS
    blocks: list[_Block] = []
    for i in sorted(intervals, key=lambda i: i.start_us):
        last = blocks[-1] if blocks else None
        if last is not None and i.start_us <= last.end:
            last.end = max(last.end, i.end_us)
            last.count += 1
        elif last is not None and i.start_us - last.end <= gap and i.end_us - last.start <= pixel:
            last.gaps += i.start_us - last.end
            last.end = i.end_us
            last.count += 1
        else:
            last = _Block(i.start_us, i.end_us, i)
            blocks.append(last)
        last.others |= i.label != last.first.label
        if i.location is not None:
            last.lines.add(str(i.location).partition(" in ")[0])
    return blocks
