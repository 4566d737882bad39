"""The matmul kernel in `import nki`: values, layouts, gradients, frameworks, and the older dialect.

The tolerance is the one of test_matmul, which says where it comes from.
"""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from kernels.matmul import neuronxcc
from kernels.matmul.nki import nki_matmul, nki_matmul_backward, nki_matmul_kernel
from nkisim import KernelError

DTYPES = [np.float32, np.float16, ml_dtypes.bfloat16]
# (M, K, N), all different: below and above the tiles, the blocks of 1024, and the chunks of K.
SHAPES = [
    (1, 1, 1),
    (127, 1, 129),
    (128, 256, 512),
    (129, 130, 513),
    (3, 1030, 1100),
    (1025, 70, 5),
    (260, 513, 1500),
]
LAYOUTS = list(itertools.product((False, True), repeat=2))


@pytest.fixture(autouse=True)
def trn2(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")


def draw(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32).astype(dtype)


def check(result, a, b):
    """Whether `result` is a @ b of two matrices."""
    assert (result.dtype, result.shape) == (a.dtype, (a.shape[0], b.shape[1]))
    wide = a.astype(np.float64), b.astype(np.float64)
    expected = wide[0] @ wide[1]
    terms = np.abs(wide[0]) @ np.abs(wide[1])
    step = float(ml_dtypes.finfo(a.dtype).eps) / 2
    tiny = float(ml_dtypes.finfo(a.dtype).smallest_subnormal)
    tolerance = step * np.abs(expected) + 2e-7 * np.sqrt(a.shape[1]) * terms + tiny
    assert (np.abs(result.astype(np.float64) - expected) <= tolerance).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape_and_layout(shape, dtype):
    m, k, n = shape
    a, b = draw(m, k, dtype=dtype), draw(k, n, dtype=dtype, seed=1)
    for layout in LAYOUTS:
        stored = [
            np.ascontiguousarray(x.T) if s else x for x, s in zip((a, b), layout, strict=True)
        ]
        for lnc in (1, 2):
            check(nki_matmul_kernel[lnc](*stored, *layout), a, b)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_same_bits_as_the_older_dialect_where_sums_are_exact(shape, dtype):
    """Small integers: no sum is rounded, so that the order of summation does not matter."""
    m, k, n = shape
    a, b = (
        np.random.default_rng(seed).integers(-2, 3, s).astype(dtype)
        for seed, s in enumerate(((m, k), (k, n)))
    )
    expected = neuronxcc.nki_matmul(a, b)
    for lnc in (1, 2):
        np.testing.assert_array_equal(nki_matmul(a, b, lnc=lnc), expected)


@pytest.mark.parametrize("k", [2050, 4100])
def test_long_contractions(k):
    """Up to 2048 in float32 the block of a stays in SBUF for all of b."""
    a, b = draw(130, k), draw(k, 1030, seed=1)
    for lnc in (1, 2):
        check(nki_matmul(a, b, lnc=lnc), a, b)


@pytest.mark.parametrize("lnc", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradients(dtype, lnc):
    a, b, grad_c = (draw(*s, dtype=dtype) for s in ((3, 50, 130), (130, 70), (3, 50, 70)))
    grad_a, grad_b = nki_matmul_backward(grad_c, a, b, lnc=lnc)
    rows, columns = a.reshape(-1, 130), grad_c.reshape(-1, 70)
    check(grad_a.reshape(-1, 130), columns, np.ascontiguousarray(b.T))
    check(grad_b, np.ascontiguousarray(rows.T), columns)


def test_sums_are_float32_for_16_bit_operands():
    """bfloat16 cannot count above 256 in steps of 1."""
    ones = np.ones((2, 4096), ml_dtypes.bfloat16)
    np.testing.assert_array_equal(nki_matmul(ones, ones.T.copy()).astype(int), 4096)


def test_refused_inputs():
    a, b = draw(4, 6), draw(6, 5)
    with pytest.raises(ValueError, match="contraction of 6 with 5"):
        nki_matmul(a, b[:5])
    with pytest.raises(ValueError, match="no elements"):
        nki_matmul(a[:0], b)
    with pytest.raises(TypeError, match="a is float16 and b float32"):
        nki_matmul(a.astype(np.float16), b)
    with pytest.raises(KernelError, match="1 or 2"):
        nki_matmul(a, b, lnc=3)
