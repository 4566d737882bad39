"""A tile that is written in part is sent to the other core: the rest of it is undefined there."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import UninitializedReadError

X = np.arange(128 * 8, dtype=np.float32).reshape(128, 8)


def exchanged(x, written, used, other_way=False):
    """Core r loads `written[r]` columns and sends all 8; of what it gets it stores `used[r]`."""
    out = nl.ndarray((2, *x.shape), dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    theirs = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    n, k = written[core], used[core]
    nisa.dma_copy(dst=mine[:, 0:n], src=x[:, 0:n])
    nisa.sendrecv(src=mine, dst=theirs, send_to_rank=1 - core, recv_from_rank=1 - core, pipe_id=0)
    nisa.tensor_scalar(dst=theirs, data=theirs, op0=nl.add, operand0=1.0 + core)
    nisa.dma_copy(dst=out[core, :, 0:k], src=theirs[:, 0:k])
    rest = x.shape[1] - k
    if rest:
        zeros = nl.ndarray((128, rest), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(zeros, 0.0)
        nisa.dma_copy(dst=out[core, :, k:], src=zeros)
    return out


@pytest.mark.parametrize(
    ("written", "used"), [((5, 5), (5, 5)), ((8, 3), (3, 8)), ((1, 8), (7, 1)), ((8, 8), (8, 8))]
)
def test_what_was_written_arrives(written, used):
    found = nki.simulate(exchanged)[2](X, written, used)
    for core in (0, 1):
        k = used[core]
        np.testing.assert_array_equal(found[core, :, :k], X[:, :k] + 1 + core)
        assert not found[core, :, k:].any()


@pytest.mark.parametrize(
    ("written", "used"), [((5, 5), (6, 5)), ((5, 5), (5, 6)), ((8, 3), (4, 8)), ((1, 8), (8, 2))]
)
def test_the_rest_is_an_error_when_it_is_stored(written, used):
    with pytest.raises(UninitializedReadError, match="nothing wrote") as caught:
        nki.simulate(exchanged)[2](X, written, used)
    assert "theirs[:, 0:k]" in caught.value.location.text


def test_a_tile_that_nothing_wrote_is_an_error_when_it_is_sent():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        mine = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        theirs = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        other = 1 - nl.program_id(0)
        nisa.sendrecv(src=mine, dst=theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
        nisa.dma_copy(dst=out, src=theirs)
        return out

    with pytest.raises(UninitializedReadError, match="send reads 1,024 of 1,024"):
        nki.simulate(kernel)[2](X)


def test_an_identity_matrix_stands_beside_tiles_that_the_kernel_places():
    def kernel(x):
        out = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((64, 64), dtype=x.dtype, buffer=nl.sbuf, address=(0, 1024))
        nisa.tensor_scalar(
            dst=tile, data=nl.shared_identity_matrix(64, nl.float32), op0=nl.add, operand0=1.0
        )
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(X), np.eye(64) + 1)
