"""The add operator in JAX: arrays of NumPy, and sharding over eight devices."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.add import nki_tensor_add  # noqa: E402
from kernels.add.jax_op import add  # noqa: E402


def assert_equal(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(np.asarray(actual), np.asarray(expected))


def test_numpy_arrays_among_jax_arrays():
    a, b = (jax.random.normal(jax.random.key(i), (4, 4)) for i in (0, 1))
    assert_equal(add(a, np.asarray(b)), a + b)
    with pytest.raises(TypeError, match=r"jnp\.asarray\(x\)"):  # as an instance does
        nki_tensor_add(np.asarray(a), b)
    assert_equal(nki_tensor_add(jnp.asarray(np.asarray(a)), b), a + b)


def test_eight_devices_add_where_the_data_lies():
    """The operator needs no all-gather; the raw kernel does, which shows the check can fail."""
    a, b = (jax.random.normal(jax.random.key(i), (256, 1024)) for i in (0, 1))

    def compiled(function, mesh, spec, spec_b):
        shardings = NamedSharding(mesh, spec), NamedSharding(mesh, spec_b)
        x, y = (jax.device_put(v, s) for v, s in zip((a, b), shardings, strict=True))
        f = jax.jit(function)
        out = f(x, y)
        np.testing.assert_array_equal(out, a + b)
        return f.lower(x, y).compile().as_text(), out.sharding

    line = Mesh(np.array(jax.devices()), ("x",))
    plane = Mesh(np.array(jax.devices()).reshape(4, 2), ("x", "y"))
    cases = [
        (line, P("x", None), P("x", None), "f32[32,1024]"),
        (line, P(None, "x"), P(None, "x"), "f32[256,128]"),
        (plane, P("x", "y"), P("x", "y"), "f32[64,512]"),
        (plane, P("y", "x"), P("y", "x"), "f32[128,256]"),
        (line, P("x", None), P(), "f32[32,1024]"),
    ]
    for mesh, spec, spec_b, block in cases:
        hlo, sharding = compiled(add, mesh, spec, spec_b)
        calls = [line for line in hlo.splitlines() if "AwsNeuronCustomNativeKernel" in line]
        (call,) = calls
        assert block in call, spec
        assert "all-gather" not in hlo, spec
        assert sharding.is_equivalent_to(NamedSharding(mesh, spec), 2), (spec, sharding)
        raw, _ = compiled(nki_tensor_add, mesh, spec, spec_b)
        assert "all-gather" in raw, spec

    # The gradient and a batch stay sharded as well.
    sharding = NamedSharding(line, P("x", None))
    x, y = (jax.device_put(v, sharding) for v in (a, b))
    g = jax.jit(jax.grad(lambda a, b: (a * b * add(a, b)).sum()))
    np.testing.assert_allclose(g(x, y), 2 * a * b + b * b, rtol=1e-5, atol=1e-5)
    assert "all-gather" not in g.lower(x, y).compile().as_text()

    # One call on each of the eight devices, at the same time.
    each = jax.pmap(add)(a.reshape(8, 32, 1024), b.reshape(8, 32, 1024))
    np.testing.assert_array_equal(each.reshape(a.shape), a + b)


def test_gradient_in_shard_map_of_what_the_devices_share():
    """It is a sum over the devices. Values are JAX's own, where the gradient is taken in or out."""
    line = Mesh(np.array(jax.devices()), ("x",))
    a = jax.random.normal(jax.random.key(0), (16, 5))
    b = jax.random.normal(jax.random.key(1), (2, 5))
    specs = {"mesh": line, "in_specs": (P("x"), P())}

    def gradients(plus):
        each = jax.shard_map(plus, **specs, out_specs=P("x"))
        outside = jax.grad(lambda a, b: (each(a, b) ** 2).sum(), (0, 1))
        inside = jax.grad(lambda a, b: (plus(a, b) ** 2).sum(), (0, 1))
        inside = jax.shard_map(inside, **specs, out_specs=(P("x"), P()))
        return jax.jit(outside)(a, b), jax.jit(inside)(a, b)

    both = jax.tree.leaves(gradients(add)), jax.tree.leaves(gradients(jnp.add))
    for ours, theirs in zip(*both, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)
