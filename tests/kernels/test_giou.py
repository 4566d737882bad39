"""The GIOU kernels on NumPy arrays: values, gradients, degenerate boxes, dtypes, and refusals."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ml_dtypes
import neuronxcc.nki as nki
import numpy as np
import pytest
from differences import assert_is_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels
from kernels.giou import (
    nki_giou,
    nki_giou_backward,
    nki_giou_kernel,
    nki_giou_kernel_strict,
    nki_giou_strict_into,
    reference,
)

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]

# Float32 rounds each of about fifteen operations by 6e-8 of its result, and results are areas of
# which ratios up to 1 are taken: 1e-6 is about all of these at once. It holds for boxes with
# x1 < x2 and y1 < y2; areas of opposite sign cancel, and may lose any accuracy.
TOLERANCE = 1e-6


def pairs(shape, seed=0, dtype=np.float32):
    rng = np.random.default_rng(seed)
    return tuple(reference.random_boxes(rng, shape).astype(dtype) for _ in "ab")


def exact_giou(box1, box2, eps, clamp):
    """The definition, in rational numbers, for one pair."""
    x1, y1, x2, y2 = map(Fraction, box1)
    u1, v1, u2, v2 = map(Fraction, box2)
    eps = Fraction(eps)
    width, height = min(x2, u2) - max(x1, u1), min(y2, v2) - max(y1, v1)
    intersection = width * height if width > 0 and height > 0 else Fraction(0)
    union = (x2 - x1) * (y2 - y1) + (u2 - u1) * (v2 - v1) - intersection
    width, height = max(x2, u2) - min(x1, u1), max(y2, v2) - min(y1, v1)
    if not clamp:
        hull = width * height
        return intersection / (union + eps) - (hull - union) / (hull + eps)
    hull = max(max(width, 0) * max(height, 0), eps)
    return intersection / max(union, eps) - (hull - union) / hull


@settings(max_examples=60, deadline=None)
@given(
    shape=st.lists(st.integers(1, 9), max_size=3).map(tuple)
    | st.tuples(st.integers(1, 300), st.integers(1, 300)),
    dtype1=st.sampled_from(DTYPES),
    dtype2=st.sampled_from(DTYPES),
    clamp=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_number_of_boxes(shape, dtype1, dtype2, clamp, seed):
    """What NumPy computes in float32, with fewer operations."""
    a, b = pairs(shape, seed)
    a, b = a.astype(dtype1), b.astype(dtype2)
    scores = nki_giou(a, b, clamp=clamp)
    assert scores.dtype == np.float32
    assert scores.shape == shape
    np.testing.assert_allclose(scores, reference.giou(a, b, clamp=clamp), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("n", [1, 127, 128, 129, 65535, 65536, 65537, 131072, 200001])
def test_every_way_to_cut_tiles(n, dialect):
    """Full tiles, a narrower one, and boxes left over, in every combination."""
    a, b = pairs((n,))
    np.testing.assert_allclose(nki_giou(a, b), reference.giou(a, b), rtol=0, atol=TOLERANCE)
    g = np.random.default_rng(1).standard_normal(n, np.float32)
    for actual, expected in zip(
        nki_giou_backward(g, a, b), reference.giou_backward(g, a, b), strict=True
    ):
        np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=TOLERANCE)


@pytest.mark.parametrize("clamp", [False, True])
@pytest.mark.parametrize("shape", [(1,), (3, 127), (129, 515)])
@pytest.mark.parametrize("dtypes", list(itertools.product(DTYPES, repeat=2)))
def test_dialects_agree(dtypes, shape, clamp, in_dialect):
    """Gradients to the last bit, on one core and on two. The score in `import nki` is a product
    with a reciprocal in place of a division: two more roundings of float32."""

    def results(**lnc):
        scores = nki_giou(a, b, clamp=clamp, **lnc)
        grads = nki_giou_backward(g, a, b, clamp=clamp, **lnc)
        (only,) = nki_giou_backward(g, a, b, clamp=clamp, both=False, **lnc)
        np.testing.assert_array_equal(only, grads[0])
        return scores, [grad.tobytes() for grad in grads]

    a, b = (x.astype(t) for x, t in zip(pairs(shape), dtypes, strict=True))
    g = np.random.default_rng(1).standard_normal(shape, np.float32)
    scores, grads = results()
    in_dialect("nki")
    for lnc in (1, 2):
        others, of_others = results(lnc=lnc)
        assert of_others == grads
        np.testing.assert_allclose(others, scores, rtol=0, atol=3 * 2**-23)


@pytest.mark.parametrize("clamp", [False, True])
def test_touching_equal_and_flat_boxes(clamp, dialect):
    """Small integer coordinates meet in every way."""
    corners = np.random.default_rng(0).integers(0, 5, (2, 3000, 2, 2)).astype(np.float32)
    a, b = (np.concatenate([x.min(1), x.max(1)], -1) for x in corners)
    scores = nki_giou(a, b, 0.25, clamp=clamp)
    np.testing.assert_allclose(scores, reference.giou(a, b, 0.25, clamp=clamp), atol=TOLERANCE)
    g = np.ones(len(a), np.float32)
    mine = nki_giou_backward(g, a, b, 0.25, clamp=clamp)
    for x, y in zip(mine, reference.giou_backward(g, a, b, 0.25, clamp=clamp), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)


COORDINATE = st.integers(0, 12)
BOX = st.tuples(COORDINATE, COORDINATE, COORDINATE, COORDINATE)


@settings(max_examples=200, deadline=None)
@given(
    boxes=st.lists(st.tuples(BOX, BOX), min_size=1, max_size=5),
    clamp=st.booleans(),
    eps=st.sampled_from([1e-7, 1e-5, 0.25]),
)
def test_definition_in_rational_numbers(boxes, clamp, eps):
    """Small integer coordinates: touching, equal, contained, disjoint boxes, points and lines."""
    boxes = [
        tuple((*np.minimum(b[:2], b[2:]), *np.maximum(b[:2], b[2:])) for b in p) for p in boxes
    ]
    a, b = (np.array([pair[side] for pair in boxes], np.float32) for side in (0, 1))
    expected = [float(exact_giou(*map(lambda b: map(int, b), p), eps, clamp)) for p in boxes]
    np.testing.assert_allclose(
        nki_giou(a, b, eps, clamp=clamp), expected, rtol=TOLERANCE, atol=TOLERANCE
    )


@pytest.mark.parametrize(
    ("box1", "box2", "expected"),
    [
        ((0, 0, 2, 2), (0, 0, 2, 2), 1),  # equal
        ((0, 0, 2, 2), (1, 1, 3, 3), 1 / 7 - 2 / 9),
        ((0, 0, 4, 4), (1, 1, 3, 3), 1 / 4),  # contained
        ((0, 0, 1, 1), (1, 0, 2, 1), 0),  # touching
        ((0, 0, 1, 1), (3, 3, 4, 4), -14 / 16),  # disjoint
        ((0, 0, 1, 1), (2, 2, 2, 2), -3 / 4),  # the other is a point
        ((1, 1, 1, 5), (1, 1, 1, 5), 0),  # one line: all three areas are 0
    ],
)
def test_examples(box1, box2, expected):
    a, b = np.array(box1, np.float32), np.array(box2, np.float32)
    np.testing.assert_allclose(nki_giou(a, b), expected, atol=TOLERANCE)
    np.testing.assert_allclose(nki_giou(b, a), expected, atol=TOLERANCE)


def test_corners_in_the_wrong_order_follow_the_definition():
    """torchvision asks for x1 <= x2 and does not check; areas then are negative, or cancel."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(-9, 9, (2, 400, 4)).astype(np.float32)
    for clamp in (False, True):
        expected = [
            float(exact_giou(map(int, p), map(int, q), 0.25, clamp))
            for p, q in zip(a, b, strict=True)
        ]
        np.testing.assert_allclose(
            nki_giou(a, b, 0.25, clamp=clamp), expected, rtol=1e-5, atol=TOLERANCE
        )


