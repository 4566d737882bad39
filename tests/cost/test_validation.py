"""The cost model against published latencies: what the validation page does not compute.

The page asserts that the points are as close, and in such an order, as it says, as recorded in
`nkibook/validation/modelled.json`."""

from __future__ import annotations

import numpy as np
import pytest

import nkisim
from nkibook.validation import (
    attention,
    depthwise,
    elementwise,
    layernorm,
    mamba,
    mamba_steps,
    matmul,
    nkibench,
    pairs,
    points_book,
    vector_add,
)
from nkibook.validation.points import POINTS, SOURCES


def test_adds_of_one_element_take_turns():
    """1.07 us an add, whether 25,600 of them or a few: one transfer of a line is under way."""
    times = []
    for n in (50, 100):
        row = nkisim.TensorSpec((n,), np.dtype(np.float32))
        times.append(nkisim.profile(vector_add.add_columns, row, row, 1).latency_us)
    assert (times[1] - times[0]) / 50 == pytest.approx(27404 / 25600, abs=0.01)


def test_mamba_order_is_the_published_one():
    """v1 > v2 at 512; v3 = v2 at 512 and ahead of it from 1024 on (NKI tutorial)."""

    def latency(kernel, length):
        row = nkisim.TensorSpec((1, 16, length), np.dtype(np.float32))
        plane = nkisim.TensorSpec((1, 256, length), np.dtype(np.float32))
        a = nkisim.TensorSpec((256, 16), np.dtype(np.float32))
        return nkisim.profile(kernel, plane, plane, a, row, row).latency_us

    assert latency(mamba.mamba_v1, 512) > latency(mamba.mamba_v2, 512)
    assert latency(mamba.mamba_v3, 512) == pytest.approx(latency(mamba.mamba_v2, 512), rel=0.05)
    assert latency(mamba.mamba_v3, 1024) < latency(mamba.mamba_v2, 1024)
    assert latency(mamba.mamba_v3, 2048) < latency(mamba.mamba_v2, 2048)


def test_matmul_order_is_the_published_one():
    """tiled > hoisted > blocked > full, on smaller matrices than the tutorial's."""
    bf16 = np.dtype("bfloat16")
    lhs_t, rhs = nkisim.TensorSpec((2048, 512), bf16), nkisim.TensorSpec((2048, 2048), bf16)
    stages = [
        nkisim.profile(matmul.matmul_tiled, lhs_t, rhs),
        nkisim.profile(matmul.matmul_hoisted, lhs_t, rhs),
        nkisim.profile(matmul.matmul_blocked, lhs_t, rhs),
        nkisim.profile(matmul.matmul_full, lhs_t, rhs, 4, 2, 8),
    ]
    times = [t.latency_us for t in stages]
    assert times == sorted(times, reverse=True)


def test_every_point_names_a_source_and_a_kernel():
    assert len(POINTS) >= 50
    assert len({p.name for p in POINTS}) == len(POINTS)
    for p in POINTS:
        assert p.source in SOURCES
        assert p.trust in ("high", "medium")
        assert p.published_us > 0


def test_points_of_the_book_name_a_source_and_a_kernel_of_it():
    for point in points_book.BOOK:
        assert point.source in points_book.SOURCES
        assert point.function.__module__.startswith("kernels.")


# -- the kernels compute what they claim to: a model of something else would prove nothing

RNG = np.random.default_rng(7)


