"""RMSNorm in JAX: eps, refusals, sharding over eight devices."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.rmsnorm import nki_rms_norm, reference  # noqa: E402
from kernels.rmsnorm.jax_op import rms_norm  # noqa: E402
from nkibook.hlo import jax_hlo  # noqa: E402

TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])


def test_eps_and_numpy_arrays():
    rng = np.random.default_rng(0)
    arrays = rng.standard_normal((130, 300), np.float32), rng.standard_normal(300, np.float32)
    expected = reference.rms_norm(*arrays, 0.5)[0]
    in_jax = [jnp.asarray(x) for x in arrays]
    for found in (
        rms_norm(*in_jax, 0.5),
        jax.jit(rms_norm, static_argnums=2)(*in_jax, 0.5),
        rms_norm(*arrays, 0.5),
    ):
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=2e-6)


def test_traced_eps_is_refused():
    with pytest.raises(TypeError, match=r"compiled into the kernel.*static_argnums=2"):
        jax.jit(rms_norm)(jnp.ones((4, 6)), jnp.ones(6), 1e-5)


@pytest.mark.parametrize(
    ("x", "weight", "error", "message"),
    [
        (jnp.ones((4, 6)), jnp.ones(5), ValueError, r"\(5,\) and x \(4, 6\)"),
        (jnp.ones((4, 6)), jnp.ones(3), ValueError, "last axes of x"),
        (jnp.ones((4, 6)), jnp.float32(1), ValueError, "no axis"),
        (jnp.ones((4, 6), jnp.int32), jnp.ones(6), TypeError, "x is int32"),
        (jnp.ones((4, 0)), jnp.ones(0), ValueError, "rows of 0 elements"),
        (jnp.ones((1, 16385)), jnp.ones(16385), ValueError, "rows of 16385 elements"),
    ],
)
@TRANSFORMS
def test_refused_inputs(transform, x, weight, error, message):
    with pytest.raises(error, match=message):
        transform(rms_norm)(x, weight)


@pytest.mark.usefixtures("partitioner")
def test_eight_devices():
    """Backward one all-reduce; that forward nothing moves, test_jax_rules.py shows for every way to
    deal rows out. The raw kernel gathers, so that can fail."""
    x = jax.random.normal(jax.random.key(0), (32, 6, 5))
    weight = 1 + jax.random.normal(jax.random.key(1), (6, 5))
    line = Mesh(np.array(jax.devices()), ("a",))
    plane = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))

    def gradients(norm):
        return jax.jit(jax.grad(lambda x, w: (norm(x, w) ** 3).sum(), (0, 1)))

    y, grads = rms_norm(x, weight), gradients(rms_norm)(x, weight)

    by_rows = jax.device_put(x, NamedSharding(line, P("a", None, None)))
    gathered = jax_hlo(jax.jit(lambda x, w: nki_rms_norm(x, w)[0]), by_rows, weight).after
    assert [c.opcode for c in gathered.collectives] == ["all-gather"]

    # A row that lies on several devices is gathered first, and the result is right.
    across = jax.device_put(x, NamedSharding(plane, P("a", "b", None)))
    np.testing.assert_allclose(jax.jit(rms_norm)(across, weight), y, rtol=1e-6, atol=1e-6)
    for mine, alone in zip(gradients(rms_norm)(across, weight), grads, strict=True):
        np.testing.assert_allclose(mine, alone, rtol=1e-5, atol=1e-4)

    # By hand: shard_map adds up the weight's gradient itself.
    manual = jax.shard_map(
        rms_norm, mesh=line, in_specs=(P("a"), P()), out_specs=P("a"), check_vma=False
    )
    xs = jax.device_put(x, NamedSharding(line, P("a")))
    back = jax_hlo(gradients(manual), xs, weight).after
    assert [c.opcode for c in back.collectives] == ["all-reduce"]
    for mine, alone in zip(gradients(manual)(xs, weight), grads, strict=True):
        np.testing.assert_allclose(mine, alone, rtol=1e-5, atol=1e-4)

    # With JAX's check the same, and where the gradient is taken on each device.
    checked = jax.shard_map(rms_norm, mesh=line, in_specs=(P("a"), P()), out_specs=P("a"))
    np.testing.assert_allclose(jax.jit(checked)(xs, weight), y, rtol=1e-6, atol=1e-6)
    inside = jax.jit(
        jax.shard_map(
            jax.grad(lambda x, w: (rms_norm(x, w) ** 3).sum(), (0, 1)),
            mesh=line,
            in_specs=(P("a"), P()),
            out_specs=(P("a"), P()),
        )
    )
    for gradient in gradients(checked), inside:
        back = jax_hlo(gradient, xs, weight).after
        assert [c.opcode for c in back.collectives] == ["all-reduce"]
        for mine, alone in zip(gradient(xs, weight), grads, strict=True):
            np.testing.assert_allclose(mine, alone, rtol=1e-5, atol=1e-4)

    # The other way round: all devices share x, each has a weight of its own.
    own = jnp.arange(8 * 30).reshape(8, 6, 5) / 100

    def shared(norm):
        each = jax.shard_map(
            lambda x, w: norm(x, w[0])[None],
            mesh=line,
            in_specs=(P(), P("a")),
            out_specs=P("a"),
        )
        return jax.jit(jax.grad(lambda x, w: (each(x, w) ** 2).sum(), (0, 1)))(x, own)

    def plain(x, w):
        return x * jax.lax.rsqrt(jnp.mean(x * x, (-2, -1), keepdims=True) + 1e-5) * w

    for mine, other in zip(shared(rms_norm), shared(plain), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-4, atol=1e-4)
