"""nisa.topk against a sort in NumPy."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim


@nki.jit
def top(x, n, k):
    lanes, columns = x.shape
    values = nl.ndarray((lanes, k), dtype=nl.bfloat16, buffer=nl.shared_hbm)
    places = nl.ndarray((lanes, k), dtype=nl.uint32, buffer=nl.shared_hbm)
    src = nl.ndarray((lanes, columns), dtype=nl.bfloat16, buffer=nl.sbuf)
    val = nl.ndarray((lanes, k), dtype=nl.bfloat16, buffer=nl.sbuf)
    idx = nl.ndarray((lanes, k), dtype=nl.uint32, buffer=nl.sbuf)
    nisa.dma_copy(src, x)
    nisa.topk(val, idx, src, n)
    nisa.dma_copy(values, val)
    nisa.dma_copy(places, idx)
    return values, places


def snake(rows):
    """Rows of values, each in 16 partitions: value i in partition i % 16, column i // 16."""
    count, n = rows.shape
    columns = -(-n // 16)
    out = np.zeros((count * 16, columns), rows.dtype)
    for g in range(count):
        for i in range(n):
            out[16 * g + i % 16, i // 16] = rows[g, i]
    return out


def unwound(tile, k):
    return np.array(
        [[tile[16 * g + j % 16, j // 16] for j in range(k)] for g in range(len(tile) // 16)]
    )


@pytest.mark.parametrize(
    ("groups", "n", "k"),
    [(1, 8, 1), (1, 8, 8), (3, 42, 8), (8, 100, 17), (2, 16, 16), (1, 999, 32), (8, 48, 33)],
)
def test_largest_values_ascend_and_places_lead_to_them(groups, n, k):
    rng = np.random.default_rng(n + k)
    # Different values: a permutation of n steps that bfloat16 tells apart.
    steps = np.linspace(-1, 1, n) if n <= 100 else np.arange(n) - n / 2
    rows = np.array([rng.permutation(steps) for _ in range(groups)]).astype(ml_dtypes.bfloat16)
    values, places = (unwound(t, k) for t in top(snake(rows), n, k))
    wide = rows.astype(np.float32)
    np.testing.assert_array_equal(values.astype(np.float32), np.sort(wide, axis=1)[:, -k:])
    found = np.take_along_axis(wide, places.astype(np.int64), axis=1)
    np.testing.assert_array_equal(found, values.astype(np.float32))
    assert all(len(set(row)) == k for row in places.tolist())


def test_of_equal_values_the_first_counts_as_the_larger():
    rows = np.array([[5, 7, 7, 1, 7, 5, 0, 2, 5, 3]]).astype(ml_dtypes.bfloat16)
    values, places = (unwound(t, 4) for t in top(snake(rows), 10, 4))
    assert values.astype(int).tolist() == [[5, 7, 7, 7]]
    assert places.tolist() == [[0, 4, 2, 1]]


def test_what_lies_behind_the_last_result_is_undefined():
    values, places = top(np.ones((16, 1), ml_dtypes.bfloat16), 9, 3)
    np.testing.assert_array_equal(np.isnan(values.astype(np.float32)), places == 0xFFFFFFFF)
    assert np.isnan(values.astype(np.float32)).sum() == 16 * 3 - 3


def test_values_beyond_n_are_not_looked_at():
    x = np.zeros((16, 2), ml_dtypes.bfloat16)
    x[9:, 0] = 100
    x[:, 1] = 100
    values, places = top(x, 9, 1)
    assert (values[0, 0], places[0, 0]) == (0, 0)


def test_it_takes_the_published_cycles():
    x = np.ones((128, 64), ml_dtypes.bfloat16)
    short, long = (nkisim.profile(top, x, n, 16).body_us for n in (512, 1024))
    assert long - short > 0.9 * 4 * 512 / 1400  # 4 n cycles, at 1.4 GHz


def test_values_that_nothing_wrote_are_reported_only_where_they_count():
    def kernel(n):
        out = nl.ndarray((16, 8), dtype=nl.uint32, buffer=nl.shared_hbm)
        src = nl.ndarray((16, 2), dtype=nl.bfloat16, buffer=nl.sbuf)
        val = nl.ndarray((16, 8), dtype=nl.bfloat16, buffer=nl.sbuf)
        idx = nl.ndarray((16, 8), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.memset(src[:, 0:1], 0.0)
        nisa.memset(src[0:8, 1:2], 0.0)
        nisa.topk(val, idx, src, n)
        nisa.dma_copy(out, idx)
        return out

    assert nki.simulate(kernel)(24)[0, 0] == 7
    with pytest.raises(nkisim.KernelError, match="that nothing wrote"):
        nki.simulate(kernel)(25)
