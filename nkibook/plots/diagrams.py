"""Building blocks of diagrams: labelled boxes, arrows, notes, and the bar of a memory's use.

Boxes and arrows are placed in data coordinates on axes without ticks, so a diagram is a short
list of positions, and code can compute them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from nkibook.plots.figure import COLORS, INK, WIDTH, Figure, show, subplots, text_color


def box(
    axes: Axes,
    x: float,
    y: float,
    width: float,
    height: float,
    text: str = "",
    *,
    color: str | None = None,
    **text_style: Any,
) -> None:
    """Draw a box with its lower left corner at (x, y) and a text in its middle.

    Args:
        axes: where to draw.
        x, y, width, height: the box, in data coordinates.
        text: what it holds; may have several lines.
        color: a name of ``COLORS`` or any matplotlib colour; None leaves the box empty.
        **text_style: passed on to ``Axes.text``, such as ``fontsize=9``.
    """
    fill = COLORS.get(color, color) if color is not None else None
    axes.add_patch(
        FancyBboxPatch(
            (x, y),
            width,
            height,
            boxstyle="round,pad=0,rounding_size=0.06",
            facecolor=fill or "none",
            edgecolor=INK if fill is None else fill,
            linewidth=1.2,
        )
    )
    text_style = {
        "ha": "center",
        "va": "center",
        "color": text_color(fill) if fill else INK,
    } | text_style
    axes.text(x + width / 2, y + height / 2, text, **text_style)


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    text: str = "",
    *,
    both: bool = False,
    offset: tuple[float, float] = (0.0, 0.0),
    **text_style: Any,
) -> None:
    """Draw an arrow from start to end, with a text beside its middle.

    Args:
        axes: where to draw.
        start, end: the two ends, in data coordinates.
        text: the label; ``offset`` moves it away from the middle of the arrow.
        both: draw a head at each end.
        offset: shift of the label, in data coordinates.
        **text_style: passed on to ``Axes.text``.
    """
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="<|-|>" if both else "-|>",
            mutation_scale=14,
            linewidth=1.6,
            color=INK,
            shrinkA=1,
            shrinkB=1,
        )
    )
    if text:
        middle = ((start[0] + end[0]) / 2 + offset[0], (start[1] + end[1]) / 2 + offset[1])
        axes.text(*middle, text, **{"ha": "center", "va": "center", **text_style})


def note(axes: Axes, x: float, y: float, text: str, **text_style: Any) -> None:
    """Write a small text with its left middle at (x, y), in data coordinates."""
    axes.text(x, y, text, **{"ha": "left", "va": "center", "fontsize": 10, **text_style})


def memory_bar(
    parts: Mapping[str, float],
    capacity: float,
    *,
    unit: str,
    name: str,
    caption: str | None = None,
) -> Figure:
    """Draw how much of a memory each part takes, as one bar from 0 to its capacity.

    Args:
        parts: size of each part by its name, in drawing order.
        capacity: size of the memory, in the same unit.
        unit: the unit, for the axis, such as ``"KiB a partition"``.
        name: the memory, such as ``"SBUF"``.
        caption: text under the figure.

    Raises:
        ValueError: when a size is negative, or capacity is not positive.
    """
    if not capacity > 0:
        raise ValueError(f"capacity is {capacity!r}: a memory's size is a positive number.")
    for part, size in parts.items():
        if not size >= 0:
            raise ValueError(f"part {part!r} has size {size!r}: a size is zero or more.")
    used = sum(parts.values())
    fig, axes = subplots(size=(WIDTH, 1.5))
    start = 0.0
    for (part, size), color in zip(parts.items(), _cycle(len(parts)), strict=True):
        axes.barh(0, size, left=start, height=0.6, color=color, label=f"{part}: {size:g}")
        start += size
    axes.barh(0, capacity, height=0.6, fill=False, edgecolor=INK, linewidth=1.5)
    axes.set_xlim(0, max(capacity, used) * 1.005)
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(f"{name}, {unit} (capacity {capacity:g})")
    axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0)
    listed = ", ".join(f"{part} {size:g}" for part, size in parts.items())
    verdict = f"{used:g} of {capacity:g} {unit} used"
    return show(fig, f"Bar of {name}: {verdict} ({listed}).", caption)


def _cycle(count: int) -> list[str]:
    palette = list(COLORS.values())
    return [palette[i % len(palette)] for i in range(count)]
