"""The pooling kernels on NumPy arrays: values, gradients, tiling, dtypes, and refusals."""

from __future__ import annotations

import os
from unittest import mock

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import nki as in_import_nki
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import kernels
from kernels.avgpool import (
    geometry,
    nki_avg_pool2d,
    nki_avg_pool2d_backward_kernel,
    nki_avg_pool2d_kernel,
    nki_avg_pool2d_kernel_strict,
    reference,
    unpool,
)
from kernels.avgpool import nki as in_nki
from kernels.avgpool.geometry import pooling
from kernels.avgpool.plan import backward_plan, forward_plan
from nkibook.figures.avgpool import draw_reads, window_reads
from nkisim.errors import NkiWarning

# The reference computes in float64 and rounds once. The kernels add in float32, which costs about
# 2**-24 of the mean magnitude for each addition (windows here hold up to 49), and round once more:
# half a unit in the last place, a whole one when float32 has crossed the middle.
TOLERANCE = {
    np.float32: {"rtol": 2e-6, "atol": 5e-6},
    np.float16: {"rtol": 2**-10, "atol": 1e-6},
    ml_dtypes.bfloat16: {"rtol": 2**-7, "atol": 1e-6},
}
DTYPES = list(TOLERANCE)


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


@settings(max_examples=60, deadline=None)
@given(
    shape=SHAPES,
    window=windows(),
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 99),
    cores=st.sampled_from([("neuronxcc", None), ("nki", 1), ("nki", 2)]),
)
def test_forward_and_backward_equal_the_reference(shape, window, dtype, seed, cores):
    assume(fits(shape, window))
    x = image(*shape, dtype=dtype, seed=seed)
    dialect, lnc = cores
    environment = mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn2")
    with mock.patch.object(kernels, "dialect", dialect), environment:
        out = nki_avg_pool2d(x, **window, lnc=lnc)
        grad_out = image(*out.shape, dtype=dtype)
        grad_in = unpool(grad_out, shape[-2:], pooling(**window), lnc=lnc)
    assert_close(out, reference.avg_pool2d(x, **window))
    assert_close(grad_in, reference.avg_pool2d_backward(grad_out, shape[-2:], **window))


@settings(max_examples=40, deadline=None)
@given(shape=SHAPES, window=windows(), tile_bytes=st.sampled_from([64, 300, 2000]))
def test_tiles_of_any_size_give_the_same(shape, window, tile_bytes):
    """Small tiles cut outputs, and then the windows themselves, many times."""
    assume(fits(shape, window))
    x = image(*shape)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(geometry, "TILE_BYTES", tile_bytes)
        # Bound once more, so that no trace made with other tiles is used.
        forward = nki.jit(nki_avg_pool2d_kernel.func)
        backward = nki.jit(nki_avg_pool2d_backward_kernel.func)
        out = forward(x, **window)
        grad_in = backward(out, *shape[1:], **window)
    assert_close(out, reference.avg_pool2d(x, **window))
    assert_close(grad_in, reference.avg_pool2d_backward(out, shape[1:], **window))


@settings(max_examples=20, deadline=None)
@given(shape=SHAPES, window=windows(), tile_bytes=st.sampled_from([64, 300, 2000]))
def test_tiles_of_any_size_give_the_same_in_import_nki(shape, window, tile_bytes):
    assume(fits(shape, window))
    x = image(*shape)
    environment = mock.patch.dict(os.environ, NEURON_PLATFORM_TARGET_OVERRIDE="trn2")
    with pytest.MonkeyPatch.context() as patch, environment:
        patch.setattr(geometry, "TILE_BYTES", tile_bytes)
        plan = pooling(**window)
        forward = in_import_nki.jit(in_nki.nki_avg_pool2d_kernel.func)
        backward = in_import_nki.jit(in_nki.nki_avg_pool2d_backward_kernel.func)[2]
        out = forward(x, forward_plan(plan, *shape[1:]))
        grad_in = backward(out, backward_plan(plan, *shape[1:]))
    assert_close(out, reference.avg_pool2d(x, **window))
    assert_close(grad_in, reference.avg_pool2d_backward(out, shape[1:], **window))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [{"kernel_size": 2}, {"kernel_size": 4, "stride": 2}])
def test_dialects_agree_to_the_last_bit(window, dtype, in_dialect):
    """Where one over the count is exact, product and division are one number. With other counts
    the dialects differ by a rounding, which the reference's tolerance holds."""

    def results():
        out = nki_avg_pool2d(x, **window)
        return out.tobytes(), unpool(out, (18, 22), pooling(**window)).tobytes()

    x = image(130, 18, 22, dtype=dtype)
    theirs = results()
    in_dialect("nki")
    assert results() == theirs


