"""Adding two vectors, in tilings that move from one element a transfer to 128 x 2000."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

PARTITIONS = 128


@nki.jit
def add_columns(a, b, rows):
    """a + b of vectors (n,), in tiles of shape (rows, 1)."""
    n = a.shape[0]
    out = nl.ndarray((n, 1), dtype=a.dtype, buffer=nl.shared_hbm)
    a_column, b_column = a.reshape((n, 1)), b.reshape((n, 1))
    for i in nl.affine_range(n // rows):
        part = slice(i * rows, (i + 1) * rows)
        a_tile = nl.ndarray((rows, 1), dtype=a.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((rows, 1), dtype=b.dtype, buffer=nl.sbuf)
        a_tile[...] = nl.load(a_column[part])
        b_tile[...] = nl.load(b_column[part])
        nl.store(out[part], nl.add(a_tile, b_tile))
    return out


@nki.jit
def add_tiles(a, b, columns):
    """a + b of vectors (n,), in tiles of shape (128, columns) that are contiguous in HBM."""
    tiles = a.shape[0] // (PARTITIONS * columns)
    shape = (tiles, PARTITIONS, columns)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    a_tiles, b_tiles = a.reshape(shape), b.reshape(shape)
    for i in nl.affine_range(tiles):
        a_tile = nl.load(a_tiles[i])
        b_tile = nl.load(b_tiles[i])
        nl.store(out[i], nl.add(a_tile, b_tile))
    return out


@nki.jit
def add_strips(a, b, columns):
    """a + b of vectors (n,), seen as 128 rows, in strips of so many columns."""
    shape = (PARTITIONS, a.shape[0] // PARTITIONS)
    out = nl.ndarray(shape, dtype=a.dtype, buffer=nl.shared_hbm)
    a_rows, b_rows = a.reshape(shape), b.reshape(shape)
    for i in nl.affine_range(shape[1] // columns):
        strip = nl.ds(i * columns, columns)
        a_tile = nl.load(a_rows[:, strip])
        b_tile = nl.load(b_rows[:, strip])
        nl.store(out[:, strip], nl.add(a_tile, b_tile))
    return out
