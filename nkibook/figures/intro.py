"""The pictures and numbers of the landing page, made by the code of the pages they come from."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as nl
import numpy as np
from IPython.display import HTML
from neuronxcc import nki

import nkisim
from kernels.cross_entropy import nki_cross_entropy_backward_kernel, nki_cross_entropy_kernel
from nkibook import plots
from nkibook.figures.grid import filling
from nkibook.plots import Figures, Moving
from nkibook.tracing import written_tiles
from nkibook.validation.cross_entropy import FUSED_PASSES, apart
from nkisim.machine.target import target
from nkisim.report.timeline import Timeline

TOKENS, WORDS = 1024, 50_257
TIMES = "\N{MULTIPLICATION SIGN}"


@nki.jit
def add_any(a_input, b_input):
    """The kernel of "Any shape" in the chapters on tensor add."""
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    i_row, i_col = nl.mgrid[0:128, 0:512]
    rows = nl.program_id(0) * 128 + i_row
    cols = nl.program_id(1) * 512 + i_col
    inside = (rows < n_rows) & (cols < n_cols)
    a_tile = nl.load(a_input[rows, cols], mask=inside)
    b_tile = nl.load(b_input[rows, cols], mask=inside)
    nl.store(c_output[rows, cols], value=nl.add(a_tile, b_tile, mask=inside), mask=inside)
    return c_output


def tiles() -> Moving:
    """Which tile is written when, of a launch whose last tiles are cut by a mask."""
    a, b = np.zeros((2, 300, 700), np.float32)
    written = written_tiles(add_any[3, 2], a, b, by="turn")
    timeline = nkisim.profile(add_any[3, 2], a, b)
    return filling(timeline, a.shape, written, owner="tile {}".format)


def _spec(*shape: int, dtype: type = ml_dtypes.bfloat16) -> nkisim.TensorSpec:
    return nkisim.TensorSpec(shape, np.dtype(dtype))


def _losses(tokens: int) -> tuple[Timeline, Timeline, Timeline]:
    """Cross-entropy one operation at a time; the forward and the backward kernel."""
    logits, column = _spec(tokens, WORDS), _spec(tokens, 1, dtype=np.float32)
    targets = _spec(tokens, 1, dtype=np.int32)
    return (
        nkisim.profile(apart, logits, column, column),
        nkisim.profile(nki_cross_entropy_kernel, logits, targets),
        nkisim.profile(nki_cross_entropy_backward_kernel, column, logits, targets, column),
    )


def gain() -> HTML:
    """The page's one number: what kernels gain on GPT-2's loss and its gradient, against the bound
    of fused operations."""
    slow, *kernels = _losses(TOKENS)
    ours = sum(t.body_us for t in kernels)
    machine = target().machine
    dma = machine.timing.dma
    fused = FUSED_PASSES * 2 * TOKENS * WORDS / (dma.engines * dma.load_rate * 1e3)
    said = (
        f"as fast: GPT-2's loss for {TOKENS:,} tokens and its gradient in two kernels, against the "
        f"least time of fused operations; {slow.body_us / ours:.1f}{TIMES} against one "
        f"operation at a time. Modelled for one {machine.name} ({machine.instances.lower()})."
    )
    big = f"{fused / ours:.1f}{TIMES}"
    return HTML(f'<div class="nki-numbers"><div><b>{big}</b><span>{said}</span></div></div>')


def loss_profiles() -> tuple[tuple[Timeline, str], ...]:
    """The loss of 128 tokens, one operation at a time, and its backward kernel; each with a
    title that has the times."""
    slow, forward, backward = _losses(128)
    return (
        (slow, f"One operation at a time: {slow.body_us:,.0f} µs"),
        (
            backward,
            f"Two kernels: {forward.body_us:.0f} µs, and {backward.body_us:.0f} µs for the "
            "gradient (drawn)",
        ),
    )


def loss_timelines() -> Figures:
    """The loss of 128 tokens before and after, on one axis of time."""
    profiles, titles = zip(*loss_profiles(), strict=True)
    return plots.timelines(*profiles, titles=titles)
