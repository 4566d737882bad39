"""The builder of the optimisation chapter, and what its last step promises."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import kernels
from kernels.giou import nki_giou_kernel, nki_giou_kernel_strict, reference
from kernels.giou.forward import giou_tile
from kernels.giou.steps import over_tiles


def pairs(n):
    rng = np.random.default_rng(n)
    return tuple(reference.random_boxes(rng, (n,)) for _ in "ab")


@pytest.mark.parametrize("boxes", [1, 3, 255, 256, 257, 512])
@pytest.mark.parametrize("clamp", [False, True])
def test_a_tile_of_any_width(boxes, clamp):
    """Up to and beyond the 256 boxes whose x and y fill a PSUM bank."""

    def compute(p, q):
        return giou_tile(p, q, 1e-5, clamp)

    a, b = pairs(2 * 128 * boxes)
    scores = over_tiles(compute, boxes=boxes)(a, b)
    expected = reference.giou(a.astype(np.float64), b, 1e-5, clamp=clamp)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-6)


def test_boxes_are_converted_on_the_way_in():
    a, b = pairs(128 * 4)
    scores = over_tiles(lambda p, q: nl.add(p[:, :, 0], q[:, :, 3]), boxes=4, dtype=nl.bfloat16)
    a16, b16 = a[:, 0].astype(ml_dtypes.bfloat16), b[:, 3].astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(scores(a, b), (a16 + b16).astype(np.float32))


@pytest.mark.skipif(kernels.backend != "nkisim", reason="only nkisim models time")
def test_modelled_time_is_half_of_the_articles():
    import nkisim

    a, b = (nkisim.TensorSpec((1024 * 256, 4), np.dtype(np.float32)) for _ in "ab")
    rows = nkisim.TensorSpec((1024, 1024), np.dtype(np.float32))
    article = nkisim.profile(nki_giou_kernel_strict, rows, rows)
    for clamp in (False, True):
        fast = nkisim.profile(nki_giou_kernel, a, b, 1e-7, clamp)
        assert fast.bound_fraction >= 0.6
        assert fast.latency_us <= (0.55 if clamp else 0.5) * article.latency_us
