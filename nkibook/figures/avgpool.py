"""The access pattern of a pooling kernel, read from its trace and drawn.

The simulator writes down every instruction with the access patterns of its operands. What is drawn
here is the pattern of the reduction that the kernel issued, not the formula its author had in mind.
There is no such record on a Neuron instance.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkibook.tracing import program_of

# Up to so many rows and columns, an element read by one output carries its name.
_LABELLED = 6


@dataclass(frozen=True)
class Reads:
    """What one reduction reads of an SBUF tile, in each partition.

    Attributes:
        tile: rows and columns of the tile.
        offset: the first element read, counted from the start of a partition.
        sizes, strides: of the four free axes of the pattern (down, across, and both within the
            window), strides in elements.
        elements: (out_H, out_W, window_H, window_W), the element that each output reads at each
            place of its window.
        loaded: (rows, columns), whether a DMA wrote the element, or an engine copied it from where
            a DMA did. The rest is padding.
    """

    tile: tuple[int, int]
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    elements: np.ndarray
    loaded: np.ndarray

    @property
    def readers(self) -> np.ndarray:
        """How many outputs read each element: (rows, columns)."""
        count = np.bincount(self.elements.ravel(), minlength=math.prod(self.tile))
        return count.reshape(self.tile)


def window_reads(kernel: Any, *args: Any) -> Reads:
    """Read the access pattern of the window sum from a kernel's trace.

    Args:
        kernel: a pooling kernel that sums its windows with one instruction.
        *args: its arguments. Of arrays only shape and dtype matter.

    Raises:
        RuntimeError: on a Neuron instance, where kernels leave no trace.
        ValueError: the kernel has not one reduction of a 5-dimensional pattern.
    """
    instructions = program_of(kernel, *args).instructions
    sums = [i for i in instructions if i.opcode == "tensor_reduce"]
    operand = next((x for i in sums for x in i.tiles_in), None)
    if len(sums) != 1 or operand is None or operand.ndim != 5:
        raise ValueError(
            f"{kernel.__name__} issues {len(sums)} reductions here. The picture shows one, of a "
            "5-dimensional pattern: choose an image that fits into one tile."
        )
    buffer = operand.buffer
    sizes, strides = operand.shape[1:], operand.strides[1:]
    columns = strides[2]  # a row of the window is a row of the tile further on
    tile = (math.prod(buffer.shape[1:]) // columns, columns)
    elements = _elements(operand)
    loaded = np.zeros(math.prod(tile), bool)
    from_hbm = {i.outs[0].buffer for i in instructions if i.opcode == "dma_copy"}
    for instruction in instructions:
        if not instruction.outs or instruction.outs[0].buffer is not buffer:
            continue
        copied = instruction.opcode == "tensor_copy" and any(
            tile.buffer in from_hbm for tile in instruction.tiles_in
        )
        if instruction.opcode == "dma_copy" or copied:
            loaded[_elements(instruction.outs[0])] = True
    return Reads(tile, operand.offset, sizes, strides, elements, loaded.reshape(tile))


def _elements(tile: Any) -> np.ndarray:
    """The elements of a partition that an access pattern names, counted from its start."""
    places = np.ogrid[tuple(slice(n) for n in tile.shape[1:])]
    return np.asarray(
        tile.offset + sum(s * i for s, i in zip(tile.strides[1:], places, strict=True))
    )


def draw_reads(reads: Reads) -> Any:
    """Draw the SBUF tile, each element in the colours of the outputs that read it, and the outputs.

    Args:
        reads: from :func:`window_reads`.

    Returns:
        A figure for display, as :func:`nkibook.plots.show` gives.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    from nkibook.plots import COLORS, INK, show, subplots
    from nkibook.plots.figure import WIDTH, text_color

    palette = list(COLORS.values())
    out_rows, out_cols = reads.sizes[:2]
    (rows, cols), across = reads.tile, reads.tile[1]
    # Neighbours differ: one colour on to the right, three further on below.
    color = {
        (y, x): palette[(3 * y + x) % len(palette)]
        for y in range(out_rows)
        for x in range(out_cols)
    }
    readers: dict[int, list[tuple[int, int]]] = {}
    for y, x in color:
        for element in reads.elements[y, x].ravel():
            readers.setdefault(int(element), []).append((y, x))

    fig, (left, right) = subplots(
        1, 2, size=(WIDTH, 3.2), width_ratios=(cols, max(out_cols, cols / 2))
    )
    parts, padding = [], []
    for element in range(rows * cols):
        row, col = divmod(element, across)
        owners = readers.get(element, [])
        side = math.ceil(math.sqrt(max(len(owners), 1)))
        for i, owner in enumerate(owners):
            down, along = divmod(i, side)
            height = 1 / math.ceil(len(owners) / side)
            corner = (col + along / side, row + down * height)
            parts.append(Rectangle(corner, 1 / side, height, facecolor=color[owner], linewidth=0))
        if len(owners) == 1 and max(rows, cols) <= _LABELLED:
            said: dict[str, Any] = {
                "color": text_color(color[owners[0]]),
                "ha": "center",
                "va": "center",
            }
            # Over hatching, too.
            said["bbox"] = {"facecolor": color[owners[0]], "linewidth": 0, "pad": 1}
            left.text(col + 0.5, row + 0.5, "{}, {}".format(*owners[0]), fontsize=10.5, **said)
        if not reads.loaded[row, col]:
            padding.append(Rectangle((col, row), 1, 1))
    left.add_collection(PatchCollection(parts, match_original=True))
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": INK, "linewidth": 0.8}
    left.add_collection(PatchCollection(padding, hatch="////", **look))
    frames = [Rectangle((col, row), 1, 1) for row in range(rows) for col in range(cols)]
    left.add_collection(PatchCollection(frames, **look))
    for (y, x), fill in color.items():
        right.add_patch(Rectangle((x, y), 1, 1, facecolor=fill, edgecolor=INK, linewidth=0.8))
        look = {"color": text_color(fill), "ha": "center", "va": "center", "fontsize": 10.5}
        right.text(x + 0.5, y + 0.5, f"{y}, {x}", **look)
    for axes, title, (height, width) in (
        (left, "SBUF tile, one partition", (rows, cols)),
        (right, "output", (out_rows, out_cols)),
    ):
        axes.set_xlim(0, width)
        axes.set_ylim(height, 0)
        axes.set_aspect("equal")
        axes.set_title(title, fontsize=11)
        axes.set_xticks(np.arange(width) + 0.5, range(width))
        axes.set_yticks(np.arange(height) + 0.5, range(height))
        axes.set_xlabel("column")
        _without_frame(axes)
    left.set_ylabel("row")
    return show(fig, describe_reads(reads), describe_pattern(reads))


