"""A row worked on in chunks, each with the one column that all of them share."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

WIDTH = 4


@nki.jit
def scaled(x, column):
    lanes, n = x.shape
    y = nl.ndarray((lanes, n), dtype=x.dtype, buffer=nl.shared_hbm)
    x_tile = nl.ndarray((lanes, n), dtype=x.dtype)
    by = nl.ndarray((lanes, 1), dtype=x.dtype)
    nisa.dma_copy(x_tile, x)
    nisa.dma_copy(by, column)
    for begin in range(0, n, WIDTH):
        end = min(begin + WIDTH, n)
        part = nl.ndarray((lanes, end - begin), dtype=x.dtype)
        source = x_tile[0:lanes, begin:end]
        nisa.scalar_tensor_tensor(part, source, nl.multiply, by, nl.add, source)
        nisa.dma_copy(y[0:lanes, begin:end], part)
    return y


@pytest.mark.parametrize("n", [1, 3, 4, 5, 8, 10, 22])
def test_a_shared_column(n):
    rng = np.random.default_rng(n)
    x = rng.standard_normal((3, n), np.float32)
    column = rng.standard_normal((3, 1), np.float32)
    np.testing.assert_array_equal(scaled(x, column), x * column + x)