def test_where_the_definitions_differ():
    """Two boxes shrunk to one point. The article's two versions disagree here."""
    point = np.full((128, 128, 4), 3, np.float32)
    assert (nki_giou(point, point) == 0).all()
    assert (nki_giou(point, point, 1e-5, clamp=True) == -1).all()
    flat = point.reshape(128, -1)
    assert (nki_giou_kernel_strict(flat, flat) == 0).all()


def test_special_values():
    """NaN comes out as NaN, and what is not finite stays in its own pair."""
    a, b = pairs((7,))
    a[1, 0], a[2, 3], b[3, 2], b[4] = np.nan, np.inf, -np.inf, np.nan
    a[5], b[5] = 3e38, -3e38
    with np.errstate(all="ignore"):
        expected = reference.giou(a, b)
    scores = nki_giou(a, b)
    assert np.isnan(scores[[1, 2, 4]]).all()
    np.testing.assert_allclose(scores[[0, 6]], expected[[0, 6]], rtol=0, atol=TOLERANCE)
    grad1, _ = nki_giou_backward(np.ones(7, np.float32), a, b)
    assert np.isfinite(grad1[[0, 6]]).all()
    assert np.isnan(grad1[[1, 4]]).any(-1).all()


@pytest.mark.skipif(kernels.backend != "nkisim", reason="only nkisim warns")
def test_areas_beyond_the_range_of_the_reciprocal_are_told():
    a, b = (np.array([[0, 0, side, side]], np.float32) for side in (3e6, 6e6))
    with pytest.warns(UserWarning, match="reciprocal"):
        np.testing.assert_allclose(nki_giou(a, b), 0.25, atol=TOLERANCE)


