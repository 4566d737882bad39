"""The custom-call handler alone: what XLA hands over, and how failures come back."""

from __future__ import annotations

import base64
import json
import threading

import ml_dtypes
import numpy as np
import pytest

jax = pytest.importorskip("jax")

from nkisim.errors import KernelError  # noqa: E402
from nkisim.runtime.frameworks import programs, xla_ffi  # noqa: E402

DTYPES = [
    np.bool_,
    np.int8,
    np.int16,
    np.int32,
    np.uint8,
    np.uint16,
    np.uint32,
    np.float16,
    np.float32,
    ml_dtypes.bfloat16,
    ml_dtypes.float8_e5m2,
    ml_dtypes.float8_e4m3,
]


class FakeProgram:
    """As much of a Program as the handler uses."""

    def __init__(self, name, function, inputs=1):
        self.digest = name
        self.inputs = (None,) * inputs
        self.aliases = {}
        self.run = function

    def same_as(self, other):
        return True


def config(name):
    return base64.b64encode(json.dumps({"digest": name}).encode()).decode()


def call(program, *operands, attributes=None):
    xla_ffi.register()
    programs.add_program(program)
    out = jax.ShapeDtypeStruct(operands[0].shape, operands[0].dtype)
    attributes = {"config": config(program.digest)} if attributes is None else attributes
    return jax.block_until_ready(jax.ffi.ffi_call(xla_ffi.TARGET, out)(*operands, **attributes))


def copy(inputs, outputs):
    outputs[0][...] = inputs[0]


@pytest.mark.parametrize("shape", [(3, 5), (1, 2, 3, 4), (7,), (), (0, 4), (3, 0)])
@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: np.dtype(dtype).name)
def test_every_dtype_keeps_its_bits(dtype, shape):
    rng = np.random.default_rng(0)
    size = np.dtype(dtype).itemsize
    raw = rng.integers(0, 2 if dtype is np.bool_ else 256, (*shape, size), np.uint8)
    x = np.ascontiguousarray(raw).view(dtype).reshape(shape)
    out = np.asarray(call(FakeProgram(f"copy {x.dtype}", copy), jax.numpy.asarray(x)))
    assert out.dtype == x.dtype
    assert out.tobytes() == x.tobytes()


def test_buffers_are_not_copied():
    """The handler sees the memory of the JAX array itself."""
    seen = []

    def remember(inputs, outputs):
        seen.append(inputs[0].ctypes.data)
        copy(inputs, outputs)

    x = jax.numpy.arange(1024.0)
    call(FakeProgram("remember", remember), x)
    assert seen == [x.unsafe_buffer_pointer()]


def test_inputs_cannot_be_written():
    def overwrite(inputs, outputs):
        inputs[0][...] = 0

    with pytest.raises(Exception, match="read-only"):
        call(FakeProgram("overwrite", overwrite), jax.numpy.ones(4))


def test_kernel_error_arrives_in_full():
    error = KernelError("tile has 256 partitions", rule="at most 128 in SBUF (µs)", fix="cut it")

    def fail(inputs, outputs):
        raise error

    with pytest.raises(Exception, match="INVALID_ARGUMENT: tile has 256") as caught:
        call(FakeProgram("kernel error", fail), jax.numpy.ones(4))
    assert str(error) in str(caught.value)


def test_other_errors_bring_their_traceback():
    def fail(inputs, outputs):
        raise ZeroDivisionError("on purpose")

    with pytest.raises(Exception, match="INTERNAL") as caught:
        call(FakeProgram("other error", fail), jax.numpy.ones(4))
    assert "in fail" in str(caught.value)
    assert "ZeroDivisionError: on purpose" in str(caught.value)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"config": config("nobody traced this")}, "FAILED_PRECONDITION.*has not traced"),
        ({"config": "???"}, "INVALID_ARGUMENT.*not a backend_config"),
        ({"config": base64.b64encode(b"[1]").decode()}, "not a backend_config"),
        ({"config": np.int32(3)}, "no string attribute `config`"),
        ({}, "no string attribute `config`"),
    ],
)
def test_calls_that_name_no_program(attributes, message):
    with pytest.raises(Exception, match=message):
        call(FakeProgram("unused", copy), jax.numpy.ones(4), attributes=attributes)


def test_dtype_that_nki_does_not_have():
    with pytest.raises(Exception, match="XLA_FFI_DataType 15"):
        call(FakeProgram("complex", copy), jax.numpy.ones(4, np.complex64))


def test_registering_again_does_nothing():
    for _ in range(3):
        xla_ffi.register()


def test_an_unknown_major_version_is_refused(monkeypatch, tmp_path):
    header = tmp_path / "xla" / "ffi" / "api" / "c_api.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define XLA_FFI_API_MAJOR 7\n#define XLA_FFI_API_MINOR 2\n")
    monkeypatch.setattr(jax.ffi, "include_dir", lambda: str(tmp_path))
    xla_ffi._api_version.cache_clear()
    with pytest.raises(xla_ffi.CustomCallError, match=r"speaks version 7\.2"):
        xla_ffi._api_version()
    header.unlink()
    with pytest.raises(xla_ffi.CustomCallError, match="cannot read the version"):
        xla_ffi._api_version()
    xla_ffi._api_version.cache_clear()


def test_eight_devices_at_once():
    together = threading.Barrier(8, timeout=60)

    class Double:
        digest, inputs, aliases = "double", (None,), {}

        def run(self, inputs, outputs):
            together.wait()  # passes only if eight calls are in flight
            np.multiply(inputs[0], 2, out=outputs[0])

    xla_ffi.register()
    programs.add_program(Double())
    config = base64.b64encode(json.dumps({"digest": "double"}).encode()).decode()
    out = jax.ShapeDtypeStruct((16, 16), np.float32)
    f = jax.pmap(lambda x: jax.ffi.ffi_call(xla_ffi.TARGET, out)(x, config=config))
    x = np.random.default_rng(0).standard_normal((8, 16, 16), np.float32)
    np.testing.assert_array_equal(f(x), 2 * x)