@settings(max_examples=100, deadline=None)
@given(shape=SHAPES, window=windows(), tile_bytes=st.sampled_from([64, 300, 2000, 90112]))
def test_tiles_cover_everything_once(shape, window, tile_bytes):
    assume(fits(shape, window))
    rows, cols = pooling(**window).axes(*shape[-2:])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(geometry, "TILE_BYTES", tile_bytes)
        out = np.zeros((rows.out, cols.out), int)
        for row, col in geometry.forward_tiles(rows, cols):
            out[slice(*row.outs), slice(*col.outs)] += 1
            for tile, axis in ((row, rows), (col, cols)):
                places = [p for part in tile.parts for p in range(*part)]
                assert places == list(range(axis.kernel))
        assert (out == 1).all()
        grad = np.zeros(shape[-2:], int)
        for row, col in geometry.backward_tiles(rows, cols):
            (r0, r1), (c0, c1) = row.image(rows), col.image(cols)
            grad[max(r0, 0) : r1, max(c0, 0) : c1] += 1
        assert (grad == 1).all()


LARGE = {
    "many tiles": ((3, 300, 700), {"kernel_size": 3, "stride": 2, "padding": 1}),
    "one row is too long": ((2, 5, 60000), {"kernel_size": (2, 3)}),
    "one window is too large": ((2, 301, 200), {"kernel_size": (301, 200)}),
    "channels of a batch": ((3, 100, 9, 11), {"kernel_size": 2, "ceil_mode": True}),
}


@pytest.mark.parametrize(("shape", "window"), LARGE.values(), ids=LARGE)
def test_larger_than_a_tile(shape, window, dialect):
    x = image(*shape)
    out = nki_avg_pool2d(x, **window)
    np.testing.assert_allclose(out, reference.avg_pool2d(x, **window), rtol=1e-5, atol=1e-5)
    grad_in = unpool(out, shape[-2:], pooling(**window))
    expected = reference.avg_pool2d_backward(out, shape[-2:], **window)
    np.testing.assert_allclose(grad_in, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("shape", "window"), LARGE.values(), ids=LARGE)
def test_tiles_stay_inside_sbuf(shape, window):
    """What is alive at one time is at most half of SBUF. The simulator refuses single tiles that do
    not fit, but not several that together do not."""
    planes = np.zeros((1, *shape[-2:]), np.float32)
    forward = nki_avg_pool2d_kernel.specialize((planes,), window).program
    out = np.zeros(forward.outputs[0].shape, np.float32)
    backward = nki_avg_pool2d_backward_kernel.specialize((out, *shape[-2:]), window).program
    for program in (forward, backward):
        lives, sizes = {}, {}
        for at, instruction in enumerate(program.instructions):
            for operand in (*instruction.outs, *instruction.tiles_in):
                buffer = operand.buffer
                if buffer.space.on_chip:
                    first, _ = lives.get(buffer.number, (at, at))
                    lives[buffer.number] = first, at
                    sizes[buffer.number] = int(np.prod(buffer.shape[1:])) * buffer.dtype.itemsize
        held = [
            sum(sizes[n] for n, (first, last) in lives.items() if first <= at <= last)
            for at in range(len(program.instructions))
        ]
        assert 0 < max(held) <= 176 * 1024 // 2


def test_window_that_reaches_beyond_the_image_by_a_stride(dialect):
    """Ceil mode, count without padding: the divisor of the last window is the smallest."""
    x = np.ones((1, 5, 5), np.float32)
    out = nki_avg_pool2d(x, 4, 3, 1, ceil_mode=True, count_include_pad=False)
    np.testing.assert_array_equal(out, np.ones((1, 2, 2)))
    out = nki_avg_pool2d(x, 4, 3, 1, ceil_mode=True, divisor_override=1)
    np.testing.assert_array_equal(out, [[[9, 9], [9, 9]]])


@pytest.mark.parametrize("pool_size", [1, 2, 3, 6])
@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_kernel(dtype, pool_size):
    x = image(128, 12, 18, dtype=dtype)
    out = nki_avg_pool2d_kernel_strict(x, pool_size)
    assert_close(out, reference.avg_pool2d(x, pool_size))
    expected = reference.mean_of_blocks(x.astype(np.float64), pool_size).astype(dtype)
    assert_close(out, expected)


