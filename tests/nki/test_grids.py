"""Grids of tiles and of blocks, by the slices of NumPy that they stand for."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import (
    IndexingError,
    KernelError,
    OutOfBoundsError,
    ParameterError,
    ShapeError,
    UnsupportedError,
)

X = np.random.default_rng(3).standard_normal((300, 70), np.float32)
SLABS = np.random.default_rng(4).standard_normal((3, 2, 100, 50), np.float32)


def moved(a, b):
    """b = a, through a tile."""
    tile = nl.ndarray(a.element_shape, dtype=a.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile.data, src=a.data)
    nisa.dma_copy(dst=b.data, src=tile.data)


def like(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


@pytest.mark.parametrize("x", [X, SLABS], ids=["two axes", "slabs"])
@pytest.mark.parametrize("tile", [(128, 32), (64, 25), (7, 70)])
def test_every_tile_is_copied_once(x, tile):
    def kernel(x):
        out = like(x)
        a, b = nl.tiles(x, tile_shape=tile), nl.tiles(out, tile_shape=tile)
        for at in np.ndindex(a.shape):
            moved(a[at], b[at])
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(x), x)


def test_what_a_grid_says_of_itself():
    def kernel(x, slabs):
        grid = nl.tiles(x, tile_shape=(128, 32))
        assert (grid.shape, grid.tile_shape, grid.index_step_elements) == (
            (3, 3),
            (128, 32),
            (128, 32),
        )
        assert grid.element_shape == x.shape
        assert grid.is_remainder
        row = grid[2, :]
        assert (row.shape, row.element_shape, row.index_step_elements) == ((3,), (44, 70), (32,))
        assert not grid[0, 1].is_remainder
        assert grid[0, 2].element_shape == (128, 6)
        assert grid[0:2, 1:3].shape == (2, 2)
        assert grid[..., 1].element_shape == (300, 32)
        assert grid[1][2].element_shape == grid[1, 2].element_shape
        assert (grid.dtype, grid.buffer) == (nl.float32, x.buffer)
        front = nl.tiles(slabs, tile_shape=(64, 32))
        assert front.shape == (3, 2, 2, 2)
        assert front[1, 0, 1, 1].data.shape == (36, 18)
        assert front[1].element_shape == (2, 100, 50)
        assert isinstance(front[1], nl.NkiTileGrid)
        assert isinstance(front, nl.NkiGrid)
        blocks = nl.blocks(x, tile_shape=(64, 16), block_shape=(2, 3))
        assert (blocks.shape, blocks.block_shape) == ((3, 2), (2, 3))
        assert blocks.index_step_elements == (128, 48)
        assert blocks[2, 1].element_shape == (44, 22)
        assert blocks[2, 1].is_remainder
        assert not blocks[0, 0].is_remainder
        assert nl.tiles(blocks[0, 1]).shape == (2, 2)
        assert nl.blocks(nl.tiles(x, tile_shape=(64, 16)), block_shape=(2, 3)).shape == (3, 2)
        return x

    nki.simulate(kernel)(X, SLABS)


@pytest.mark.parametrize("alloc", ["tiles", "blocks"])
def test_blocks_are_loaded_whole_and_worked_on_by_tiles(alloc):
    """On chip, a block has more rows than there are partitions."""
    tile, block = (128, 16), (2, 3)

    def kernel(x):
        out = like(x)
        a = nl.blocks(x, tile_shape=tile, block_shape=block)
        b = nl.blocks(out, tile_shape=tile, block_shape=block)
        for at in np.ndindex(a.shape):
            place = {"element_shape": a[at].element_shape, "buffer": nl.sbuf, "dtype": x.dtype}
            if alloc == "tiles":
                chip = nl.alloc_tiles(tile_shape=tile, **place)
            else:
                chip = nl.tiles(nl.alloc_blocks(tile_shape=tile, block_shape=block, **place))
            src, dst = nl.tiles(a[at]), nl.tiles(b[at])
            for i in range(src.shape[0]):
                nisa.dma_copy(chip[i, :].data, src[i, :].data)
                for j in range(src.shape[1]):
                    each = chip[i, j].data
                    nisa.tensor_scalar(each, each, nl.multiply, 2.0)
                    nisa.dma_copy(dst[i, j].data, each)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(X), 2 * X)


def test_tiles_of_a_tile_on_chip_and_at_an_address():
    def kernel(x):
        out = like(x)
        grid = nl.alloc_tiles(
            tile_shape=(100, 20),
            element_shape=(100, 70),
            buffer=nl.sbuf,
            dtype=x.dtype,
            address=(0, 64),
        )
        nisa.dma_copy(grid.data, x)
        for j in range(grid.shape[1]):
            nisa.dma_copy(nl.tiles(out, tile_shape=(100, 20))[0, j].data, grid[0, j].data)
        return out

    np.testing.assert_array_equal(nki.simulate(kernel)(X[:100]), X[:100])


REFUSED = {
    "past the end": (lambda g, x: g[3, 0], OutOfBoundsError, "the axis has 3"),
    "negative": (lambda g, x: g[-1, 0], OutOfBoundsError, "0..2"),
    "a long slice": (lambda g, x: g[0:4, 0], OutOfBoundsError, "extends beyond"),
    "a step": (lambda g, x: g[0:3:2, 0], IndexingError, "with step 1"),
    "a scalar": (lambda g, x: g[nisa.NkiScalar(1), 0], KernelError, "when the kernel runs"),
    "one too many": (lambda g, x: g[0, 0, 0], IndexingError, "2 axes"),
    "of one tile": (lambda g, x: g[0, 0][0], IndexingError, ".data is the tensor"),
    "no tile": (lambda g, x: nl.tiles(x), ParameterError, "tile_shape"),
    "another tile": (lambda g, x: nl.tiles(g, tile_shape=(4, 4)), ParameterError, "(128, 32)"),
    "a list": (lambda g, x: nl.tiles(x, tile_shape=[4, 4]), ShapeError, "a tuple"),
    "no extent": (lambda g, x: nl.tiles(x, tile_shape=(4, 0)), ShapeError, "positive"),
    "more axes": (lambda g, x: nl.tiles(x, tile_shape=(4, 4, 4)), ShapeError, "no more than"),
    "several rows on chip": (
        lambda g, x: (
            nl.alloc_tiles(
                tile_shape=(64, 8), element_shape=(256, 8), buffer=nl.sbuf, dtype=nl.float32
            ).data
        ),
        UnsupportedError,
        "grid[i, :].data",
    ),
    "three axes on chip": (
        lambda g, x: nl.alloc_tiles(
            tile_shape=(2, 64, 8), element_shape=(2, 64, 8), buffer=nl.sbuf, dtype=nl.float32
        ),
        ShapeError,
        "two axes",
    ),
    "a grid for a tensor": (
        lambda g, x: nisa.dma_copy(nl.ndarray((128, 32), nl.float32), g[0, 0]),
        ParameterError,
        "grid[i, j].data",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_wrong_is_told_at_the_kernels_line(what):
    broken, kind, says = REFUSED[what]

    def kernel(x):
        broken(nl.tiles(x, tile_shape=(128, 32)), x)
        return x

    with pytest.raises(kind) as found:
        nki.simulate(kernel)(X)
    assert says in str(found.value)
    assert found.value.location.filename == __file__


@pytest.mark.parametrize(
    ("call", "made"),
    [
        ("nl.tiles", lambda x: nl.tiles(x)),
        ("nl.blocks", lambda x: nl.blocks(x, block_shape=(1, 1))),
        (
            "nl.alloc_blocks",
            lambda x: nl.alloc_blocks(
                tile_shape=(4,),
                block_shape=(1,),
                element_shape=(4,),
                buffer=nl.sbuf,
                dtype=nl.float32,
            ),
        ),
    ],
)
def test_an_error_names_the_call_that_was_made(call, made):
    with pytest.raises(KernelError, match=rf"{call}\b"):
        nki.simulate(lambda x: made(x) and x)(X)
