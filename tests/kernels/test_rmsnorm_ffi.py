"""The JAX operator on the C++ handlers: values, transforms, gradients, eight devices, refusals.

Its values are compared with JAX's own operators; the handlers below it have tests of their own, and
its layers of rules are those of the NKI operator, whose tests go further.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jax.test_util import check_grads

from kernels.rmsnorm.ffi import building
from kernels.rmsnorm.ffi.handlers import ffi_rms_norm
from kernels.rmsnorm.ffi.jax_op import rms_norm
from nkibook.hlo import jax_hlo

pytestmark = pytest.mark.skipif(
    building.cpp_compiler() is None, reason="needs a C++ compiler (c++, or one in $CXX)"
)
DTYPES = [jnp.float32, jnp.float16, jnp.bfloat16]
STEP = {jnp.float32: 2e-6, jnp.float16: 2**-10, jnp.bfloat16: 2**-7}
TRANSFORMS = pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])


def plain(x, weight, eps=1e-5):
    """JAX's own operators, in float32, rounded once."""
    axes = tuple(range(x.ndim - weight.ndim, x.ndim))
    wide = x.astype(jnp.float32)
    mean = jnp.mean(wide * wide, axis=axes, keepdims=True)
    return (wide * jax.lax.rsqrt(mean + eps) * weight.astype(jnp.float32)).astype(x.dtype)


def inputs(shape=(13, 300), axes=1, dtype=jnp.float32, seed=0):
    keys = jax.random.split(jax.random.key(seed))
    x = jax.random.normal(keys[0], shape, dtype)
    return x, (1 + 0.5 * jax.random.normal(keys[1], shape[-axes:])).astype(dtype)


def assert_close(actual, expected, tolerance=2e-6):
    assert actual.dtype == expected.dtype
    a, e = (np.asarray(v, np.float64) for v in (actual, expected))
    np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * np.abs(e).max(initial=1))


def loss(norm):
    return lambda x, w: (norm(x, w).astype(jnp.float32) ** 3).sum()


# A call that is not compiled takes the same way into XLA: one stands for all.
@pytest.mark.parametrize(
    ("transform", "shape", "axes", "dtype"),
    [
        (lambda f: f, (13, 300), 1, jnp.float32),
        *((jax.jit, (13, 300), 1, dtype) for dtype in DTYPES),
        (jax.jit, (7,), 1, jnp.float32),
        (jax.jit, (2, 3, 5, 4), 2, jnp.bfloat16),
    ],
)
def test_values_and_gradients(transform, shape, axes, dtype):
    x, weight = inputs(shape, axes, dtype)
    assert_close(transform(rms_norm)(x, weight), plain(x, weight), STEP[dtype])
    # The residuals of both sides are rounded alike, so 16-bit gradients differ by few steps.
    ours, theirs = (transform(jax.grad(loss(f), (0, 1)))(x, weight) for f in (rms_norm, plain))
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other, 4 * STEP[dtype])


def test_gradient_equals_finite_differences():
    check_grads(rms_norm, inputs((3, 8)), 1, modes=["rev"], eps=1e-2, atol=1e-2, rtol=1e-2)


def test_numpy_arrays():
    x, weight = map(np.asarray, inputs())
    assert_close(rms_norm(x, weight, 0.5), plain(x, weight, 0.5))


@pytest.mark.parametrize(
    ("transform", "in_axes"),
    [
        (lambda f: f, (0, None)),
        *((jax.jit, axes) for axes in [(0, None), (1, None), (None, 0), (0, 0), (2, 1)]),
    ],
)
def test_vmap(transform, in_axes):
    lead, cols, size = (3, 5), 7, 4

    def stacked(shape, axis, key):
        shape = shape if axis is None else (*shape[:axis], size, *shape[axis:])
        return jax.random.normal(jax.random.key(key), shape)

    x = stacked((*lead, cols), in_axes[0], 0)
    weight = stacked((cols,), in_axes[1], 1)
    ours, theirs = (transform(jax.vmap(f, in_axes))(x, weight) for f in (rms_norm, plain))
    assert_close(ours, theirs)
    ours, theirs = (
        transform(jax.vmap(jax.grad(loss(f), (0, 1)), in_axes))(x, weight)
        for f in (rms_norm, plain)
    )
    for mine, other in zip(ours, theirs, strict=True):
        assert_close(mine, other, 1e-5)


def test_a_batch_is_one_call():
    from nkibook.hlo import jax_hlo

    x, weight = inputs((3, 5, 8))
    module = jax_hlo(jax.vmap(rms_norm, (0, None)), x, weight)
    (call,) = module.custom_calls
    assert call.target == "rms_norm_forward"
    assert call.operand_shapes[0].dims == (3, 5, 8)


def test_gradient_of_the_weight_is_the_same_in_every_run():
    x, weight = inputs((3001, 33))
    gradient = jax.jit(jax.grad(loss(rms_norm), 1))
    first = gradient(x, weight)
    for _ in range(5):
        np.testing.assert_array_equal(gradient(x, weight), first)


def test_many_calls_at_a_time():
    """More calls than XLA has threads, each of which shares its rows among them."""
    x, weight = inputs((600, 512))
    many = jax.jit(lambda x, w: [rms_norm(x + i, w) for i in range(32)])
    for i, y in enumerate(many(x, weight)):
        assert_close(y, plain(x + i, weight))


