"""Average pooling in JAX: against reduce_window, under transforms, and over eight devices."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from hypothesis import assume, given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.avgpool.jax_op import avg_pool2d  # noqa: E402

# XLA adds in float32 too, in another order, and rounds once: see test_avgpool.py.
TOLERANCE = {"rtol": 2e-6, "atol": 5e-6}


def image(*shape):
    return jax.random.normal(jax.random.key(0), shape)


def windowed(x, kernel, stride=None, padding=(0, 0), ceil_mode=False, include=True):
    """Average pooling as JAX users write it: two window sums, of the image and of ones."""
    kernel, stride = (kernel, stride or kernel)
    pads, ones = [], jnp.ones((1,) * (x.ndim - 2) + x.shape[-2:])
    for size, k, s, p in zip(x.shape[-2:], kernel, stride, padding, strict=True):
        beyond = (size + 2 * p - k) % s
        # Ceil mode: one window more, unless it starts in the padding after the image.
        windows = (size + 2 * p - k) // s + 1
        more = ceil_mode and beyond and windows * s < size + p
        pads.append((p, p + (s - beyond if more else 0)))
    if include:  # the padding counts, what ceil mode adds does not
        sides = [(0, 0)] * (x.ndim - 2) + [(p, p) for p in padding]
        ones = jnp.pad(ones, sides, constant_values=1.0)
        spare = [(0, high - p) for (_, high), p in zip(pads, padding, strict=True)]
    else:
        spare = pads

    def sums(x, pads):
        lead = x.ndim - 2
        window, steps = (1,) * lead + tuple(kernel), (1,) * lead + tuple(stride)
        return jax.lax.reduce_window(x, 0.0, jax.lax.add, window, steps, [(0, 0)] * lead + pads)

    return sums(x, pads) / sums(ones, spare)


@st.composite
def arguments(draw):
    kernel = draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    stride = draw(st.none() | st.tuples(st.integers(1, 8), st.integers(1, 8)))
    padding = tuple(draw(st.integers(0, k // 2)) for k in kernel)
    return kernel, stride, padding, draw(st.booleans()), draw(st.booleans())


@settings(max_examples=6, deadline=None)  # XLA compiles the reference for each
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 5), st.integers(1, 17), st.integers(1, 17)),
    window=arguments(),
)
def test_equals_reduce_window(shape, window):
    """Values and gradients."""
    kernel, _, padding, *_ = window
    fits = (n + 2 * p >= k for n, p, k in zip(shape[2:], padding, kernel, strict=True))
    assume(all(fits))
    x = image(*shape)
    ours, pull_ours = jax.vjp(lambda x: avg_pool2d(x, *window), x)
    expected, pull_expected = jax.vjp(lambda x: windowed(x, *window), x)
    np.testing.assert_allclose(ours, expected, **TOLERANCE)
    grad = image(*ours.shape)
    np.testing.assert_allclose(pull_ours(grad)[0], pull_expected(grad)[0], **TOLERANCE)


def test_a_traced_window_is_refused():
    with pytest.raises(TypeError, match="known before the kernel is compiled"):
        jax.jit(avg_pool2d)(image(1, 4, 4), 2)


def test_images_stay_on_their_devices():
    """Eight devices: sharded images and channels cost no collective, sharded rows a gather."""
    x = jax.random.normal(jax.random.key(0), (8, 16, 10, 16))
    expected = avg_pool2d(x, 3, 2, 1)

    def loss(x):
        return (avg_pool2d(x, 3, 2, 1) ** 2).sum()

    gradient = jax.grad(loss)(x)
    mesh = Mesh(np.array(jax.devices()), ("d",))
    for spec, gathers in ((P("d"), False), (P(None, None, None, "d"), True)):
        sharded = jax.device_put(x, NamedSharding(mesh, spec))
        forward = jax.jit(lambda x: avg_pool2d(x, 3, 2, 1))
        out = forward(sharded)
        np.testing.assert_allclose(out, expected, rtol=1e-6)
        hlo = forward.lower(sharded).compile().as_text()
        assert ("all-gather" in hlo) == gathers, spec
        if not gathers:
            assert out.sharding.is_equivalent_to(NamedSharding(mesh, spec), 4)
            assert "f32[16,10,16]" in hlo
        backward = jax.jit(jax.grad(loss))
        np.testing.assert_allclose(backward(sharded), gradient, rtol=1e-6, atol=1e-7)
        hlo = backward.lower(sharded).compile().as_text()
        assert ("all-gather" in hlo) == gathers, spec