def random(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def test_adds_add():
    a, b = random(128 * 6), random(128 * 6)
    np.testing.assert_array_equal(vector_add.add_columns(a, b, 64).ravel(), a + b)
    np.testing.assert_array_equal(vector_add.add_tiles(a, b, 3).ravel(), a + b)


def test_exp_is_exp():
    x = random(250, 33)
    np.testing.assert_allclose(elementwise.exp(x), np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("kernel", [layernorm.layernorm_v1, layernorm.layernorm_v2])
def test_layernorm_normalises(kernel):
    x, gamma, beta = random(131, 700), random(700), random(700)
    mean, var = x.mean(1, keepdims=True), x.var(1, keepdims=True)
    want = (x - mean) / np.sqrt(var + 1e-5) * gamma + beta
    np.testing.assert_allclose(kernel(x, gamma, beta), want, atol=2e-4)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (matmul.matmul_tiled, ()),
        (matmul.matmul_hoisted, ()),
        (matmul.matmul_blocked, ()),
        (matmul.matmul_full, (2, 1, 2)),
        (matmul.matmul_column, ()),
        (matmul.matmul_column, (2,)),
        (matmul.matmul_groups, (1, 2)),
        (matmul.matmul_groups, (2, 1, 2)),
        (matmul.matmul_groups, (2, 2, 1, 2)),
        (matmul.matmul_groups, (2, 2, 2, 2, True)),
    ],
)
def test_matmuls_multiply(kernel, options):
    lhs_t, rhs = random(256, 256), random(256, 1024)
    np.testing.assert_allclose(kernel(lhs_t, rhs, *options), lhs_t.T @ rhs, atol=2e-3)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (mamba.mamba_v1, ()),
        (mamba.mamba_v2, ()),
        (mamba.mamba_v3, ()),
        (mamba.mamba_chunks, ()),
        (mamba_steps.rows_hoisted, ()),
        (mamba_steps.reordered, ()),
        (mamba_steps.reordered, (True,)),
        (mamba_steps.chunked, ()),
        (mamba_steps.chunked, (True,)),
        (mamba_steps.chunked, (True, True)),
    ],
)
def test_mambas_scan(kernel, options):
    channels, length, states = 256, 1024, 3
    delta, u = np.abs(random(1, channels, length)), random(1, channels, length)
    a = -np.abs(random(channels, states))
    b, c = random(1, states, length), random(1, states, length)
    want = np.zeros((1, channels, length))
    for s in range(states):
        state = np.zeros(channels)
        for i in range(length):
            state = (
                np.exp(delta[0, :, i] * a[:, s]) * state + delta[0, :, i] * u[0, :, i] * b[0, s, i]
            )
            want[0, :, i] += state * c[0, s, i]
    np.testing.assert_allclose(kernel(delta, u, a, b, c, *options), want, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("pool", [1, 2])
def test_convolution_convolves(pool):
    from numpy.lib.stride_tricks import sliding_window_view

    from nkibook.validation.convolution import conv2d

    x, w, bias = random(1, 128, 6, 12), random(128, 128, 3, 3), random(128, 1)
    windows = sliding_window_view(x[0], (3, 3), axis=(1, 2))
    want = np.einsum("chwij,ocij->ohw", windows, w) + bias[:, :, None]
    if pool == 2:
        want = want.reshape(128, 2, 2, 5, 2).max(axis=(2, 4))
    np.testing.assert_allclose(conv2d(x, w, bias, pool)[0], want, atol=1e-2)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (depthwise.all_at_once, ()),
        (depthwise.one_at_a_time, ()),
        (depthwise.sums_in_psum, ()),
        (depthwise.weights_in_psum, ()),
        (depthwise.weights_in_psum, (64,)),
    ],
)
@pytest.mark.parametrize(("images", "channels", "taps"), [(2, 256, 3), (1, 128, 5)])
def test_depthwise_convolutions_convolve(kernel, options, images, channels, taps):
    x, w = random(images, channels, 1, 512), random(channels, 1, 1, taps)
    want = [
        [np.convolve(row, factors[::-1], mode="same") for row, factors in zip(rows, w, strict=True)]
        for rows, w in ((image[:, 0], w[:, 0, 0]) for image in x)
    ]
    np.testing.assert_allclose(kernel(x, w, *options)[:, :, 0], want, atol=1e-5)


def test_depthwise_convolutions_have_the_published_instructions():
    """The profiles in the source count 65,536 products and 16,384 sums before the last step, and
    512 of each after it, in eight images: here is one of them."""
    shapes = (1, 512, 1, 2048), (512, 1, 1, 3)
    args = [nkisim.TensorSpec(shape, np.dtype(np.float32)) for shape in shapes]
    for options, products, sums in (((), 65_536, 16_384), ((64,), 512, 512)):
        found = nkisim.profile(depthwise.weights_in_psum, *args, *options)
        lines = {row.label: row.count for row in found.lines}
        assert 8 * lines["tensor_tensor(multiply)"] == products
        assert 8 * lines["tensor_reduce(add)"] == sums