def test_sixteen_bit_boxes_are_computed_in_float32():
    """Areas of float16 boxes in an image of 1024 pixels are beyond float16's 65504."""
    a = np.array([[0, 0, 1000, 1000]], np.float16)
    b = np.array([[0, 0, 1000, 500]], np.float16)
    np.testing.assert_allclose(nki_giou(a, b), 0.5, atol=TOLERANCE)


@pytest.mark.parametrize("batch", [128, 256])
def test_strict_kernel_in_both_spellings(batch):
    a, b = pairs((batch, 256))
    flat = a.reshape(batch, -1), b.reshape(batch, -1)
    returned = nki_giou_kernel_strict(*flat)
    written = np.empty((batch, 256), np.float32)
    assert nki.simulate_kernel(nki.trace(nki_giou_strict_into), *flat, written) is None
    np.testing.assert_array_equal(returned, written)
    np.testing.assert_allclose(
        returned, reference.giou(a, b, 1e-5, clamp=True), rtol=0, atol=TOLERANCE
    )


def test_strict_kernel_leaves_what_is_no_whole_tile():
    """It has no masks. What it leaves out, the simulator reports."""
    a, b = pairs((128, 130))
    with pytest.warns(UserWarning, match="never written"):
        nki_giou_kernel_strict(a.reshape(128, -1), b.reshape(128, -1))


@settings(max_examples=40, deadline=None)
@given(
    shape=st.lists(st.integers(1, 40), max_size=2).map(tuple),
    clamp=st.booleans(),
    integers=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_gradients_against_float64(shape, clamp, integers, seed):
    """With integers, many coordinates are equal and many boxes touch."""
    rng = np.random.default_rng(seed)
    a, b = (reference.random_boxes(rng, shape, 5.0) for _ in "ab")
    if integers:
        a, b = np.floor(a), np.floor(b)
    g = rng.standard_normal(shape).astype(np.float32)
    eps = 1e-5
    both = nki_giou_backward(g, a, b, eps, clamp=clamp)
    for actual, expected in zip(
        both,
        reference.giou_backward(g.astype(np.float64), a.astype(np.float64), b, eps, clamp=clamp),
        strict=True,
    ):
        # Sides are at least 1 pixel, so a coordinate changes a GIOU by about 1 at most.
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5)
    (first,) = nki_giou_backward(g, a, b, eps, clamp=clamp, both=False)
    np.testing.assert_array_equal(first, both[0])


