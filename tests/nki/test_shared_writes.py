"""Both cores of a logical core write the same elements of shared HBM."""

from __future__ import annotations

import warnings

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim.errors import KernelError, RaceError

X = np.arange(128 * 6, dtype=np.float32).reshape(128, 6) - 300


def _loaded(x):
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=x)
    return tile


def doubled_by_both(x, other=0.0, columns=6):
    """2 * x by each core, with instructions of its own; core 1 adds `other` to it."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = _loaded(x)
    if nl.program_id(0) == 0:
        nisa.tensor_tensor(dst=tile, data1=tile, data2=tile, op=nl.add)
        nisa.dma_copy(dst=out, src=tile)
    else:
        nisa.tensor_scalar(
            dst=tile, data=tile, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=other
        )
        nisa.dma_copy(dst=out[:, 0:columns], src=tile[:, 0:columns])
    return out


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize("columns", [1, 3, 6])
def test_equal_values_are_a_warning(dtype, columns):
    x = X.astype(dtype)
    with pytest.warns(match="unless all write the same value"):
        found = nki.simulate(doubled_by_both)[2](x, 0.0, columns)
    np.testing.assert_array_equal(found, 2 * x)


@pytest.mark.parametrize("columns", [1, 6])
@pytest.mark.filterwarnings("ignore")
def test_other_values_are_an_error(columns):
    with pytest.raises(RaceError, match="and the values differ") as caught:
        nki.simulate(doubled_by_both)[2](X, 1.0, columns)
    assert f"{128 * columns:,} elements" in str(caught.value)
    assert caught.value.location.function == "doubled_by_both"


def differing_in_one(x, y):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=_loaded(x if nl.program_id(0) == 0 else y))
    return out


@pytest.mark.filterwarnings("ignore")
def test_values_of_each_launch_count():
    kernel = nki.simulate(differing_in_one)[2]
    y = X.copy()
    y[127, 5] = np.nan
    both = y.copy()
    np.testing.assert_array_equal(kernel(both, y), y)
    with pytest.raises(RaceError, match="and the values differ"):
        kernel(X, y)
    np.testing.assert_array_equal(kernel(X, X.copy()), X)


def read_back(x, from_other):
    """Both write 2 * x, then each reads its half of it, or the other's without a barrier."""
    rows = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    tile = _loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
    if not (from_other and core == 0):
        nisa.dma_copy(dst=rows, src=tile)
    half = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=half, src=rows[core * 64 : core * 64 + 64, :])
    if from_other and core == 0:
        nisa.dma_copy(dst=rows, src=tile)
    nisa.dma_copy(dst=out[core * 64 : core * 64 + 64, :], src=half)
    return out


@pytest.mark.filterwarnings("ignore")
def test_what_a_core_has_written_itself_it_may_read():
    np.testing.assert_array_equal(nki.simulate(read_back)[2](X, False), 2 * X)


@pytest.mark.filterwarnings("ignore")
def test_what_only_the_other_one_has_written_it_may_not():
    with pytest.raises(KernelError):
        nki.simulate(read_back)[2](X, True)


def test_a_core_that_writes_alone_gets_no_warning():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = _loaded(x)
        core = nl.program_id(0)
        rows = slice(core * 64, core * 64 + 64)
        nisa.dma_copy(dst=out[rows, :], src=tile[rows, :])
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(nki.simulate(kernel)[2](X), X)


