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
from nkibook.chip import chip
from nkibook.figures.grid import filling
from nkibook.plots import Figures, Moving
from nkibook.records import modelled
from nkibook.tracing import written_tiles
from nkibook.validation.cross_entropy import FUSED_PASSES, apart, in_two_kernels
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


def _in_two_kernels(tokens: int) -> Timeline:
    """Cross-entropy and its gradient, one kernel after the other."""
    logits, column = _spec(tokens, WORDS), _spec(tokens, 1, dtype=np.float32)
    return nkisim.profile(in_two_kernels, logits, _spec(tokens, 1, dtype=np.int32), column)


def gain() -> HTML:
    """The page's one number: what kernels gain on GPT-2's loss and its gradient, against the bound
    of fused operations, from the best to the worst way of writing the loss."""
    logits, column = _spec(TOKENS, WORDS), _spec(TOKENS, 1, dtype=np.float32)
    targets = _spec(TOKENS, 1, dtype=np.int32)
    profiles = (
        nkisim.profile(nki_cross_entropy_kernel, logits, targets),
        nkisim.profile(nki_cross_entropy_backward_kernel, column, logits, targets, column),
    )
    ours = modelled("kernels", *profiles).median
    here = chip()
    one_pass = 2 * TOKENS * WORDS / here.load_rate
    gains = [passes * one_pass / ours for passes in FUSED_PASSES.values()]
    listed = ", ".join(
        f"{gain:.1f}{TIMES} {name}" for gain, name in zip(gains, FUSED_PASSES, strict=True)
    )
    said = (
        f"as fast: GPT-2's loss for {TOKENS:,} tokens and its gradient in two kernels, against the "
        f"bound of fused operations. It depends on the program you have ({listed}), so rewrite "
        f"first. Modelled for one {here.name} ({here.machine.instances.lower()}), and not "
        "measured against the Neuron compiler."
    )
    big = f"{min(gains):.1f} to {max(gains):.1f}{TIMES}"
    return HTML(f'<div class="nki-numbers"><div><b>{big}</b><span>{said}</span></div></div>')


def loss_profiles() -> tuple[tuple[Timeline, str], ...]:
    """The loss of 128 tokens and its gradient, one operation at a time, and in two kernels; each
    with a title that has the time."""
    logits, column = _spec(128, WORDS), _spec(128, 1, dtype=np.float32)
    slow, kernels = nkisim.profile(apart, logits, column, column), _in_two_kernels(128)
    return (
        (slow, f"One operation at a time: {slow.body_us:,.0f} µs"),
        (kernels, f"Two kernels, one after the other: {kernels.body_us:.0f} µs"),
    )


def loss_timelines() -> Figures:
    """The loss of 128 tokens before and after, on one axis of time."""
    profiles, titles = zip(*loss_profiles(), strict=True)
    return plots.timelines(*profiles, titles=titles)
