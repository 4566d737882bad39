"""What messages say of kernels of `import nki`: their ways, not those of the older dialect."""

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import KernelError, NkiWarning

X = np.ones((100, 8), np.float32)


@nki.jit
def left_out(x):
    """Reads and writes the first 64 rows."""
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((64, x.shape[1]), x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x[0:64])
    nisa.dma_copy(out[0:64], tile)
    return out


@nki.jit
def mended(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    for i in range((x.shape[0] + 63) // 64):
        n = min(64, x.shape[0] - 64 * i)
        tile = nl.ndarray((n, x.shape[1]), x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x[64 * i : 64 * i + n])
        nisa.dma_copy(out[64 * i : 64 * i + n], tile)
    return out


@nki.jit
def unwritten(x):
    out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(x.shape, x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile[0:64], x[0:64])
    nisa.dma_copy(out, tile)
    return out


def test_a_tail_that_is_left_out_is_told_without_masks():
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        left_out(X)
    told = [str(w.message) for w in shown if w.category is NkiWarning]
    assert {t.split(" of ")[0] for t in told} == {"288"}
    assert len(told) == 2
    assert any("never read" in t and "min(size, n - start)" in t for t in told)
    assert any("never written" in t and "the slices that are written" in t for t in told)
    assert "mask" not in " ".join(told)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(mended(X), X)


def test_a_read_of_what_nothing_wrote_is_told_without_masks():
    with pytest.raises(KernelError, match="nothing wrote") as caught:
        unwritten(X)
    assert "slice what was written" in caught.value.fix
    assert "mask" not in str(caught.value)