@pytest.mark.parametrize("clamp", [False, True])
def test_reference_gradients_against_finite_differences(clamp):
    """Away from ties, where central differences are good to 1e-8."""
    rng = np.random.default_rng(3)
    boxes = [reference.random_boxes(rng, (5,), 9.0).astype(np.float64) for _ in "ab"]
    g = rng.standard_normal(5)
    found = reference.giou_backward(g, *boxes, clamp=clamp)
    assert_is_gradient(found, lambda *x: (g * reference.giou(*x, clamp=clamp)).sum(), boxes)


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_gradients_of_sixteen_bit_boxes(dtype):
    """Float32 gradients, rounded once."""
    a, b = pairs((130,), dtype=dtype)
    g = np.random.default_rng(1).standard_normal(130, np.float32)
    for actual, wide in zip(
        nki_giou_backward(g, a, b),
        nki_giou_backward(g, a.astype(np.float32), b.astype(np.float32)),
        strict=True,
    ):
        assert actual.dtype == dtype
        np.testing.assert_array_equal(actual, wide.astype(dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_reference_keeps_the_dtype(dtype):
    a, b = pairs((3,), dtype=dtype)
    results = reference.giou(a, b), *reference.giou_backward(np.ones(3, dtype), a, b)
    assert [x.dtype for x in results] == [dtype] * 3


def test_each_side_of_a_gradient_has_the_dtype_of_its_boxes():
    a, b = pairs((3,))
    grad1, grad2 = nki_giou_backward(np.ones(3, np.float32), a.astype(ml_dtypes.bfloat16), b)
    assert (grad1.dtype, grad2.dtype) == (ml_dtypes.bfloat16, np.float32)


def test_equal_boxes_stay():
    """Growing adds as much to the enclosing box as shrinking takes from the overlap.

    Max and min give half of each to either side, and the halves cancel. A gradient that went to
    one side only would push a perfect prediction away from its target.
    """
    boxes, _ = pairs((20,))
    for gradient in nki_giou_backward(np.ones(20, np.float32), boxes, boxes):
        np.testing.assert_allclose(gradient, 0, atol=TOLERANCE)


def test_no_boxes(dialect):
    none = np.empty((3, 0, 4), ml_dtypes.bfloat16)
    scores = nki_giou(none, none)
    assert (scores.shape, scores.dtype) == ((3, 0), np.float32)
    grads = nki_giou_backward(np.empty((3, 0), np.float32), none, none)
    assert [(g.shape, g.dtype) for g in grads] == [((3, 0, 4), none.dtype)] * 2


ONES = np.ones((3, 4), np.float32)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (ONES[:, :3], ONES[:, :3], ValueError, r"boxes1 has shape \(3, 3\).*4 elements"),
        (ONES, np.ones((3, 5), np.float32), ValueError, r"boxes2 has shape \(3, 5\)"),
        (np.float32(1), ONES, ValueError, r"boxes1 has shape \(\)"),
        (ONES, ONES[:1], ValueError, "does not broadcast"),
        (ONES.astype(np.float64), ONES, TypeError, "boxes1 is float64.*take float32"),
        (ONES, ONES.astype(np.int32), TypeError, "boxes2 is int32"),
        (ONES.astype(bool), ONES, TypeError, "boxes1 is bool"),
        ([[0, 0, 1, 1]], ONES, TypeError, "boxes1 is a list"),
    ],
)
def test_refused_boxes(a, b, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_giou(a, b)
    with pytest.raises(error, match=message):
        nki_giou_backward(np.ones(3, np.float32), a, b)


@pytest.mark.parametrize(
    ("eps", "error", "message"),
    [
        (-1e-7, ValueError, "eps is -1e-07"),
        (float("nan"), ValueError, "eps is nan"),
        (float("inf"), ValueError, "eps is inf"),
        (ONES[0, 0], TypeError, "eps is a float32"),
        (True, TypeError, "eps is a bool"),
    ],
)
def test_refused_eps(eps, error, message):
    with pytest.raises(error, match=message):
        nki_giou(ONES, ONES, eps)


@pytest.mark.parametrize(
    ("grad", "error", "message"),
    [
        (np.ones((3, 1), np.float32), ValueError, r"grad has shape \(3, 1\).*shape \(3,\)"),
        (np.ones(3, np.float64), TypeError, "grad is float64"),
    ],
)
def test_refused_gradients(grad, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_giou_backward(grad, ONES, ONES)


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
