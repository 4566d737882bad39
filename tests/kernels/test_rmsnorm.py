"""The RMSNorm kernels on NumPy arrays: values, gradients, odd shapes, dtypes, memory, refusals.

The reference runs in float64. The kernels compute in float32 and round once: beside half a step of
the output's dtype there is the float32 error of a mean and a few products, below 2e-6 of the value
for rows of this length. Gradients are differences of terms; their error is relative to the terms.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from differences import assert_is_gradient
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.rmsnorm import (
    nki_rms_norm,
    nki_rms_norm_backward,
    nki_rms_norm_backward_kernel,
    nki_rms_norm_kernel,
    reference,
)
from nkisim.runtime import watch

EPS = 1e-5
DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# 129 and 300 rows need a second and third tile; 1025 and 2049 elements one more chunk.
SHAPES = [(1, 1), (1, 700), (127, 1), (128, 512), (129, 129), (300, 200), (5, 1025), (130, 2049)]


def step(dtype):
    """Half a step of a dtype, relative to the value, and float32's own error."""
    return float(ml_dtypes.finfo(dtype).eps) / 2 + 2e-6


def arrays(shape, axes=1, dtype=np.float32, weight_dtype=np.float32, seed=0):
    rng = np.random.default_rng(seed)
    draw = lambda s: rng.standard_normal(s, np.float32)  # noqa: E731
    x, grad_y = draw(shape).astype(dtype), draw(shape).astype(dtype)
    return x, (1 + 0.5 * draw(shape[-axes:])).astype(weight_dtype), grad_y


def check_forward(x, weight, eps=EPS, lnc=None):
    y, invvar = nki_rms_norm(x, weight, eps, lnc=lnc)
    assert y.dtype == x.dtype
    assert y.shape == x.shape
    assert invvar.dtype == np.float32
    expected, expected_invvar = reference.rms_norm(
        x.astype(np.float64), weight.astype(np.float64), eps
    )
    tiny = float(ml_dtypes.finfo(x.dtype).smallest_subnormal)
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=step(x.dtype), atol=tiny)
    np.testing.assert_allclose(invvar, expected_invvar, rtol=2e-6)
    return invvar


def check_backward(grad_y, x, weight, invvar, lnc=None):
    grad_x, grad_weight = nki_rms_norm_backward(grad_y, x, weight, invvar, lnc=lnc)
    assert grad_x.dtype == x.dtype
    assert grad_weight.dtype == np.float32
    assert grad_weight.shape == weight.shape
    wide = [a.astype(np.float64) for a in (grad_y, x, weight, invvar)]
    expected_x, expected_weight = reference.rms_norm_backward(*wide)
    lead = tuple(range(x.ndim - weight.ndim))
    each_row = np.expand_dims(wide[3], tuple(range(len(lead), x.ndim)))
    terms = np.abs(wide[0] * wide[1] * each_row)
    axes = tuple(range(len(lead), x.ndim))
    size_x = np.abs(each_row * wide[0] * wide[2]).max(axis=axes, keepdims=True)
    size_x = size_x + np.abs(expected_x)
    error_x = np.abs(grad_x.astype(np.float64) - expected_x)
    assert (error_x <= step(x.dtype) * np.abs(expected_x) + 4e-6 * size_x).all()
    error_weight = np.abs(grad_weight - expected_weight)
    assert (error_weight <= 2e-6 * terms.sum(axis=lead)).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(shape, dtype, dialect):
    x, weight, grad_y = arrays(shape, dtype=dtype)
    for lnc in (1, 2) if dialect == "nki" else (None,):
        invvar = check_forward(x, weight, lnc=lnc)
        check_backward(grad_y, x, weight, invvar, lnc)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_dialects_agree_to_the_last_bit(shape, dtype, in_dialect):
    def results(**lnc):
        y, invvar = nki_rms_norm(x, weight, EPS, **lnc)
        return y, invvar, *nki_rms_norm_backward(grad_y, x, weight, invvar, **lnc)

    x, weight, grad_y = arrays(shape, dtype=dtype)
    theirs = results()
    in_dialect("nki")
    one, two = results(lnc=1), results(lnc=2)
    assert [a.tobytes() for a in one] == [a.tobytes() for a in theirs]
    # The gradient of the weight is a sum in another order on two cores.
    assert [a.tobytes() for a in two[:3]] == [a.tobytes() for a in one[:3]]


@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_weight_of_another_dtype(dtype, weight_dtype, dialect):
    x, weight, grad_y = arrays((130, 300), dtype=dtype, weight_dtype=weight_dtype)
    invvar = check_forward(x, weight)
    check_backward(grad_y, x, weight, invvar)


@pytest.mark.parametrize(
    ("shape", "axes"),
    [((7,), 1), ((2, 3, 5, 4), 1), ((2, 70, 3, 5), 2), ((6, 4), 2), ((2, 3, 4), 3)],
)
def test_last_axes(shape, axes, dialect):
    """Any number of axes is normalised, and any number precedes them."""
    x, weight, grad_y = arrays(shape, axes)
    invvar = check_forward(x, weight)
    assert invvar.shape == shape[:-axes]
    check_backward(grad_y, x, weight, invvar)


