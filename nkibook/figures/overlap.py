"""A moving picture of tiles that are loaded, computed and stored at the same time."""

from __future__ import annotations

from collections import Counter

import numpy as np
from matplotlib.patches import Rectangle

from nkibook import plots
from nkibook.plots.figure import COLORS, INK, WIDTH, Figure, text_color
from nkisim.report.timeline import Timeline
from nkisim.report.times import Interval

_ROWS = ("load", "Scalar", "Vector", "store")
_FRAMES = 9


def overlapping(timeline: Timeline, tiles: int) -> plots.Moving:
    """Show the first tiles of a kernel on their way through the core, a colour each.

    Args:
        timeline: of a kernel whose loop issues each of its instructions once a tile, in order: the
            n-th instruction of a name is then the one of tile n.
        tiles: how many, at most as many as there are colours.
    """
    blocks = _blocks(timeline, tiles)
    end = max(block.end_us for _, _, block in blocks)
    moments = np.linspace(0, end, _FRAMES + 1)[1:]
    frames = [_frame(blocks, tiles, float(moment), end) for moment in moments]
    return plots.Moving(frames, "load, compute and store of several tiles", seconds=0.6)


def _blocks(timeline: Timeline, tiles: int) -> list[tuple[int, int, Interval]]:
    """Row, tile and time of each instruction and transfer of the first tiles."""
    count: Counter[str] = Counter()  # engines may share the instructions of a name
    found = []
    for interval in sorted(timeline.intervals, key=lambda i: i.start_us):
        row = interval.label if interval.track == "DMA" else interval.track
        if row in _ROWS:
            tile = count[interval.label]
            count[interval.label] += 1
            if tile < tiles:
                found.append((_ROWS.index(row), tile, interval))
    return found


def _frame(
    blocks: list[tuple[int, int, Interval]], tiles: int, moment: float, end: float
) -> Figure:
    """What has happened until a moment, in microseconds."""
    palette = list(COLORS.values())
    fig, axes = plots.subplots(size=(WIDTH, 2.6))
    busy = []
    for row, tile, block in blocks:
        if block.start_us >= moment:
            continue
        length = min(block.end_us, moment) - block.start_us
        color = palette[tile % len(palette)]
        axes.add_patch(
            Rectangle((block.start_us, row + 0.1), length, 0.8, facecolor=color, edgecolor=INK)
        )
        if length > 0.04 * end:
            middle = (block.start_us + length / 2, row + 0.5)
            look = {"ha": "center", "va": "center", "color": text_color(color)}
            axes.text(*middle, str(tile), **look)
        if block.end_us > moment:
            busy.append(f"{_ROWS[row]} is at tile {tile}")
    axes.axvline(moment, color=INK, linewidth=1, linestyle="--")
    axes.set_xlim(0, 1.02 * end)
    axes.set_ylim(len(_ROWS), 0)
    axes.set_yticks([row + 0.5 for row in range(len(_ROWS))], _ROWS)
    axes.set_xlabel("time, µs of the body (modelled)")
    axes.set_title(f"the first {tiles} tiles, after {moment:.0f} µs", loc="left", fontsize=11)
    stored = all(block.end_us <= moment for _, _, block in blocks)
    idle = "All are stored" if stored else "None of them is in progress"
    return plots.show(
        fig,
        f"The first {tiles} tiles on the rows load, Scalar, Vector and store, until "
        f"{moment:.0f} µs. {'; '.join(busy) or idle}.",
    )