@TRANSFORMS
def test_no_rows(transform):
    x, weight = jnp.zeros((0, 5)), jnp.ones(5)
    assert transform(rms_norm)(x, weight).shape == (0, 5)
    grads = transform(jax.grad(loss(rms_norm), (0, 1)))(x, weight)
    np.testing.assert_array_equal(grads[1], np.zeros(5))


@pytest.mark.parametrize(
    ("x", "weight", "error", "message"),
    [
        (jnp.ones((2, 4), jnp.int32), jnp.ones(4), TypeError, "x is int32"),
        (np.ones((2, 4)), np.ones(4, np.float32), TypeError, "x is float64"),
        (jnp.ones((2, 4)), np.ones(4, np.complex64), TypeError, "weight is complex64"),
        ([[1.0]], jnp.ones(1), TypeError, "x is a list"),
        (jnp.ones((2, 4)), 1.0, TypeError, "weight is a float"),
        (jnp.ones((2, 4)), jnp.ones(5), ValueError, "weight has shape (5,) and x (2, 4)"),
        (jnp.ones((2, 4)), jnp.ones((2, 2, 4)), ValueError, "weight has shape (2, 2, 4)"),
        (jnp.ones((2, 4)), jnp.ones(()), ValueError, "weight has shape ()"),
        (jnp.ones((2, 0)), jnp.ones(0), ValueError, "no elements"),
        (jnp.ones(()), jnp.ones(1), ValueError, "and x ()"),
    ],
)
@TRANSFORMS
def test_refused_inputs(transform, x, weight, error, message):
    if (transform is jax.jit and isinstance(x, list | np.ndarray)) or isinstance(weight, float):
        transform = lambda f: f  # noqa: E731  (jit makes JAX's arrays of them)
    with pytest.raises(error) as caught:
        transform(rms_norm)(x, weight)
    assert message in str(caught.value)


def test_refused_transforms():
    x, weight = inputs()
    with pytest.raises(TypeError, match="eps is traced"):
        jax.jit(rms_norm)(x, weight, 1e-5)
    with pytest.raises(NotImplementedError, match=r"its C\+\+ kernels have no second"):
        jax.grad(lambda x: jax.grad(loss(rms_norm))(x, weight).sum())(x)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(rms_norm, (x, weight), (x, weight))


@pytest.mark.usefixtures("partitioner")
def test_eight_devices():
    """Nothing moves forward; backward one all-reduce. The raw call gathers, so this can fail."""
    plane = Mesh(np.array(jax.devices()).reshape(4, 2), ("a", "b"))

    def gradients(norm):
        def loss(x, w):
            return (norm(x, w).astype(jnp.float32) ** 3).sum()

        return jax.jit(jax.grad(loss, (0, 1)))

    for dtype, step in (jnp.float32, 1e-6), (jnp.bfloat16, 2**-7):
        # Large enough for the devices to share XLA's threads while all of them work.
        x = jax.random.normal(jax.random.key(0), (64, 40, 50), dtype)
        weight = 1 + jax.random.normal(jax.random.key(1), (40, 50), dtype)
        y, grads = rms_norm(x, weight), gradients(rms_norm)(x, weight)
        ws = jax.device_put(weight, NamedSharding(plane, P()))
        for rows, here in ("a", 16), ("b", 32), (("a", "b"), 8):
            by_rows = NamedSharding(plane, P(rows, None, None))
            xs = jax.device_put(x, by_rows)
            forward = jax_hlo(jax.jit(rms_norm), xs, ws).after
            assert not forward.collectives, (rows, forward.collectives)
            (call,) = forward.custom_calls
            assert call.operand_shapes[0].dims == (here, 2000), call
            out = jax.jit(rms_norm)(xs, ws)
            assert out.sharding.is_equivalent_to(by_rows, 3)
            np.testing.assert_array_equal(out, y)

            backward = jax_hlo(gradients(rms_norm), xs, ws).after
            assert [c.opcode for c in backward.collectives] == ["all-reduce"], rows
            for mine, alone in zip(gradients(rms_norm)(xs, ws), grads, strict=True):
                mine, alone = np.float64(mine), np.float64(alone)
                scale = np.abs(alone).max()
                np.testing.assert_allclose(mine, alone, rtol=0, atol=4 * step * scale)

            raw = jax.jit(lambda x, w: ffi_rms_norm(x, w)[0])
            gathered = jax_hlo(raw, xs, ws).after
            assert [c.opcode for c in gathered.collectives] == ["all-gather"]


def test_without_a_compiler_the_first_call_says_so(run_python, tmp_path):
    done = run_python(
        """
        import jax.numpy as jnp
        from kernels.rmsnorm.ffi.jax_op import rms_norm
        rms_norm(jnp.ones((2, 3)), jnp.ones(3))
        """,
        env={"CXX": "no-such-compiler", "XDG_CACHE_HOME": str(tmp_path)},
        check=False,
    )
    assert done.returncode == 1
    assert "CompilerMissingError: there is no C++ compiler to compile cpu.cpp" in done.stderr
