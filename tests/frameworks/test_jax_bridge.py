"""NKI kernels called on JAX arrays."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import traceback

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402

from nkisim.errors import DTypeError, KernelError, NkiWarning  # noqa: E402
from nkisim.frontends.neuronxcc.shims.jax_neuronx import nki_call  # noqa: E402


@nki.jit
def scale(x, factor=2.0):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.multiply(nl.load(x), factor))
    return out


@nki.jit
def sum_and_difference(pair):
    first, second = pair
    plus = nl.ndarray(first.shape, dtype=first.dtype, buffer=nl.shared_hbm)
    minus = nl.ndarray(first.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
    a, b = nl.load(first), nl.load(second)
    nl.store(plus, value=a + b)
    nl.store(minus, value=a - b)
    return {"plus": plus, "minus": minus}


@nki.jit
def increment(x: nki.typing.mutable_tensor):
    nl.store(x, value=nl.load(x) + 1.0)
    return x


def add_into(a, b, out):
    nl.store(out, value=nl.load(a) + nl.load(b))


def custom_calls(function, *args):
    text = jax.jit(function).lower(*args).compile().as_text()
    return [line for line in text.splitlines() if "AwsNeuronCustomNativeKernel" in line]


X = jnp.arange(12.0).reshape(3, 4)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_constants_specialise(transform):
    for factor in (2.0, 3.0):
        out = transform(lambda x, factor=factor: scale(x, factor=factor))(X)
        np.testing.assert_array_equal(out, X * factor)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_structure_and_dtypes_of_the_result(transform):
    out = transform(sum_and_difference)((X, 2 * X))
    assert set(out) == {"plus", "minus"}
    assert out["minus"].dtype == jnp.bfloat16
    np.testing.assert_array_equal(out["plus"], 3 * X)
    np.testing.assert_array_equal(out["minus"], -X.astype(jnp.bfloat16))


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32, jnp.uint8, jnp.uint16, jnp.float8_e5m2])
def test_dtypes(dtype):
    @nki.jit
    def twice(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, value=nl.add(tile, tile))
        return out

    x = jnp.arange(12).reshape(3, 4).astype(dtype)
    out = twice(x)
    assert out.dtype == dtype
    np.testing.assert_array_equal(out, x + x)


def test_shapes_without_data():
    out = jax.eval_shape(scale, jax.ShapeDtypeStruct((5, 6), jnp.bfloat16))
    assert (out.shape, out.dtype) == ((5, 6), jnp.bfloat16)


def test_hlo_and_backend_config():
    (line,) = custom_calls(lambda x: scale(x, factor=3.0), X)
    assert "f32[3,4]" in line
    (config,) = re.findall(r'config = "([^"]*)"', line)
    fields = json.loads(base64.b64decode(config))
    assert fields["func_name"] == "scale"
    assert fields["inputs"] == [["x", [3, 4], "float32"]]
    assert fields["constants"] == {"factor": 3.0}
    assert fields["instructions"] > 0
    assert re.fullmatch("[0-9a-f]{64}", fields["digest"])


def test_metadata_names_the_kernel_and_the_line_that_calls_it():
    with contextlib.suppress(ImportError):
        import torch._dynamo  # noqa: F401  (then kernels are called by way of it)
    (line,) = custom_calls(lambda x: scale(x) + 1, X)
    assert re.search(r'op_name="[^"]*scale/ffi_call"', line)
    assert f'source_file="{__file__}"' in line


def test_a_mutable_argument_comes_back_as_a_new_array():
    np.testing.assert_array_equal(increment(X), X + 1)
    np.testing.assert_array_equal(jax.jit(lambda x: increment(increment(x)))(X), X + 2)
    np.testing.assert_array_equal(X, np.arange(12.0).reshape(3, 4))
    (line,) = custom_calls(increment, X)
    assert "output_to_operand_aliasing" in line


def test_an_argument_written_and_not_returned_is_refused():
    with pytest.raises(TypeError, match=r"writes its argument `out`.*nki_call"):
        nki.jit(add_into)(X, X, X)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit], ids=["eager", "jit"])
def test_nki_call(transform):
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    out = transform(lambda a, b: nki_call(add_into, a, b, out_shape=shape))(X, 2 * X)
    np.testing.assert_array_equal(out, 3 * X)


def test_nki_call_passes_only_inputs_as_operands():
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    (line,) = custom_calls(lambda a, b: nki_call(add_into, a, b, out_shape=shape), X, X)
    operands = re.search(r"custom-call\((.*?)\)", line)[1]
    assert operands.count("%") == 2


def test_nki_call_with_grid_keywords_and_several_outputs():
    def split(x, low, high, *, cut):
        row = nl.program_id(0)
        tile = nl.load(x[nl.ds(row, 1), :])
        nl.store(low[nl.ds(row, 1), :], value=nl.minimum(tile, cut))
        nl.store(high[nl.ds(row, 1), :], value=nl.maximum(tile, cut))

    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)
    out = nki_call(split, X, grid=(3,), out_shape={"low": shape, "high": shape}, cut=5.0)
    # A dict is a pytree with sorted keys, so the kernel's arguments are (high, low).
    np.testing.assert_array_equal(out["high"], jnp.minimum(X, 5))
    np.testing.assert_array_equal(out["low"], jnp.maximum(X, 5))
    low, high = nki_call(split, X, grid=(3,), out_shape=[shape, shape], cut=5.0)
    np.testing.assert_array_equal(low, jnp.minimum(X, 5))
    np.testing.assert_array_equal(high, jnp.maximum(X, 5))


def test_nki_call_refuses_what_says_no_shape_or_dtype():
    with pytest.raises(TypeError, match=r"out_shape is \(4, 6\), with a int .*ShapeDtypeStruct"):
        nki_call(add_into, X, X, out_shape=(4, 6))


def test_nki_call_on_a_grid_of_one_number():
    def halves(a, out):
        i = nl.program_id(0)
        nl.store(out[i], value=nl.load(a[i]))

    shape = jax.ShapeDtypeStruct((2, 3, 5), jnp.float32)
    a = jnp.arange(30.0).reshape(shape.shape)
    np.testing.assert_array_equal(nki_call(halves, a, grid=2, out_shape=shape), a)


def test_nki_call_of_a_kernel_that_returns():
    np.testing.assert_array_equal(nki_call(scale, X), 2 * X)


def test_nki_call_shows_what_is_left_undefined():
    def first_row(x, out):
        nl.store(out[0:1, :], value=nl.load(x[0:1, :]))

    out = nki_call(first_row, X, out_shape=jax.ShapeDtypeStruct(X.shape, X.dtype))
    np.testing.assert_array_equal(out[0], X[0])
    assert jnp.isnan(out[1:]).all()


def test_nki_call_refusals():
    shape = jax.ShapeDtypeStruct(X.shape, X.dtype)

    def forgets(x, out):
        nl.load(x)

    with (
        pytest.warns(NkiWarning, match="forgets leaves no result"),
        pytest.raises(ValueError, match="never writes its output argument `out`"),
    ):
        nki_call(forgets, X, out_shape=shape)

    def overwrites(x, out):
        nl.store(out, value=nl.load(x))
        nl.store(x, value=nl.load(out))

    with pytest.raises(TypeError, match="writes its input `x`"):
        nki_call(overwrites, X, out_shape=shape)


def test_differentiating_is_refused_by_name():
    for f in (scale, jax.jit(scale), lambda x: jax.vmap(scale)(x[None])):
        with pytest.raises(TypeError, match=r"`scale` cannot be differentiated.*custom_vjp"):
            jax.grad(lambda x, f=f: f(x).sum())(X)
    # Not differentiated with respect to x: nothing to refuse.
    g = jax.grad(lambda x, w: (w * scale(x)).sum(), argnums=1)(X, jnp.ones_like(X))
    np.testing.assert_array_equal(g, 2 * X)
    g = jax.grad(lambda x: (x * scale(jax.lax.stop_gradient(x))).sum())(X)
    np.testing.assert_array_equal(g, 2 * X)


def test_vmap_of_a_kernel():
    batch = jnp.stack([X, X + 1, X + 2])
    np.testing.assert_array_equal(jax.vmap(scale)(batch), 2 * batch)
    np.testing.assert_array_equal(jax.jit(jax.vmap(scale, 1, 1))(batch), 2 * batch)


def test_errors_while_tracing_reach_the_user():
    @nki.jit
    def too_tall(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        return out

    for transform in (lambda f: f, jax.jit):
        with pytest.raises(
            KernelError, match=r"(?s)256.*test_jax_bridge\.py:\d+ in too_tall.*fix:"
        ):
            transform(too_tall)(jnp.ones((256, 4)))


def test_64_bit_types_are_refused():
    with pytest.raises(DTypeError, match=r"(?s)`sum_and_difference`.*int64.*int32"):
        sum_and_difference((X, np.ones((3, 4), np.int64)))


@pytest.mark.parametrize("wide", [False, True], ids=["x64 off", "x64 on"])
def test_integers_of_64_bits_in_import_nki(wide):
    """JAX has them when jax_enable_x64 is on; off, it makes int32 of them."""
    import nki
    import nki.isa as nisa
    import nki.language as nl

    @nki.jit
    def chosen_row(x, place):
        out = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
        row = nisa.scalar_load(place)
        pattern = [[x.shape[1], 1], [1, x.shape[1]]]
        nisa.dma_copy(dst=out, src=x.ap(pattern, scalar_offset=row, indirect_dim=0))
        return out

    jax.config.update("jax_enable_x64", wide)
    try:
        x, place = jnp.arange(10).reshape(5, 2) << 20, jnp.array([[3]])
        assert x.dtype == (jnp.int64 if wide else jnp.int32)
        for run in (chosen_row, jax.jit(chosen_row)):
            found = run(x, place)
            assert found.dtype == x.dtype
            assert np.array_equal(found, x[3:4])
    finally:
        jax.config.update("jax_enable_x64", False)


def test_torch_and_jax_together_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(TypeError, match="both PyTorch tensors and JAX arrays"):
        sum_and_difference((X, torch.ones(3, 4)))


def test_eight_devices_run_one_kernel_concurrently():
    @nki.jit
    def square(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        for i in nl.affine_range(x.shape[0] // 128):
            tile = nl.load(x[nl.ds(i * 128, 128), :])
            nl.store(out[nl.ds(i * 128, 128), :], value=tile * tile)
        return out

    x = jax.random.normal(jax.random.key(0), (8, 512, 700))
    f = jax.pmap(square)
    for _ in range(10):
        np.testing.assert_array_equal(f(x), x * x)


def test_8_bit_float_matches_ml_dtypes():
    x = jnp.linspace(-240, 240, 12).reshape(3, 4).astype(jnp.float8_e4m3)
    out = scale(x, factor=0.5)
    expected = (np.asarray(x).astype(np.float32) * 0.5).astype(ml_dtypes.float8_e4m3)
    np.testing.assert_array_equal(np.asarray(out), expected)


def test_python_waits_at_exit_for_kernels_that_still_run(run_python):
    """A thread of XLA inside a kernel would be ended by Python, and XLA then waits for it."""
    code = """
        import os
        import time
        import jax
        import numpy as np
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from kernels.add.jax_op import add
        from nkisim.numerics.program import Program

        run = Program.run

        def slowly(*args):
            time.sleep(0.5)
            results = run(*args)
            os.write(1, b"finished ")
            return results

        Program.run = slowly
        everywhere = NamedSharding(Mesh(np.array(jax.devices()), ("x",)), PartitionSpec())
        x = jax.device_put(np.ones((4, 4), np.float32), everywhere)
        result = jax.jit(add)(x, x)  # and nobody waits for it
        """
    assert run_python(code).stdout.split() == ["finished"] * 8


@nki.jit
def _without_a_load(x):
    return nl.exp(x)


@pytest.mark.parametrize("around", [jax.jit, jax.vmap, jax.grad, lambda f: jax.jit(jax.vmap(f))])
def test_the_traceback_of_a_refused_kernel_is_short_and_ends_at_its_line(around):
    x = jnp.ones((2, 3, 4)) if around not in (jax.jit, jax.grad) else jnp.ones((3, 4))
    with pytest.raises(KernelError) as caught:
        around(lambda x: _without_a_load(x).sum())(x)
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    at = next(i for i, line in enumerate(lines) if line.endswith("in _without_a_load"))
    assert not any("nkisim" in line and line.lstrip().startswith("File") for line in lines)
    assert len(lines) - at < 14