@settings(max_examples=25, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 300), st.integers(1, 2500)),
    dtype=st.sampled_from(DTYPES),
    eps=st.sampled_from([0.0, 1e-6, 1e-5, 0.1, 10.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernels_equal_the_reference(shape, dtype, eps, seed):
    x, weight, grad_y = arrays(shape, dtype=dtype, seed=seed)
    invvar = check_forward(x, weight, eps)
    check_backward(grad_y, x, weight, invvar)


@pytest.mark.parametrize("cols", [10922, 10923, 16383, 16384])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_longest_rows(cols, dtype, dialect):
    """Up to 10922 float32 columns the backward kernel keeps x, from there on it loads it twice."""
    x, weight, grad_y = arrays((3, cols), dtype=dtype)
    invvar = check_forward(x, weight)
    with watch.launches(each=True) as found:
        check_backward(grad_y, x, weight, invvar)
    (launch,) = found
    read = [tile for i in launch.program.instructions for tile in i.tiles_in]
    loaded = sum(tile.size for tile in read if tile.buffer.name == "x_input")
    kept = cols <= 10922 or dtype is ml_dtypes.bfloat16
    assert loaded == (1 if kept else 2) * x.size


def peak_bytes(program, space):
    """The most bytes a partition that tiles alive at one time take in a memory."""
    first, last, sizes = {}, {}, {}
    for at, instr in enumerate(program.instructions):
        for tile in (*instr.outs, *instr.tiles_in):
            if tile.space is space:
                number = tile.buffer.number
                first.setdefault(number, at)
                last[number] = at
                sizes[number] = tile.buffer.partition_bytes
    moments = range(len(program.instructions))
    return max(sum(sizes[n] for n in first if first[n] <= t <= last[n]) for t in moments)


@pytest.mark.parametrize("cols", [512, 8192, 10922, 16384])
def test_tiles_fit_the_chip(cols):
    """Two tiles of rows: 176 KiB of SBUF and 16 KiB of PSUM a partition are never exceeded."""
    from nkisim.ir.memory import Space

    x, weight, grad_y = arrays((130, cols))
    column = np.ones((130, 1), np.float32)
    for kernel, args in (
        (nki_rms_norm_kernel, (x, weight[None], EPS)),
        (nki_rms_norm_backward_kernel, (grad_y, x, weight[None], column)),
    ):
        program = kernel.specialize(args, {}).program
        assert peak_bytes(program, Space.SBUF) <= 176 * 1024
        if kernel is nki_rms_norm_backward_kernel:
            assert 0 < peak_bytes(program, Space.PSUM) <= 16 * 1024


def test_special_values(dialect):
    """A row with NaN is NaN; one with infinity is NaN there and 0 elsewhere."""
    x, weight, _ = arrays((4, 6))
    x[0, 2], x[1, 3], x[2] = np.nan, np.inf, 0.0
    y, invvar = nki_rms_norm(x, weight, EPS)
    with np.errstate(all="ignore"):
        expected, expected_invvar = reference.rms_norm(x, weight, EPS)
    np.testing.assert_allclose(y, expected, rtol=2e-6)
    np.testing.assert_allclose(invvar, expected_invvar, rtol=2e-6)
    assert np.isnan(y[0]).all()
    assert np.isnan(y[1, 3])
    assert not y[2].any()


def test_statistics_are_float32_for_16_bit_inputs():
    """The squares of 300 overflow float16, and bfloat16 cannot count above 256 in steps of 1."""
    weight = np.ones(4096, np.float16)
    y, _ = nki_rms_norm(np.full((2, 4096), 300, np.float16), weight, 0.0)
    np.testing.assert_array_equal(y, np.ones_like(y))
    ones = np.ones((2, 4096), ml_dtypes.bfloat16)
    _, invvar = nki_rms_norm(ones, weight, 0.0)
    np.testing.assert_array_equal(invvar, np.ones(2, np.float32))


def test_reference_gradients_equal_finite_differences():
    x, weight, grad_y = (a.astype(np.float64) for a in arrays((3, 2, 5), axes=2))
    _, invvar = reference.rms_norm(x, weight, EPS)
    found = reference.rms_norm_backward(grad_y, x, weight, invvar)
    loss = lambda x, w: (reference.rms_norm(x, w, EPS)[0] * grad_y).sum()  # noqa: E731
    assert_is_gradient(found, loss, (x, weight))


X = np.ones((4, 6), np.float32)
W = np.ones(6, np.float32)


@pytest.mark.parametrize(
    ("x", "weight", "error", "message"),
    [
        (X, W[:5], ValueError, r"weight has shape \(5,\) and x \(4, 6\)"),
        (X, np.ones((2, 4, 6), np.float32), ValueError, "last axes of x"),
        (X, np.float32(1), ValueError, "no axis to normalise"),
        (X[:0], W, ValueError, r"\(0, 6\): no rows"),
        (X[:, :0], W[:0], ValueError, "rows of 0 elements"),
        (np.ones((2, 16385), np.float32), np.ones(16385, np.float32), ValueError, "at most|1 to"),
        (X.astype(np.int32), W, TypeError, "x is int32"),
        (X.astype(np.float64), W, TypeError, "x is float64"),
        (X, W.astype(np.int8), TypeError, "weight is int8"),
        ([[1.0]], W, TypeError, "x is a list"),
        (X, None, TypeError, "weight is a NoneType"),
    ],
)
def test_refused_inputs(x, weight, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_rms_norm(x, weight)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"grad_y": X[:3]}, r"grad_y is float32 of shape \(3, 6\)"),
        ({"grad_y": X.astype(np.float16)}, "grad_y is float16"),
        ({"invvar": np.ones((4, 1), np.float32)}, r"float32 of shape \(4,\)"),
        ({"invvar": np.ones(4, np.float16)}, "invvar is float16"),
    ],
)
def test_refused_gradients(change, message, dialect):
    args = {"grad_y": X, "x": X, "weight": W, "invvar": np.ones(4, np.float32)} | change
    with pytest.raises(ValueError, match=message):
        nki_rms_norm_backward(**args)
