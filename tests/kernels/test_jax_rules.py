"""The rules that all operators' JAX functions share, over a mesh of 4 x 2 devices."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.add.jax_op import add  # noqa: E402
from kernels.avgpool.jax_op import avg_pool2d  # noqa: E402
from kernels.giou import reference  # noqa: E402
from kernels.giou.jax_op import giou  # noqa: E402
from kernels.rmsnorm.jax_op import rms_norm  # noqa: E402
from nkibook.hlo import HloModule  # noqa: E402


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


# Each operator, JAX's own version, the shapes of its arguments with two leading axes (None: boxes),
# and how many of the last ones all devices have.
OPERATORS = {
    "rms_norm": (rms_norm, plain_norm, [(8, 16, 6), (6,)], 1),
    "add": (jax.vmap(add), jnp.add, [(8, 16, 6)] * 2, 0),
    "avg_pool2d": (lambda x: avg_pool2d(x, 2), plain_pool, [(8, 16, 4, 6)], 0),
    "giou": (giou, plain_giou, [None, None], 0),
}
NAMES = ("function", "plain", "shapes", "shared")
EACH = pytest.mark.parametrize(NAMES, OPERATORS.values(), ids=OPERATORS)
# XLA's two partitioners ask for the rule, which all have from one function: the older one once.
DEALT_OUT = pytest.mark.parametrize(
    ("partitioner", *NAMES),
    [
        *(pytest.param("shardy", *row, id=f"shardy-{name}") for name, row in OPERATORS.items()),
        pytest.param("gspmd", *OPERATORS["rms_norm"], id="gspmd-rms_norm"),
    ],
    indirect=["partitioner"],
)


def draw(shapes):
    rng = np.random.default_rng(0)
    return [
        jnp.asarray(
            reference.random_boxes(rng, (8, 16))
            if shape is None
            else rng.standard_normal(shape, np.float32)
        )
        for shape in shapes
    ]


def gradients(function, n):
    return jax.grad(lambda *args: (function(*args) ** 2).sum(), tuple(range(n)))


def assert_close(ours, theirs):
    for one, other in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        scale = float(jnp.abs(other).max())
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5 * scale)


@pytest.fixture
def mesh():
    return Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))


@pytest.fixture(scope="module")
def compiled():
    """The programs that XLA compiles from now on. JAX cannot forget a listener again."""
    events = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda event, *_, **__: events.append(event) if "backend_compile" in event else None
    )
    return events


def collectives(program):
    return [c.opcode for c in HloModule(program.as_text(), origin="JAX").collectives]


def placed(mesh, args, shared, spec):
    specs = [spec] * (len(args) - shared) + [P()] * shared
    return [jax.device_put(a, NamedSharding(mesh, s)) for a, s in zip(args, specs, strict=True)]


@DEALT_OUT
def test_work_stays_where_any_leading_axis_is_dealt_out(
    partitioner, mesh, function, plain, shapes, shared
):
    """Forward nothing moves; backward, the weight's gradient is added up, once."""
    args = draw(shapes)
    right = plain(*args), gradients(plain, len(args))(*args)
    for spec in (P("a"), P(None, "a"), P("a", "b"), P("b", "a"), P(None, ("a", "b"))):
        given = placed(mesh, args, shared, spec)
        forward = jax.jit(function).lower(*given).compile()
        backward = jax.jit(gradients(function, len(args))).lower(*given).compile()
        assert_close((forward(*given), backward(*given)), right)
        assert forward(*given).sharding.spec == spec
        assert not collectives(forward), spec
        assert collectives(backward) == ["all-reduce"] * shared, (spec, collectives(backward))


@DEALT_OUT
@pytest.mark.parametrize("inside", [False, True], ids=["", "in_mesh"])
def test_shard_map_of_some_axes(partitioner, mesh, inside, function, plain, shapes, shared):
    """XLA deals the arrays out over the other axis, however it is given them."""
    args = draw(shapes)
    right = plain(*args), gradients(plain, len(args))(*args)
    found = []
    with mesh if inside else contextlib.nullcontext():
        over_a = (P("a"),) * (len(args) - shared) + (P(),) * shared
        some = jax.shard_map(
            function, mesh=mesh, in_specs=over_a, out_specs=P("a"), axis_names={"a"}
        )
        both = jax.jit(lambda *args: (some(*args), gradients(some, len(args))(*args)))
        for spec in (P("a"), P("a", "b"), P(("a", "b")), P("a", None, "b")):
            found.append(both(*placed(mesh, args, shared, spec)))
    for one in found:  # where no mesh is set: JAX compiles each operation of a test anew for it
        assert_close(one, right)


@EACH
def test_without_jit_a_second_call_compiles_nothing(
    compiled, mesh, function, plain, shapes, shared
):
    """And arrays that are dealt out over devices stay so."""
    args = draw(shapes)
    given = placed(mesh, args, shared, P("a", "b"))
    jax.jit(lambda x: x + 1)(1.0)
    assert compiled, "compilations are not counted"
    for values in args, given:
        function(*values)
        compiled.clear()
        again = function(*values)
        assert not compiled
        assert_close(again, plain(*args))
    assert again.sharding.spec == P("a", "b"), again.sharding


def test_explicit_axes():
    """What no device needs of another is right; a sum over devices is refused, in words."""
    from jax.sharding import AxisType, NamedSharding, PartitionSpec

    from kernels.rmsnorm.jax_op import rms_norm

    mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Explicit,))
    x, weight = jax.random.normal(jax.random.key(0), (64, 24)), jnp.full(24, 2.0)
    expected = rms_norm(x, weight)
    with jax.sharding.use_mesh(mesh):
        dealt = jax.device_put(x, NamedSharding(mesh, PartitionSpec("d", None)))
        found = jax.jit(rms_norm)(dealt, weight)
        assert len(found.sharding.device_set) == 8
        np.testing.assert_allclose(found, expected, rtol=1e-6)
        with pytest.raises(NotImplementedError, match=r"Use AxisType\.Auto"):
            jax.jit(jax.grad(lambda w: rms_norm(dealt, w).sum()))(weight)
