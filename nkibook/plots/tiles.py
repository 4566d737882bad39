"""Pictures of an array cut in tiles, coloured by the instance that owns each tile.

The rectangles come from a kernel's trace, so the picture shows what the kernel did and not what
its author meant.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from nkibook.plots.figure import COLORS, INK, WIDTH, Figure, show, subplots, text_color

Tile = tuple[int, int, int, int, Hashable]

# Labels below this size, in points, cannot be read: a legend takes their place, up to so many
# owners.
_MIN_LABEL = 10.0
_MAX_LABEL = 11.0
_MAX_LEGEND = 8


def tile_grid(
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    *,
    name: str = "array",
    owner: Callable[[Hashable], str] = "instance {}".format,
    alt: str | None = None,
    caption: str | None = None,
) -> Figure:
    """Draw an array cut in tiles, each in the colour of its owner.

    Args:
        shape: rows and columns of the array. Rows go down, as they do in memory.
        tiles: one (row0, row1, col0, col1, owner) a tile; row1 and col1 are exclusive. The owner
            is anything hashable: a program id such as ``(0, 1)``, or the number of a NeuronCore.
        name: the array's name, for the text alternative.
        owner: turns an owner into its label. The default writes ``instance (0, 1)``; in tiles that
            are too narrow for it, the program id alone.
        alt: text alternative; by default it is written from shape and tiles.
        caption: text under the figure.

    Raises:
        ValueError: when a tile is empty or reaches outside of the array.
    """
    rows, cols = shape
    # The picture keeps the array's proportions, between 1:1 and 4:1, so that labels fit.
    height = 0.8 + 4.7 * min(max(rows / max(cols, 1), 0.25), 0.8)
    fig, axes = subplots(size=(WIDTH, height))
    owners = draw_tiles(axes, shape, tiles, owner=owner)
    if not axes.texts and 1 < len(owners) <= _MAX_LEGEND:
        handles = [Patch(color=color, label=owner(key)) for key, color in owners.items()]
        fig.set_size_inches(WIDTH, height + 0.3 * -(-len(owners) // 4))  # room for the legend
        fig.legend(handles=handles, loc="outside lower center", ncols=4)
    return show(fig, alt or _describe(shape, tiles, name, owner, owners), caption)


def draw_tiles(
    axes: Axes,
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    *,
    owner: Callable[[Hashable], str] = "instance {}".format,
) -> dict[Hashable, str]:
    """Draw the tiles of :func:`tile_grid` on existing axes; return the colour of each owner.

    Raises:
        ValueError: when a tile is empty or reaches outside of the array.
    """
    rows, cols = shape
    _check(shape, tiles)
    palette = list(COLORS.values())
    owners: dict[Hashable, str] = {}
    for *_, key in tiles:
        owners.setdefault(key, palette[len(owners) % len(palette)])
    label, size = owner, _label_size(axes, shape, tiles, owner)
    if size < _MIN_LABEL and all(isinstance(key, tuple) for key in owners):
        label, size = str, _label_size(axes, shape, tiles, str)
    for row0, row1, col0, col1, key in tiles:
        fill = owners[key]
        axes.add_patch(
            Rectangle(
                (col0, row0), col1 - col0, row1 - row0, facecolor=fill, edgecolor=INK, linewidth=1
            )
        )
        if size >= _MIN_LABEL:
            middle = ((col0 + col1) / 2, (row0 + row1) / 2)
            look: dict[str, Any] = {
                "color": text_color(fill),
                "fontsize": size,
                "ha": "center",
                "va": "center",
            }
            axes.text(*middle, label(key), **look)
    axes.set_xlim(0, cols)
    axes.set_ylim(rows, 0)
    axes.set_xticks(_ticks(cols, [edge for tile in tiles for edge in tile[2:4]]))
    axes.set_yticks(_ticks(rows, [edge for tile in tiles for edge in tile[0:2]]))
    axes.set_xlabel("column")
    axes.set_ylabel("row", rotation_mode="anchor")
    for side in ("top", "right"):
        axes.spines[side].set_visible(True)
    return owners


def _check(shape: tuple[int, int], tiles: Sequence[Tile]) -> None:
    rows, cols = shape
    for tile in tiles:
        row0, row1, col0, col1, _ = tile
        if not (0 <= row0 < row1 <= rows and 0 <= col0 < col1 <= cols):
            raise ValueError(
                f"tile {tile!r} does not lie in an array of shape {tuple(shape)}: a tile is "
                "(row0, row1, col0, col1, owner) with 0 <= row0 < row1 <= rows and "
                "0 <= col0 < col1 <= columns."
            )


def _label_size(
    axes: Axes,
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    owner: Callable[[Hashable], str],
) -> float:
    """Return the largest size, in points, at which every label fits in its tile."""
    figure = axes.get_figure(root=True)
    assert figure is not None  # axes of a figure
    width, height = (72 * 0.8 * inches for inches in figure.get_size_inches())
    size = _MAX_LABEL
    for row0, row1, col0, col1, key in tiles:
        # A letter is about 0.6 of the font size wide.
        across = width * (col1 - col0) / shape[1] / (0.6 * max(len(owner(key)), 1))
        size = min(size, across, 0.7 * height * (row1 - row0) / shape[0])
    return size


def _ticks(size: int, edges: Sequence[int]) -> list[int]:
    marks = sorted({0, size, *edges})
    if len(marks) > 9:
        marks = marks[:: -(-len(marks) // 8)]
        if size - marks[-1] < marks[1] - marks[0]:  # its label would run into the last one
            marks.pop()
        marks.append(size)
    return marks


def _describe(
    shape: tuple[int, int],
    tiles: Sequence[Tile],
    name: str,
    owner: Callable[[Hashable], str],
    owners: dict[Hashable, str],
) -> str:
    sizes = sorted({(row1 - row0, col1 - col0) for row0, row1, col0, col1, _ in tiles})
    size = " and ".join(f"{height}x{width}" for height, width in sizes[:4])
    text = f"{name} of {shape[0]}x{shape[1]} cut in {len(tiles)} tiles of {size}."
    if len(tiles) > _MAX_LEGEND:
        apart = len(owners) <= len(COLORS)
        told = "told apart by colour" if apart else "neighbours differ in colour"
        return f"{text} They belong to {len(owners)} owners, {told}."
    parts = [
        f"{owner(key)}: rows {row0} to {row1 - 1}, columns {col0} to {col1 - 1}"
        for row0, row1, col0, col1, key in tiles
    ]
    return f"{text} {'; '.join(parts)}."
