"""The add kernels on NumPy arrays: values, odd shapes, dtypes, two cores, and refusals."""

from __future__ import annotations

from functools import partial
from unittest import mock

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kernels
from kernels.add import (
    nki_tensor_add,
    nki_tensor_add_kernel,
    nki_tensor_add_kernel_strict,
    nki_tensor_add_two_cores,
    reference,
)
from kernels.logical_core import cores_per_launch
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
ODD_SHAPES = [(1, 1), (1, 700), (127, 511), (128, 512), (129, 513), (300, 5), (129, 2049)]


def pair(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape, np.float32).astype(dtype) for _ in "ab")


def assert_same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ODD_SHAPES)
def test_any_shape(shape, dtype, dialect, monkeypatch):
    a, b = pair(shape, dtype)
    assert_same_bits(nki_tensor_add(a, b), a + b)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    two = nki_tensor_add_two_cores if dialect == "neuronxcc" else partial(nki_tensor_add, lnc=2)
    assert_same_bits(two(a, b), a + b)


@pytest.mark.parametrize("target", ["trn1", "inf2"])
def test_two_cores_need_trainium2(target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    assert cores_per_launch() == 1
    with pytest.raises(KernelError, match=f"2 cores of a NeuronCore-v2, by .*={target}"):
        nki_tensor_add_two_cores(ONES, ONES)
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    assert cores_per_launch() == 2


@pytest.mark.parametrize("dtype", DTYPES)
def test_strict_kernel(dtype):
    a, b = pair((256, 1024), dtype)
    assert_same_bits(nki_tensor_add_kernel_strict[2, 2](a, b), a + b)


@settings(max_examples=40, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 300), st.integers(1, 1100)),
    dtype=st.sampled_from(DTYPES),
    in_nki=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
def test_kernel_equals_numpy(shape, dtype, in_nki, seed):
    a, b = pair(shape, dtype, seed)
    with mock.patch.object(kernels, "dialect", "nki" if in_nki else "neuronxcc"):
        c = nki_tensor_add(a, b)
    assert_same_bits(c, a + b)


def test_special_values(dialect):
    """Infinities, NaN, signed zeros and overflow come out as IEEE 754 has them."""
    special = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 65504.0, -65504.0, 6e-8], np.float16)
    a, b = (np.ascontiguousarray(x) for x in np.broadcast_arrays(special[:, None], special))
    with np.errstate(all="ignore"):
        expected = a + b
    actual = nki_tensor_add(a, b)
    np.testing.assert_array_equal(actual, expected)
    np.testing.assert_array_equal(np.signbit(actual), np.signbit(expected))


def test_views_are_read_as_they_are(dialect):
    a, b = pair((200, 600), np.float32)
    np.testing.assert_array_equal(nki_tensor_add(a.T, b.T), a.T + b.T)
    np.testing.assert_array_equal(nki_tensor_add(a[::2, ::3], b[::2, ::3]), (a + b)[::2, ::3])
    np.testing.assert_array_equal(nki_tensor_add(a[::-1], b), a[::-1] + b)


def test_inputs_are_left_alone():
    a, b = pair((129, 513), np.float32)
    before = a.copy(), b.copy()
    nki_tensor_add(a, b)
    np.testing.assert_array_equal((a, b), before)


def test_grid_larger_than_the_tensor():
    """Instances whose tile lies outside the tensor do nothing."""
    a, b = pair((10, 20), np.float32)
    np.testing.assert_array_equal(nki_tensor_add_kernel[3, 2](a, b), a + b)


def test_grid_smaller_than_the_tensor_is_warned_of():
    """What no instance writes is garbage on hardware, and shown as NaN here."""
    a, b = pair((256, 512), np.float32)
    with pytest.warns(UserWarning, match="65,536 of 131,072 elements of the output"):
        c = nki_tensor_add_kernel[1, 1](a, b)
    np.testing.assert_array_equal(c[:128], (a + b)[:128])
    assert np.isnan(c[128:]).all()


def test_strict_kernel_refuses_a_shape_it_does_not_fit():
    a, b = pair((129, 512), np.float32)
    with pytest.raises(IndexError, match=r"neuronxcc\.py:\d+ in nki_tensor_add_kernel_strict"):
        nki_tensor_add_kernel_strict[2, 1](a, b)


ONES = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (ONES, np.ones((4, 5), np.float32), ValueError, r"\(4, 4\) and b_input \(4, 5\)"),
        (ONES, np.ones((1, 4), np.float32), ValueError, "does not broadcast"),
        (ONES[0, 0], ONES[0, 0], ValueError, "no axis"),
        (ONES[None], ONES, ValueError, "does not broadcast"),
        (ONES[:0], ONES[:0], ValueError, r"\(0, 4\): no elements"),
        (ONES, ONES.astype(np.float16), TypeError, "float32 and b_input float16"),
        (ONES.astype(np.int32), ONES.astype(np.int32), TypeError, "is int32"),
        (ONES.astype(np.float64), ONES.astype(np.float64), TypeError, "is float64"),
        (ONES.astype(bool), ONES.astype(bool), TypeError, "is bool"),
        (ONES, 1.0, TypeError, "b_input is a float"),
        ([[1.0]], ONES, TypeError, "a_input is a list"),
    ],
)
def test_refused_inputs(a, b, error, message, dialect):
    callers = [nki_tensor_add, *([nki_tensor_add_two_cores] * (dialect == "neuronxcc"))]
    for caller in callers:
        with pytest.raises(error, match=message):
            caller(a, b)


@pytest.mark.parametrize("shape", [(7,), (2, 3, 5), (2, 1, 3, 130)])
def test_any_number_of_axes(shape, dialect):
    a, b = pair(shape, np.float32)
    np.testing.assert_array_equal(nki_tensor_add(a, b), a + b)
    if dialect == "neuronxcc":
        with pytest.raises(ValueError, match="is a matrix"):
            nki_tensor_add_two_cores(a, b)


def test_reference_tiles_cover_the_array_once():
    seen = np.zeros((300, 4200), int)
    for tile in reference.tiles(*seen.shape):
        assert seen[tile].shape[0] <= 128
        assert seen[tile].shape[1] <= 2048
        seen[tile] += 1
    assert (seen == 1).all()
