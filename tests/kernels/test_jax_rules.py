"""The rules that all operators' JAX functions share, over a mesh of 4 x 2 devices."""

from __future__ import annotations

import pytest

pytest.importorskip("jax")

PARTITIONERS = pytest.mark.parametrize("partitioner", ["shardy", "gspmd"])

# Each operator, JAX's own version, arguments with two leading axes, and whether all devices have
# the second argument.
OPERATORS = """
import contextlib
import numpy as np
import jax
import jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
from kernels.add.jax_op import add
from kernels.avgpool.jax_op import avg_pool2d
from kernels.giou import reference
from kernels.giou.jax_op import giou
from nkibook.hlo import jax_hlo
from kernels.rmsnorm.jax_op import rms_norm

jax.config.update("jax_use_shardy_partitioner", PARTITIONER == "shardy")
mesh = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))


def plain_norm(x, weight):
    return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def plain_pool(x):
    return x.reshape(*x.shape[:-2], 2, 2, 3, 2).mean((-1, -3))


def plain_giou(p, q):
    sides = jnp.minimum(p[..., 2:], q[..., 2:]) - jnp.maximum(p[..., :2], q[..., :2])
    inter = jnp.where((sides > 0).all(-1), sides.prod(-1), 0)
    union = (p[..., 2:] - p[..., :2]).prod(-1) + (q[..., 2:] - q[..., :2]).prod(-1) - inter
    hull = jnp.maximum(p[..., 2:], q[..., 2:]) - jnp.minimum(p[..., :2], q[..., :2])
    return inter / union - (hull.prod(-1) - union) / hull.prod(-1)


def pool(x):
    return avg_pool2d(x, 2)


rng = np.random.default_rng(0)
x, weight, images = (
    jnp.asarray(rng.standard_normal(shape), jnp.float32)
    for shape in ((8, 16, 6), (6,), (8, 16, 4, 6))
)
boxes = [jnp.asarray(reference.random_boxes(rng, (8, 16))) for _ in "pq"]
cases = {
    "add": (jax.vmap(add), jnp.add, [x, 2 * x], False),
    "rms_norm": (rms_norm, plain_norm, [x, weight], True),
    "avg_pool2d": (pool, plain_pool, [images], False),
    "giou": (giou, plain_giou, boxes, False),
}


def gradients(function, n):
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), tuple(range(n)))


def assert_close(ours, theirs):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        scale = float(jnp.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * scale)


def placed(args, shared, spec):
    specs = [spec] * (len(args) - shared) + [P()] * shared
    return [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs)], specs
"""


@PARTITIONERS
def test_work_stays_where_any_leading_axis_is_dealt_out(run_python, eight_devices, partitioner):
    """Forward nothing moves; backward, the weight's gradient is added up, once."""
    run_python(
        f"PARTITIONER = {partitioner!r}\n{OPERATORS}"
        + """
for name, (function, plain, args, shared) in cases.items():
    right = plain(*args), gradients(plain, len(args))(*args)
    for spec in (P("a"), P(None, "a"), P("a", "b"), P("b", "a"), P(None, ("a", "b"))):
        given, _ = placed(args, shared, spec)
        forward = jax.jit(function)
        backward = jax.jit(gradients(function, len(args)))
        assert_close((forward(*given), backward(*given)), right)
        assert forward(*given).sharding.spec == spec, (name, spec)
        assert not jax_hlo(forward, *given).after.collectives, (name, spec)
        found = [c.opcode for c in jax_hlo(backward, *given).after.collectives]
        assert found == ["all-reduce"] * shared, (name, spec, found)
""",
        env=eight_devices,
    )


@PARTITIONERS
@pytest.mark.parametrize("context", ["contextlib.nullcontext()", "mesh"])
def test_shard_map_of_some_axes(run_python, eight_devices, partitioner, context):
    """XLA deals the arrays out over the other axis, however it is given them."""
    run_python(
        f"PARTITIONER = {partitioner!r}\n{OPERATORS}\ncontext = {context}\n"
        + """
with context:
    for name, (function, plain, args, shared) in cases.items():
        right = plain(*args), gradients(plain, len(args))(*args)
        over_a = (P("a"),) * (len(args) - shared) + (P(),) * shared
        some = jax.shard_map(
            function, mesh=mesh, in_specs=over_a, out_specs=P("a"), axis_names={"a"}
        )
        both = jax.jit(lambda *args: (some(*args), gradients(some, len(args))(*args)))
        for spec in (P("a"), P("a", "b"), P(("a", "b")), P("a", None, "b")):
            assert_close(both(*placed(args, shared, spec)[0]), right)
""",
        env=eight_devices,
    )


def test_without_jit_a_second_call_compiles_nothing(run_python, eight_devices):
    """And arrays that are dealt out over devices stay so."""
    run_python(
        f"PARTITIONER = 'shardy'\n{OPERATORS}"
        + """
compiled = []
jax.monitoring.register_event_duration_secs_listener(
    lambda event, *_, **__: compiled.append(event) if "backend_compile" in event else None
)
for name, (function, plain, args, shared) in cases.items():
    given, _ = placed(args, shared, P("a", "b"))
    for values in args, given:
        function(*values)
        assert compiled, name
        compiled.clear()
        again = function(*values)
        assert not compiled, (name, compiled)
        assert_close(again, plain(*args))
    assert again.sharding.spec == P("a", "b"), (name, again.sharding)
""",
        env=eight_devices,
    )
