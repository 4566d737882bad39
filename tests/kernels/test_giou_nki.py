"""GIOU in `import nki`: values, gradients, shapes, dtypes, frameworks, and the older dialect."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.giou import neuronxcc, reference
from kernels.giou.nki import nki_giou, nki_giou_backward
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# About fifteen float32 operations on areas of which ratios up to 1 are taken.
TOLERANCE = 1e-6


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def pairs(shape, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(reference.random_boxes(rng, shape) for _ in "ab")


def check(a, b, lnc, eps=1e-7, clamp=False):
    """Forward and backward against NumPy; gradients also to the last bit against the other dialect,
    whose instructions they have."""
    scores = nki_giou(a, b, eps, clamp=clamp, lnc=lnc)
    assert scores.dtype == np.float32
    expected = reference.giou(a, b, eps, clamp=clamp)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=TOLERANCE)

    g = np.random.default_rng(1).standard_normal(a.shape[:-1]).astype(np.float32)
    grads = nki_giou_backward(g, a, b, eps, clamp=clamp, lnc=lnc)
    (only,) = nki_giou_backward(g, a, b, eps, clamp=clamp, both=False, lnc=lnc)
    np.testing.assert_array_equal(only, grads[0])
    theirs = neuronxcc.nki_giou_backward(g, a, b, eps, clamp=clamp)
    wanted = reference.giou_backward(g, a, b, eps, clamp=clamp)
    for mine, other, exact, boxes in zip(grads, theirs, wanted, (a, b), strict=True):
        assert mine.dtype == boxes.dtype
        np.testing.assert_array_equal(mine.view(np.uint8), other.view(np.uint8))
        step = float(ml_dtypes.finfo(mine.dtype).eps)
        np.testing.assert_allclose(
            mine.astype(np.float32), exact, rtol=max(1e-4, step), atol=TOLERANCE
        )


@pytest.mark.parametrize("n", [1, 127, 128, 129, 65537, 200001])
@pytest.mark.parametrize("lnc", [1, 2])
def test_every_way_to_cut_tiles(n, lnc):
    check(*pairs((n,)), lnc)


@settings(max_examples=12, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), max_size=3).map(tuple)
    | st.tuples(st.integers(1, 90), st.integers(1, 90)),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    clamp=st.booleans(),
    lnc=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_number_of_boxes(shape, dtypes, clamp, lnc, seed):
    a, b = pairs(shape, seed)
    check(a.astype(dtypes[0]), b.astype(dtypes[1]), lnc, clamp=clamp)


@pytest.mark.parametrize("clamp", [False, True])
def test_touching_equal_and_flat_boxes(clamp):
    """Small integer coordinates meet in every way."""
    corners = np.random.default_rng(0).integers(0, 5, (2, 3000, 2, 2)).astype(np.float32)
    a, b = (np.concatenate([x.min(1), x.max(1)], -1) for x in corners)
    scores = nki_giou(a, b, 0.25, clamp=clamp)
    np.testing.assert_allclose(scores, reference.giou(a, b, 0.25, clamp=clamp), atol=TOLERANCE)
    g = np.ones(len(a), np.float32)
    mine = nki_giou_backward(g, a, b, 0.25, clamp=clamp)
    for x, y in zip(mine, reference.giou_backward(g, a, b, 0.25, clamp=clamp), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


def test_the_score_differs_from_the_older_dialect_by_a_rounding():
    """A product with a reciprocal in place of a division: two more roundings of float32."""
    a, b = pairs((3000,))
    mine, other = nki_giou(a, b), neuronxcc.nki_giou(a, b)
    np.testing.assert_allclose(mine, other, rtol=0, atol=3 * 2**-23)


def test_no_boxes():
    none = np.zeros((0, 4), np.float32)
    assert nki_giou(none, none).shape == (0,)
    assert [g.shape for g in nki_giou_backward(none[:, 0], none, none)] == [(0, 4), (0, 4)]


def test_refused_inputs():
    a, b = pairs((5,))
    with pytest.raises(ValueError, match="Each box"):
        nki_giou(a, b[:4])
    with pytest.raises(TypeError, match="boxes1 is float64"):
        nki_giou(a.astype(np.float64), b)
    with pytest.raises(ValueError, match="there is one GIOU a pair"):
        nki_giou_backward(np.ones(4, np.float32), a, b)
    with pytest.raises(KernelError, match="1 or 2"):
        nki_giou(a, b, lnc=3)