def draw_channels(channels: int, size: int, window: int) -> Any:
    """Draw where images lie in SBUF: a channel a partition, its rows one after another.

    Args:
        channels: how many; the first three and the last are drawn.
        size: rows and columns of each image.
        window: rows and columns of the window that is marked, the first of each image.
    """
    from matplotlib.patches import Rectangle

    from nkibook.plots import COLORS, INK, show, subplots
    from nkibook.plots.figure import WIDTH, text_color

    palette = list(COLORS.values())
    fig, axes = subplots(size=(WIDTH, 3.2))
    cells = size * size
    shown = {0: 0, 1: 1, 2: 2, channels - 1: 4}  # partition: at which height
    for number, at in enumerate(shown.values()):
        color = palette[number]
        for element in range(cells):
            row, column = divmod(element, size)
            marked = row < window and column < window
            look: dict[str, Any] = {
                "facecolor": color,
                "alpha": 1.0 if marked else 0.35,
                "edgecolor": INK,
                "linewidth": 0.8,
            }
            axes.add_patch(Rectangle((element, at + 0.1), 1, 0.8, **look))
            if marked:
                write = {"ha": "center", "va": "center", "color": text_color(color)}
                axes.text(element + 0.5, at + 0.5, f"{row},{column}", fontsize=7, **write)
        axes.vlines(range(0, cells + 1, size), at + 0.05, at + 0.95, color=INK, linewidth=1.8)
    axes.text(cells / 2, 3.5, "⋮", ha="center", va="center", fontsize=16)
    axes.set_xlim(0, cells)
    axes.set_ylim(5, 0)
    axes.set_xticks([size * (row + 0.5) for row in range(size)], [f"row {r}" for r in range(size)])
    axes.set_yticks([at + 0.5 for at in shown.values()], [f"channel {c}" for c in shown])
    axes.set_xlabel("elements of a partition: the image, row after row")
    axes.set_ylabel("partition")
    _without_frame(axes)
    return show(
        fig,
        f"SBUF with a channel in each of {channels} partitions. A partition contains the {size} "
        f"rows of {size} elements of its image one after another. The first window of "
        f"{window}x{window} is marked: it is {window} elements of each of the first {window} rows, "
        "in every partition.",
        f"Strong colours mark the first window of {window}x{window}. Its elements show their row "
        "and column. One instruction works on all partitions.",
    )


def _without_frame(axes: Any) -> None:
    """Leave the labels of the ticks, and neither ticks nor a frame."""
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)


