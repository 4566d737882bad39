"""The cost model against limits in AWS's tests of its attention, and what AWS says of placing its
tiles by hand."""

from __future__ import annotations

import numpy as np
import pytest
from ml_dtypes import bfloat16

import nkisim
from nkibook.validation.attention import small_heads
from nkibook.validation.placed_attention import placed, placed_by_compiler

TOLERANCE = 1.05  # of the tests


def spec(*shape, dtype=bfloat16):
    return nkisim.TensorSpec(shape, np.dtype(dtype))


@pytest.mark.parametrize(
    ("dtype", "head", "limit"),
    [(np.float32, 128, 600), (np.float16, 64, 520), (bfloat16, 128, 480)],
)
def test_attention_of_small_heads_is_within_its_limits(dtype, head, limit):
    rows = spec(4096, head, dtype=dtype)
    found = nkisim.profile(small_heads, rows, rows, rows)
    assert 0.7 * limit < found.latency_us <= TOLERANCE * limit


@pytest.mark.parametrize(
    ("dtype", "rows", "limit"),
    [(np.float32, 4096, 410), (bfloat16, 4096, 350), (bfloat16, 5120, 586)],
)
def test_placed_attention_is_within_its_limits_and_gains_by_its_places(dtype, rows, limit):
    args = spec(128, rows, dtype=dtype), spec(128, rows, dtype=dtype), spec(rows, 128, dtype=dtype)
    by_hand, left = (
        nkisim.profile(kernel, *args).latency_us for kernel in (placed, placed_by_compiler)
    )
    assert 0.7 * limit < by_hand <= TOLERANCE * limit
    assert 1 - by_hand / left == pytest.approx(0.18, abs=0.05)


@pytest.mark.parametrize("kernel", [placed, placed_by_compiler])
@pytest.mark.parametrize("dtype", [np.float32, bfloat16])
def test_placed_attention_attends(kernel, dtype):
    rng = np.random.default_rng(3)
    q, k = (rng.standard_normal((128, 1024)).astype(dtype) for _ in range(2))
    v = rng.standard_normal((1024, 128)).astype(dtype)
    scores = q.T.astype(np.float64) @ k.astype(np.float64) / 8
    powers = np.exp(scores - scores.max(1, keepdims=True))
    want = (powers / powers.sum(1, keepdims=True) @ v.astype(np.float64)).T
    np.testing.assert_allclose(kernel(q, k, v).astype(np.float64), want, atol=0.01)