def test_nkibench_kernels_compute_what_their_names_say():
    x = random(128, 2, 1024)
    np.testing.assert_allclose(nkibench.silu(x), x / (1 + np.exp(-x)), rtol=1e-5, atol=1e-6)
    theta, g, m = random(130, 1024), random(130, 1024), random(130, 1024)
    v = np.abs(random(130, 1024))
    step = 0.01 * (0.9 * m + 0.1 * g) / (np.sqrt(1000 * (0.999 * v + 0.001 * g * g)) + 1e-8)
    want = theta * (1 - 1e-5) - step
    np.testing.assert_allclose(nkibench.adamw(theta, g, m, v), want, rtol=1e-5, atol=1e-6)
    x, angle = random(128, 1024), random(64, 1024)
    c, s, a, b = np.cos(angle), np.sin(angle), x[:64], x[64:]
    want = np.concatenate([a * c - b * s, b * c + a * s])
    np.testing.assert_allclose(nkibench.rope(x, c, s), want, rtol=1e-5, atol=1e-5)


def test_the_tuned_rotary_embedding_is_the_untuned_one():
    x, cos, sin = random(128, 1024), random(64, 1024), random(64, 1024)
    tuned = nkibench.rope_tuned(x, cos, sin, 512)
    np.testing.assert_allclose(tuned, nkibench.rope(x, cos, sin), atol=1e-6)


def test_a_loop_in_order_has_fewer_loads_under_way():
    """The narrow load of a product pays less for each product than the wide one, by more than what
    the bytes differ."""
    bf16 = np.dtype("bfloat16")
    lhs_t, rhs = nkisim.TensorSpec((8192, 512), bf16), nkisim.TensorSpec((8192, 512), bf16)
    narrow, wide = (nkisim.profile(matmul.matmul_column, lhs_t, rhs, n) for n in (1, 4))
    assert narrow.body_us > 2 * wide.body_us


def test_errors_of_gains_are_alike_both_ways():
    """Half of a gain and twice of it are the same error; forms that take as long have no order."""
    a, b = POINTS[:2]
    pair = pairs.Pair(a, b, "seen")
    half, twice = pairs.Gain(pair, 2.0, 1.0), pairs.Gain(pair, 2.0, 4.0)
    assert half.error == pytest.approx(-twice.error)
    assert twice.in_order
    assert not pairs.Gain(pair, 2.0, 0.9).in_order
    assert pairs.Gain(pair, 1.01, 0.9).in_order
    rows = [(a, 3.0), (b, 1.5)]
    (found,) = pairs.gains([pair], rows)
    assert (found.published, found.modelled) == (a.published_us / b.published_us, 2.0)


def test_nkibench_products_multiply_and_normalise():
    a, b = random(2, 1024, 64), random(2, 64, 1024)
    product = a @ b
    np.testing.assert_allclose(nkibench.bmm(a, b), product, rtol=1e-4, atol=1e-4)
    exp = np.exp(product - product.max(2, keepdims=True))
    want = exp / exp.sum(2, keepdims=True)
    np.testing.assert_allclose(nkibench.bmm_softmax(a, b), want, rtol=1e-3, atol=1e-6)


def test_nkibench_normalised_products_do_both():
    def rmsnorm(x):
        return x / np.sqrt(np.mean(x * x, 1, keepdims=True) + 1e-6)

    x, w, z, gain = random(256, 256), random(256, 1024), random(256, 256), random(256)
    want = rmsnorm(x + z) * gain @ w
    np.testing.assert_allclose(nkibench.add_rmsnorm_matmul(x, w, z, gain), want, atol=1e-3)
    z, gain = random(256, 1024), random(1024)
    want = rmsnorm(x @ w + z) * gain
    np.testing.assert_allclose(nkibench.matmul_add_rmsnorm(x, w, z, gain), want, atol=1e-4)


@pytest.mark.parametrize(
    ("kernel", "options"),
    [
        (attention.small_heads, ()),
        (attention.small_heads_summed, ()),
        (attention.small_heads_summed, (True,)),
        (attention.small_heads_summed, (False, True)),
        (attention.small_heads_fused, ()),
    ],
)
def test_attention_of_small_heads_attends(kernel, options):
    q, k, v = random(256, 64), random(384, 64), random(384, 64)
    exp = np.exp(q @ k.T / 8)
    want = exp / exp.sum(1, keepdims=True) @ v
    np.testing.assert_allclose(kernel(q, k, v, *options), want, atol=0.02)  # bfloat16 products


@pytest.mark.parametrize("summed", [False, True])
def test_attention_through_hbm_attends(summed):
    q, k, v = random(128, 256) / 4, random(128, 1024) / 4, random(128, 1024)
    exp = np.exp(q.T @ k)
    want = exp / exp.sum(1, keepdims=True) @ v.T
    np.testing.assert_allclose(attention.through_hbm(q, k, v, summed), want, atol=1e-4)
