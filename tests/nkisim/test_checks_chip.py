"""Checks about the chip: capacity by liveness, start partitions, accumulation in PSUM."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import AccumulationError, TileSizeError


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def tiled_copy(at_once: bool):
    """Copies x, (n, 128, f), with every tile alive at once or one after the other."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        n, rows, columns = x.shape
        tiles = nl.ndarray((n, nl.par_dim(rows), columns), dtype=x.dtype, buffer=nl.sbuf)
        if at_once:
            for i in nl.affine_range(n):
                tiles[i] = nl.load(x[i])
            for i in nl.affine_range(n):
                nl.store(out[i], tiles[i])
        else:
            for i in nl.affine_range(n):
                tiles[i] = nl.load(x[i])
                nl.store(out[i], tiles[i])
        return out

    return kernel


# 176 KiB a partition: 22 tiles of 8 KiB. The tensor of 40 tiles is larger than SBUF as a whole.
SPEC = nkisim.TensorSpec((40, 128, 2048), np.dtype(np.float32))


def test_tiles_that_are_alive_at_once_overflow_sbuf():
    with pytest.warns(nkisim.NkiWarning, match="40 tiles alive at once need 327,680 bytes"):
        tiled_copy(True).specialize((SPEC,), {})
    with nkisim.checks(sbuf="error"), pytest.raises(TileSizeError, match="180,224 bytes"):
        tiled_copy(True).specialize((SPEC,), {})


def test_a_block_tensor_larger_than_sbuf_fits_when_its_tiles_take_turns(recwarn):
    tiled_copy(False).specialize((SPEC,), {})
    assert not recwarn.list


def test_small_tiles_share_partitions(recwarn):
    # 64 tiles of 8 KiB on 32 partitions: a quarter of the partitions each, 128 KiB in all.
    spec = nkisim.TensorSpec((64, 32, 2048), np.dtype(np.float32))
    tiled_copy(True).specialize((spec,), {})
    assert not recwarn.list


def products(count):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((count, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        results = [nisa.nc_matmul(tile[:, 0:128], tile) for _ in range(count)]
        for i, result in enumerate(results):
            nl.store(out[i], nl.copy(result))
        return out

    return kernel


def test_psum_holds_eight_banks():
    x = numbers(128, 512)
    np.testing.assert_allclose(products(8)(x)[7], x[:, :128].T @ x, rtol=1e-3, atol=1e-3)
    with pytest.warns(nkisim.NkiWarning, match="9 tiles alive at once need 18,432 bytes"):
        products(9)(x)
    strict = nkisim.checks(psum="error")
    with strict, pytest.raises(TileSizeError, match="9 tiles alive at once"):
        products(9)(x)


@pytest.mark.parametrize(
    ("start", "count", "legal"),
    [
        (0, 128, True),
        (64, 64, True),
        (64, 40, True),
        (32, 32, True),
        (96, 8, True),
        (32, 64, False),
        (16, 8, False),
        (1, 1, False),
    ],
)
def test_start_partitions(start, count, legal, recwarn):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((count, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nl.store(out, nl.exp(tile[start : start + count]))
        return out

    x = numbers(128, 8)
    np.testing.assert_allclose(kernel(x), np.exp(x[start : start + count]), rtol=1e-6)
    warned = [w for w in recwarn.list if "from partition" in str(w.message)]
    assert len(warned) == (not legal)
    if not legal:
        with nkisim.checks(partition="error"), pytest.raises(TileSizeError):
            kernel(x)


def test_dma_may_start_anywhere(recwarn):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((5, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(x)[7:12])
        return out

    np.testing.assert_array_equal(kernel(numbers(16, 8)), numbers(16, 8)[7:12])
    assert not recwarn.list


def accumulation(early: bool, dtype=nl.float32):
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((16, 16), dtype=dtype, buffer=nl.psum)
        partial = nl.zeros((16, 16), dtype=nl.float32)
        for i in nl.sequential_range(3):
            tile = nl.load(x[i])
            total += nisa.nc_matmul(tile, tile)
            if early:
                partial[...] = nl.copy(total)
        nl.store(out, nl.add(partial, total) if early else nl.copy(total))
        return out

    return kernel


def test_reading_a_partial_sum():
    x = numbers(3, 32, 16)
    np.testing.assert_allclose(
        accumulation(False)(x), sum(t.T @ t for t in x), rtol=1e-4, atol=1e-4
    )
    with pytest.raises(AccumulationError, match="goes on accumulating") as caught:
        accumulation(True)(x)
    assert "total += nisa.nc_matmul" in str(caught.value)


def test_a_new_accumulation_in_the_same_tile():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((3, 16, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        for i in nl.sequential_range(3):
            total[...] = 0.0
            tile = nl.load(x[i])
            total += nisa.nc_matmul(tile, tile)
            nl.store(out[i], nl.copy(total))
        return out

    x = numbers(3, 32, 16)
    np.testing.assert_allclose(kernel(x), np.stack([t.T @ t for t in x]), rtol=1e-4, atol=1e-4)
