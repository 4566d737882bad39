"""The book's matplotlib style, and the display object that every figure becomes.

A figure is inline SVG whose ink is ``currentColor``, so text and axes take the colour of the page
around them and follow a switch between light and dark mode. Text stays text, so it can be
searched and selected. The plain-text form is one sentence, equal in every run, so a stored
notebook output changes only when its figure says something else.
"""

from __future__ import annotations

import hashlib
import html
import io
import re
from contextlib import AbstractContextManager
from typing import Any
from xml.etree import ElementTree

import matplotlib
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG, RendererSVG
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure as MatplotlibFigure
from matplotlib.text import Text
from matplotlib.ticker import Formatter, LogFormatterMathtext
from matplotlib.transforms import Bbox

# Okabe and Ito's palette: eight colours that the common forms of colour blindness keep apart
# (https://jfly.uni-koeln.de/color/). Black is left out: it is the ink.
COLORS = {
    "blue": "#0072b2",
    "orange": "#e69f00",
    "green": "#009e73",
    "purple": "#cc79a7",
    "sky": "#56b4e9",
    "vermillion": "#d55e00",
    "yellow": "#f0e442",
}

# Black is the sentinel: matplotlib leaves a black fill out of the SVG and writes black strokes as
# #000000, and both become currentColor. DARK and LIGHT stay as they are, for text on a fill.
INK = "#000000"
DARK = "#111111"
LIGHT = "#ffffff"

# Inches, at 96 pixels an inch: narrow enough that an 11 point label can still be read when a phone
# shows the figure at two thirds of its size.
WIDTH = 5.6

# Points, in a figure of that width: on a phone that shows it at two thirds or less, 9 pixels.
SMALLEST = 11.0

# An axis of time, and the words of which a figure with one must hold at least one.
TIME_AXIS = re.compile(r"\b(?:time|latency|duration|seconds?|ms|us|ns)\b|[µμ]s\b", re.IGNORECASE)
ORIGINS = ("measured", "modelled", "published")

_STYLE: Any = {
    "axes.axisbelow": True,
    "axes.edgecolor": INK,
    "axes.facecolor": "none",
    "axes.grid": False,
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=list(COLORS.values())),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.facecolor": "none",
    "font.family": "sans-serif",
    "font.size": 11,
    "grid.alpha": 0.25,
    "grid.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2,
    "savefig.facecolor": "none",
    "svg.fonttype": "none",
    "svg.hashsalt": "nki-book",
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}

_SVG = "http://www.w3.org/2000/svg"
_XLINK = "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", _SVG)

# The theme of the rendered book puts HTML outputs on a light plate in dark mode. A figure that
# follows the page needs no plate. The selector repeats the theme's, to weigh as much as it does.
_CSS = (
    "html[data-theme=dark] .bd-content div.cell_output .text_html:has(figure.nki-figure)"
    "{background:transparent;color:inherit;padding:0}"
    "figure.nki-figure{margin:.5rem 0!important;padding:0}"
    ".nki-figure svg{display:block;width:100%;height:auto}"
    ".nki-figure svg text:not([style*=monospace]){font-family:system-ui,'DejaVu Sans',"
    "sans-serif!important}"
    "figure.nki-figure figcaption{color:inherit!important;font-size:.85em!important;"
    "font-weight:400!important;text-align:left!important;margin:.4rem 0 0!important}"
)


def style() -> AbstractContextManager[None]:
    """Return a context in which new matplotlib artists take the book's style."""
    return matplotlib.rc_context(_STYLE)


def subplots(
    rows: int = 1, cols: int = 1, *, size: tuple[float, float] = (WIDTH, 3.0), **kwargs: Any
) -> tuple[MatplotlibFigure, Any]:
    """Return a figure and its axes, as ``matplotlib.pyplot.subplots`` does, in the book's style.

    The style is applied to the session (``matplotlib.rcParams``), so that lines and texts added
    later have it too. The figure is not registered with pyplot: it is displayed once, by
    :func:`show`, and freed with its last reference.

    Args:
        rows: rows of axes.
        cols: columns of axes.
        size: width and height in inches. A page shows at most 96 pixels an inch.
        **kwargs: passed on to ``Figure.subplots``, such as ``sharey=True``.
    """
    matplotlib.rcParams.update(_STYLE)
    figure = MatplotlibFigure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, cols, **kwargs)


