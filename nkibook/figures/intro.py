"""The pictures and numbers of the landing page, made by the code of the pages they come from."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as nl
import numpy as np
from IPython.display import HTML
from neuronxcc import nki

import nkisim
from kernels.cross_entropy import nki_cross_entropy_backward_kernel, nki_cross_entropy_kernel
from kernels.matmul import nki_matmul_kernel
from kernels.rmsnorm import nki_rms_norm_kernel
from nkibook import plots
from nkibook.figures.grid import filling
from nkibook.plots import Figures, Moving
from nkibook.tracing import written_tiles
from nkibook.validation.cross_entropy import apart
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


def numbers() -> HTML:
    """Three modelled results, of the chip that goes with the dialect."""
    slow, *fast = _losses(TOKENS)
    ours = sum(t.body_us for t in fast)
    square = _spec(4096, 4096)
    product = nkisim.profile(nki_matmul_kernel, square, square)
    machine = target().machine
    share = 2 * 4096**3 / (product.body_us * 1e6) / machine.timing.tensor.tflops
    norm = nkisim.profile(nki_rms_norm_kernel, square, _spec(1, 4096), 1e-5)
    dma = machine.timing.dma
    rate = dma.engines * (dma.load_rate + dma.store_rate) / 2
    moved = 2 * 2 * 4096**2 / (norm.body_us * 1e3) / rate
    cells = (
        (
            f"{slow.body_us / ours:.1f}{TIMES}",
            f"as fast: GPT-2's loss for {TOKENS:,} tokens and its gradient with kernels, "
            "compared with one operation at a time",
        ),
        (
            f"{share:.0%}",
            "of the peak of the Tensor Engine: a product of 4096 x 4096 matrices in bfloat16",
        ),
        (f"{moved:.0%}", "of the peak rate of the DMA engines: RMSNorm of a 4096 x 4096 matrix"),
    )
    shown = "".join(f"<div><b>{big}</b><span>{said}</span></div>" for big, said in cells)
    note = f"Modelled for one {machine.name} ({machine.instances.lower()})."
    return HTML(f'<div class="nki-numbers">{shown}</div><p class="nki-note">{note}</p>')


def loss_timelines() -> Figures:
    """The loss of 128 tokens before and after, on one axis of time."""
    slow, forward, backward = _losses(128)
    return plots.timelines(
        slow,
        backward,
        titles=(
            f"One operation at a time: {slow.body_us:,.0f} µs",
            f"Backward kernel: {backward.body_us:.0f} µs "
            f"(forward kernel: {forward.body_us:.0f} µs)",
        ),
    )
