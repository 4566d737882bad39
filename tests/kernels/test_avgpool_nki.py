"""Average pooling in `import nki`: values, gradients, tiling, frameworks, and the older dialect."""

from __future__ import annotations

import ml_dtypes
import nki
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from kernels.avgpool import geometry, neuronxcc, reference
from kernels.avgpool.geometry import pooling
from kernels.avgpool.nki import (
    nki_avg_pool2d,
    nki_avg_pool2d_backward_kernel,
    nki_avg_pool2d_kernel,
    unpool,
)
from kernels.avgpool.plan import backward_plan, forward_plan
from nkisim import KernelError

# As in test_avgpool: float32 sums, rounded once more. One over a count adds a rounding of float32.
TOLERANCE = {
    np.float32: {"rtol": 2e-6, "atol": 5e-6},
    np.float16: {"rtol": 2**-10, "atol": 1e-6},
    ml_dtypes.bfloat16: {"rtol": 2**-7, "atol": 1e-6},
}
DTYPES = list(TOLERANCE)


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def assert_close(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_allclose(
        actual.astype(np.float64), expected.astype(np.float64), **TOLERANCE[actual.dtype.type]
    )


def image(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


@st.composite
def windows(draw):
    """Settings of a pooling, as keyword arguments."""
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    return {
        "kernel_size": kernel,
        "stride": draw(st.none() | st.tuples(st.integers(1, 8), st.integers(1, 8))),
        "padding": tuple(draw(st.integers(0, k // 2)) for k in kernel),
        "ceil_mode": draw(st.booleans()),
        "count_include_pad": draw(st.booleans()),
        "divisor_override": draw(st.none() | st.sampled_from([1, 3, -2])),
    }


SHAPES = st.tuples(st.sampled_from([1, 3, 129]), st.integers(1, 17), st.integers(1, 17))


def fits(shape, window):
    try:
        pooling(**window).axes(*shape[-2:])
    except ValueError:
        return False
    return True


@settings(max_examples=40, deadline=None)
@given(
    shape=SHAPES,
    window=windows(),
    dtype=st.sampled_from(DTYPES),
    lnc=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
def test_forward_and_backward_equal_the_reference(shape, window, dtype, lnc, seed):
    assume(fits(shape, window))
    x = image(*shape, dtype=dtype, seed=seed)
    out = nki_avg_pool2d(x, **window, lnc=lnc)
    assert_close(out, reference.avg_pool2d(x, **window))
    grad_out = image(*out.shape, dtype=dtype)
    grad_in = unpool(grad_out, shape[-2:], pooling(**window), lnc=lnc)
    assert_close(grad_in, reference.avg_pool2d_backward(grad_out, shape[-2:], **window))


@settings(max_examples=20, deadline=None)
@given(shape=SHAPES, window=windows(), tile_bytes=st.sampled_from([64, 300, 2000]))
def test_tiles_of_any_size_give_the_same(shape, window, tile_bytes):
    """Small tiles cut outputs, and then the windows themselves, many times."""
    assume(fits(shape, window))
    x = image(*shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(geometry, "TILE_BYTES", tile_bytes)
        # Bound once more, so that no trace made with other tiles is used.
        plan = pooling(**window)
        out = nki.jit(nki_avg_pool2d_kernel.func)(x, forward_plan(plan, *shape[1:]))
        backward = nki.jit(nki_avg_pool2d_backward_kernel.func)[2]
        grad_in = backward(out, backward_plan(plan, *shape[1:]))
    assert_close(out, reference.avg_pool2d(x, **window))
    assert_close(grad_in, reference.avg_pool2d_backward(out, shape[1:], **window))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [{"kernel_size": 2}, {"kernel_size": 4, "stride": 2}])
def test_the_older_dialect_to_the_last_bit(window, dtype):
    """Where one over the count is exact, product and division are one number. With other counts
    the dialects differ by a rounding, which the reference's tolerance holds."""
    x = image(130, 18, 22, dtype=dtype)
    out, theirs = nki_avg_pool2d(x, **window), neuronxcc.nki_avg_pool2d(x, **window)
    np.testing.assert_array_equal(out.view(np.uint8), theirs.view(np.uint8))
    plan = pooling(**window)
    grad, theirs = unpool(out, (18, 22), plan), neuronxcc.unpool(out, (18, 22), plan)
    np.testing.assert_array_equal(grad.view(np.uint8), theirs.view(np.uint8))


def test_refused_inputs():
    x = image(3, 8, 8)
    with pytest.raises(ValueError, match="2 dimensions"):
        nki_avg_pool2d(x[0], 2)
    with pytest.raises(TypeError, match="x is float64"):
        nki_avg_pool2d(x.astype(np.float64), 2)
    with pytest.raises(ValueError, match="kernel_size"):
        nki_avg_pool2d(x, 0)
    with pytest.raises(ValueError, match="Pass the settings of the forward"):
        unpool(x, (8, 8), pooling(2))
    with pytest.raises(KernelError, match="1 or 2"):
        nki_avg_pool2d(x, 2, lnc=3)
