"""Diagram of the page "How the simulator works"."""

from __future__ import annotations

from kernels.plots import Figure, arrow, box, note, show, subplots


def flow() -> Figure:
    """Draw what happens between a kernel's source and its results."""
    fig, axes = subplots(size=(5.6, 3.3))
    axes.set_xlim(0, 10)
    axes.set_ylim(0, 5.2)
    axes.axis("off")
    box(axes, 0.0, 3.9, 2.5, 1.1, "kernel\n(Python)")
    box(axes, 3.9, 3.9, 2.5, 1.1, "instructions", color="blue")
    arrow(axes, (2.5, 4.45), (3.9, 4.45), "trace", offset=(0, 0.3))
    note(axes, 6.6, 4.65, "for these shapes,", fontsize=9)
    note(axes, 6.6, 4.2, "dtypes and this grid", fontsize=9)
    for x, name, result, color in (
        (0.0, "check", "diagnostics:\nbounds, memory,\nshapes, dtypes", "vermillion"),
        (3.65, "execute", "outputs:\nNumPy on real\ndata", "green"),
        (7.3, "hash", "backend_config:\nwhat the HLO\ncarries", "purple"),
    ):
        arrow(axes, (5.15, 3.9), (x + 1.35, 2.9))
        box(axes, x, 1.9, 2.7, 1.0, name, color=color)
        axes.text(x + 1.35, 0.75, result, ha="center", va="center", fontsize=10)
        arrow(axes, (x + 1.35, 1.9), (x + 1.35, 1.4))
    return show(
        fig,
        "A kernel is traced once into instructions. Three consumers read them: check gives "
        "diagnostics, execute gives outputs with NumPy, hash gives the backend_config that the "
        "HLO carries.",
    )