def attention_row(cache, weight, row):
    """Each core weighs its half of a cache, and they add up; core 0 puts a row into the other half,
    in place."""
    me, width = nl.program_id(0), cache.shape[1]
    out = nl.ndarray((2, width), dtype=cache.dtype, buffer=nl.shared_hbm)
    rows, weights = _loaded(cache[me * 64 : me * 64 + 64]), _loaded(weight[me * 64 : me * 64 + 64])
    total = nl.ndarray((1, width), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul(dst=total, stationary=weights, moving=rows)
    mine, other = (nl.ndarray((1, width), dtype=nl.float32, buffer=nl.sbuf) for _ in range(2))
    nisa.tensor_copy(dst=mine, src=total)
    nisa.sendrecv(src=mine, dst=other, send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    nisa.tensor_tensor(dst=mine, data1=mine, data2=other, op=nl.add)
    nisa.dma_copy(dst=out[me : me + 1], src=mine)
    if me == 0:
        nisa.dma_copy(dst=cache[100:101], src=_loaded(row))
    return out, cache


@pytest.mark.parametrize("weighs", [0.0, 1.0, np.nan])
def test_what_a_core_reads_while_the_other_writes_it_is_decided_by_results(weighs):
    cache, row = (
        np.arange(128 * 6, dtype=np.float32).reshape(128, 6),
        np.full((1, 6), 7, np.float32),
    )
    weight = np.ones((128, 1), np.float32)
    weight[100] = weighs
    wanted = weight.T @ cache
    kernel = nki.simulate(attention_row)[2]
    both_lines = r"reads 6 elements .*writes at test_shared_writes.py:\d+ in attention_row"
    if weighs == 1:
        with (
            pytest.warns(match=both_lines),
            pytest.raises(RaceError, match="depend on which comes first") as caught,
        ):
            kernel(cache, weight, row)
        assert "nisa.core_barrier" in caught.value.fix
        return
    with pytest.warns(match=both_lines):
        out, after = kernel(cache, weight, row)
    np.testing.assert_array_equal(out, np.repeat(wanted, 2, 0))
    np.testing.assert_array_equal(after[100], row[0])


def table_row(table, row, order, first):
    """Both cores copy a table; core `first` then writes a row of it in place."""
    me = nl.program_id(0)
    out = nl.ndarray((2, *table.shape), dtype=table.dtype, buffer=nl.shared_hbm)
    tile = _loaded(table)
    nisa.dma_copy(dst=out[me], src=tile)
    if order == "core_barrier":
        nisa.core_barrier(table, (0, 1))
    elif order == "sendrecv":
        nisa.sendrecv(tile, _loaded(table), send_to_rank=1 - me, recv_from_rank=1 - me, pipe_id=0)
    if me == first:
        nisa.dma_copy(dst=table[5:6], src=_loaded(row))
    return out, table


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("order", ["core_barrier", "sendrecv", "nothing"])
def test_a_barrier_orders_what_cores_do_to_a_table(order, first):
    """To send a tile orders no more than the data that is sent."""
    kernel, row = nki.simulate(table_row)[2], np.full((1, 6), 7, np.float32)
    if order != "core_barrier":
        with pytest.raises(RaceError, match="depend on which comes first") as caught:
            kernel(X.copy(), row, order, first)
        assert "nisa.core_barrier" in caught.value.fix
        kernel(X.copy(), X[5:6], order, first)  # the row holds this already
        return
    out, after = kernel(X.copy(), row, order, first)
    np.testing.assert_array_equal(out, [X, X])
    np.testing.assert_array_equal(after, np.where(np.arange(128)[:, None] == 5, 7, X))


@pytest.mark.filterwarnings("ignore")
def test_what_a_core_reads_before_the_other_has_written_it_is_undefined():
    """The other order is that of a device that is quick; what is read there is no zero."""

    def kernel(x):
        scratch = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        if nl.program_id(0) == 0:
            nisa.dma_copy(dst=scratch, src=_loaded(x))
        else:
            nisa.dma_copy(dst=out, src=_loaded(scratch))
        return out

    with pytest.raises(KernelError):
        nki.simulate(kernel)[2](np.zeros_like(X))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("scratch", [False, True])
def test_cores_that_do_the_same_lose_an_update(scratch):
    """Each adds 1 to what it reads: x + 1 where both read first, x + 2 one after the other."""

    def kernel(x, step):
        held = x
        if scratch:
            held = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(dst=held, src=_loaded(x))
            nisa.core_barrier(held, (0, 1))
        tile = _loaded(held)
        nisa.tensor_scalar(tile, tile, nl.add, step)
        nisa.dma_copy(dst=held, src=tile)
        return held

    with pytest.raises(RaceError, match="and the values differ"):
        nki.simulate(kernel)[2](X.copy(), 1.0)
    np.testing.assert_array_equal(nki.simulate(kernel)[2](X.copy(), 0.0), X)
