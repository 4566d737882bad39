"""A launch grid that fills: which tile waits, loads, is in SBUF and is stored, frame by frame."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.colors import to_rgba

from nkibook.plots import INK, Figure, Moving, draw_tiles, show, subplots
from nkibook.plots.figure import WIDTH
from nkibook.plots.tiles import Tile

if TYPE_CHECKING:
    from nkisim.report.timeline import Timeline

# Of one tile, in microseconds: its first load begins, its last load ends, its store begins, ends.
Times = tuple[float, float, float, float]


def filling(
    timeline: Timeline,
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    *,
    owner: Callable[[Hashable], str] = "instance {}".format,
    frames: int = 10,
) -> Moving:
    """Show the tiles of a launch on one core on their way: loading, in SBUF, storing, written.

    Args:
        timeline: modelled, of a launch whose instances each load as often as the others, and store
            once; instances of a grid on one core follow one another.
        shape: rows and columns of the output.
        tiles: of that launch, in its order: what `nkibook.tracing.written_tiles` returns.
        owner: turns the owner of a tile into its label, as in :func:`nkibook.plots.tile_grid`.
        frames: how many pictures, at equal distances in time.

    Raises:
        ValueError: the timeline's loads or stores are not as many for each of the tiles.
    """
    times = times_of_tiles(timeline, len(tiles))
    end = max(stored for *_, stored in times)
    moments = np.linspace(0, end, frames + 1)[1:]
    shown = [_frame(shape, tiles, times, owner, float(moment)) for moment in moments]
    return Moving(shown, "the grid fills, a moment a frame", seconds=0.7)


def times_of_tiles(timeline: Timeline, tiles: int) -> list[Times]:
    """When each tile is loaded and stored, in microseconds of the body, in the launch's order."""
    moved = {
        label: [i for i in timeline.intervals if i.track == "DMA" and i.label == label]
        for label in ("load", "store")
    }
    loads, stores = (sorted(found, key=lambda i: i.start_us) for found in moved.values())
    if not loads or len(loads) % tiles or len(stores) != tiles:
        raise ValueError(
            f"{timeline.kernel} has {len(loads)} loads and {len(stores)} stores for {tiles} tiles: "
            "a grid can be shown filling when each tile has as many loads as the others, and one "
            "store."
        )
    each = len(loads) // tiles
    groups = [loads[first : first + each] for first in range(0, len(loads), each)]
    return [
        (group[0].start_us, max(i.end_us for i in group), store.start_us, store.end_us)
        for group, store in zip(groups, stores, strict=True)
    ]


def state(times: Times, moment: float) -> str:
    """What a tile does at a moment: waits, loading, in SBUF, storing or written."""
    names = ("waits", "loading", "in SBUF", "storing", "written")
    return names[sum(moment >= time for time in times)]


def _frame(
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    times: list[Times],
    owner: Callable[[Hashable], str],
    moment: float,
) -> Figure:
    rows, cols = shape
    fig, axes = subplots(size=(WIDTH, 1.1 + 4.7 * min(max(rows / cols, 0.25), 0.8)))
    draw_tiles(axes, shape, tiles, owner=owner)
    states = [state(tile_times, moment) for tile_times in times]
    patches, texts = list(axes.patches), list(axes.texts)
    for number, name in enumerate(states):
        if name == "written":
            continue
        waits = name == "waits"
        tint = "none" if waits else to_rgba(patches[number].get_facecolor(), 0.35)
        patches[number].set_facecolor(tint)
        if texts:
            texts[number].set_text("" if waits else name)
            texts[number].set_color(INK)
    axes.set_title(f"{moment:.1f} µs after the start (modelled)", loc="left", fontsize=11)
    if set(states) == {"written"}:  # the still picture, whose text is stored: no time in it
        return show(
            fig, f"The output of {rows}x{cols}, with all of its {len(tiles)} tiles written."
        )
    said = [
        f"tile {number} {'waits' if name == 'waits' else 'is ' + name}"
        for number, name in enumerate(states)
    ]
    return show(fig, f"The output after {moment:.1f} µs: {', '.join(said)}.")
