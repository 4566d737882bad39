"""Checks about the chip: capacity by liveness, start partitions, accumulation in PSUM."""

from __future__ import annotations

import warnings

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


def filled(times: int):
    """Five tiles of 48,000 bytes a partition that only a fill writes, each used some times."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.shared_hbm)
        tiles = [nl.zeros((128, 12_000), x.dtype) for _ in range(5)]
        total = nl.load(x)
        for _ in range(times):
            for tile in tiles:
                total += tile[:, 0:64]
        nl.store(out, total)
        return out

    return kernel


def test_a_fill_is_done_where_its_tile_is_first_used(recwarn):
    """Kernels as AWS's compiler prints them make all tiles up front, with nl.zeros."""
    spec = nkisim.TensorSpec((128, 64), np.dtype(np.float32))
    filled(1).specialize((spec,), {})
    assert not recwarn.list
    with pytest.warns(nkisim.NkiWarning, match="6 tiles alive at once need 240,256 bytes"):
        filled(2).specialize((spec,), {})


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


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float16, nl.int32])
def test_matmuls_are_added_up_in_fp32_only(dtype):
    x = np.round(numbers(3, 32, 16))
    with pytest.raises(AccumulationError, match="the Tensor Engine accumulates in fp32") as caught:
        accumulation(False, dtype)(x)
    message = str(caught.value)
    assert f"({np.dtype(dtype)}[16, 16] in PSUM)" in message
    assert "total += nisa.nc_matmul(tile, tile)" in message
    assert f"nl.copy(total, dtype=nl.{np.dtype(dtype)})" in message
    for relaxed in (nkisim.checks(accumulation="off"), nkisim.checks(accumulation="warn")):
        with relaxed, warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            got = accumulation(False, dtype)(x)
        wanted = np.zeros((16, 16), dtype)
        for t in x:
            wanted = (wanted.astype(np.float32) + t.T @ t).astype(dtype)
        np.testing.assert_array_equal(got, wanted.astype(np.float32))
        assert len(told) <= 1


def test_the_simulator_of_the_sdk_adds_up_matmuls_in_any_type():
    """It keeps bf16 tiles in fp32."""
    x = numbers(3, 32, 16)
    kernel = nki.jit(accumulation(False, nl.bfloat16).func, mode="simulation")
    with pytest.warns(nkisim.NkiWarning, match="accumulates in fp32"):
        got = kernel(x)
    np.testing.assert_allclose(got, sum(t.T @ t for t in x), rtol=1e-4, atol=1e-4)


def test_a_product_may_be_added_to_a_narrow_tile_by_the_vector_engine():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.shared_hbm)
        total = nl.zeros((16, 16), dtype=nl.bfloat16, buffer=nl.psum)
        for i in nl.sequential_range(3):
            tile = nl.load(x[i])
            total[...] = nl.add(total, nisa.nc_matmul(tile, tile))
        nl.store(out, nl.copy(total))
        return out

    x = np.round(numbers(3, 32, 16))
    wanted = np.zeros((16, 16), nl.bfloat16)
    for t in x:
        wanted = (wanted.astype(np.float32) + t.T @ t).astype(nl.bfloat16)
    np.testing.assert_array_equal(kernel(x), wanted.astype(np.float32))


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
