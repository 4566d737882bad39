"""Tensor addition in `import nki`: values, shapes, dtypes, frameworks, and the older dialect."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.add import neuronxcc
from kernels.add.nki import nki_tensor_add
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
ODD_SHAPES = [(1, 1), (1, 700), (127, 511), (128, 512), (129, 513), (300, 5), (129, 2049)]


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def pair(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    return tuple(rng.standard_normal(shape, np.float32).astype(dtype) for _ in "ab")


def assert_same_bits(actual, expected):
    assert actual.dtype == expected.dtype
    np.testing.assert_array_equal(actual.view(np.uint8), expected.view(np.uint8))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", ODD_SHAPES)
@pytest.mark.parametrize("lnc", [1, 2])
def test_any_shape(lnc, shape, dtype):
    a, b = pair(shape, dtype)
    c = nki_tensor_add(a, b, lnc=lnc)
    assert_same_bits(c, a + b)
    assert_same_bits(c, neuronxcc.nki_tensor_add(a, b))


@settings(max_examples=15, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 300), st.integers(1, 1100)),
    dtype=st.sampled_from(DTYPES),
    lnc=st.sampled_from([1, 2]),
    seed=st.integers(0, 2**32 - 1),
)
def test_equals_numpy(shape, dtype, lnc, seed):
    a, b = pair(shape, dtype, seed)
    assert_same_bits(nki_tensor_add(a, b, lnc=lnc), a + b)


ONES = np.ones((4, 4), np.float32)


@pytest.mark.parametrize(
    ("a", "b", "error", "message"),
    [
        (ONES, np.ones((4, 5), np.float32), ValueError, r"\(4, 4\) and b_input \(4, 5\)"),
        (ONES[0], ONES[0], ValueError, r"\(4,\): 1 dimensions"),
        (ONES, ONES.astype(np.float16), TypeError, "float32 and b_input float16"),
        (ONES.astype(np.int32), ONES.astype(np.int32), TypeError, "is int32"),
    ],
)
def test_refused_inputs(a, b, error, message):
    with pytest.raises(error, match=message):
        nki_tensor_add(a, b)


@pytest.mark.parametrize("lnc", [0, 3])
def test_refused_cores(lnc):
    with pytest.raises(KernelError, match="1 or 2"):
        nki_tensor_add(ONES, ONES, lnc=lnc)