def draw_steps(axis: Any) -> Any:
    """Draw the steps in which the gradient of overlapping windows is written, along one axis.

    Args:
        axis: sizes along the axis, an `Axis` of kernels.avgpool.geometry; a few elements long.

    Returns:
        A figure: a row a step, a cell an element of the image, with the window that writes it.
    """
    from matplotlib.patches import Rectangle

    from nkibook.plots import COLORS, INK, show, subplots
    from nkibook.plots.figure import WIDTH, text_color

    steps = -(-axis.kernel // axis.stride)
    palette = list(COLORS.values())
    fig, axes = subplots(size=(WIDTH, 0.9 + 0.5 * steps))
    said = []
    for q in range(steps):
        for window in range(axis.out):
            first = axis.start(window) + q * axis.stride
            last = min(first + axis.stride, axis.start(window) + axis.kernel)
            for element in range(max(first, 0), min(last, axis.size)):
                fill = palette[window % len(palette)]
                axes.add_patch(Rectangle((element, q + 0.1), 1, 0.8, facecolor=fill, edgecolor=INK))
                look = {"color": text_color(fill), "ha": "center", "va": "center"}
                axes.text(element + 0.5, q + 0.5, str(window), fontsize=10.5, **look)
        said.append(f"step {q} writes rows of group i + {q} for window i")
    for edge in range(-axis.padding % axis.stride, axis.size + 1, axis.stride):
        axes.axvline(edge, color=INK, linewidth=1.5)
    axes.set_xlim(0, axis.size)
    axes.set_ylim(steps, 0)
    axes.set_xticks(np.arange(axis.size) + 0.5, range(axis.size))
    axes.set_yticks(np.arange(steps) + 0.5, [f"step {q}" for q in range(steps)])
    axes.set_xlabel("row of the image; thick lines are between groups")
    _without_frame(axes)
    return show(
        fig,
        f"{axis.size} rows in groups of {axis.stride}, {axis.out} windows of {axis.kernel}: "
        f"{'; '.join(said)}. Within a step, no two windows write the same row.",
        "A number is the window that writes the row in this step.",
    )


def draw_bands(rows: Any, cols: Any, count: int = 4) -> Any:
    """Draw which rows of the image the first bands of the forward kernel load, and which twice.

    Args:
        rows, cols: sizes along both axes, `Axis` objects of kernels.avgpool.geometry.
        count: how many bands.
    """
    from kernels.avgpool.geometry import Run, forward_tiles
    from nkibook.plots import COLORS, INK, show, subplots
    from nkibook.plots.figure import WIDTH

    bands = [tile for tile, across in forward_tiles(rows, cols) if across.outs.first == 0][:count]
    image = Run(0, rows.size)
    loaded = [tile.image(rows, tile.parts[0]).common(image) for tile in bands]
    fig, axes = subplots(size=(WIDTH, 0.9 + 0.42 * len(bands)))
    for number, run in enumerate(loaded):
        axes.barh(number, run.size, left=run.first, height=0.6, color=COLORS["sky"], edgecolor=INK)
        if number:
            twice = run.common(loaded[number - 1])
            for row in (number - 1, number):
                axes.barh(row, twice.size, left=twice.first, height=0.6, color=COLORS["orange"])
    axes.set_yticks(
        range(len(bands)),
        [f"tile {n}: output rows {t.outs.first} to {t.outs.last - 1}" for n, t in enumerate(bands)],
    )
    axes.invert_yaxis()
    axes.set_xlabel("row of the image")
    listed = "; ".join(
        f"tile {n} loads rows {run.first} to {run.last - 1}" for n, run in enumerate(loaded)
    )
    return show(
        fig, f"{listed}.", "Orange: rows that windows of two tiles share. Both tiles load them."
    )


def describe_pattern(reads: Reads) -> str:
    """The access pattern in words: first element, then (stride, size) of each axis."""
    pairs = zip(reads.strides, reads.sizes, strict=True)
    steps = ", ".join(f"({stride}, {size})" for stride, size in pairs)
    return f"Pattern in each partition: first element {reads.offset}, (stride, size) {steps}."


def describe_reads(reads: Reads) -> str:
    """What the picture shows, in words."""
    shared = int((reads.readers > 1).sum())
    unread = int((reads.readers == 0).sum())
    padding = int((~reads.loaded).sum())
    text = (
        f"A tile of {reads.tile[0]}x{reads.tile[1]} elements and {reads.sizes[0]}x{reads.sizes[1]} "
        f"outputs. Each output has a colour, and so have the {reads.sizes[2]}x{reads.sizes[3]} "
        f"elements that it reads. {shared} elements are read by several outputs, {unread} by none."
    )
    return f"{text} {padding} hatched elements are padding." if padding else text
