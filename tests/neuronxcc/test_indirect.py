"""Gather and scatter by index tiles, against NumPy's fancy indexing."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim import errors


def numbers(*shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@nki.jit
def gather_rows(x, index):
    n, m = index.shape[0], x.shape[1]
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(n)[:, None], nl.arange(m)[None, :]
    tile = nl.load(index[i_p])
    nl.store(out, nl.load(x[tile[i_p, 0], i_f]))
    return out


@nki.jit
def scatter_rows(x, index, rows):
    n, m = x.shape
    out = nl.ndarray((rows, m), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, 0.0)
    tile = nl.load(index[nl.arange(n)[:, None]])
    nl.store(out[tile, nl.arange(m)[None, :]], nl.load(x))
    return out


@given(st.integers(1, 70), st.integers(1, 9), st.integers(1, 40), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=25)
def test_gathered_and_scattered_rows_are_numpys(rows, columns, picks, seed):
    rng = np.random.default_rng(seed)
    x = numbers(rows, columns, seed=seed)
    index = rng.integers(0, rows, picks).astype(np.int32)
    np.testing.assert_array_equal(gather_rows(x, index), x[index])
    places = rng.permutation(rows).astype(np.int32)
    want = np.zeros((rows, columns), np.float32)
    want[places] = x
    np.testing.assert_array_equal(scatter_rows(x, places, rows), want)


@pytest.mark.parametrize("kind", [np.int32, np.uint32, np.int16, np.uint8])
def test_any_integer_type_indexes(kind):
    x, index = numbers(20, 6), np.array([3, 19, 0, 3], kind)
    np.testing.assert_array_equal(gather_rows(x, index), x[index])


@nki.jit
def gather_masked(x, index):
    out = nl.ndarray((8, 6), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(8)[:, None], nl.arange(6)[None, :]
    inside = (i_p < 5) & (i_f < 4)
    tile = nl.load(index[i_p])
    result = nl.full((8, 6), -1.0, dtype=x.dtype)
    result[i_p, i_f] = nl.load(x[tile, i_f], mask=inside)
    nl.store(out, result)
    return out


def test_only_indices_under_the_mask_count():
    x = numbers(10, 6)
    index = np.array([9, 0, 5, 5, 2, 99, -1, 77], np.int32)  # the last three are masked
    want = np.full((8, 6), -1, np.float32)
    want[:5, :4] = x[index[:5], :4]
    np.testing.assert_array_equal(gather_masked(x, index), want)


@nki.jit
def gather_every_third_row(x, index):
    out = nl.ndarray((7, 6), dtype=x.dtype, buffer=nl.shared_hbm)
    i_p, i_f = nl.arange(7)[:, None], nl.arange(6)[None, :]
    tile = nl.load(index[i_p])
    result = nl.full((7, 6), -1.0, dtype=x.dtype)
    on_line = (3 * i_f >= 2 * i_p) & (3 * i_f <= 2 * i_p)
    result[i_p, i_f] = nl.load(x[tile, i_f], mask=on_line)
    nl.store(out, result)
    return out


def test_an_index_counts_only_if_its_row_has_an_element_under_the_mask():
    x, index = numbers(10, 6), np.array([9, 99, -1, 4, 77, 10, 0], np.int32)
    want = np.full((7, 6), -1, np.float32)
    for p, f in ((0, 0), (3, 2), (6, 4)):
        want[p, f] = x[index[p], f]
    np.testing.assert_array_equal(gather_every_third_row(x, index), want)


def test_an_index_out_of_range_is_a_run_time_error_at_the_kernel_line():
    x = numbers(10, 6)
    gather_rows(x, np.zeros(3, np.int32))  # tracing is fine: values are not known then
    for bad in (10, -1):
        with pytest.raises(
            errors.OutOfBoundsError, match=f"index {bad} is out of bounds for axis 0 of 'x'"
        ) as caught:
            gather_rows(x, np.array([0, bad, 1], np.int32))
        assert "nl.load(x[tile[i_p, 0], i_f])" in caught.value.location.text
        assert "0..9" in caught.value.rule


@nki.jit
def dma(x, index, skip):
    n, m = index.shape[0], x.shape[1]
    out = nl.ndarray((n, m), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(index[nl.arange(n)[:, None]])
    result = nisa.memset((n, m), -1, x.dtype)
    mode = nisa.oob_mode.skip if skip else nisa.oob_mode.error
    nisa.dma_copy(dst=result, src=x[tile, nl.arange(m)[None, :]], oob_mode=mode)
    nl.store(out, result)
    return out


def test_dma_copy_skips_or_refuses_what_is_out_of_range():
    x, index = numbers(10, 4), np.array([9, 10, 3, -2], np.int32)
    want = np.full((4, 4), -1, np.float32)
    want[[0, 2]] = x[[9, 3]]
    np.testing.assert_array_equal(dma(x, index, True), want)
    with pytest.raises(IndexError):
        dma(x, index, False)


@nki.jit
def accumulate(x, index, values, atomic):
    n, m = values.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=x)
    tile, value = nl.load(index[nl.arange(n)[:, None]]), nl.load(values)
    target = out[tile, nl.arange(m)[None, :]]
    if atomic:
        nl.atomic_rmw(target, value=value, op=np.add)
    else:
        nisa.dma_copy(dst=target, src=value, dst_rmw_op=nl.add)
    return out


@pytest.mark.parametrize("atomic", [True, False])
def test_repeated_indices_add_up(atomic):
    x, values = numbers(8, 5), numbers(6, 5, seed=1)
    index = np.array([1, 7, 1, 0, 1, 7], np.int32)
    want = x.copy()
    np.add.at(want, index, values)
    np.testing.assert_allclose(accumulate(x, index, values, atomic), want, rtol=1e-6)


def test_rmw_adds_only_and_never_skips():
    @nki.jit
    def kernel(x, op, mode):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)
        nisa.dma_copy(dst=out, src=x, dst_rmw_op=op, oob_mode=mode)
        return out

    x = numbers(4, 4)
    np.testing.assert_array_equal(kernel(x, np.add, nisa.oob_mode.error), x + x)
    with pytest.raises(errors.ParameterError, match="multiply"):
        kernel(x, np.multiply, nisa.oob_mode.error)
    with pytest.raises(errors.ParameterError, match="no skip mode"):
        kernel(x, np.add, nisa.oob_mode.skip)


@nki.jit
def blocks(x, which):
    out = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.shared_hbm)
    number = nl.load(which)
    i_p, i_f = nl.mgrid[0 : x.shape[1], 0 : x.shape[2]]
    nl.store(out, nl.load(x[number[0, 0], i_p, i_f]))
    return out


def test_one_number_picks_a_block():
    x = numbers(5, 6, 7)
    for which in (0, 4):
        np.testing.assert_array_equal(blocks(x, np.array([[which]], np.int32)), x[which])


@nki.jit
def window(x, start):
    out = nl.ndarray((x.shape[0], 4), dtype=x.dtype, buffer=nl.shared_hbm)
    at, tile = nl.load(start), nl.load(x)
    nl.store(out, nisa.tensor_copy_dynamic_src(tile[:, nl.ds(at[0, 0], 4)]))
    return out


def test_a_dynamic_slice_on_chip():
    x = numbers(128, 30)
    for start in (0, 26):
        np.testing.assert_array_equal(
            window(x, np.array([[start]], np.int32)), x[:, start : start + 4]
        )
    with pytest.raises(IndexError):
        window(x, np.array([[27]], np.int32))


@nki.jit
def shift(x, starts):
    out = nl.ndarray((x.shape[0], 12), dtype=x.dtype, buffer=nl.shared_hbm)
    at, tile = nl.load(starts), nl.load(x)
    result = nl.zeros((x.shape[0], 12), dtype=x.dtype)
    i_p, i_f = nl.mgrid[0 : x.shape[0], 0:3]
    for i in nl.static_range(starts.shape[1]):
        part = nl.copy(tile[i_p, 3 * i + i_f])
        nisa.tensor_copy_dynamic_dst(dst=result[i_p, at[0, i] + i_f], src=part)
    nl.store(out, result)
    return out


def test_tensor_copy_dynamic_dst():
    x = numbers(16, 9)
    want = np.zeros((16, 12), np.float32)
    starts = [9, 0, 4]
    for i, s in enumerate(starts):
        want[:, s : s + 3] = x[:, 3 * i : 3 * i + 3]
    np.testing.assert_array_equal(shift(x, np.array([starts], np.int32)), want)


@given(st.integers(1, 20), st.integers(1, 12), st.integers(1, 10), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=15)
def test_gather_flattened_is_take_along_axis(rows, width, picks, seed):
    @nki.jit
    def kernel(x, index):
        out = nl.ndarray(index.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.gather_flattened(nl.load(x), nl.load(index)))
        return out

    x = numbers(rows, width, 2, seed=seed)
    index = np.random.default_rng(seed).integers(0, width * 2, (rows, picks)).astype(np.uint32)
    want = np.take_along_axis(x.reshape(rows, -1), index.astype(np.int64), axis=1)
    np.testing.assert_array_equal(kernel(x, index), want)


@pytest.mark.parametrize(("elements", "valid"), [(1, None), (2, None), (4, 37), (1, 5)])
def test_local_gather(elements, valid):
    @nki.jit
    def kernel(x, index):
        tile = nisa.local_gather(nl.load(x), nl.load(index), elements, valid)
        out = nl.ndarray(tile.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = numbers(48, 40)
    index = np.random.default_rng(0).integers(0, 40 - elements, (48, 3)).astype(np.uint16)
    got = kernel(x, index)
    count = valid or 48
    for p in range(48):
        group = index[16 * (p // 16) : 16 * (p // 16) + 16]
        order = [int(group[i % 16, i // 16]) for i in range(count)]
        want = np.array([x[p, i : i + elements] for i in order])
        np.testing.assert_array_equal(got[p].reshape(count, elements), want)


@pytest.mark.parametrize(
    ("shapes", "kind", "elements", "valid", "error"),
    [
        (((20, 8), (20, 2)), np.uint16, 1, None, errors.ShapeError),
        (((32, 8), (16, 2)), np.uint16, 1, None, errors.ShapeError),
        (((16, 8), (16, 2)), np.int32, 1, None, errors.DTypeError),
        (((16, 8), (16, 2)), np.uint16, 3, None, errors.ParameterError),
        (((16, 8), (16, 2)), np.uint16, 1, 33, errors.ParameterError),
        (((16, 8), (16, 257)), np.uint16, 1, None, errors.ParameterError),
    ],
)
def test_limits_of_local_gather(shapes, kind, elements, valid, error):
    @nki.jit
    def kernel(x, index):
        nisa.local_gather(nl.load(x), nl.load(index), elements, valid)

    with pytest.raises(error):
        kernel(numbers(*shapes[0]), np.zeros(shapes[1], kind))


def kernel_of(body):
    """A kernel that loads x and an index tile and calls body(x in HBM, x tile, index tile)."""

    @nki.jit
    def kernel(x, index):
        body(x, nl.load(x), nl.load(index))

    return kernel


I_P, I_F = nl.arange(8)[:, None], nl.arange(6)[None, :]


@pytest.mark.parametrize(
    ("body", "error", "code"),
    [
        (lambda x, t, i: nl.load(x[I_P, i]), errors.IndexingError, "indices_free_dim"),
        (
            lambda x, t, i: nl.load(x[i[nl.mgrid[0:8, 0:6][0], 0], nl.mgrid[0:8, 0:6][1]]),
            errors.IndexingError,
            "indices_free_dim",
        ),
        (lambda x, t, i: nl.load_transpose2d(x[i, I_F]), errors.IndexingError, "not_supported"),
        (lambda x, t, i: nisa.dma_transpose(x[i, I_F]), errors.IndexingError, "not_supported"),
        (lambda x, t, i: nl.exp(x[i, I_F]), errors.KernelError, None),
        (lambda x, t, i: x[i, I_F] + 1, errors.IndexingError, "not_supported"),
        (lambda x, t, i: t.__setitem__(..., x[i, I_F]), errors.IndexingError, "natively"),
        (lambda x, t, i: t.__setitem__((I_P, i), t), errors.IndexingError, "natively"),
        (lambda x, t, i: nl.load(t[i, I_F]), errors.MemorySpaceError, "memory"),
        (lambda x, t, i: x[t, I_F], errors.DTypeError, None),
        (lambda x, t, i: x[x, I_F], errors.KernelError, None),
        (lambda x, t, i: nisa.tensor_copy_dynamic_src(t), errors.ParameterError, None),
        (
            lambda x, t, i: nisa.tensor_copy_dynamic_src(t[I_P, i + I_F]),
            errors.IndexingError,
            None,
        ),
        (lambda x, t, i: nl.atomic_rmw(x, t, np.add), errors.ParameterError, None),
    ],
)
def test_what_takes_no_index_tiles_says_so(body, error, code):
    x, index = numbers(8, 6), np.zeros((8, 1), np.int32)
    with pytest.raises(error) as caught:
        kernel_of(body)(x, index)
    assert code is None or code in caught.value.code


@pytest.mark.parametrize("shape", [(5, 7), (3, 4, 5), (2, 3, 4, 5)])
@pytest.mark.parametrize("on_chip", [True, False])
def test_dma_transpose(shape, on_chip):
    order = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[len(shape)]

    @nki.jit
    def kernel(x):
        out = nl.ndarray([x.shape[d] for d in order], dtype=np.int32, buffer=nl.shared_hbm)
        nl.store(out, nisa.dma_transpose(nl.load(x) if on_chip else x, axes=order, dtype=np.int32))
        return out

    x = (10 * numbers(*shape)).astype(np.float32)
    np.testing.assert_array_equal(kernel(x), np.rint(x.transpose(order)).astype(np.int32))


def test_load_transpose2d_under_a_mask():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((6, 9), dtype=x.dtype, buffer=nl.shared_hbm)
        result = nl.zeros((6, 9), dtype=x.dtype)
        i, j = nl.mgrid[0:9, 0:6]
        result[...] = nl.load_transpose2d(x, mask=(i < 7) & (j < 2))
        nl.store(out, result)
        return out

    x = numbers(9, 6)
    want = np.zeros((6, 9), np.float32)
    want[:2, :7] = x.T[:2, :7]
    np.testing.assert_array_equal(kernel(x), want)


def test_dma_copy_between_hbm_tensors_and_types():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x)  # more than 128 rows: HBM has no partitions
        return out

    x = numbers(300, 3)
    np.testing.assert_array_equal(kernel(x), x.astype(nl.bfloat16))


def test_hardware_descriptors_need_trn2():
    def body(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(dst=out, src=x, dge_mode=nisa.dge_mode.hwdge)
        return out

    x = numbers(4, 4)
    np.testing.assert_array_equal(nki.jit(body, platform_target="trn2")(x), x)
    with pytest.raises(errors.ParameterError, match="NeuronCore-v2"):
        nki.jit(body)(x)


def test_what_a_scatter_leaves_open_is_poisoned():
    @nki.jit
    def kernel(x, index):
        out = nl.ndarray((6, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.load(index), nl.arange(4)[None, :]], nl.load(x))
        return out

    x = numbers(2, 4)
    got = kernel(x, np.array([[5], [1]], np.int32))
    np.testing.assert_array_equal(got[[5, 1]], x)
    assert np.isnan(got[[0, 2, 3, 4]]).all()


def test_constants():
    @nki.jit
    def kernel(values):
        out = nl.ndarray((3, 4), dtype=np.float32, buffer=nl.shared_hbm)
        nl.store(out, nl.load(nl.shared_constant(np.arange(12.0).reshape(3, 4), np.float32)))
        eye = nl.ndarray((5, 5), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        first = nl.shared_identity_matrix(5, dtype=nl.bfloat16)
        assert nl.shared_identity_matrix(5, dtype=nl.bfloat16).buffer is first.buffer
        nl.store(eye, nl.load(first))
        return out, eye

    got, eye = kernel(numbers(1))
    np.testing.assert_array_equal(got, np.arange(12).reshape(3, 4))
    np.testing.assert_array_equal(eye, np.eye(5))


def scattered_and_read(x, index):
    """Rows of x go to rows of scratch memory that the index names, and all of it to the output."""
    y = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
    scratch = nl.ndarray(x.shape, x.dtype, buffer=nl.private_hbm)
    nl.store(scratch[nl.load(index), nl.arange(x.shape[1])[None, :]], nl.load(x))
    nl.store(y, nl.load(scratch))
    return y


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), min_size=6, max_size=6), min_size=1, max_size=4))
def test_rows_that_a_scatter_leaves_are_not_those_of_another_call(calls):
    kernel = nki.jit(scattered_and_read)
    for n, rows in enumerate(calls):
        index = np.array(rows, np.int32)[:, None]
        x = np.full((6, 3), n + 1, np.float32)
        wanted = np.where(np.isin(np.arange(6), rows)[:, None], n + 1, np.nan)
        np.testing.assert_array_equal(kernel(x, index), np.broadcast_to(wanted, (6, 3)))


TABLE = numbers(128, 16)
CUBE = numbers(128, 4, 16, seed=1)
LINE = numbers(64, seed=2)
# What is read, with the run-time number i, which is 5; and the same of NumPy.
BESIDE_SLICES = {
    "a column": (TABLE, lambda x, i: x[0:128, i], TABLE[:, 5:6]),
    "a column by an element": (TABLE, lambda x, i: x[:, i[0, 0] + 1], TABLE[:, 6:7]),
    "a column of a range": (TABLE, lambda x, i: x[nl.ds(32, 64), i], TABLE[32:96, 5:6]),
    "a row": (TABLE, lambda x, i: x[i, 0:16], TABLE[5][:, None]),
    "an element": (TABLE, lambda x, i: x[i, i], TABLE[5:6, 5:6]),
    "one hop of a ring": (TABLE, lambda x, i: x[0:1, i], TABLE[0:1, 5:6]),
    "numbers beside": (CUBE, lambda x, i: x[0:128, 2, i], CUBE[:, 2, 5:6]),
    "two slices": (CUBE, lambda x, i: x[0:128, 0:4, i], CUBE[:, :, 5]),
    "of one axis": (LINE, lambda x, i: x[i], LINE[5:6, None]),
    "a range of one axis": (LINE, lambda x, i: x[nl.ds(i, 8)], LINE[5:13, None]),
    "a range and a number": (TABLE, lambda x, i: x[nl.ds(i, 8), 3], TABLE[5:13, 3:4]),
    "a number and a range": (TABLE, lambda x, i: x[3, nl.ds(i, 8)], TABLE[3, 5:13, None]),
}


@pytest.mark.filterwarnings("ignore:.*are never read")
@pytest.mark.parametrize("how", BESIDE_SLICES)
def test_a_run_time_number_beside_slices_has_the_axes_of_a_constant(how):
    x, read, want = BESIDE_SLICES[how]

    @nki.jit
    def load(x, at):
        out = nl.ndarray(want.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load(read(x, nl.load(at))))
        return out

    np.testing.assert_array_equal(load(x, np.array([[5]], np.int32)), want)


@pytest.mark.parametrize("value", [lambda t: t[:, 3:4], lambda t: t[:, 3]])
def test_a_column_is_stored_at_a_run_time_number(value):
    @nki.jit
    def store(x, at):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.zeros(x.shape, x.dtype))
        nl.store(out[0:128, nl.load(at)], value(nl.load(x)))
        return out

    want = np.zeros_like(TABLE)
    want[:, 5] = TABLE[:, 3]
    np.testing.assert_array_equal(store(TABLE, np.array([[5]], np.int32)), want)
