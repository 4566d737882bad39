"""Gathers and scatters agree with NumPy wherever the walk from an index stays in its tensor, and
are refused where it leaves."""

from functools import partial

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import OutOfBoundsError


@pytest.fixture(autouse=True)
def seeded():
    """A test draws the same numbers, whichever ran before."""
    global RNG
    RNG = np.random.default_rng(69)


def out_like(x):
    """An output that begins as a copy of x."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, x)
    return out


@nki.jit
def gather(x, index, free, offset, mode=nisa.oob_mode.error):
    """For each index, the walk `free` from that row on; 0 for what is skipped."""
    rows = index.shape[0]
    shape = (rows, *[n for _, n in free])
    out = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.zeros(shape, dtype=x.dtype, buffer=nl.sbuf)
    moved = x.ap([[1, rows], *free], offset=offset, vector_offset=nl.load(index))
    nisa.dma_copy(t, moved, oob_mode=mode)  # here
    nisa.dma_copy(out, t)
    return out


@nki.jit
def scatter(x, index, values, free, offset, add=False, mode=nisa.oob_mode.error):
    """x, with `values` put at, or added to, the walks of `gather`."""
    out = out_like(x)
    moved = out.ap([[1, index.shape[0]], *free], offset=offset, vector_offset=nl.load(index))
    if add:
        nisa.dma_compute(moved, [moved, nl.load(values)], nl.add, oob_mode=mode)  # here
    else:
        nisa.dma_copy(moved, nl.load(values), oob_mode=mode)  # here
    return out


def addresses(x, index, free, offset):
    """The elements of the flat x that each index picks."""
    at = offset + index.astype(np.int64).reshape(-1) * (x.size // x.shape[0])
    for step, count in free:
        at = at[..., None] + step * np.arange(count)
    return at


def column(*values):
    return np.array(values, np.int32)[:, None]


# The shape of the tensor, the walk, its offset, and the last index from where it stays inside.
WALKS = {
    "a row": ((9, 5), ((1, 5),), 0, 8),
    "a part of a row": ((9, 5), ((1, 2),), 3, 8),
    "a window": ((64,), ((1, 4),), 0, 60),
    "two rows": ((16, 4), ((1, 8),), 0, 14),
    "a row and a half": ((7, 4), ((1, 6),), 0, 5),
    "a row from its middle on": ((7, 4), ((1, 4),), 2, 5),
    "two rows, three apart": ((11, 6), ((18, 2), (1, 6)), 0, 7),
    "a window of every third": ((50,), ((3, 5),), 1, 36),
    "a window, backwards": ((20,), ((-1, 4),), 3, 16),
    "columns of a cache": ((3 * 13, 1), ((13, 3),), 0, 12),
    "columns of heads": ((2 * 3 * 8, 1), ((24, 2), (8, 3)), 0, 7),
    "all of it": ((6, 3), ((1, 18),), 0, 0),
}
each_walk = pytest.mark.parametrize(("shape", "free", "offset", "last"), WALKS.values(), ids=WALKS)


@each_walk
def test_a_gather_of_walks(shape, free, offset, last):
    x = RNG.standard_normal(shape).astype(np.float32)
    index = column(last, 0, last // 2, last)
    want = x.reshape(-1)[addresses(x, index, free, offset)]
    np.testing.assert_array_equal(gather(x, index, free, offset), want)


@each_walk
def test_a_scatter_of_walks(shape, free, offset, last):
    x = RNG.standard_normal(shape).astype(np.float32)
    index = column(last)
    at = addresses(x, index, free, offset)
    values = RNG.standard_normal(at.shape).astype(np.float32)
    want = x.copy()
    want.reshape(-1)[at] = values
    np.testing.assert_array_equal(scatter(x, index, values, free, offset), want)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
@each_walk
def test_a_sum_of_walks_that_overlap(shape, free, offset, last, dtype):
    x = RNG.integers(-40, 40, shape).astype(dtype)
    index = column(*{0, last // 2, max(last - 1, 0), last})
    at = addresses(x, index, free, offset)
    values = RNG.integers(-9, 9, at.shape).astype(dtype)
    want = x.copy()
    np.add.at(want.reshape(-1), at, values)
    np.testing.assert_array_equal(scatter(x, index, values, free, offset, add=True), want)


def test_a_sum_by_dma_leaves_integers_that_fp32_does_not_have():
    x = np.array([[2**24 + 1], [5]], np.int32)
    got = scatter(x, column(1), np.array([[2]], np.int32), ((1, 1),), 0, add=True)
    np.testing.assert_array_equal(got, [[2**24 + 1], [7]])


@each_walk
@pytest.mark.parametrize("kind", ["gather", "scatter", "add"])
def test_a_walk_that_leaves_the_tensor(kind, shape, free, offset, last):
    x = RNG.standard_normal(shape).astype(np.float32)
    values = np.ones((2, *[n for _, n in free]), np.float32)
    for bad in (last + 1, -1, 10**6):
        index = column(0, bad)
        if kind == "gather":
            call = partial(gather, x, index, free, offset)
        else:
            call = partial(scatter, x, index, values, free, offset, kind == "add")
        with pytest.raises(OutOfBoundsError, match=f"index {bad} is out of bounds") as caught:
            call()
        error = caught.value
        assert f"0..{last}," in error.rule
        assert "oob_mode.skip" in error.fix
        assert error.location.filename == __file__
        assert error.location.text.endswith("# here")
        # The other index is moved, and this one is not.
        at = addresses(x, column(0), free, offset)
        if kind == "gather":
            want = np.concatenate([x.reshape(-1)[at], 0 * at])
        else:
            want = x.copy()
            want.reshape(-1)[at] = 1 + want.reshape(-1)[at] * (kind == "add")
        np.testing.assert_array_equal(call(mode=nisa.oob_mode.skip), want)


def test_a_walk_that_no_index_brings_inside_is_refused_while_tracing():
    x, index = np.zeros((4, 4), np.float32), np.zeros((2, 1), np.int32)
    with pytest.raises(OutOfBoundsError, match="reached at 16, but its size is 16"):
        gather(x, index, ((1, 17),), 0)


def test_row_numbers_count_from_the_view_that_they_select_of():
    x = RNG.standard_normal((9, 5)).astype(np.float32)

    @nki.jit
    def kernel(x, index):
        return out_like(nl.load(x.slice(0, 4, 9).vector_select(0, nl.load(index))))

    index = column(4, 0, 3)
    np.testing.assert_array_equal(kernel(x, index), x[4 + index[:, 0]])
    with pytest.raises(OutOfBoundsError, match="index 5 is"):
        kernel(x, column(0, 5))


@each_walk
def test_a_scalar_moves_a_walk(shape, free, offset, last):
    x = RNG.standard_normal(shape).astype(np.float32)

    @nki.jit
    def kernel(x, at, mode=nisa.oob_mode.error):
        out = nl.zeros((1, *[n for _, n in free]), dtype=x.dtype, buffer=nl.sbuf)
        moved = x.ap([[1, 1], *free], offset=offset, scalar_offset=nl.load(at))
        nisa.dma_copy(out, moved, oob_mode=mode)  # here
        return out_like(out)

    for good in (0, last):
        want = x.reshape(-1)[addresses(x, column(good), free, offset)]
        np.testing.assert_array_equal(kernel(x, column(good)), want)
    for bad in (last + 1, -1):
        with pytest.raises(OutOfBoundsError, match=f"dynamic offset of {bad} on axis 0") as caught:
            kernel(x, column(bad))
        assert caught.value.location.text.endswith("# here")
        assert not kernel(x, column(bad), nisa.oob_mode.skip).any()


@pytest.mark.parametrize("on_chip", [False, True])
def test_a_window_that_leaves_its_axis(on_chip):
    """The elements behind an axis are those of the next row, and not the window's."""
    x = RNG.standard_normal((3, 8)).astype(np.float32)

    @nki.jit
    def kernel(x, at):
        source = nl.load(x) if on_chip else x
        out = nl.ndarray((3, 3), dtype=x.dtype, buffer=nl.sbuf)
        window = source[:, nl.ds(nl.load(at), 3)]
        if on_chip:
            nisa.tensor_copy(out, window)
        else:
            nisa.dma_copy(out, window)
        return out_like(out)

    np.testing.assert_array_equal(kernel(x, column(5)), x[:, 5:])
    for bad in (6, -1):
        with pytest.raises(OutOfBoundsError, match=f"offset of {bad} on axis 1") as caught:
            kernel(x, column(bad))
        assert "8 elements, and the view takes 3" in caught.value.rule


@pytest.mark.parametrize("kind", ["compute", "transpose"])
def test_what_a_scalar_moves_out_of_a_tensor_is_skipped_by_each_dma(kind):
    x = RNG.standard_normal((6, 4)).astype(np.float32)

    @nki.jit
    def kernel(x, at, mode):
        out = nl.zeros((4, 2) if kind == "transpose" else (2, 4), dtype=x.dtype, buffer=nl.sbuf)
        rows = x.ap([[4, 2], [1, 4]], scalar_offset=nl.load(at))
        if kind == "transpose":
            nisa.dma_transpose(out, rows, oob_mode=mode)
        else:
            nisa.dma_compute(out, [rows, rows], nl.add, oob_mode=mode)
        return out_like(out)

    want = x[4:].T if kind == "transpose" else 2 * x[4:]
    np.testing.assert_array_equal(kernel(x, column(4), nisa.oob_mode.skip), want)
    assert not kernel(x, column(5), nisa.oob_mode.skip).any()
    with pytest.raises(OutOfBoundsError, match="dynamic offset of 5"):
        kernel(x, column(5), nisa.oob_mode.error)
