"""Pictures for the GIOU pages: pairs of boxes, boxes that move, and the reads of a kernel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle

from nkibook.plots import COLORS, INK, Figure, Moving, show, subplots
from nkibook.plots.figure import WIDTH, text_color
from nkibook.tracing import program_of

_TARGET, _PREDICTION = COLORS["blue"], COLORS["orange"]


def pairs_of_boxes(
    pairs: Mapping[str, tuple[Any, Any]], scores: Mapping[str, tuple[float, float]]
) -> Figure:
    """Draw pairs of boxes side by side, with their enclosing box and their scores.

    Args:
        pairs: what a pair shows -> (prediction, target), each x1, y1, x2, y2.
        scores: the same keys -> (IoU, GIOU), for the titles.

    Raises:
        ValueError: the keys differ.
    """
    if pairs.keys() != scores.keys():
        raise ValueError(f"pairs are {list(pairs)} and scores {list(scores)}: give each its score.")
    fig, axes = subplots(1, len(pairs), size=(WIDTH, 2.2), squeeze=False, sharex=True, sharey=True)
    said = []
    for panel, (name, (prediction, target)) in zip(axes[0], pairs.items(), strict=True):
        iou, giou = scores[name]
        corners = np.array([prediction, target], float)
        hull = (*corners[:, :2].min(0), *corners[:, 2:].max(0))
        _outline(panel, hull, INK, linestyle=":")
        for box, color in ((prediction, _PREDICTION), (target, _TARGET)):
            _outline(panel, box, color, facecolor=color, alpha=0.45)
            _outline(panel, box, color, linewidth=1.5)
        panel.set_title(f"{name}\nIoU {iou:.2f}\nGIOU {giou:.2f}", fontsize=10)
        panel.set_aspect("equal")
        panel.set_xticks([])
        panel.set_yticks([])
        panel.autoscale_view()
        for side in panel.spines.values():
            side.set_visible(False)
        said.append(f"{name}: IoU {iou:.2f}, GIOU {giou:.2f}")
    axes[0][0].invert_yaxis()
    handles = [
        Patch(facecolor=_PREDICTION, alpha=0.6, label="prediction"),
        Patch(facecolor=_TARGET, alpha=0.6, label="target"),
        Line2D([], [], color=INK, linestyle=":", label="smallest box around both"),
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return show(fig, f"Pairs of boxes with the smallest box around both. {'; '.join(said)}.")


def moving_boxes(history: Any, targets: Any, *, steps: int = 12, alt: str) -> Moving:
    """Show how predicted boxes move onto their targets, on one scale; y goes down, as in images.

    Args:
        history: (steps taken + 1, n, 4), the boxes before each step and after the last.
        targets: (n, 4).
        steps: how many frames, evenly spaced in the distance travelled, so that the fast beginning
            does not hide the slow end.
        alt: what the pictures show together.
    """
    history, targets = np.asarray(history, float), np.asarray(targets, float)
    travelled = np.abs(np.diff(history, axis=0)).sum((1, 2)).cumsum()
    moments = np.searchsorted(travelled, np.linspace(0, travelled[-1], steps)[1:-1])
    everything = np.concatenate([history.reshape(-1, 4), targets])
    low, high = everything[:, :2].min(0) - 2, everything[:, 2:].max(0) + 2
    frames = [
        _moment(history, targets, moment, (low, high), alt)
        for moment in [0, *moments, len(history) - 1]
    ]
    return Moving(frames, "the boxes move", seconds=0.5)


def _moment(
    history: np.ndarray, targets: np.ndarray, moment: int, limits: tuple[Any, Any], alt: str
) -> Figure:
    """The boxes after so many steps, the way of their centres until then, and their targets."""
    fig, axes = subplots(size=(4.6, 4.4))
    for path, target in zip(history.swapaxes(0, 1), targets, strict=True):
        _outline(axes, target, _TARGET, facecolor=_TARGET, alpha=0.4)
        _outline(axes, path[0], _PREDICTION, linestyle="--", linewidth=1.5)
        _outline(axes, path[moment], _PREDICTION, linewidth=3)
        centers = (path[: moment + 1, :2] + path[: moment + 1, 2:]) / 2
        axes.plot(*centers.T, color=INK, linewidth=1)
    (left, top), (right, bottom) = limits
    axes.set_xlim(left, right)
    axes.set_ylim(bottom, top)
    axes.set_aspect("equal")
    axes.set_xlabel("x, pixels")
    axes.set_ylabel("y, pixels")
    axes.set_title(f"after {moment} of {len(history) - 1} steps", loc="left", fontsize=11)
    handles = [
        Patch(facecolor=_TARGET, alpha=0.5, label="target"),
        Line2D([], [], color=_PREDICTION, linestyle="--", label="start"),
        Line2D([], [], color=_PREDICTION, linewidth=3, label="now"),
    ]
    fig.legend(handles=handles, loc="outside lower center", ncols=3)
    return show(fig, f"{' '.join(alt.split())} Here after {moment} of {len(history) - 1} steps.")


def operand_memories(kernel: Any, *args: Any) -> Figure:
    """Draw, for each Vector instruction with two inputs, in which memory they and the result are.

    Args:
        kernel: an NKI kernel.
        *args: its arguments, as for a launch.
    """
    rows = [
        (i.label.removeprefix("tensor_tensor"), *(x.buffer.space.value for x in i.ins), i.outs[0])
        for i in _instructions(kernel, *args)
        if i.opcode == "tensor_tensor" and i.engine.value == "Vector"
    ]
    rows = [(name, one, two, out.buffer.space.value) for name, one, two, out in rows]
    both = [number for number, (_, one, two, _) in enumerate(rows) if one == two == "sbuf"]
    fills = {"sbuf": COLORS["sky"], "psum": COLORS["yellow"]}
    fig, axes = subplots(size=(WIDTH, 0.9 + 0.25 * len(rows)))
    for number, (_, *memories) in enumerate(rows):
        for column, memory in zip((0, 1, 2.4), memories, strict=True):
            axes.add_patch(
                Rectangle(
                    (column, number + 0.08), 0.94, 0.84, facecolor=fills[memory], edgecolor=INK
                )
            )
        if number in both:
            axes.text(3.5, number + 0.5, "two inputs in SBUF", va="center", fontsize=10.5)
    axes.set_xlim(0, 5.6)
    axes.set_ylim(len(rows), 0)
    axes.xaxis.tick_top()
    axes.set_xticks([0.47, 1.47, 2.87], ["input", "input", "result"])
    axes.set_yticks(
        np.arange(len(rows)) + 0.5,
        [f"{n + 1}. {name.strip('()')}" for n, (name, *_) in enumerate(rows)],
    )
    axes.tick_params(length=0)
    for side in axes.spines.values():
        side.set_visible(False)
    handles = [Patch(facecolor=fill, label=name.upper()) for name, fill in fills.items()]
    fig.legend(handles=handles, loc="outside lower center", ncols=2)
    return show(
        fig,
        f"{len(rows)} instructions with two inputs, and the memory of each input and result. "
        f"{len(rows) - len(both)} read at most one input from SBUF. Instructions with "
        f"both inputs in SBUF: {', '.join(str(n + 1) for n in both) or 'none'}.",
    )


@dataclass(frozen=True)
class Reads:
    """Elements of a partition that the instructions of one program read in the same way.

    Attributes:
        offset: the first element.
        stride: elements from one to the next.
        count: how many.
        instructions: how many instructions read them.
    """

    offset: int
    stride: int
    count: int
    instructions: int


def reads_of_boxes(kernel: Any, *args: Any) -> list[Reads]:
    """How a kernel's compute instructions read the first tile of boxes that it loads.

    Args:
        kernel: an NKI kernel.
        *args: its arguments. Of arrays only shape and dtype matter.

    Returns:
        One entry for each way, by offset.

    Raises:
        RuntimeError: on a Neuron instance, where kernels leave no trace.
    """
    instructions = _instructions(kernel, *args)
    tile = next(i.outs[0].buffer for i in instructions if i.opcode == "dma_copy")
    found: dict[tuple[int, int, int], int] = {}
    for instruction in instructions:
        for operand in instruction.ins:
            if getattr(operand, "buffer", None) is tile:
                _, *counts = operand.shape
                _, *strides = operand.strides
                way = (operand.offset, strides[-1], int(np.prod(counts)))
                found[way] = found.get(way, 0) + 1
    return [Reads(*way, count) for way, count in sorted(found.items())]


def stored_shapes(kernel: Any, *args: Any) -> list[tuple[int, ...]]:
    """Shapes of the tiles that a kernel stores in HBM, in the order of its instructions.

    Args and errors are those of :func:`reads_of_boxes`.
    """
    instructions = _instructions(kernel, *args)
    stores = [i for i in instructions if i.opcode == "dma_copy" and not i.outs[0].space.on_chip]
    return [store.outs[0].shape for store in stores]


def draw_reads(reads: list[Reads], names: list[str], *, elements: int = 16) -> Figure:
    """Draw the beginning of one partition of SBUF, each element in the colour of who reads it.

    Args:
        reads: from :func:`reads_of_boxes`.
        names: what each entry of `reads` is.
        elements: how many elements to draw.
    """
    palette = list(COLORS.values())
    fig, axes = subplots(size=(WIDTH, 1.5))
    for entry, name, color in zip(reads, names, palette, strict=False):
        for element in range(entry.offset, elements, entry.stride):
            axes.add_patch(Rectangle((element, 0), 1, 1, facecolor=color, edgecolor=INK))
            look = {"color": text_color(color), "ha": "center", "va": "center", "fontsize": 9}
            axes.text(element + 0.5, 0.5, name, **look)
    axes.set_xlim(0, elements)
    axes.set_ylim(0, 1)
    axes.set_yticks([])
    axes.set_xticks(np.arange(0, elements, 4) + 0.5, np.arange(0, elements, 4))
    axes.set_xlabel("element of a partition, 4 bytes each")
    for side in axes.spines.values():
        side.set_visible(False)
    described = "; ".join(
        f"{name}: {entry.count} elements, one in {entry.stride}, from element {entry.offset}, "
        f"read by {entry.instructions} instructions"
        for entry, name in zip(reads, names, strict=True)
    )
    return show(fig, f"The first {elements} elements of a partition, by reader. {described}.")


def _outline(axes: Axes, box: Any, color: str, **look: Any) -> None:
    """Add a box to the axes; an outline unless it is given a face colour."""
    x1, y1, x2, y2 = (float(x) for x in box)
    look = {"facecolor": "none", "edgecolor": color} | look
    axes.add_patch(Rectangle((x1, y1), x2 - x1, y2 - y1, **look))


def _instructions(kernel: Any, *args: Any) -> list[Any]:
    """The instructions of a kernel's trace."""
    return program_of(kernel, *args).instructions
