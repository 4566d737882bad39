"""What messages about indices advise, followed."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.errors import KernelError

W = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)


def rows_of(index):
    @nki.jit
    def kernel(w):
        out = nl.ndarray((128, 8), dtype=w.dtype, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(128)[:, None], nl.arange(8)[None, :]
        nl.store(out, value=nl.load(w[index(i_p), i_f]))
        return out

    return kernel


def test_rows_that_repeat_on_the_partition_axis():
    with pytest.raises(KernelError, match="not an affine expression") as caught:
        rows_of(lambda i: i % 4)(W)
    assert (
        "tile[nl.ds(4 * g, 4)] = nl.load(w[0:4]) for g in nl.affine_range(32)" in caught.value.fix
    )

    @nki.jit
    def mended(w):
        out = nl.ndarray((128, 8), dtype=w.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 8), dtype=w.dtype, buffer=nl.sbuf)
        for g in nl.affine_range(32):
            tile[nl.ds(4 * g, 4)] = nl.load(w[0:4])
        nl.store(out, value=tile)
        return out

    np.testing.assert_array_equal(mended(W), np.tile(W, (32, 1)))


@pytest.mark.parametrize("index", [
    lambda i: i + 0.5, lambda i: 1.0 - i, lambda i: i - np.float32(2), lambda i: i < 2.5,
    lambda i: i * 0.5,
])  # fmt: skip
def test_a_float_in_an_index_is_told(index):
    with pytest.raises(KernelError):
        rows_of(index)(W)
