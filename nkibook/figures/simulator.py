"""Diagram of the page "How the simulator works"."""

from __future__ import annotations

from nkibook.plots import Figure, arrow, box, note, show, subplots


def flow() -> Figure:
    """Draw what happens between a kernel's source and its results."""
    fig, axes = subplots(size=(5.6, 3.3))
    axes.set_xlim(-0.05, 10.3)  # the left edges of boxes at 0 are whole
    axes.set_ylim(0, 5.2)
    axes.axis("off")
    box(axes, 0.0, 3.9, 2.5, 1.1, "kernel\n(Python)")
    box(axes, 3.9, 3.9, 2.5, 1.1, "instructions", color="blue")
    arrow(axes, (2.5, 4.45), (3.9, 4.45), "trace", offset=(0, 0.3))
    note(axes, 6.6, 4.65, "for these shapes, dtypes", fontsize=9)
    note(axes, 6.6, 4.2, "and number of instances", fontsize=9)
    for x, name, result, color in (
        (0.0, "check", "diagnostics:\nbounds,\nmemory, shapes", "vermillion"),
        (2.65, "execute", "outputs:\nNumPy on\nreal data", "green"),
        (5.3, "schedule", "timeline:\nmodelled\ntime", "orange"),
        (7.95, "hash", "backend_config:\ntext in the HLO", "purple"),
    ):
        arrow(axes, (5.15, 3.9), (x + 1.15, 2.9))
        box(axes, x, 1.9, 2.3, 1.0, name, color=color)
        axes.text(x + 1.15, 0.75, result, ha="center", va="center", fontsize=9)
        arrow(axes, (x + 1.15, 1.9), (x + 1.15, 1.4))
    return show(
        fig,
        "A kernel is traced into instructions. Four consumers read the instructions: check gives "
        "diagnostics, execute gives outputs with NumPy, schedule gives a timeline of modelled "
        "time, hash gives the backend_config in the HLO.",
    )
