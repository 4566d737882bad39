"""Attention in PyTorch and in JAX: values, gradients, transforms, sharding, refusals.

Tolerances: float32 sums run in another order; in 16 bits weights and gradients of scores are
rounded before they are multiplied, which leaves a few steps of the largest elements.
"""

from __future__ import annotations

import contextlib
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
with contextlib.suppress(ImportError):
    import torch_xla

    # Before any backward pass: autograd knows only the devices that exist when it first runs.
    torch_xla.device()

import jax.numpy as jnp  # noqa: E402
from jax.sharding import NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from kernels.attention import jax_op, torch_op  # noqa: E402

TOLERANCE = {"float32": 2e-5, "float16": 1e-2, "bfloat16": 8e-2}


def draw(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def torch_results(dtype, arrays, grad_o, causal, function=torch_op.attention):
    tensors = [torch.tensor(x).to(dtype).requires_grad_() for x in arrays]
    o = function(*tensors, is_causal=causal)
    grads = torch.autograd.grad(o, tensors, torch.tensor(grad_o).to(dtype))
    assert {x.dtype for x in (o, *grads)} == {dtype}
    return [x.detach().double().numpy() for x in (o, *grads)]


def jax_results(dtype, arrays, grad_o, causal):
    arrays = [jnp.asarray(x, dtype) for x in arrays]
    o, pull = jax.vjp(lambda *args: jax_op.attention(*args, causal), *arrays)
    grads = pull(jnp.asarray(grad_o, dtype))
    assert {str(x.dtype) for x in (o, *grads)} == {dtype}
    return [np.asarray(x, np.float64) for x in (o, *grads)]


@settings(max_examples=8, deadline=None)
@given(
    lead=st.lists(st.integers(0, 3), max_size=2).map(tuple),
    lengths=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    head=st.integers(1, 128),
    dtype=st.sampled_from(list(TOLERANCE)),
    causal=st.booleans(),
)
def test_values_and_gradients(lead, lengths, head, dtype, causal):
    """Axes of no elements in front included."""
    queries, keys = ((*lead, n, head) for n in lengths)
    arrays, kind = draw(queries, keys, keys), getattr(torch, dtype)
    (grad_o,) = draw(queries)
    rounded = [torch.tensor(x).to(kind).double().numpy() for x in (*arrays, grad_o)]
    expected = torch_results(
        torch.float64, rounded[:3], rounded[3], causal, scaled_dot_product_attention
    )
    ours = torch_results(kind, arrays, grad_o, causal)
    theirs = jax_results(dtype, arrays, grad_o, causal)
    for results in (ours, theirs):
        for result, exact in zip(results, expected, strict=True):
            largest = np.abs(exact).max(initial=1.0)
            np.testing.assert_allclose(result, exact, rtol=0, atol=TOLERANCE[dtype] * largest)


def test_no_queries_or_no_keys():
    for queries, keys in ((0, 3), (3, 0)):
        arrays = draw((2, queries, 4), (2, keys, 4), (2, keys, 4))
        (grad_o,) = draw((2, queries, 4))
        for results in (torch_results(torch.float32, arrays, grad_o, False),
                        jax_results("float32", arrays, grad_o, False)):  # fmt: skip
            assert not any(x.any() for x in results)


def test_heads_sharded_over_devices():
    mesh = jax.make_mesh((8,), ("heads",))
    rng = np.random.default_rng(0)
    q, k, v = (
        jax.device_put(
            rng.standard_normal((2, 8, 30, 16), np.float32), NamedSharding(mesh, P(None, "heads"))
        )
        for _ in range(3)
    )

    def plain(q, k, v):
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4, axis=-1) @ v

    def loss(f):
        return jax.jit(jax.grad(lambda *x: (f(*x) ** 2).sum(), (0, 1, 2)))

    text = loss(jax_op.attention).lower(q, k, v).compile().as_text()
    assert not re.search("all-gather|all-reduce", text), text
    for mine, other in zip(loss(jax_op.attention)(q, k, v), loss(plain)(q, k, v), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_refused_inputs():
    q = torch.ones(3, 4)
    with pytest.raises(ValueError, match="scale is -1"):
        torch_op.attention(q, q, q, scale=-1)
    j = jnp.ones((3, 4))
    with pytest.raises(TypeError, match="scale is traced"):
        jax.jit(lambda scale: jax_op.attention(j, j, j, False, scale))(0.5)
    with pytest.raises(ValueError, match="must be"):
        jax_op.attention(j, j[:, :2], j)
