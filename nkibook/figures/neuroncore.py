"""Diagrams of the page "The NeuronCore in ten minutes"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.patches import Rectangle

from nkibook.chip import Chip
from nkibook.plots import COLORS, INK, Figure, arrow, box, note, show, subplots


def core(chip: Chip) -> Figure:
    """Draw the engines and memories of one NeuronCore, and what data moves between them."""
    sbuf, psum = _binary(chip.sbuf), _binary(chip.psum)
    hbm = f"{_binary(chip.hbm * 2 // chip.cores)} for two cores"
    fig, axes = _canvas(10, 6.2, size=(5.6, 3.9))
    axes.add_patch(Rectangle((0.1, 1.9), 9.8, 4.2, fill=False, edgecolor=INK, linestyle="--"))
    note(axes, 0.3, 5.8, chip.name)
    for x, name, color in (
        (0.3, "GpSimd\nEngine", "purple"),
        (2.55, "Scalar\nEngine", "orange"),
        (4.8, "Vector\nEngine", "green"),
        (7.4, "Tensor\nEngine", "blue"),
    ):
        box(axes, x, 4.3, 1.9, 1.1, name, color=color)
    box(axes, 0.3, 2.2, 5.7, 0.9, f"SBUF, {sbuf}", color="sky")
    box(axes, 7.4, 2.2, 2.3, 0.9, f"PSUM, {psum}", color="yellow")
    for x in (1.25, 3.5, 5.55):
        arrow(axes, (x, 3.1), (x, 4.3), both=True)
    arrow(axes, (5.85, 3.1), (7.5, 4.3))
    arrow(axes, (8.7, 4.3), (8.7, 3.1))
    arrow(axes, (7.6, 3.1), (6.5, 4.3), both=True)
    arrow(axes, (7.4, 2.5), (4.3, 4.3), both=True)
    box(axes, 0.3, 0.1, 5.7, 0.9, f"HBM, {hbm}")
    arrow(axes, (3.15, 1.0), (3.15, 2.2), "16 DMA engines", both=True, offset=(1.5, 0))
    return show(
        fig,
        f"A {chip.name}: GpSimd, Scalar and Vector Engine read and write SBUF ({sbuf}). The "
        f"Tensor Engine reads SBUF and writes PSUM ({psum}), which the Vector and the Scalar "
        f"Engine reach too. 16 DMA engines move data between SBUF and HBM, {hbm}.",
        "Numbers: published, AWS architecture guide.",
    )


def memories(sizes: Mapping[str, float]) -> Figure:
    """Draw the memories as squares whose areas are to scale.

    Args:
        sizes: size of each memory in bytes, by its name, the largest first.
    """
    fig, axes = subplots(size=(5.6, 3.0))
    largest = max(sizes.values()) ** 0.5
    colors = {"SBUF": COLORS["sky"], "PSUM": COLORS["yellow"]}  # as in `core`
    left = 0.0
    for name, size in sizes.items():
        side = size**0.5 / largest
        fill = colors.get(name, "none")
        axes.add_patch(Rectangle((left, 0), side, side, facecolor=fill, edgecolor=INK))
        label = f"{name}\n{_binary(size)}"
        if side > 0.5:
            axes.text(left + side / 2, side / 2, label, ha="center", va="center")
        else:
            axes.text(left + side / 2, side + 0.04, label, ha="center", va="bottom")
        left += max(side, 0.1) + 0.16
    axes.set_xlim(-0.02, left)
    axes.set_ylim(-0.02, 1.02)
    axes.set_aspect("equal")
    axes.axis("off")
    listed = ", ".join(f"{name} {_binary(size)}" for name, size in sizes.items())
    return show(
        fig,
        f"Squares whose areas are the sizes of the memories (published): {listed}.",
        "Areas are to scale. Sizes: published.",
    )


def tile_in_sbuf(rows: int, bytes_a_row: int, partition_bytes: int) -> Figure:
    """Draw a tile across the partitions of SBUF, to scale.

    Args:
        rows: size of the tile's partition axis.
        bytes_a_row: bytes of the tile in each partition.
        partition_bytes: bytes of a partition.
    """
    fig, axes = subplots(size=(5.6, 2.8))
    kib = partition_bytes / 1024
    axes.add_patch(Rectangle((0, 0), kib, 128, fill=False, edgecolor=INK, linewidth=1.5))
    for partition in range(8, 128, 8):
        axes.plot([0, kib], [partition, partition], color=INK, linewidth=0.6, alpha=0.3)
    axes.add_patch(Rectangle((0, 0), bytes_a_row / 1024, rows, facecolor=COLORS["vermillion"]))
    axes.annotate(
        f"one tile: {rows} partitions,\n{bytes_a_row / 1024:g} KiB in each",
        xy=(bytes_a_row / 1024, 48),
        xytext=(28, 48),
        va="center",
        arrowprops={"arrowstyle": "-|>", "color": INK},
    )
    axes.set_xlim(-1, kib + 1)
    axes.set_ylim(128, 0)
    axes.set_yticks([0, 32, 64, 96, 127])
    axes.set_xticks(range(0, int(kib) + 1, 32))
    axes.set_xlabel("address in the partition, KiB (free axis)")
    axes.set_ylabel("partition", rotation_mode="anchor")
    return show(
        fig,
        f"SBUF as 128 partitions of {kib:g} KiB. A tile takes {bytes_a_row / 1024:g} KiB in each "
        f"of {rows} partitions, a thin strip at the left edge.",
        "To scale: a line stands for eight partitions.",
    )


def dma() -> Figure:
    """Draw how the rows of a 128x512 float32 tile travel from HBM to SBUF."""
    fig, axes = _canvas(10, 6.2, size=(5.6, 3.7))
    note(axes, 0.0, 5.9, "HBM: rows one after the other")
    note(axes, 6.3, 5.9, "SBUF: a row in each partition")
    for y, engine, color in (
        (4.7, 0, "blue"),
        (3.45, 1, "orange"),
        (2.2, 2, "green"),
        (0.2, 15, "purple"),
    ):
        rows = f"{8 * engine} to {8 * engine + 7}"
        box(axes, 0.0, y, 3.2, 0.8, f"rows {rows}", color=color, fontsize=10)
        box(axes, 6.3, y, 3.6, 0.8, f"partitions {rows}", color=color, fontsize=10)
        arrow(axes, (3.2, y + 0.4), (6.3, y + 0.4), f"DMA engine {engine}", offset=(0, 0.28))
    for x in (1.6, 4.75, 8.1):
        axes.text(x, 1.6, "...", ha="center", va="center")
    return show(
        fig,
        "Rows 0 to 7 of a tensor in HBM go through DMA engine 0 to partitions 0 to 7 of SBUF, "
        "rows 8 to 15 through engine 1 to partitions 8 to 15, and so on to engine 15 with rows "
        "120 to 127.",
        "A 128x512 float32 tile as the AWS architecture guide describes it: 16 transfers of 8 "
        "rows each. The compiler chooses the transfers; a kernel only specifies the data to load.",
    )


def bounds(seconds: Sequence[tuple[str, float]]) -> Figure:
    """Draw lower bounds of time derived from published rates.

    Args:
        seconds: (name, lower bound in seconds) of each part of the work.
    """
    fig, axes = subplots(size=(5.6, 0.9 + 0.45 * len(seconds)))
    for row, (_, bound) in enumerate(seconds):
        axes.barh(
            row, bound * 1e6, height=0.55, color=COLORS["purple"], hatch="\\\\", edgecolor=INK
        )
        axes.text(bound * 1e6 + 12, row, f"{bound * 1e6:.0f}", va="center")
    axes.set_yticks(range(len(seconds)), [name for name, _ in seconds])
    axes.set_xlim(0, 1.2e6 * max(bound for _, bound in seconds))
    axes.invert_yaxis()
    axes.set_xlabel("lower bound, µs (derived from published rates, not measured)")
    listed = ", ".join(f"{name} {bound * 1e6:.0f} µs" for name, bound in seconds)
    return show(fig, f"Bars of lower bounds derived from published rates: {listed}.")


def _canvas(width: float, height: float, *, size: tuple[float, float]):
    fig, axes = subplots(size=size)
    axes.set_xlim(0, width)
    axes.set_ylim(0, height)
    axes.axis("off")
    return fig, axes


def _binary(size: float) -> str:
    for exponent, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if size >= 2**exponent:
            return f"{size / 2**exponent:g} {unit}"
    return f"{size:g} B"
