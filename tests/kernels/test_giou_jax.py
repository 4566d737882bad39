"""The GIOU operator in JAX: gradients, the loss, sharding over eight devices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

from kernels.giou import nki_giou, reference  # noqa: E402
from kernels.giou.jax_op import generalized_box_iou_loss, giou  # noqa: E402

DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16]
TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])


def jnp_giou(boxes1, boxes2, eps=1e-7):
    """GIOU by torchvision's definition in jax.numpy, differentiated by JAX."""
    boxes1, boxes2 = (b.astype(jnp.float32) for b in (boxes1, boxes2))
    low1, high1, low2, high2 = boxes1[..., :2], boxes1[..., 2:], boxes2[..., :2], boxes2[..., 2:]
    sides = jnp.minimum(high1, high2) - jnp.maximum(low1, low2)
    inter = jnp.where((sides > 0).all(-1), sides.prod(-1), 0)
    union = (high1 - low1).prod(-1) + (high2 - low2).prod(-1) - inter
    hull = (jnp.maximum(high1, high2) - jnp.minimum(low1, low2)).prod(-1)
    return inter / (union + eps) - (hull - union) / (hull + eps)


def pairs(shape=(6, 40), dtype=jnp.float32, seed=0, image=256.0):
    rng = np.random.default_rng(seed)
    return tuple(jnp.asarray(reference.random_boxes(rng, shape, image), dtype) for _ in "ab")


def weighted(function):
    """A loss in which each GIOU counts differently."""

    def loss(a, b):
        scores = function(a, b)
        return (scores * jnp.linspace(-1, 2, scores.size).reshape(scores.shape)).sum()

    return loss


def assert_close(actual, expected, rtol=1e-4, atol=1e-7):
    for x, y in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert x.dtype == y.dtype
        np.testing.assert_allclose(np.float32(x), np.float32(y), rtol=rtol, atol=atol)


@pytest.mark.parametrize("wrap", [jax.jit, jax.checkpoint], ids=["jit", "checkpoint"])
@pytest.mark.parametrize("order", [(0, 1, (0, 1)), ((0, 1), 1, 0)], ids=str)
def test_gradients_for_other_arguments_of_one_loss(wrap, order):
    """JAX keeps what it traced of a wrapped loss for the first of them."""
    a, b = pairs()
    ours = wrap(lambda a, b: weighted(giou)(a, b))
    for argnums in order:
        theirs = jax.grad(weighted(jnp_giou), argnums)(a, b)
        assert_close(jax.grad(ours, argnums)(a, b), theirs)


CORNERS = st.tuples(*[st.integers(0, 6)] * 4).map(
    lambda c: (min(c[0], c[2]), min(c[1], c[3]), max(c[0], c[2]), max(c[1], c[3]))
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(CORNERS, CORNERS), min_size=4, max_size=4))
def test_gradient_where_coordinates_are_equal(boxes):
    """jax.numpy.maximum splits the gradient of equal operands, and so does the kernel."""
    a, b = (jnp.array([pair[side] for pair in boxes], jnp.float32) for side in (0, 1))
    eps = 0.125  # boxes without area divide by it alone
    ours = jax.grad(weighted(lambda a, b: giou(a, b, eps)), (0, 1))(a, b)
    theirs = jax.grad(weighted(lambda a, b: jnp_giou(a, b, eps)), (0, 1))(a, b)
    assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_only_the_gradient_asked_for_is_computed():
    a, b = pairs()

    def results(argnums):
        hlo = jax.jit(jax.grad(weighted(giou), argnums)).lower(a, b).compile().as_text()
        calls = [line for line in hlo.splitlines() if "AwsNeuronCustomNativeKernel" in line]
        return [line.split(" custom-call(")[0].count("f32[240,4]") for line in calls]

    # A gradient does not need the scores, so XLA drops the forward call.
    assert results(0) == [1]
    assert results(1) == [1]
    assert results((0, 1)) == [2]


@pytest.mark.parametrize("dtype", [jnp.int32, jnp.uint8])
def test_integer_boxes_become_float32_as_in_torchvision(dtype):
    a, b = (jnp.round(x).clip(0, 255).astype(dtype) for x in pairs())
    assert_close(giou(a, b), jnp_giou(a, b), rtol=0, atol=1e-6)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_loss(reduction):
    a, b = pairs()
    theirs = 1 - jnp_giou(a, b)
    expected = {"none": theirs, "mean": theirs.mean(), "sum": theirs.sum()}[reduction]
    assert_close(generalized_box_iou_loss(a, b, reduction), expected, rtol=1e-6, atol=1e-6)


def test_loss_of_no_boxes():
    none = jnp.empty((0, 4), jnp.bfloat16)
    assert giou(none, none).shape == (0,)
    value, grad = jax.value_and_grad(lambda a: generalized_box_iou_loss(a, none, "mean"))(none)
    assert value == 0
    assert (grad.shape, grad.dtype) == (none.shape, none.dtype)


