"""Matrix products: a tile on its way through the Tensor Engine, and what each blocking loads."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from nkibook.plots import COLORS, INK, Figure, Moving, arrow, note, show, subplots
from nkibook.plots.figure import WIDTH, text_color

_CELLS = 4  # on each side of the array that is drawn, in the place of 128
_COLUMNS = 4  # of the moving operand
_TILES = ("blue", "orange")  # the colours of two tiles of the contraction


def systolic() -> Moving:
    """Show two tiles of the contraction pass through the array, into PSUM below."""
    frames = [
        _pass(tile, arrived) for tile in range(len(_TILES)) for arrived in range(_COLUMNS + 1)
    ]
    return Moving(frames, "the columns of two moving tiles pass through the array", seconds=0.8)


def _pass(tile: int, arrived: int) -> Figure:
    """The array while it works on a tile of the contraction, after some columns of it.

    Args:
        tile: which tile of the contraction.
        arrived: how many of its columns have left their products in PSUM; 0 while the stationary
            operand is loaded.
    """
    fig, axes = subplots(size=(WIDTH, 4.2))
    axes.set(xlim=(-0.2, 13.2), ylim=(-0.8, 9.9), aspect="equal")
    axes.axis("off")
    here = COLORS[_TILES[tile]]
    for k in range(_CELLS):
        for n in range(_COLUMNS):
            fill = COLORS["green"] if n == arrived - 1 else here if n >= arrived else None
            _cell(axes, n, 8 - k, fill)
        for m in range(_CELLS):
            _cell(axes, 6 + m, 8 - k, here)
    for n in range(_COLUMNS):
        for m in range(_CELLS):
            summed = tile + (n < arrived)
            fill = COLORS["green"] if n == arrived - 1 else None
            _cell(axes, 6 + m, 3 - n, fill, str(summed) if summed else "")
    note(axes, 0, 9.5, "moving: K rows, N columns")
    note(axes, 6, 9.5, "stationary: K rows, M columns")
    note(
        axes, 10.3, 2, "PSUM: M partitions,\nN columns (drawn as\nrows). Number of\nproducts summed"
    )
    note(axes, 10.3, 7, "a cell multiplies,\nand adds to the sum\nfrom above")
    if arrived:
        arrow(axes, (4.2, 7), (5.9, 7))
        arrow(axes, (8, 4.95), (8, 4.05))
        doing = f"column {arrived} of {_COLUMNS} passes"
    else:
        doing = "stationary tile is loaded"
    note(axes, 0, 3.1, f"tile {tile + 1} of {len(_TILES)}\nof the contraction:\n{doing}")
    return show(
        fig,
        f"A systolic array of {_CELLS} by {_CELLS} cells, which stands for 128 by 128. "
        f"Tile {tile + 1} of {len(_TILES)} of the contraction: {doing}. Each column of the moving "
        "operand enters from the left, and one sum arrives below each column of the array. "
        f"In PSUM, {arrived} of {_COLUMNS} columns, drawn as rows, hold the sum of {tile + 1} "
        f"{'products' if tile else 'product'}.",
    )


def _cell(axes: Axes, x: float, y: float, fill: str | None, text: str = "") -> None:
    axes.add_patch(
        Rectangle(
            (x, y), 0.94, 0.94, facecolor=fill or "none", edgecolor=fill or INK, linewidth=0.8
        )
    )
    if text:
        color = text_color(fill) if fill else INK
        axes.text(x + 0.47, y + 0.44, text, ha="center", va="center", color=color)


def blocking(size: int, block: tuple[int, int], left: int, right: int) -> Figure:
    """Show what a product of square bfloat16 matrices holds in SBUF, and how often it loads each.

    Args:
        size: rows and columns of the matrices.
        block: rows and columns of the result that are computed from what is in SBUF.
        left: elements of the contraction of the left operand that are in SBUF. When they are all of
            it, they stay for a row of blocks; else they are loaded again for each block.
        right: the same of the right operand, which is loaded again for each row of blocks.
    """
    rows, cols = block
    times = {"a": 1 if left == size else size // cols, "b": size // rows}
    unit = 4 / size  # the matrices are drawn 4 wide
    fig, axes = subplots(size=(WIDTH, 4.4))
    axes.set(xlim=(-0.1, 9.2), ylim=(-0.7, 9.1), aspect="equal")
    axes.axis("off")
    for name, x, y, high, wide, color in (
        ("a", 0, 0, rows, left, "blue"),
        ("b", 5, 5, right, cols, "orange"),
        ("c", 5, 0, rows, cols, "green"),
    ):
        corner = (x, y + 4 - high * unit)
        axes.add_patch(Rectangle(corner, wide * unit, high * unit, facecolor=COLORS[color]))
        axes.add_patch(Rectangle((x, y), 4, 4, fill=False, edgecolor=INK, linewidth=0.8))
        note(axes, x + 2, y + 1.2, name, ha="center")
    mib = size * size * 2 / 2**20
    kib = (rows * left + cols * right) * 2 / 128 / 1024
    lines = [f"{name} loaded {n} x {mib:.0f} MiB" for name, n in times.items()]
    lines += [f"together {sum(times.values()) * mib:,.0f} MiB"]
    lines += [f"in SBUF: {kib:.4g} KiB\non each partition"]
    note(axes, 0, 7, "\n".join(lines))
    return show(
        fig,
        f"A block of {rows} by {cols} of the result, from {left} columns of a and {right} rows of "
        f"b in SBUF: {', '.join(lines)}.".replace("\n", " "),
    )