def test_the_published_order_of_axes():
    """AWS's tutorial puts the axes of the window between those of the output: same pattern."""

    @nki.jit
    def between(x, k):
        c, h, w = x.shape
        out = nl.ndarray((c, h // k, w // k), dtype=x.dtype, buffer=nl.shared_hbm)
        i_c, i_y, i_v, i_x, i_u = nl.mgrid[0:c, 0 : h // k, 0:k, 0 : w // k, 0:k]
        total = nl.sum(nl.load(x)[i_c, k * i_y + i_v, k * i_x + i_u], axis=[2, 4])
        nl.store(out, value=total / (k * k))
        return out

    x = image(5, 6, 8)
    with pytest.warns(NkiWarning, match=r"nl.sum: axis=\[2, 4\]"):
        got = between(x, 2)
    np.testing.assert_array_equal(got, nki_avg_pool2d_kernel_strict(x, 2))


@pytest.mark.parametrize("pool_size", [0, -2, 5])
def test_strict_kernel_refuses_what_does_not_divide(pool_size):
    """Zero used to be a ZeroDivisionError in the published kernel (nki-samples issue 127)."""
    with pytest.raises(ValueError, match=rf"pool_size is {pool_size} for an image of 12x18"):
        nki_avg_pool2d_kernel_strict(image(2, 12, 18), pool_size)


def test_special_values(dialect):
    """Infinities and NaN stay in the windows that hold them."""
    x = np.ones((1, 6, 6), np.float32)
    x[0, 0, 0], x[0, 2, 2], x[0, 4, 4], x[0, 4, 5] = np.inf, np.nan, np.inf, -np.inf
    out = nki_avg_pool2d(x, 2)
    expected = np.ones((1, 3, 3), np.float32)
    expected[0, 0, 0], expected[0, 1, 1], expected[0, 2, 2] = np.inf, np.nan, np.nan
    np.testing.assert_array_equal(out, expected)


def test_sums_do_not_overflow_in_float16(dialect):
    x = np.full((1, 4, 4), 60000, np.float16)
    np.testing.assert_array_equal(nki_avg_pool2d(x, 4), x[:, :1, :1])


ONES = np.ones((1, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("x", "window", "error", "message"),
    [
        (ONES, {"kernel_size": 0}, ValueError, "kernel_size is 0: it must be at least 1"),
        (ONES, {"kernel_size": (2, -1)}, ValueError, r"kernel_size is \(2, -1\)"),
        (ONES, {"kernel_size": (1, 2, 3)}, ValueError, "3 numbers"),
        (ONES, {"kernel_size": 2.0}, TypeError, "2.0, a float"),
        (ONES, {"kernel_size": True}, TypeError, "a bool"),
        (ONES, {"kernel_size": 5}, ValueError, "the height is 4.*no window fits"),
        (ONES, {"kernel_size": (1, 5)}, ValueError, "the width is 4"),
        (ONES, {"kernel_size": 2, "stride": 0}, ValueError, "stride is 0"),
        (ONES, {"kernel_size": 2, "padding": -1}, ValueError, "padding is -1"),
        (ONES, {"kernel_size": 3, "padding": 2}, ValueError, "at most half the window"),
        (ONES, {"kernel_size": 2, "divisor_override": 0}, ValueError, "divisor_override is 0"),
        (ONES[0], {"kernel_size": 2}, ValueError, "2 dimensions"),
        (ONES[None, None], {"kernel_size": 2}, ValueError, "5 dimensions"),
        (ONES[:0], {"kernel_size": 2}, ValueError, "no elements"),
        (ONES.astype(np.int32), {"kernel_size": 2}, TypeError, "x is int32"),
        (ONES.astype(np.float64), {"kernel_size": 2}, TypeError, "x is float64"),
        ([[[1.0]]], {"kernel_size": 1}, TypeError, "x is a list"),
    ],
)
def test_refused_inputs(x, window, error, message, dialect):
    with pytest.raises(error, match=message):
        nki_avg_pool2d(x, **window)


def test_backward_refuses_a_gradient_of_another_size(dialect):
    with pytest.raises(ValueError, match=r"\(3, 3\). Pooling 4x4 gives \(2, 2\)"):
        unpool(np.ones((1, 3, 3), np.float32), (4, 4), pooling(2))


@pytest.mark.parametrize("window", [{}, {"stride": 3}, {"stride": 1, "padding": 1}])
def test_picture_shows_what_each_output_reads(window):
    """Follow the drawn pattern by hand, on the padded image: it gives the kernel's result."""
    x = image(2, 6, 6)
    reads = window_reads(nki_avg_pool2d_kernel, x, 2, *window.values())
    p = window.get("padding", 0)
    padded = np.pad(x, [(0, 0), (p, p), (p, p)])[:, : reads.tile[0], : reads.tile[1]]
    by_hand = padded.reshape(2, -1)[:, reads.elements].mean((-2, -1))
    np.testing.assert_allclose(nki_avg_pool2d(x, 2, **window), by_hand, rtol=1e-5)
    assert reads.readers.sum() == reads.elements.size
    assert (~reads.loaded).sum() == padded[0].size - 36 * (p == 1) if p else reads.loaded.all()
    assert f"{reads.sizes[0]}x{reads.sizes[1]} outputs" in repr(draw_reads(reads))


def test_picture_wants_one_tile():
    with pytest.raises(ValueError, match="2 reductions"):
        window_reads(nki_avg_pool2d_kernel, image(129, 4, 4), 2)
