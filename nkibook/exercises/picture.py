"""Draw who reads what: the arguments and the output, with the first wrong element marked."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from nkibook.exercises.reads import Access, Box, Panel, ids
from nkibook.plots import COLORS, INK, Figure, show, subplots
from nkibook.plots.figure import WIDTH
from nkisim.ir.restriction import boxes

# Elements are joined to cells, so that no axis has more than this many.
_MOST = 96

_READ, _WANTED, _WRONG = COLORS["blue"], COLORS["orange"], COLORS["vermillion"]
_INSTANCES = [COLORS[name] for name in ("sky", "green", "purple", "yellow")]
_SHARED: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "hatch": "////", "linewidth": 0}


def draw(access: Access, alt: str) -> Figure:
    """One panel a tensor, beside each other; a legend below says what the colours mean."""
    panels = access.panels[:-1][:2] + access.panels[-1:]
    owners = list(dict.fromkeys(o for p in panels for o in p.tiles))
    handles = _legend(panels, owners)
    tallest = max(_aspect(panel) for panel in panels)
    columns = max(len(panels), 2)  # a panel alone takes half of the width
    height = 0.7 + 0.85 * tallest * WIDTH / columns + 0.22 * -(-len(handles) // 2)
    figure, axes = subplots(1, columns, size=(WIDTH, height), squeeze=False)
    for panel, place in zip(panels, axes[0], strict=False):
        _draw_panel(place, panel, owners)
    for spare in axes[0][len(panels) :]:
        spare.set_axis_off()
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=2, fontsize=9)
    return show(figure, alt)


def _draw_panel(axes: Axes, panel: Panel, owners: list[tuple[int, ...]]) -> None:
    rows, columns = panel.shape
    for owner, mask in panel.tiles.items():
        color = _INSTANCES[owners.index(owner) % len(_INSTANCES)]
        _add(axes, mask, facecolor=color, alpha=0.35, edgecolor="none")
        _add(axes, mask, facecolor="none", edgecolor=color, linewidth=1)
    if 1 < len(owners) <= len(_INSTANCES):
        _add(axes, _shared(panel), **_SHARED)
    if panel.wrong is not None:
        _add(axes, panel.wrong, facecolor=_WRONG, alpha=0.6, edgecolor="none")
    if panel.wanted is not None:
        _add(axes, panel.wanted, facecolor="none", edgecolor=_WANTED, linewidth=2.5)
    if panel.read is not None:  # above: one column would be no more than its frame
        _add(axes, panel.read, facecolor=_READ, edgecolor=_READ, linewidth=1.0)
        if panel.wanted is not None and (panel.wanted & ~panel.read).any():
            # The solution's frame is seen whole, also where it crosses what is read.
            _add(axes, panel.wanted, facecolor="none", edgecolor=_WANTED, linewidth=1.2)
    for _, (r0, r1, c0, c1) in panel.outside:
        dashed: dict[str, Any] = {"edgecolor": _WRONG, "linewidth": 1.8, "linestyle": "--"}
        axes.add_patch(Rectangle((c0, r0), c1 - c0, r1 - r0, facecolor="none", **dashed))
    if panel.mark is not None:
        row, column = panel.mark
        cross: dict[str, Any] = {"markersize": 9, "markeredgewidth": 2.5, "clip_on": False}
        axes.plot(column + 0.5, row + 0.5, "x", color=INK, **cross)
    axes.add_patch(Rectangle((0, 0), columns, rows, fill=False, edgecolor=INK, linewidth=1))
    top, bottom, left, right = _extent(panel)
    down, across = 0.03 * (bottom - top), 0.03 * (right - left)
    axes.set_xlim(left - across, right + across)
    axes.set_ylim(bottom + down, top - down)
    axes.set_box_aspect(_aspect(panel))
    axes.set_xticks([0, columns])
    axes.set_yticks([0, rows])
    axes.set_title(panel.name, fontsize=10)
    for side in axes.spines.values():
        side.set_visible(False)


def _shared(panel: Panel) -> np.ndarray:
    """Which elements more than one program loads or stores."""
    return np.sum([np.zeros(panel.shape, bool), *panel.tiles.values()], axis=0) > 1


def _extent(panel: Panel) -> Box:
    """Rows and columns to show: the tensor, and what reaches out of it."""
    found = [(0, panel.shape[0], 0, panel.shape[1]), *(box for _, box in panel.outside)]
    tops, bottoms, lefts, rights = zip(*found, strict=True)
    return min(tops), max(bottoms), min(lefts), max(rights)


def _aspect(panel: Panel) -> float:
    """Height of a panel over its width: the tensor's own, between bounds that can be read."""
    top, bottom, left, right = _extent(panel)
    return min(max((bottom - top) / (right - left), 0.3), 1.1)


def _add(axes: Axes, mask: np.ndarray, **look: Any) -> None:
    """The true elements of a matrix as boxes."""
    step = [max(1, -(-n // _MOST)) for n in mask.shape]
    coarse = mask
    for axis, size in enumerate(step):
        if size > 1:
            starts = np.arange(0, mask.shape[axis], size)
            coarse = np.logical_or.reduceat(coarse, starts, axis=axis)
    found = []
    for (r0, r1), (c0, c1) in boxes(coarse):
        top, bottom = r0 * step[0], min(r1 * step[0], mask.shape[0])
        left, right = c0 * step[1], min(c1 * step[1], mask.shape[1])
        found.append(Rectangle((left, top), right - left, bottom - top))
    if found:
        axes.add_collection(PatchCollection(found, **look))


def _legend(panels: list[Panel], owners: list[tuple[int, ...]]) -> list[Patch | Line2D]:
    handles: list[Patch | Line2D] = []
    if 1 < len(owners) <= len(_INSTANCES):
        handles += [
            Patch(color=color, alpha=0.5, label=f"instance {ids(owner)}")
            for owner, color in zip(owners, _INSTANCES, strict=False)
        ]
        if any(_shared(p).any() for p in panels):
            handles.append(Patch(**_SHARED, label="by several instances"))
    elif owners:
        label = "loaded or stored" + ("; a colour for each instance" if len(owners) > 1 else "")
        handles.append(Patch(color=_INSTANCES[0], alpha=0.5, label=label))
    if any(p.read is not None and p.read.any() for p in panels):
        handles.append(Patch(color=_READ, label="read for the marked element"))
    if any(p.wanted is not None and p.wanted.any() for p in panels):
        label = "read by the solution"
        handles.append(Patch(facecolor="none", edgecolor=_WANTED, linewidth=2, label=label))
    if any(p.wrong is not None for p in panels):
        handles.append(Patch(color=_WRONG, alpha=0.6, label="wrong"))
    if any(p.mark is not None for p in panels):
        look: dict[str, Any] = {"color": INK, "marker": "x", "markeredgewidth": 2.5}
        cross = Line2D([], [], linestyle="none", label="the first wrong element", **look)
        handles.append(cross)
    if any(p.outside for p in panels):
        dashed: dict[str, Any] = {"edgecolor": _WRONG, "linestyle": "--", "linewidth": 1.8}
        handles.append(Patch(facecolor="none", label="outside of the tensor", **dashed))
    return handles