class Figure:
    """A figure ready for display: inline SVG in a browser, one line of text elsewhere.

    Attributes:
        alt: what the picture shows, for readers who cannot see it.
        caption: text under the picture, or None.
        svg: the picture, an ``<svg>`` element without width and height.
    """

    def __init__(self, svg: str, alt: str, caption: str | None, width: int) -> None:
        self.svg = svg
        self.alt = alt
        self.caption = caption
        self._width = width

    def __repr__(self) -> str:
        return f"Figure: {self.alt}"

    def _repr_html_(self) -> str:
        caption = f"<figcaption>{html.escape(self.caption)}</figcaption>" if self.caption else ""
        return (
            f'<figure class="nki-figure" style="max-width:{self._width}px">'
            f"<style>{_CSS}</style>{self.svg}{caption}</figure>"
        )


class Figures:
    """Figures that belong together, one below the other."""

    def __init__(self, figures: list[Figure]) -> None:
        self.figures = list(figures)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self.figures))

    def _repr_html_(self) -> str:
        return "".join(figure._repr_html_() for figure in self.figures)


def show(fig: MatplotlibFigure, alt: str, caption: str | None = None) -> Figure:
    """Turn a matplotlib figure into the object that a notebook displays.

    Black becomes the colour of the page's text, and backgrounds become transparent. Text that would
    be too small on a phone becomes as large as SMALLEST, and a logarithmic axis has numbers in the
    place of powers, whose exponents would be smaller. An artist with an attribute
    `hover_titles`, a text for each of its marks in drawing order, tells them under the pointer.
    Call it as the last expression of a cell.

    Args:
        fig: a figure from :func:`subplots`, or any matplotlib figure.
        alt: what the picture shows, in a sentence that does not change from run to run.
        caption: text under the picture. What changes from run to run belongs here.

    Raises:
        ValueError: when ``alt`` is empty, or when an axis is a time and no text in the figure says
            whether it is measured, modelled or published.
    """
    _check_origin(fig)
    alt = " ".join(str(alt).split())
    if not alt:
        raise ValueError(
            f"alt is {alt!r}: every figure needs a text that says what it shows. "
            "Pass one, for example show(fig, alt='Bars: time of each add, by size')."
        )
    _Canvas(fig)
    for axis in [axis for axes in fig.axes for axis in (axes.xaxis, axes.yaxis)]:
        if isinstance(major := axis.get_major_formatter(), LogFormatterMathtext):
            axis.set_major_formatter(_Plain(major))
        if isinstance(minor := axis.get_minor_formatter(), LogFormatterMathtext):
            axis.set_minor_formatter(_Plain(minor))
    box = _lay_out(fig)
    titled: list[Any] = fig.findobj(lambda artist: hasattr(artist, "hover_titles"))
    for number, artist in enumerate(titled):
        artist.set_gid(f"hover-{number}")
    svg = _titled(_render(fig, box), {artist.get_gid(): artist.hover_titles for artist in titled})
    # Ids are unique on a page as long as two figures differ, and the same in every run.
    prefix = "f" + hashlib.sha256(f"{alt}\n{svg}".encode()).hexdigest()[:10]
    return Figure(_inline(svg, alt, prefix), alt, caption, round(fig.get_figwidth() * 96))


