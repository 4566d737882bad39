"""What kernels of a trn2 did that AWS's pages exclude: tiles over several banks of PSUM, and
transposes of more than 32 x 32 on the Vector Engine."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from traces import spec

import nkisim
from nkisim.errors import NkiWarning, TileSizeError

RNG = np.random.default_rng(0)
A, B = (RNG.uniform(-1, 1, shape).astype(np.float32) for shape in ((64, 128), (64, 4096)))
ONE_BANK = "a product is written to one bank of PSUM"
CONSTRAINT = "tile-size constraint 2"
PAGE = "page of nisa.nc_transpose"


def out(*shape):
    return nl.ndarray(shape, nl.float32, buffer=nl.shared_hbm)


def in_psum(*shape):
    return nl.ndarray((nl.par_dim(shape[0]), *shape[1:]), nl.float32, buffer=nl.psum)


def on(target, function):
    return nki.jit(function, platform_target=target)


def eight_banks(a, b):
    result = out(128, 4096)
    left, right = nl.load(a), nl.load(b)
    scores = in_psum(128, 4096)
    for i in nl.affine_range(8):
        scores[:, nl.ds(i * 512, 512)] = nisa.nc_matmul(left, right[:, nl.ds(i * 512, 512)])
    nl.store(result, nisa.activation(nl.exp, scores))
    return result


def accumulated(a, b):
    """Twice the product, 300 columns in each of two banks, and the rest of the tile zero."""
    result = out(128, 1000)
    left, right = nl.load(a), nl.load(b)
    sums = nl.zeros((nl.par_dim(128), 1000), nl.float32, buffer=nl.psum)
    for _ in nl.affine_range(2):
        for bank in range(2):
            columns = nl.ds(512 * bank + 37, 300)
            sums[:, columns] += nisa.nc_matmul(left, right[:, columns])
    nl.store(result, nl.copy(sums))
    return result


def blocks(a, b):
    """Blocks of two banks each."""
    result = out(2, 128, 1024)
    left, right = nl.load(a), nl.load(b)
    tiles = nl.ndarray((2, nl.par_dim(128), 1024), nl.float32, buffer=nl.psum)
    for i in nl.affine_range(2):
        for bank in nl.affine_range(2):
            columns = nl.ds(i * 1024 + bank * 512, 512)
            tiles[i, :, nl.ds(bank * 512, 512)] = nisa.nc_matmul(left, right[:, columns])
        nl.store(result[i], nl.copy(tiles[i]))
    return result


def twice(a, b):
    sums = np.zeros((128, 1000))
    for first in (37, 549):
        sums[:, first : first + 300] = 2 * (a.T @ b)[:, first : first + 300]
    return sums


TILES = {
    eight_banks: lambda a, b: np.exp(a.T @ b),
    accumulated: twice,
    blocks: lambda a, b: (a.T @ b)[:, :2048].reshape(128, 2, 1024).transpose(1, 0, 2),
}


@pytest.mark.parametrize("kernel", TILES)
def test_a_tile_over_several_banks_is_right_with_a_warning_on_a_trn2(kernel):
    with pytest.warns(NkiWarning, match=CONSTRAINT) as told:
        got = on("trn2", kernel)(A, B)
    assert len(told) == 1
    wanted = TILES[kernel](A.astype(float), B.astype(float))
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kernel", TILES)
def test_on_a_trn1_a_tile_fits_a_bank(kernel):
    with pytest.raises(TileSizeError, match="on a trn2 only"):
        on("trn1", kernel)(A, B)


def assigned(tile, left, right):
    tile[:, 500:524] = nisa.nc_matmul(left, right[:, 0:24])


def assigned_later(tile, left, right):
    product = nisa.nc_matmul(left, right[:, 0:24])
    other = nl.copy(left)
    tile[:, 500:524] = product
    return other


def added(tile, left, right):
    tile[...] = nisa.memset((128, 1024), 0, nl.float32)
    tile[:, 500:524] += nisa.nc_matmul(left, right[:, 0:24])


def transposed(tile, left, right):
    tile[:, 480:544] = nisa.nc_transpose(left, engine=nisa.tensor_engine)


def strided(tile, left, right):
    p, f = nl.mgrid[0:128, 0:24]
    tile[p, 30 * f] = nisa.nc_matmul(left, right[:, 0:24])


def copied(tile, left, right):
    tile[0:64, 500:524] = nisa.tensor_copy(right[:, 0:24])


def at_the_end(tile, left, right):
    tile[:, 512:1024] = nisa.nc_matmul(left, right[:, 0:512])


def writing(write):
    def kernel(a, b):
        left, right = nl.load(a), nl.load(b[:, 0:512])
        tile = in_psum(128, 1024)
        write(tile, left, right)
        result = out(64, 12)
        nl.store(result, nl.copy(tile[0:64, 512:524]))
        return result

    return on("trn2", kernel)


@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
@pytest.mark.parametrize("write", [assigned, assigned_later, added, transposed, strided])
def test_the_tensor_engine_writes_to_one_bank(write):
    with pytest.raises(TileSizeError, match=ONE_BANK) as refused:
        writing(write)(A, B)
    assert refused.value.location.filename == __file__


@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
def test_what_is_in_a_bank_and_what_other_engines_write_is_taken():
    np.testing.assert_array_equal(writing(copied)(A, B), B[:, 12:24])
    np.testing.assert_allclose(writing(at_the_end)(A, B), (A.T @ B)[:64, :12], atol=1e-5)


def several(*columns):
    """Tiles that are alive at one time."""

    def kernel(a, b):
        tiles = [in_psum(128, n) for n in columns]
        source = nl.load(a)
        for t in tiles:
            t[0:64, 0:128] = nisa.tensor_copy(source)
        total = nl.zeros((64, 128), nl.float32)
        for t in tiles:
            total[...] = total + t[0:64, 0:128]
        result = out(64, 128)
        nl.store(result, total)
        return result

    return on("trn2", kernel)


@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
def test_tiles_over_banks_fit_psum_together():
    with nkisim.checks(psum="error"):
        np.testing.assert_array_equal(several(2048, 2048)(A, B), 2 * A)
        with pytest.raises(TileSizeError, match="alive at once"):
            several(2048, 2049)(A, B)
    with pytest.raises(TileSizeError, match="16,388 bytes a partition"):
        several(4097)(A, B)


def test_a_tile_that_is_placed_fits_a_bank():
    def kernel(a, b):
        nl.ndarray((128, 513), nl.float32, buffer=ncc.psum.mod_alloc(base_bank=0))

    with pytest.raises(TileSizeError, match="a PSUM bank"):
        on("trn2", kernel)(A, B)


def turned(a):
    result = nl.ndarray(a.shape[::-1], a.dtype, buffer=nl.shared_hbm)
    nl.store(result, nisa.nc_transpose(nl.load(a), engine=nisa.vector_engine))
    return result


def turned_from_psum(a):
    result = nl.ndarray(a.shape[::-1], a.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(a.shape, a.dtype, buffer=nl.psum)
    tile[...] = nisa.tensor_copy(nl.load(a))
    nl.store(result, nisa.nc_transpose(tile, engine=nisa.vector_engine))
    return result


@pytest.mark.parametrize("kernel", [turned, turned_from_psum])
@pytest.mark.parametrize("shape", [(128, 128), (33, 1), (5, 97)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_vector_transposes_up_to_128_by_128_with_a_warning_on_a_trn2(kernel, shape, dtype):
    x = RNG.uniform(-1, 1, shape).astype(dtype)
    with pytest.warns(NkiWarning, match=PAGE):
        got = on("trn2", kernel)(x)
    np.testing.assert_array_equal(got, x.T)
    with pytest.raises(TileSizeError, match="on a trn2 only"):
        on("trn1", kernel)(x)


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_vector_transposes_no_more_partitions_than_there_are(target):
    with pytest.raises(TileSizeError, match="at most 32 by 32"):
        on(target, turned)(np.zeros((4, 129), np.float32))


def vector_ns(shape):
    timeline = nkisim.profile(on("trn2", turned), spec(*shape))
    tasks = [t for core in timeline.cores for t in core.work.tasks if "transpose" in t.label]
    return [cost.busy for t in tasks for _, cost in t.costs]


@pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
def test_a_large_vector_transpose_takes_as_long_as_its_blocks():
    (block,) = vector_ns((32, 32))
    assert vector_ns((128, 128)) == pytest.approx([16 * block])
    assert vector_ns((33, 65)) == pytest.approx([6 * block])
