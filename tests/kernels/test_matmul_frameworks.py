"""Matmul in PyTorch and in JAX: values, gradients, sharding, refusals.

Tolerances: in float32 a sum of K products may run in another order than NumPy's, which moves the
result by a few 1e-7 of its terms; 16-bit results agree within one step of their dtype, since either
side rounds a float32 value that may lie near the middle between two of them.
"""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
import jax.numpy as jnp  # noqa: E402
import torch_devices  # noqa: E402, F401
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.matmul import jax_op, torch_op  # noqa: E402

TOLERANCE = {
    "float32": {"rtol": 2e-6, "atol": 5e-5},
    "float16": {"rtol": 2**-9, "atol": 5e-3},
    "bfloat16": {"rtol": 2**-6, "atol": 5e-2},
}


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def torch_results(dtype, a, b, grad_c):
    a, b = (torch.tensor(x).to(getattr(torch, dtype)).requires_grad_() for x in (a, b))
    c = torch_op.matmul(a, b)
    found = c, *torch.autograd.grad(c, (a, b), torch.tensor(grad_c).to(c.dtype))
    assert {x.dtype for x in found} == {a.dtype}
    return [x.detach().double().numpy() for x in found]


def jax_results(dtype, a, b, grad_c):
    c, pull = jax.vjp(jax_op.matmul, *(jnp.asarray(x, dtype) for x in (a, b)))
    found = c, *pull(jnp.asarray(grad_c, dtype))
    assert {str(x.dtype) for x in found} == {dtype}
    return [np.asarray(x, np.float64) for x in found]


@settings(max_examples=12, deadline=None)
@given(
    lead=st.lists(st.integers(0, 9), max_size=2).map(tuple),
    k=st.integers(0, 140),
    n=st.integers(0, 530),
    dtype=st.sampled_from(list(TOLERANCE)),
)
def test_values_and_gradients(lead, k, n, dtype):
    """Axes of no elements included."""
    arrays = draw(*lead, k), draw(k, n, seed=1), draw(*lead, n, seed=2)
    a, b, grad_c = (torch.tensor(x).to(getattr(torch, dtype)).double() for x in arrays)
    c = torch.matmul(a.requires_grad_(), b.requires_grad_())
    exact = c.detach(), *torch.autograd.grad(c, (a, b), grad_c)
    for results in (torch_results, jax_results):
        for ours, right in zip(results(dtype, *arrays), exact, strict=True):
            np.testing.assert_allclose(ours, right.numpy(), **TOLERANCE[dtype])


def test_rows_sharded_over_devices():
    """Forward nothing moves; backward one all-reduce adds up the gradient of b."""
    mesh = jax.make_mesh((8,), ("rows",))
    a = jax.device_put(draw(64, 30), NamedSharding(mesh, P("rows")))
    b = jax.device_put(draw(30, 20, seed=1), NamedSharding(mesh, P()))
    forward = jax.jit(jax_op.matmul).lower(a, b).compile().as_text()
    assert not re.search("all-gather|all-reduce", forward), forward

    def loss(f):
        return jax.jit(jax.grad(lambda a, b: (f(a, b) ** 2).sum(), (0, 1)))

    text = loss(jax_op.matmul).lower(a, b).compile().as_text()
    assert text.count(" all-reduce(") == 1, text
    assert "all-gather" not in text, text
    for mine, other in zip(loss(jax_op.matmul)(a, b), loss(jnp.matmul)(a, b), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-3)


def test_refused_inputs():
    for function, array in ((torch_op.matmul, torch.tensor), (jax_op.matmul, jnp.asarray)):
        for shape, message in (((2, 6, 5), "vmap"), ((6,), "b is a matrix")):
            with pytest.raises(ValueError, match=message):
                function(array(draw(4, 6)), array(draw(*shape)))
        with pytest.raises(TypeError, match="float16 and b float32"):
            function(array(draw(4, 6).astype(np.float16)), array(draw(6, 5)))