def test_traced_eps_is_refused():
    a, b = pairs()
    with pytest.raises(TypeError, match="compiled into the kernel"):
        jax.jit(giou)(a, b, 1e-7)


def test_eps_of_numpy():
    a, b = pairs()
    assert_close(giou(a, b, np.float32(0.5)), giou(a, b, 0.5), rtol=0, atol=0)


def test_clamp_is_the_articles_definition():
    a, b = (1e-4 * x for x in pairs((5,)))  # so small that eps counts
    expected = reference.giou(np.asarray(a), np.asarray(b), 1e-5, clamp=True)
    np.testing.assert_allclose(giou(a, b, 1e-5, clamp=True), expected, rtol=0, atol=1e-6)


def test_refused_inputs():
    a, b = pairs()
    for dtype in (jnp.float8_e5m2, jnp.complex64):
        with pytest.raises(TypeError, match=f"boxes2 is {dtype.__name__}"):
            giou(a, b.astype(dtype))
    with pytest.raises(ValueError, match="reduction is 'average'"):
        generalized_box_iou_loss(a, b, "average")


def test_eight_devices_work_where_the_boxes_lie():
    """The operator needs no all-gather; the raw kernel does, which shows the check can fail."""
    rng = np.random.default_rng(0)
    a, b = (reference.random_boxes(rng, (64, 33)) for _ in "ab")
    mesh = Mesh(np.array(jax.devices()), ("x",))
    assert mesh.size == 8
    by_sample = NamedSharding(mesh, P("x", None, None))

    def compiled(function, spec=by_sample):
        x, y = jax.device_put((a, b), spec)
        f = jax.jit(function)
        text = f.lower(x, y).compile().as_text()
        calls = [line for line in text.splitlines() if "AwsNeuronCustomNativeKernel" in line]
        found = [
            c
            for c in ("all-gather", "all-to-all", "collective-permute", "all-reduce")
            if f" {c}(" in text or f" {c}-start(" in text
        ]
        # Wait for every replica: a kernel that still runs when Python exits hangs XLA.
        return jax.block_until_ready(f(x, y)), calls, found

    scores, calls, collectives = compiled(giou)
    right = reference.giou(a, b)
    np.testing.assert_allclose(scores, right, rtol=0, atol=1e-6)
    assert scores.sharding.is_equivalent_to(NamedSharding(mesh, P("x", None)), 2)
    (call,) = calls
    assert "f32[264]" in call
    assert collectives == []
    assert compiled(nki_giou)[2] == ["all-gather"]

    # The mean needs one all-reduce; boxes and gradients stay where they are.
    def loss(a, b):
        return generalized_box_iou_loss(a, b, "mean")

    weight = np.full((64, 33), -1 / (64 * 33), np.float32)
    expected = reference.giou_backward(weight, a, b)
    for argnums in ((0,), (0, 1)):
        (value, grads), calls, collectives = compiled(jax.value_and_grad(loss, argnums))
        np.testing.assert_allclose(value, 1 - reference.giou(a, b).mean(), rtol=1e-5)
        for grad, want in zip(grads, expected[: len(argnums)], strict=True):
            np.testing.assert_allclose(grad, want, rtol=1e-4, atol=1e-9)
            assert grad.sharding.is_equivalent_to(by_sample, 3)
        assert len(calls) == 2
        assert collectives == ["all-reduce"]

    # Coordinates dealt to different devices have to meet; the result is right all the same.
    split = NamedSharding(Mesh(mesh.devices.reshape(2, 4), ("x", "c")), P("x", None, "c"))
    np.testing.assert_allclose(compiled(giou, split)[0], right, rtol=0, atol=1e-6)


def test_gradient_in_shard_map_of_boxes_that_the_devices_share():
    """It is a sum over the devices. Each of them has predictions of its own."""
    rng = np.random.default_rng(0)
    a, b = reference.random_boxes(rng, (64,)), reference.random_boxes(rng, (8,))
    specs = {"mesh": Mesh(np.array(jax.devices()), ("x",)), "in_specs": (P("x"), P())}
    each = jax.shard_map(giou, **specs, out_specs=P("x"))
    expected = reference.giou_backward(np.ones(64, np.float32), a, np.tile(b, (8, 1)))
    expected = expected[0], expected[1].reshape(8, 8, 4).sum(0)
    outside = jax.grad(lambda a, b: each(a, b).sum(), (0, 1))
    inside = jax.grad(lambda a, b: giou(a, b).sum(), (0, 1))
    inside = jax.shard_map(inside, **specs, out_specs=(P("x"), P()))
    for gradient in outside, inside:
        for ours, right in zip(jax.jit(gradient)(a, b), expected, strict=True):
            np.testing.assert_allclose(ours, right, rtol=1e-4, atol=1e-7)