def plain_number(value: float) -> str:
    """A number for an axis, of one size of letters: 0.01, 500, 20k, 4M, 1e-6."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:g}{letter}"
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:g}"
    digits, exponent = f"{value:e}".split("e")
    return f"{float(digits):g}e{int(exponent)}"


class _Plain(Formatter):
    """Labels the ticks that another formatter would label, with plain numbers."""

    def __init__(self, other: Formatter) -> None:
        self.other = other

    def set_locs(self, locs: Any) -> None:
        self.other.set_locs(locs)

    def __call__(self, value: float, pos: int | None = None) -> str:
        return plain_number(value) if self.other(value, pos) else ""


def _check_origin(fig: MatplotlibFigure) -> None:
    """Refuse times of which the figure itself does not say where they come from."""
    labels = [label for axes in fig.axes for label in (axes.get_xlabel(), axes.get_ylabel())]
    unit = next((label for label in labels if TIME_AXIS.search(label)), None)
    said = " ".join(text.get_text() for text in fig.findobj(Text)).lower()
    if unit is not None and not any(word in said for word in ORIGINS):
        raise ValueError(
            f"the axis {unit!r} is a time, and the figure does not say whether it is "
            f"{', '.join(ORIGINS[:-1])} or {ORIGINS[-1]}. Say it in a label, the legend or a title."
        )


def text_color(fill: str) -> str:
    """Return the text colour, DARK or LIGHT, that reads best on a fill.

    The choice is by contrast ratio, as WCAG 2.1 defines it (https://www.w3.org/TR/WCAG21/).
    """
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(fill)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return LIGHT if 1.05 / (luminance + 0.05) > (luminance + 0.05) / 0.056 else DARK


class _Canvas(FigureCanvasSVG):
    """Measures all texts of a figure with one renderer, which remembers their sizes: matplotlib
    makes a renderer each time that it lays a figure out."""

    def __init__(self, figure: MatplotlibFigure) -> None:
        super().__init__(figure)
        self._image_dpi = figure.get_dpi()
        figure.set_dpi(self.fixed_dpi)
        width, height = figure.get_size_inches() * self.fixed_dpi
        self._renderer = RendererSVG(width, height, io.StringIO())

    def get_renderer(self) -> RendererSVG:
        return self._renderer

    def print_svg(
        self, filename: Any, *, bbox_inches_restore: Any = None, metadata: Any = None, **_: Any
    ) -> None:
        self.figure.set_dpi(self._image_dpi)  # of images alone: all else is in points
        super().print_svg(filename, bbox_inches_restore=bbox_inches_restore, metadata=metadata)


def _lay_out(fig: MatplotlibFigure) -> Bbox:
    """Enlarge small texts, and place the axes; return the part of the plane that is drawn on."""
    engine = fig.get_layout_engine()
    # What stands beyond the axes makes the picture wider than the figure, and its text smaller.
    # Larger text can make it wider again.
    width, box = fig.get_figwidth(), None
    for _ in range(3):
        least = SMALLEST * max(1.0, width / WIDTH)
        texts: list[Any] = fig.findobj(Text)
        small = [text for text in texts if text.get_fontsize() < least]
        if box is not None and not small:
            break
        for text in small:
            text.set_fontsize(least)
        if engine is not None:
            engine.execute(fig)
        box = fig.get_tightbbox()
        width = max(fig.get_figwidth(), box.width)
    assert box is not None
    return box.padded(matplotlib.rcParams["savefig.pad_inches"])


def _render(fig: MatplotlibFigure, box: Bbox) -> str:
    fig.patch.set_alpha(0)
    for axes in fig.axes:
        _clear_background(axes)
    buffer = io.StringIO()
    layout = fig.get_layout_engine()
    with style():
        fig.set_layout_engine(None)  # it is laid out; with one, it would be drawn twice
        fig.savefig(buffer, format="svg", dpi=fig.dpi, bbox_inches=box, metadata={"Date": None})
    fig.set_layout_engine(layout)
    return buffer.getvalue()


def _clear_background(axes: Axes) -> None:
    axes.patch.set_alpha(0)
    legend = axes.get_legend()
    if legend is not None:
        legend.get_frame().set_alpha(0)


def _titled(svg: str, titles: dict[str, list[str]]) -> str:
    """Give each mark of the groups with these ids its text; a browser shows it on hovering."""
    root = ElementTree.fromstring(svg)
    for group in root.iter(f"{{{_SVG}}}g"):
        texts = titles.get(group.get("id", ""))
        if texts is None:
            continue
        shared = {part for defs in group.iter(f"{{{_SVG}}}defs") for part in defs.iter()}
        marks = [
            part
            for part in group.iter()
            if part.tag in (f"{{{_SVG}}}use", f"{{{_SVG}}}path") and part not in shared
        ]
        for mark, text in zip(marks, texts, strict=True):
            ElementTree.SubElement(mark, f"{{{_SVG}}}title").text = text
    return ElementTree.tostring(root, encoding="unicode")


def _inline(svg: str, alt: str, prefix: str) -> str:
    """Rewrite a matplotlib SVG document as an element that lives well inside a page."""
    root = ElementTree.fromstring(svg)
    for child in list(root):
        # The metadata names the tool and its version. The global style sheet in the first defs
        # would apply to every picture on the page: its two rules go on the root instead.
        if child.tag == f"{{{_SVG}}}metadata":
            root.remove(child)
    for defs in root.iter(f"{{{_SVG}}}defs"):
        for sheet in defs.findall(f"{{{_SVG}}}style"):
            defs.remove(sheet)
    for element in root.iter():
        _rename_ids(element, prefix)
        for name, value in element.attrib.items():
            element.set(name, value.replace(INK, "currentColor"))
    title = ElementTree.Element(f"{{{_SVG}}}title", {"id": f"{prefix}-title"})
    title.text = alt
    root.insert(0, title)
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.set("role", "img")
    root.set("aria-label", alt)
    root.set("fill", "currentColor")
    root.set("style", "stroke-linejoin:round;stroke-linecap:butt")
    return ElementTree.tostring(root, encoding="unicode")


def _rename_ids(element: ElementTree.Element, prefix: str) -> None:
    if "id" in element.attrib:
        element.set("id", f"{prefix}-{element.get('id')}")
    link = element.attrib.pop(f"{{{_XLINK}}}href", None)
    if link is not None:
        # An embedded raster image is a data address; every other link points inside the figure.
        element.set("href", f"#{prefix}-{link[1:]}" if link.startswith("#") else link)
    for name, value in element.attrib.items():
        element.set(name, re.sub(r"url\(#", f"url(#{prefix}-", value))
