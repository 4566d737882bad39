"""The tiles of a pooling as nested tuples of numbers, for the kernels in ``import nki``.

NKI 0.6 takes a subset of Python, without ``raise`` and without classes of Python's own. So callers
plan with ``geometry``, and a kernel, which runs in 0.6 and 0.7, gets what came out.

A box is (first row, row after the last, first column, column after the last).
"""

from __future__ import annotations

from typing import Any

from kernels.avgpool.arguments import WHOLE_ROWS
from kernels.avgpool.geometry import (
    Axis,
    BackwardTile,
    ForwardTile,
    Pooling,
    Run,
    around,
    backward_tiles,
    forward_tiles,
    runs,
)

Box = tuple[int, int, int, int]


def forward_plan(settings: Pooling, height: int, width: int) -> tuple[Any, ...]:
    """What :func:`kernels.avgpool.nki.nki_avg_pool2d_kernel` does with an image.

    Returns:
        (height and width of the output, (stride down, stride across), tiles). A tile is (box of the
        output, parts, factors). A part of the windows is (its height and width, the box of the
        image to load, the column in it where the windows begin, the frame around it). A frame is
        None where no window reaches over the edge, else ((rows, columns), (row, column, rows,
        columns) of the image in it, boxes to fill with zeros). Factors are (box of the tile,
        number): what sums are multiplied by.

    Raises:
        ValueError: the window does not fit into the image once.
    """
    axes = settings.axes(height, width)
    tiles = []
    for tile in forward_tiles(*axes):
        outs = tile[0].outs, tile[1].outs
        parts = tuple(_parts(axes, tile))
        tiles.append((_box(*outs), parts, _factors(settings, axes, outs)))
    return (axes[0].out, axes[1].out), settings.stride, tuple(tiles)


def backward_plan(settings: Pooling, height: int, width: int) -> tuple[Any, ...]:
    """What :func:`kernels.avgpool.nki.nki_avg_pool2d_backward_kernel` does.

    Returns:
        (height and width of the input, tiles). A tile is (box of the output's gradient, factors,
        rows, columns, box of the input, row and column of it in the tile). Rows and columns are
        (how many the tile has, distance between two windows in it, whether all are written by the
        first step, steps), and a step is (first output, outputs, element of the tile where they
        go, elements that each one fills).

    Raises:
        ValueError: as :func:`forward_plan`.
    """
    axes = settings.axes(height, width)
    tiles = []
    for tile in backward_tiles(*axes):
        pairs = tuple(zip(tile, axes, strict=True))
        images = [part.image(axis) for part, axis in pairs]
        kept = [i.common(Run(0, axis.size)) for i, axis in zip(images, axes, strict=True)]
        outs = tile[0].outs(axes[0]), tile[1].outs(axes[1])
        at = kept[0].first - images[0].first, kept[1].first - images[1].first
        spreads = [_spreads(part, axis) for part, axis in pairs]
        tiles.append((_box(*outs), _factors(settings, axes, outs), *spreads, _box(*kept), at))
    return (height, width), tuple(tiles)


def _box(rows: Run, cols: Run) -> Box:
    return *rows, *cols


def _parts(axes: tuple[Axis, Axis], tile: tuple[ForwardTile, ForwardTile]) -> Any:
    """The parts of the windows that meet the image."""
    whole = Run(0, axes[1].size)
    for row_part in tile[0].parts:
        for col_part in tile[1].parts:
            image = tile[0].image(axes[0], row_part), tile[1].image(axes[1], col_part)
            rows, cols = (i.common(Run(0, a.size)) for i, a in zip(image, axes, strict=True))
            if not rows.size or not cols.size:
                continue
            # Whole rows lie in HBM as one run, which DMA moves far faster than a run for each row.
            read = whole if whole.size <= WHOLE_ROWS * cols.size else cols
            frame = None
            if (rows, cols) != image:
                size = image[0].size, image[1].size
                at = rows.first - image[0].first, cols.first - image[1].first
                strips = tuple(_box(*s) for s in around(size, at, (rows.size, cols.size)))
                frame = size, (*at, rows.size, cols.size), strips
            window = row_part.size, col_part.size
            yield window, _box(rows, read), cols.first - read.first, frame


def _factors(
    settings: Pooling, axes: tuple[Axis, Axis], outs: tuple[Run, Run]
) -> tuple[tuple[Box, float], ...]:
    """One over the count of each window. Windows of one count are a few boxes: the inner ones, and
    those at edges and corners."""
    if settings.divisor_override is not None:
        box = 0, outs[0].size, 0, outs[1].size
        return ((box, 1 / settings.divisor_override),)
    by_row, by_col = (runs(settings.counts(a, *o)) for a, o in zip(axes, outs, strict=True))
    return tuple((_box(r, c), 1 / (rows * cols)) for r, rows in by_row for c, cols in by_col)


def _spreads(tile: BackwardTile, axis: Axis) -> tuple[Any, ...]:
    origin = tile.outs(axis).first
    steps = tuple((s.outs.first - origin, s.outs.size, s.to, s.phases) for s in tile.spreads(axis))
    complete = len(steps) == 1 and steps[0][1] * steps[0][3] == tile.size
    return tile.size, tile.phases.size, complete, steps
