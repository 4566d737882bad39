"""The FFI handlers of RMSNorm, called as they are: values, and what they refuse."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.experimental import enable_x64  # noqa: E402

from kernels.rmsnorm import reference  # noqa: E402
from kernels.rmsnorm.ffi import building, handlers  # noqa: E402

pytestmark = pytest.mark.skipif(
    building.cpp_compiler() is None, reason="needs a C++ compiler (c++, or one in $CXX)"
)
DTYPES = ["float32", "bfloat16", "float16"]
STEP = {"float32": 4e-6, "float16": 2**-10, "bfloat16": 2**-7}


def arrays(shape, axes, dtype, weight_dtype, seed=0):
    rng = np.random.default_rng(seed)
    grad_y, x = (rng.standard_normal(shape).astype(jnp.dtype(dtype)) for _ in range(2))
    weight = 1 + 0.5 * rng.standard_normal(shape[len(shape) - axes :])
    return grad_y, x, weight.astype(jnp.dtype(weight_dtype))


def assert_close(actual, expected, tolerance):
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    a, e = (np.asarray(v, np.float64) for v in (actual, expected))
    np.testing.assert_allclose(a, e, rtol=tolerance, atol=tolerance * np.abs(e).max(initial=1))


def run(x, weight, eps, grad_y):
    y, invvar = handlers.ffi_rms_norm(*map(jnp.asarray, (x, weight)), eps)
    grads = handlers.ffi_rms_norm_backward(*map(jnp.asarray, (grad_y, x, weight)), invvar)
    return y, invvar, *grads


@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_dtypes(dtype, weight_dtype):
    grad_y, x, weight = arrays((5, 77), 1, dtype, weight_dtype)
    y, invvar, grad_x, grad_weight = run(x, weight, 1e-3, grad_y)
    expected, root = reference.rms_norm(x, weight, 1e-3)
    assert_close(y, expected, STEP[dtype])
    assert_close(invvar, root, 2e-6)
    grads = reference.rms_norm_backward(grad_y, x, weight, root)
    assert_close(grad_x, grads[0], STEP[dtype])
    assert_close(grad_weight, grads[1], 4e-6)


# Rows of one element, of the 32 partial sums of a row less one and more one, of many of them; fewer
# rows than partial sums of the weight's gradient, as many, more; one axis to all axes.
@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((3, 1), 1),
        ((1, 31), 1),
        ((7, 33), 1),
        ((2, 256), 1),
        ((3, 257), 1),
        ((64, 5), 1),
        ((131, 6), 1),
        ((2, 3, 5, 4), 2),
        ((2, 3, 5), 3),
        ((11,), 1),
    ],
)
def test_shapes(shape, axes):
    grad_y, x, weight = arrays(shape, axes, "float32", "float32", seed=len(shape))
    y, invvar, grad_x, grad_weight = run(x, weight, 1e-5, grad_y)
    expected, root = reference.rms_norm(x.astype(np.float64), weight, 1e-5)
    assert_close(y, expected.astype(np.float32), 2e-6)
    assert_close(invvar, np.asarray(root, np.float32), 2e-6)
    grads = reference.rms_norm_backward(grad_y, x.astype(np.float64), weight, root)
    assert_close(grad_x, grads[0].astype(np.float32), 4e-6)
    assert_close(grad_weight, grads[1].astype(np.float32), 4e-6)


def test_no_rows():
    y, invvar, grad_x, grad_weight = run(
        np.zeros((0, 5), np.float32), np.ones(5, np.float32), 1e-5,
        np.zeros((0, 5), np.float32),
    )  # fmt: skip
    assert y.shape == grad_x.shape == (0, 5)
    assert invvar.shape == (0,)
    np.testing.assert_array_equal(grad_weight, np.zeros(5))


@pytest.mark.parametrize("value", [np.nan, np.inf, 0.0, 1e30, 1e-30])
def test_unusual_values(value):
    """NaN and infinity stay in their row; a square that overflows makes zeros, as in NumPy."""
    grad_y, x, weight = arrays((3, 40), 1, "float32", "float32")
    x[1] = value
    y, invvar, _, _ = run(x, weight, 1e-5, grad_y)
    with np.errstate(all="ignore"):
        expected, root = reference.rms_norm(x, weight, 1e-5)
    np.testing.assert_allclose(y, expected, rtol=4e-6, atol=4e-6)
    np.testing.assert_allclose(invvar, root, rtol=4e-6)


S = jax.ShapeDtypeStruct
F32, F16, I32 = jnp.float32, jnp.float16, jnp.int32
GOOD_FORWARD = {
    "args": [S((4, 6), F32), S((6,), F32)],
    "results": [S((4, 6), F32), S((4,), F32)],
    "attributes": {"eps": np.float32(1e-5)},
}
GOOD_BACKWARD = {
    "args": [S((4, 6), F32), S((4, 6), F32), S((6,), F32), S((4,), F32)],
    "results": [S((4, 6), F32), S((6,), F32), S((2, 6), F32)],
    "attributes": {},
}

# What is wrong, and what the error must say.
BAD_FORWARD = {
    "x of integers": ({"args": {0: S((4, 6), I32)}, "results": {0: S((4, 6), I32)}}, "x is S32"),
    "a weight of integers": ({"args": {1: S((6,), I32)}}, "weight is S32"),
    "a weight of booleans": ({"args": {1: S((6,), jnp.bool_)}}, "weight is PRED"),
    "complex x": (
        {"args": {0: S((4, 6), jnp.complex64)}, "results": {0: S((4, 6), jnp.complex64)}},
        "x is C64",
    ),
    "y of another dtype": ({"results": {0: S((4, 6), F16)}}, "y is F16"),
    "y too small": ({"results": {0: S((4, 5), F32)}}, r"y is F32 \(4, 5\) and x is F32 \(4, 6\)"),
    "y of another rank": ({"results": {0: S((24,), F32)}}, r"y is F32 \(24\)"),
    "invvar of another dtype": ({"results": {1: S((4,), F16)}}, "expected F32 but got F16"),
    "invvar too short": ({"results": {1: S((3,), F32)}}, r"invvar has the dimensions \(3\)"),
    "invvar too long": ({"results": {1: S((5,), F32)}}, r"invvar has the dimensions \(5\)"),
    "invvar of another rank": ({"results": {1: S((4, 1), F32)}}, r"dimensions \(4, 1\)"),
    "a weight that is too long": ({"args": {1: S((7,), F32)}}, r"weight has the dimensions \(7\)"),
    "a weight of the first axis": ({"args": {1: S((4,), F32)}}, r"weight has the dimensions \(4\)"),
    "a weight of more axes": ({"args": {1: S((1, 4, 6), F32)}}, r"dimensions \(1, 4, 6\)"),
    "a scalar weight": ({"args": {1: S((), F32)}}, r"weight has the dimensions \(\)"),
    "a scalar x": (
        {"args": {0: S((), F32)}, "results": {0: S((), F32), 1: S((), F32)}},
        r"and x \(\)",
    ),
    "rows of no elements": (
        {"args": {0: S((4, 0), F32), 1: S((0,), F32)}, "results": {0: S((4, 0), F32)}},
        "no elements",
    ),
    "eps of float64": ({"attributes": {"eps": np.float64(1e-5)}}, "expected F32 but got F64"),
    "eps as a Python float": ({"attributes": {"eps": 1e-5}}, "expected F32 but got F64"),
    "eps as an integer": ({"attributes": {"eps": np.int32(1)}}, "expected F32 but got S32"),
    "eps as a text": ({"attributes": {"eps": "1e-5"}}, "expected scalar but got string"),
    "eps as an array": (
        {"attributes": {"eps": np.ones(2, np.float32)}},
        "expected scalar but got array",
    ),
    "eps under another name": (
        {"attributes": {"epsilon": np.float32(1)}, "drop": "eps"},
        "epsilon vs eps",
    ),
    "no eps": ({"drop": "eps"}, "number of attributes"),
    "one attribute more": ({"attributes": {"axis": np.int64(0)}}, "number of attributes"),
    "no weight": ({"args": {1: None}}, "number of arguments"),
    "one argument more": ({"args": {2: S((6,), F32)}}, "number of arguments"),
    "no invvar": ({"results": {1: None}}, "number of results"),
    "one result more": ({"results": {2: S((6,), F32)}}, "number of results"),
}
BAD_BACKWARD = {
    "grad_y of another shape": ({"args": {0: S((6, 4), F32)}}, r"grad_y is F32 \(6, 4\)"),
    "grad_y of another dtype": ({"args": {0: S((4, 6), F16)}}, "grad_y is F16"),
    "invvar too short": ({"args": {3: S((2,), F32)}}, r"invvar has the dimensions \(2\)"),
    "invvar of float16": ({"args": {3: S((4,), F16)}}, "expected F32 but got F16"),
    "grad_x too small": ({"results": {0: S((3, 6), F32)}}, r"grad_x is F32 \(3, 6\)"),
    "grad_weight too small": ({"results": {1: S((5,), F32)}}, r"grad_weight has .* \(5\)"),
    "grad_weight of float16": ({"results": {1: S((6,), F16)}}, "expected F32 but got F16"),
    "narrow partial sums": ({"results": {2: S((2, 5), F32)}}, r"partial sums \(2, 5\)"),
    "flat partial sums": ({"results": {2: S((12,), F32)}}, r"partial sums \(12\)"),
    "no partial sums": ({"results": {2: S((0, 6), F32)}}, "no partial sum"),
    "an attribute": ({"attributes": {"eps": np.float32(1)}}, "number of attributes"),
}


def changed(call, change):
    """A call with some of its arguments and results replaced, added or (None) left out."""
    call = {key: call[key].copy() for key in call}
    for key in ("args", "results"):
        for place, value in change.get(key, {}).items():
            call[key][place : place + 1] = [] if value is None else [value]
    call["attributes"].pop(change.get("drop"), None)
    call["attributes"].update(change.get("attributes", {}))
    return call


def make(target, call):
    args = [jnp.ones(a.shape, a.dtype) for a in call["args"]]
    function = jax.ffi.ffi_call(target, call["results"])
    return jax.block_until_ready(function(*args, **call["attributes"]))


@pytest.mark.parametrize("what", BAD_FORWARD)
def test_bad_forward_calls_are_refused(what):
    handlers.load()
    change, message = BAD_FORWARD[what]
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        make(handlers.FORWARD, changed(GOOD_FORWARD, change))


@pytest.mark.parametrize("what", BAD_BACKWARD)
def test_bad_backward_calls_are_refused(what):
    handlers.load()
    change, message = BAD_BACKWARD[what]
    with pytest.raises(jax.errors.JaxRuntimeError, match=message):
        make(handlers.BACKWARD, changed(GOOD_BACKWARD, change))


def test_the_calls_that_bad_ones_are_made_of_are_good():
    handlers.load()
    make(handlers.FORWARD, GOOD_FORWARD)
    make(handlers.BACKWARD, GOOD_BACKWARD)


def test_float64_is_refused():
    with enable_x64():
        handlers.load()
        change = {"args": {0: S((4, 6), np.float64)}, "results": {0: S((4, 6), np.float64)}}
        with pytest.raises(jax.errors.JaxRuntimeError, match="x is F64; it must be F32"):
            make(handlers.FORWARD, changed(GOOD_FORWARD, change))


def test_a_target_that_nobody_registered():
    with pytest.raises(jax.errors.JaxRuntimeError, match="rms_norm_sideways"):
        make("rms_norm_sideways", GOOD_FORWARD)
