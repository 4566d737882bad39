"""The pictures of the landing page, each made by the code of the chapter that it comes from."""

from __future__ import annotations

import jax.numpy as jnp
import neuronxcc.nki.language as nl
import numpy as np
from neuronxcc import nki

import nkisim
from kernels.add import jax_op
from kernels.giou import nki_giou_kernel, nki_giou_kernel_strict
from nkibook import plots
from nkibook.figures.grid import filling
from nkibook.hlo import jax_hlo
from nkibook.hlo.html import Diff
from nkibook.plots import Figures, Moving
from nkibook.tracing import written_tiles


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


def masked_grid() -> Moving:
    """Which instance wrote what and when, of a launch whose last tiles are cut by a mask."""
    a, b = np.zeros((2, 300, 700), np.float32)
    tiles = written_tiles(add_any[3, 2], a, b)
    return filling(nkisim.profile(add_any[3, 2], a, b), a.shape, tiles)


def two_timelines() -> Figures:
    """GIOU of 1024 x 256 pairs of boxes: the article's operations, and the package's kernel."""

    def spec(*shape: int) -> nkisim.TensorSpec:
        return nkisim.TensorSpec(shape, np.dtype(np.float32))

    rows, boxes = spec(1024, 1024), spec(1024 * 256, 4)
    before = nkisim.profile(nki_giou_kernel_strict, rows, rows)
    after = nkisim.profile(nki_giou_kernel, boxes, boxes, 1e-7, False)
    titles = (
        f"As an article published it: {before.latency_us:.0f} µs with launch",
        f"As the chapter leaves it: {after.latency_us:.0f} µs with launch",
    )
    return plots.timelines(before, after, titles=titles)


def hlo_of_an_add() -> Diff:
    """The HLO of an expression without and with the kernel."""
    a = jnp.zeros((256, 1024), jnp.float32)
    plain = jax_hlo(lambda a, b: a * b * (a + b), a, a)
    kernel = jax_hlo(lambda a, b: a * b * jax_op.add(a, b), a, a)
    return plain.diff(kernel, captions=("a * b * (a + b)", "a * b * add(a, b), an NKI kernel"))
