"""Softmax in PyTorch and in JAX: values, gradients, transforms, sharding, refusals.

Tolerances: float32 sums run in another order; 16-bit results agree within one step of their dtype,
and gradients of 16 bits within a few, since they are made of the rounded result.
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

from kernels.softmax import jax_op, torch_op  # noqa: E402

TOLERANCE = {
    "float32": {"rtol": 1e-5, "atol": 1e-6},
    "float16": {"rtol": 2**-9, "atol": 1e-3},
    "bfloat16": {"rtol": 2**-6, "atol": 1e-2},
}


def draw(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def torch_results(dtype, x, grad_y, dim):
    x = torch.tensor(x).to(getattr(torch, dtype)).requires_grad_()
    y = torch_op.softmax(x, dim)
    (grad_x,) = torch.autograd.grad(y, x, torch.tensor(grad_y).to(y.dtype))
    assert y.dtype == grad_x.dtype == x.dtype
    return y.detach().double().numpy(), grad_x.double().numpy()


def jax_results(dtype, x, grad_y, dim):
    x = jnp.asarray(x, dtype)
    y, pull = jax.vjp(lambda x: jax_op.softmax(x, dim), x)
    (grad_x,) = pull(jnp.asarray(grad_y, dtype))
    assert y.dtype == grad_x.dtype == x.dtype
    return np.asarray(y, np.float64), np.asarray(grad_x, np.float64)


@settings(max_examples=8, deadline=None)
@given(
    shape=st.lists(st.integers(0, 30), min_size=1, max_size=3),
    dtype=st.sampled_from(list(TOLERANCE)),
    data=st.data(),
)
def test_values_and_gradients(shape, dtype, data):
    """Any axis; axes of no elements included."""
    dim = data.draw(st.integers(-len(shape), len(shape) - 1))
    grad_y = draw(shape, seed=1)
    exact = torch.tensor(draw(shape)).to(getattr(torch, dtype)).double().requires_grad_()
    y = torch.softmax(exact, dim)
    grad = torch.tensor(grad_y).to(getattr(torch, dtype)).double()
    expected = y.detach().numpy(), torch.autograd.grad(y, exact, grad)[0].numpy()
    for results in (torch_results, jax_results):
        for ours, theirs in zip(results(dtype, draw(shape), grad_y, dim), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, **TOLERANCE[dtype])


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_a_result_without_gradient_can_be_changed_in_place(dim):
    with torch.no_grad():
        y = torch_op.softmax(torch.tensor(draw((3, 5))), dim)
    y += torch.ones_like(y).requires_grad_()
    assert y.requires_grad
    assert y.is_contiguous()


def test_rows_sharded_over_devices():
    mesh = jax.make_mesh((8,), ("rows",))
    x = np.random.default_rng(0).standard_normal((64, 30), np.float32)
    x = jax.device_put(x, NamedSharding(mesh, P("rows")))

    def loss(f):
        return jax.jit(jax.grad(lambda x: (f(x) ** 2).sum()))

    text = loss(jax_op.softmax).lower(x).compile().as_text()
    assert not re.search("all-gather|all-reduce", text), text
    np.testing.assert_allclose(
        loss(jax_op.softmax)(x), loss(jax.nn.softmax)(x), rtol=1e-4, atol=1e-6
    )


def test_refused_inputs():
    with pytest.raises(ValueError, match="no axis"):
        torch_op.softmax(torch.tensor(1.0))
    with pytest.raises(IndexError, match="dim is 2"):
        torch_op.softmax(torch.ones(3, 4), 2)
    with pytest.raises(ValueError, match="out of bounds"):
        jax_op.softmax(jnp.ones((3, 4)), 2)


@pytest.mark.parametrize("dim", [1.0, None])
def test_an_axis_is_an_integer(dim):
    with pytest.raises(TypeError):
        torch_op.softmax(torch.ones(3, 5), dim)
    with pytest.raises(TypeError):
        jax_op.softmax(jax.numpy.ones((3, 5)), dim)
