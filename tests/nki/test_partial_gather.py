"""`nisa.local_gather` from a tile of which only some partitions were written."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import UninitializedReadError

ROWS, COUNT = 5, 16
X = np.random.default_rng(3).standard_normal((ROWS, 4)).astype(np.float32)
INDEX = np.random.default_rng(4).integers(0, 4, (16, 1)).astype(np.uint16)


def gathered(x, index, stored, with_index=True):
    """Partition p of the result has x[p, index[j, 0]] at j; the first `stored` of them leave."""
    out = nl.ndarray((stored, COUNT), dtype=x.dtype, buffer=nl.shared_hbm)
    data = nl.ndarray((16, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    places = nl.ndarray((16, 1), dtype=index.dtype, buffer=nl.sbuf)
    made = nl.ndarray((16, COUNT), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=data[0:ROWS, :], src=x)
    if with_index:
        nisa.dma_copy(dst=places, src=index)
    else:
        nisa.dma_copy(dst=places[0:8, :], src=index[0:8, :])
    nisa.local_gather(dst=made, src_buffer=data, index=places)
    nisa.dma_copy(dst=out, src=made[0:stored, :])
    return out


@pytest.mark.parametrize("stored", [1, 3, ROWS])
def test_partitions_that_were_written_gather(stored):
    found = nki.simulate(gathered)(X, INDEX, stored)
    np.testing.assert_array_equal(found, X[:stored][:, INDEX[:, 0]])


@pytest.mark.parametrize("stored", [ROWS + 1, 16])
def test_the_others_are_an_error_when_they_are_stored(stored):
    with pytest.raises(UninitializedReadError, match="store reads"):
        nki.simulate(gathered)(X, INDEX, stored)


def test_an_index_that_nothing_wrote_is_an_error():
    with pytest.raises(UninitializedReadError, match="local_gather reads"):
        nki.simulate(gathered)(X, INDEX, 1, False)
