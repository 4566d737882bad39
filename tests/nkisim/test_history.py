"""No result depends on the calls before."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import nkisim


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 5)), min_size=1, max_size=4))
def test_no_result_depends_on_earlier_calls(calls):
    """What a mask leaves of a tile undefined, with the check turned off, is NaN each time."""

    def kernel(x, rows, columns):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.mgrid[0:4, 0:5]
        tile = nl.load(x[i, j], mask=(i < rows) & (j < columns))
        nl.store(out, nl.maximum(tile * 2.0, tile))
        return out

    kernel = nki.jit(kernel)
    with nkisim.checks(uninitialized="off"):
        for n, (rows, columns) in enumerate(calls):
            x = np.full((4, 5), n + 1, np.float32)
            wanted = np.full((4, 5), np.nan)
            wanted[:rows, :columns] = 2 * (n + 1)
            np.testing.assert_array_equal(kernel(x, rows, columns), wanted)
