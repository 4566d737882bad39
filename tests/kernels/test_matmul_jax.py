"""Matmul in JAX: values, gradients, second derivatives, transforms, sharding, refusals.

Tolerances as in the tests of the PyTorch operator.
"""

from __future__ import annotations

import re

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.matmul.jax_op import matmul  # noqa: E402

DTYPES = ["float32", "float16", "bfloat16"]
TOLERANCE = {
    "float32": {"rtol": 2e-6, "atol": 5e-5},
    "float16": {"rtol": 2**-9, "atol": 5e-3},
    "bfloat16": {"rtol": 2**-6, "atol": 5e-2},
}


def draw(*shape, dtype="float32", seed=0):
    numbers = np.random.default_rng(seed).standard_normal(shape, np.float32)
    return jnp.asarray(numbers, dtype)


def wide(x):
    return np.asarray(x).astype(np.float64)


@settings(max_examples=12, deadline=None)
@given(
    lead=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    k=st.integers(0, 140),
    n=st.integers(0, 530),
    dtype=st.sampled_from(DTYPES),
)
def test_values_and_gradients(lead, k, n, dtype):
    """Axes of no elements included."""
    a, b = draw(*lead, k, dtype=dtype), draw(k, n, dtype=dtype, seed=1)
    c, pull = jax.vjp(matmul, a, b)
    assert c.dtype == dtype
    grad_c = draw(*lead, n, dtype=dtype, seed=2)
    rows = wide(a).reshape(-1, k) if 0 not in a.shape else np.zeros((c.size // max(n, 1), k))
    expected = (
        wide(a) @ wide(b),
        wide(grad_c) @ wide(b).T,
        rows.T @ wide(grad_c).reshape(len(rows), n),
    )
    for ours, exact in zip((c, *pull(grad_c)), expected, strict=True):
        assert ours.dtype == dtype
        np.testing.assert_allclose(wide(ours), exact, **TOLERANCE[dtype])


def test_rows_sharded_over_devices():
    """Forward nothing moves; backward one all-reduce adds up the gradient of b."""
    mesh = jax.make_mesh((8,), ("rows",))
    rng = np.random.default_rng(0)
    a, b = (jnp.asarray(rng.standard_normal(s, np.float32)) for s in ((64, 30), (30, 20)))
    a = jax.device_put(a, NamedSharding(mesh, P("rows")))
    b = jax.device_put(b, NamedSharding(mesh, P()))
    forward = jax.jit(matmul).lower(a, b).compile().as_text()
    assert not re.search("all-gather|all-reduce", forward), forward

    def loss(f):
        return jax.jit(jax.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))

    text = loss(matmul).lower(a, b).compile().as_text()
    assert text.count(" all-reduce(") == 1, text
    assert "all-gather" not in text, text
    for mine, other in zip(loss(matmul)(a, b), loss(jnp.matmul)(a, b), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (draw(4, 6), draw(5, 6), ValueError, "contraction of 6 with 5"),
        (draw(4, 6), draw(2, 6, 5), ValueError, "vmap"),
        (draw(4, 6).astype(int), draw(6, 5), TypeError, "int32"),
        (draw(4, 6).astype("float16"), draw(6, 5), TypeError, "float16 and b float32"),
        ([[1.0]], draw(6, 5), TypeError, "a is a list"),
    ],
)
def test_refused_inputs(a, b, error, message):
    with pytest.raises(error, match=message):
        matmul(a, b)
