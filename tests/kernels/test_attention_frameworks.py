"""Attention in PyTorch and in JAX: values, gradients, transforms, sharding, refusals.

Tolerances: float32 sums run in another order; in 16 bits weights and gradients of scores are
rounded before they are multiplied, which leaves a few steps of the largest elements.
"""

from __future__ import annotations

import functools
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
    group=st.integers(1, 3),
    lengths=st.tuples(st.integers(1, 150), st.integers(1, 150)),
    head=st.integers(1, 128),
    dtype=st.sampled_from(list(TOLERANCE)),
    causal=st.booleans(),
)
def test_values_and_gradients(lead, group, lengths, head, dtype, causal):
    """Axes of no elements in front included."""
    check((*lead[:-1], group * lead[-1]) if lead else (), lead, lengths, head, dtype, causal)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("key_heads", [1, 2, 4])
def test_query_heads_share_keys(key_heads, dtype, causal):
    check((3, 8), (3, key_heads), (35, 37), 16, dtype, causal)


def check(lead, of_keys, lengths, head, dtype, causal):
    """Against PyTorch's in float64."""
    queries, keys = (*lead, lengths[0], head), (*of_keys, lengths[1], head)
    arrays, kind = draw(queries, keys, keys), getattr(torch, dtype)
    (grad_o,) = draw(queries)
    rounded = [torch.tensor(x).to(kind).double().numpy() for x in (*arrays, grad_o)]
    theirs = scaled_dot_product_attention
    if lead != of_keys:
        theirs = functools.partial(theirs, enable_gqa=True)
    expected = torch_results(torch.float64, rounded[:3], rounded[3], causal, theirs)
    of_torch = torch_results(kind, arrays, grad_o, causal)
    of_jax = jax_results(dtype, arrays, grad_o, causal)
    for results in (of_torch, of_jax):
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


@pytest.mark.parametrize("causal", [False, True])
def test_shared_keys_are_those_of_jax(causal):
    """Whose axes are (sequence, head, element)."""
    q, k, v = map(jnp.asarray, draw((2, 6, 19, 8), (2, 2, 23, 8), (2, 2, 23, 8)))

    def theirs(*heads):
        heads = (x.swapaxes(1, 2) for x in heads)
        return jax.nn.dot_product_attention(*heads, is_causal=causal).swapaxes(1, 2)

    def loss(function):
        return lambda *x: (function(*x) ** 2).sum()

    ours = functools.partial(jax_op.attention, causal=causal)
    np.testing.assert_allclose(ours(q, k, v), theirs(q, k, v), rtol=1e-5, atol=1e-5)
    grads = (jax.grad(loss(f), (0, 1, 2))(q, k, v) for f in (ours, theirs))
    for mine, other in zip(*grads, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("group", [1, 2])
def test_heads_sharded_over_devices(group):
    mesh = jax.make_mesh((8,), ("heads",))
    rng = np.random.default_rng(0)
    q, k, v = (
        jax.device_put(
            rng.standard_normal((2, heads, 30, 16), np.float32),
            NamedSharding(mesh, P(None, "heads")),
        )
        for heads in (8 * group, 8, 8)
    )

    def plain(q, k, v):
        k, v = (x.repeat(group, axis=1) for x in (k, v))
        return jax.nn.softmax(q @ k.swapaxes(-1, -2) / 4, axis=-1) @ v

    def loss(f):
        return jax.jit(jax.grad(lambda *x: (f(*x) ** 2).sum(), (0, 1, 2)))

    text = loss(jax_op.attention).lower(q, k, v).compile().as_text()
    assert not re.search("all-gather|all-reduce", text), text
    for mine, other in zip(loss(jax_op.attention)(q, k, v), loss(plain)(q, k, v), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)


def test_refused_inputs():
    q = torch.ones(3, 4)
    with pytest.raises(ValueError, match="q has 5 heads and k 2"):
        torch_op.attention(torch.ones(5, 3, 4), *(torch.ones(2, 3, 4),) * 2)
    with pytest.raises(ValueError, match="scale is -1"):
        torch_op.attention(q, q, q, scale=-1)
    with pytest.raises(TypeError, match="is_causal is an array"):  # where PyTorch has its mask
        torch_op.attention(q, q, q, torch.ones(3, 3, dtype=torch.bool))
    j = jnp.ones((3, 4))
    with pytest.raises(TypeError, match="causal is an array"):
        jax_op.attention(j, j, j, j[:, :3] > 0)
    with pytest.raises(TypeError, match="scale is traced"):
        jax.jit(lambda scale: jax_op.attention(j, j, j, False, scale))(0.5)
    with pytest.raises(ValueError, match="must be"):
        jax_op.attention(j, j[:, :2], j)
