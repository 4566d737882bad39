"""Inputs that are read in part, and stores that write an element again and again, are told."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.errors import NkiWarning
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel


def told(kernel, *args):
    """What warnings say, and the result."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        result = Kernel(kernel)(*args)
    return [str(w.message) for w in shown if w.category is NkiWarning], result


def test_a_dropped_tail_is_told_and_its_fix_reads_it():
    x = np.random.default_rng(0).standard_normal((100, 32)).astype(np.float32)

    def sums(x, tiles, masked):
        out = nl.ndarray((1, 32), x.dtype, buffer=nl.shared_hbm)
        total = nl.zeros((64, 32), x.dtype)
        i, j = nl.arange(64)[:, None], nl.arange(32)[None, :]
        for t in nl.affine_range(tiles):
            mask = (t * 64 + i < x.shape[0]) if masked else None
            part = nl.zeros((64, 32), x.dtype)
            part[i, j] = nl.load(x[t * 64 + i, j], mask=mask)
            total += part
        ones = nl.full((64, 1), 1.0, x.dtype)
        nl.store(out, nl.copy(nl.matmul(ones, total, transpose_x=True)))
        return out

    found, _ = told(sums, x, 100 // 64, False)
    assert len(found) == 1
    assert "1,152 of 3,200 elements" in found[0]
    assert "never read, in [64:100, 0:32]" in found[0]
    found, result = told(sums, x, (100 + 63) // 64, True)
    assert found == []
    np.testing.assert_allclose(result[0], x.sum(0), rtol=1e-4, atol=1e-4)


def test_a_launch_that_is_too_small_is_told_and_the_fix_launches_once_more():
    x = np.random.default_rng(0).standard_normal((100, 32)).astype(np.float32)

    def doubled(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.program_id(0) * 64 + nl.arange(64)[:, None], nl.arange(32)[None, :]
        tile = nl.load(x[i, j], mask=i < x.shape[0])
        nl.store(out[i, j], 2 * tile, mask=i < x.shape[0])
        return out

    kernel = Kernel(doubled)
    with (
        pytest.warns(NkiWarning, match="1,152 of 3,200 elements of the output"),
        pytest.warns(NkiWarning, match="or launch, once more, .n . size - 1. // size times"),
    ):
        kernel[100 // 64](x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(kernel[(100 + 63) // 64](x), 2 * x)


@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    parts=st.lists(st.tuples(*[st.integers(0, 11)] * 4), min_size=1, max_size=5),
    cut=st.integers(0, 12),
)
@settings(max_examples=100, deadline=None)
def test_what_is_never_read(shape, parts, cut):
    rows, columns = shape
    read = np.zeros(shape, bool)
    boxes = []
    for a, b, c, d in parts:
        a, b = sorted((a % rows, b % rows))
        c, d = sorted((c % columns, d % columns))
        boxes.append((a, b + 1, c, d + 1))
        read[a : b + 1, c : d + 1] |= (
            np.arange(d + 1 - c)[None, :] + np.arange(b + 1 - a)[:, None] <= cut
        )

    def kernel(x):
        out = nl.ndarray((1, 1), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros((1, 1), x.dtype))
        for a, b, c, d in boxes:
            i, j = nl.arange(b - a)[:, None], nl.arange(d - c)[None, :]
            nl.load(x[a + i, c + j], mask=i + j <= cut)
        return out

    found, _ = told(kernel, np.ones(shape, np.float32))
    missing = int((~read).sum())
    if missing:
        assert len(found) == 1
        assert f"{missing} of {read.size} elements of the input" in found[0]
    else:
        assert found == []


@pytest.mark.parametrize("dense", [True, False])
def test_a_column_that_is_stored_once_for_each_element_of_a_row(dense):
    x = np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32)

    def kernel(x):
        out = nl.ndarray((64, 1), x.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:64, 0:32]
        total = nl.sum(nl.load(x[i, j]), axis=1)
        if dense:
            nl.store(out[i, 0], total)
        else:
            nl.store(out[nl.arange(64)[:, None], 0], total)  # as the message says
        return out

    found, result = told(kernel, x)
    np.testing.assert_allclose(result[:, 0], x.sum(1), rtol=1e-5, atol=1e-5)
    assert [("32 times" in m, "nl.arange(64)[:, None]" in m) for m in found] == [
        (True, True)
    ] * dense


def test_warnings_come_once_a_line_with_their_number():
    def kernel(x):
        out = nl.ndarray((50, 16, 1), x.dtype, buffer=nl.shared_hbm)
        for k in nl.sequential_range(50):
            i, j = nl.mgrid[0:16, 0:4]
            nl.store(out[k, i, 0], nl.sum(nl.load(x[k, i, j]), axis=1))
        return out

    found, result = told(kernel, np.ones((50, 16, 4), np.float32))
    assert len(found) == 1
    assert "(the first of 50 like it in this line)" in found[0].splitlines()[0]
    assert (result == 4).all()
