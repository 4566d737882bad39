"""Types, promotion and casts, against the rules NKI documents and against ml_dtypes."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nkisim.errors import DTypeError
from nkisim.ir.dtypes import (
    SUPPORTED,
    as_dtype,
    bfloat16,
    bool_,
    cast_into,
    compute_dtype,
    float8_e4m3,
    float8_e5m2,
    float16,
    float32,
    int8,
    int16,
    int32,
    promote,
    uint8,
    uint16,
    uint32,
    weak_scalar_dtype,
)
from nkisim.numerics.ops.float32 import as_f32

FLOATS = (float32, float16, bfloat16, float8_e4m3, float8_e5m2)
INTS = (int8, int16, int32, uint8, uint16, uint32)

# Pairs of different types -> result, from the NKI documentation on type promotion: the float type
# for float with integer, else the wider, or a new type that holds both.
FLOAT_PAIRS = {
    (float32, float16): float32,
    (float32, bfloat16): float32,
    (float32, float8_e4m3): float32,
    (float32, float8_e5m2): float32,
    (float16, bfloat16): float32,
    (float16, float8_e4m3): float16,
    (float16, float8_e5m2): float16,
    (bfloat16, float8_e4m3): bfloat16,
    (bfloat16, float8_e5m2): bfloat16,
    (float8_e4m3, float8_e5m2): bfloat16,
}
INT_PAIRS = {
    (int8, int16): int16,
    (int8, int32): int32,
    (int8, uint8): int16,
    (int8, uint16): int32,
    (int8, uint32): float32,  # there is no int64
    (int16, int32): int32,
    (int16, uint8): int16,
    (int16, uint16): int32,
    (int16, uint32): float32,
    (int32, uint8): int32,
    (int32, uint16): int32,
    (int32, uint32): float32,
    (uint8, uint16): uint16,
    (uint8, uint32): uint32,
    (uint16, uint32): uint32,
}


@pytest.mark.parametrize(
    ("pair", "want"), [*FLOAT_PAIRS.items(), *INT_PAIRS.items()], ids=lambda x: str(x)[-40:]
)
def test_promotion_of_two_types(pair, want):
    a, b = map(np.dtype, pair)
    assert promote(a, b) == want
    assert promote(b, a) == want


@pytest.mark.parametrize("a", FLOATS)
@pytest.mark.parametrize("b", [*INTS, bool_])
def test_a_float_and_an_integer_give_the_float(a, b):
    assert promote(np.dtype(a), np.dtype(b)) == promote(np.dtype(b), np.dtype(a)) == a


@pytest.mark.parametrize("a", sorted(SUPPORTED, key=str), ids=str)
def test_a_type_with_itself_is_itself(a):
    assert promote(a, a) == a


@pytest.mark.parametrize(
    ("value", "want"),
    [
        (True, uint8),
        (3, int32),
        (1.2, float32),
        (np.int8(3), int8),
        (np.float16(3), float16),
        (bfloat16(3), bfloat16),
        (np.float32(3), float32),
        (np.int64(3), int32),  # 64-bit types count as their 32-bit kin
        (np.float64(3), float32),
        (np.True_, uint8),
    ],
    ids=lambda v: f"{type(v).__name__}",
)
def test_weak_scalars(value, want):
    assert weak_scalar_dtype(value) == want


def test_documented_examples_of_weak_scalars():
    # int8 tile + 2 -> int32; float16 tile + 1.2 -> float32 (NKI type promotion).
    assert promote(np.dtype(int8), weak_scalar_dtype(2)) == int32
    assert promote(np.dtype(float16), weak_scalar_dtype(1.2)) == float32


@pytest.mark.parametrize(
    "given_as", ["bfloat16", bfloat16, np.dtype(bfloat16), ml_dtypes.bfloat16], ids=str
)
def test_types_go_by_name_or_object(given_as):
    assert as_dtype(given_as) == np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (np.float64, "convert to float32"),
        ("int64", "convert to int32"),
        (np.uint64, "convert to uint32"),
        (complex, "one of bfloat16"),
        ("U3", "one of"),
        (np.dtype(">f4"), "newbyteorder"),
        ("no such type", "one of"),
        (3.5, "one of"),
    ],
    ids=str,
)
def test_types_that_no_neuroncore_has(wrong, hint):
    with pytest.raises(DTypeError, match=hint):
        as_dtype(wrong)


@pytest.mark.parametrize(
    ("types", "want"),
    [
        ((float16, int32), float32),
        ((float8_e4m3,), float32),
        ((int8, uint8), int16),
        ((int32, uint32), float32),
        ((uint8, uint8), uint8),
    ],
    ids=str,
)
def test_engines_compute_in_fp32_or_integers(types, want):
    assert compute_dtype(*map(np.dtype, types)) == want


# -- casts


@given(st.lists(st.floats(width=32), min_size=1, max_size=8), st.sampled_from(FLOATS))
def test_float_to_float_rounds_once(values, to):
    values = np.array(values, np.float32)
    out = np.empty(values.shape, to)
    with np.errstate(all="ignore"):
        cast_into(out, values)
        want = values.astype(to)
    np.testing.assert_array_equal(out.astype(np.float32), want.astype(np.float32))


@given(st.lists(st.floats(width=32), min_size=1, max_size=8), st.sampled_from(INTS))
def test_float_to_integer_rounds_to_the_nearest_even_and_saturates(values, to):
    out = np.empty(len(values), to)
    cast_into(out, np.array(values, np.float32))
    info = np.iinfo(to)
    for got, value in zip(out, values, strict=True):
        if np.isnan(value):
            assert got == 0
        elif np.isinf(value):
            assert got == (info.max if value > 0 else info.min)
        else:
            assert got == min(max(round(value), info.min), info.max)


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1), st.sampled_from(INTS))
def test_integer_to_integer_saturates(values, to):
    """As a float does, by way of which the engines convert (nisa.tensor_copy, SDK 2.26, 2.32)."""
    out = np.empty(len(values), to)
    cast_into(out, np.array(values, np.int32))
    info = np.iinfo(to)
    np.testing.assert_array_equal(out, [min(max(v, info.min), info.max) for v in values])


def test_casts_to_bool_ask_for_zero():
    out = np.empty(5, bool)
    cast_into(out, np.array([0.0, -0.0, 0.25, -3, np.nan], np.float32))
    np.testing.assert_array_equal(out, [False, False, True, True, True])
    cast_into(out, np.array([0, 1, 256, -1, 0], np.int32))
    np.testing.assert_array_equal(out, [False, True, True, True, False])


@pytest.mark.parametrize("dtype", [float16, bfloat16, float8_e4m3, float8_e5m2])
@pytest.mark.parametrize("shape", [(3, 5), (64, 257), (1, 4096), (128, 2, 64)])
def test_operands_become_fp32_bit_by_bit(dtype, shape):
    """Many elements go through a table; it has NumPy's values, NaNs included, of any view."""
    item = np.dtype(dtype).itemsize
    code = {1: np.uint8, 2: np.uint16}[item]
    bits = np.random.default_rng(0).integers(0, 256**item, (2 * shape[0], *shape[1:-1], shape[-1]))
    x = bits.astype(code).view(dtype)
    for view in (x[::2], x[: shape[0]], x[: shape[0], ..., ::-1], x[:1].repeat(shape[0], 0)):
        found = as_f32(view)
        assert found.dtype == np.float32
        assert np.array_equal(found.view(np.uint32), view.astype(np.float32).view(np.uint32))
