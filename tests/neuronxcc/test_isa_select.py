"""Selection, search, shuffling and random numbers against NumPy."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkisim.errors import (
    DTypeError,
    ParameterError,
    ShapeError,
    UninitializedReadError,
)
from nkisim.numerics.ops.search import _with_largest

BF16 = np.dtype(ml_dtypes.bfloat16)
few = settings(max_examples=30, deadline=None)
LOWEST = np.float32(nl.fp32.min)


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(-2, 2, shape).astype(dtype)


def grid(rows, columns):
    return nl.arange(rows)[:, None], nl.arange(columns)[None, :]


@nki.jit
def left_and_right(x, n, m):
    """x from two tiles: of one the columns before n are written, of the other those from m on."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    right = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    left[:, 0:n] = nl.load(x[:, 0:n])
    right[:, m:8] = nl.load(x[:, m:8])
    rows, columns = grid(*x.shape)
    in_left = nl.less(nisa.iota(columns + 0 * rows, dtype=nl.int32), 4)
    nl.store(out, nl.where(in_left, left, right))
    return out


@pytest.mark.parametrize(("n", "m"), [(4, 4), (8, 2)])
def test_a_selected_element_may_be_undefined_in_the_tile_that_is_not_chosen(n, m):
    x = numbers((128, 8))
    np.testing.assert_array_equal(left_and_right(x, n, m), x)


def test_an_element_that_neither_tile_of_a_select_has_is_undefined():
    with pytest.raises(UninitializedReadError, match=r"the first at \[0, 4\]"):
        left_and_right(numbers((128, 8)), 4, 5)


def test_affine_select_from_psum_under_a_mask_into_another_type(compute):
    x = numbers((16, 16))

    def where():
        p, f = grid(16, 16)
        return (p >= 0) & (f < 10)

    def body(t):
        tile = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum)
        tile[...] = nl.copy(t)
        p, f = grid(16, 16)
        return nisa.affine_select(p >= f, tile, -9984.0, dtype=nl.bfloat16, mask=where())

    i, j = np.mgrid[0:16, 0:16]
    wanted = np.where(i >= j, x, -9984.0).astype(BF16)
    got = compute(body, x, mask=where)
    np.testing.assert_array_equal(got, np.where(j < 10, wanted, np.asarray(77, BF16)))


COMPARE = {
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "equal": np.equal,
}


@given(
    shape=st.sampled_from([(5, 12), (3, 4, 6), (1, 1)]),
    names=st.tuples(st.sampled_from(sorted(COMPARE)), st.sampled_from(sorted(COMPARE))),
    start=st.integers(0, 10),
    dtype=st.sampled_from([np.dtype(np.float32), BF16]),
)
@few
def test_range_select(shape, names, start, dtype, compute):
    x = numbers(shape, dtype)
    low = np.random.default_rng(1).integers(0, 12, (shape[0], 1)).astype(np.float32)
    high = low + 6

    def body(t, a, b):
        res = nl.ndarray((shape[0], 1), dtype=nl.float32)
        out = nisa.range_select(
            on_true_tile=t, comp_op0=getattr(np, names[0]), comp_op1=getattr(nl, names[1]),
            bound0=a, bound1=b, range_start=start, dtype=nl.float32,
            reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=res, reduce_op=np.max,
        )  # fmt: skip
        return out, res

    out, res = compute(body, x, low, high, target="trn2")
    index = start + np.arange(x[0].size)
    chosen = COMPARE[names[0]](index, low) & COMPARE[names[1]](index, high)
    wanted = np.where(chosen.reshape(shape), x.astype(np.float32), LOWEST)
    np.testing.assert_array_equal(out, wanted)
    np.testing.assert_array_equal(res[:, 0], wanted.reshape(shape[0], -1).max(1))


@given(
    shape=st.sampled_from([(5, 12), (3, 4, 6)]),
    kind=st.sampled_from([np.int8, np.uint8, np.int16, np.uint16]),
    reverse=st.booleans(),
    vector=st.booleans(),
)
@few
def test_select_reduce(shape, kind, reverse, vector, compute):
    x, other = numbers(shape), numbers((shape[0], 1), seed=1)
    predicate = np.random.default_rng(2).integers(0, 3, shape).astype(kind)

    def body(t, p, v):
        dst = nl.ndarray(shape, dtype=nl.float32)
        res = nl.ndarray((shape[0], 1), dtype=nl.float32)
        nisa.select_reduce(
            dst=dst, predicate=p, on_true=t, on_false=v if vector else -1.5, reverse_pred=reverse,
            reduce_cmd=nisa.reduce_cmd.reset_reduce, reduce_res=res,
        )  # fmt: skip
        return dst, res

    dst, res = compute(body, x, predicate, other)
    chosen = (predicate == 0) if reverse else (predicate != 0)
    lanes = (shape[0],) + (1,) * (len(shape) - 1)
    wanted = np.where(chosen, x, other.reshape(lanes) if vector else np.float32(-1.5))
    np.testing.assert_array_equal(dst, wanted)
    np.testing.assert_array_equal(res[:, 0], wanted.reshape(shape[0], -1).max(1))


def test_the_maximum_goes_on_over_calls(compute):
    x = numbers((4, 12))
    ones = np.ones((4, 12), np.uint8)

    def body(t, p):
        dst = nl.ndarray((4, 12), dtype=nl.float32)
        res = nl.ndarray((4, 1), dtype=nl.float32)
        for i in nl.static_range(3):
            cut = slice(4 * i, 4 * i + 4)
            nisa.select_reduce(
                dst=dst[:, cut], predicate=p[:, cut], on_true=t[:, cut], on_false=0.0,
                reduce_cmd=nisa.reduce_cmd.reduce if i else nisa.reduce_cmd.reset_reduce,
                reduce_res=res if i == 2 else None,
            )  # fmt: skip
        return res

    np.testing.assert_array_equal(compute(body, x, ones)[:, 0], x.max(1))


@given(
    kind=st.sampled_from([np.uint8, np.uint16, np.uint32, np.bool_]),
    reverse=st.booleans(),
    scalar=st.booleans(),
    masked=st.booleans(),
)
@few
def test_tensor_copy_predicated(kind, reverse, scalar, masked, compute):
    x, y = numbers((6, 9)), numbers((6, 9), seed=1)
    predicate = np.random.default_rng(2).integers(0, 2, (6, 9)).astype(kind)

    def body(a, b, p):
        i, j = grid(6, 9)
        nisa.tensor_copy_predicated(
            src=0.25 if scalar else a, dst=b, predicate=p, reverse_pred=reverse,
            mask=j <= i if masked else None,
        )  # fmt: skip
        return b

    chosen = (predicate == 0) if reverse else (predicate != 0)
    if masked:
        i, j = np.mgrid[0:6, 0:9]
        chosen &= j <= i
    wanted = np.where(chosen, np.float32(0.25) if scalar else x, y)
    np.testing.assert_array_equal(compute(body, x, y, predicate), wanted)


@given(shape=st.sampled_from([(3, 8), (5, 40), (2, 3, 4), (1, 2, 2, 2, 2)]), ties=st.booleans())
@few
def test_the_eight_largest(shape, ties, compute):
    x = numbers(shape)
    if ties:
        x = np.round(x)
    rows = x.reshape(shape[0], -1)
    got = compute(lambda t: nisa.max8(src=t), x)
    np.testing.assert_array_equal(got, -np.sort(-rows, axis=1)[:, :8])
    index = compute(lambda t: nisa.nc_find_index8(data=t, vals=nisa.max8(src=t)), x)
    assert index.dtype == np.uint32
    for row, places, values in zip(rows, index, got, strict=True):
        np.testing.assert_array_equal(places, places_of(values, row))


def places_of(values, row, missing=2**32 - 1):
    """Where 8 values stand: one that is given again has its next place (NKI 0.6.0)."""
    found = []
    for n, v in enumerate(values):
        at = np.flatnonzero(row == v)
        before = list(values[:n]).count(v)
        found.append(at[before] if before < len(at) else missing)
    return found


@given(
    row=st.lists(st.integers(0, 5), min_size=8, max_size=30),
    values=st.lists(st.integers(0, 7), min_size=8, max_size=8),
    dtype=st.sampled_from(["uint16", "uint32"]),
)
@few
def test_where_values_stand(row, values, dtype, compute):
    x, wanted = np.array([row], np.float32), np.array([values], np.float32)
    missing = np.iinfo(dtype).max
    got = compute(lambda t, v: nisa.nc_find_index8(data=t, vals=v, dtype=dtype), x, wanted)
    np.testing.assert_array_equal(got[0], places_of(values, x[0], missing))


def test_the_last_value_is_replaced_first(compute):
    """The example of AWS's documentation of NKI 0.6.0."""
    x = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)

    def body(t, v):
        index = nl.ndarray((1, 8), dtype=nl.uint32)
        return nisa.nc_match_replace8(data=t, vals=v, imm=0.0, dst_idx=index), index

    out, index = compute(body, x, vals)
    np.testing.assert_array_equal(out, [[1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0]])
    np.testing.assert_array_equal(index, [[2, 10, 9, 8, 7, 6, 5, 4]])


@given(shape=st.sampled_from([(3, 8), (5, 40), (2, 3, 4)]), ties=st.booleans())
@few
def test_match_replace(shape, ties, compute):
    x = np.round(numbers(shape)) if ties else numbers(shape)

    def body(t):
        index = nl.ndarray((shape[0], 8), dtype=nl.uint32)
        vals = nisa.max8(src=t)
        out = nisa.nc_match_replace8(data=t, vals=vals, imm=float("-inf"), dst_idx=index)
        return out, index, vals

    out, index, vals = compute(body, x)
    rows = x.reshape(shape[0], -1).copy()
    for i in range(shape[0]):
        for j in reversed(range(8)):
            at = np.flatnonzero(rows[i] == vals[i, j])[0]
            assert index[i, j] == at
            rows[i, at] = -np.inf
    np.testing.assert_array_equal(out.reshape(rows.shape), rows)


def test_search_under_masks(compute):
    x = numbers((4, 20)) - 3  # all negative: zeros for what is left out would show

    def body(t):
        _p, f = grid(4, 20)
        return nisa.max8(src=t, mask=f >= 5)

    np.testing.assert_array_equal(compute(body, x), -np.sort(-x[:, 5:], axis=1)[:, :8])
    coupled = compute(lambda t: nisa.max8(src=t, mask=grid(4, 20)[1] >= grid(4, 20)[0] + 5), x)
    wanted = [-np.sort(-row[i + 5 :])[:8] for i, row in enumerate(x)]
    np.testing.assert_array_equal(coupled, wanted)

    def places(t, vals):
        _p, f = grid(4, 20)
        return nisa.nc_find_index8(data=t, vals=vals, mask=f >= 5)

    wanted = np.arange(19, 11, -1)
    got = compute(places, np.repeat(x[:, :10], 2, axis=1), np.repeat(x[:, 9:5:-1], 2, axis=1))
    np.testing.assert_array_equal(got, np.tile(wanted ^ 1, (4, 1)))


@given(
    entries=st.lists(st.integers(0, 31) | st.just(255), min_size=32, max_size=32),
    partitions=st.sampled_from([32, 64, 96, 128]),
)
@few
def test_stream_shuffle(entries, partitions, compute):
    x, y = numbers((partitions, 3)), numbers((partitions, 3), seed=1)

    def body(a, b):
        nisa.nc_stream_shuffle(a, b, entries)
        return b

    wanted = y.copy()
    for start in range(0, partitions, 32):
        for i, source in enumerate(entries):
            if source != 255:
                wanted[start + i] = x[start + source]
    np.testing.assert_array_equal(compute(body, x, y), wanted)


def test_stream_shuffle_under_a_mask(compute):
    x = numbers((32, 6))

    def body(a):
        _p, f = grid(32, 6)
        nisa.nc_stream_shuffle(a, a, list(range(31, -1, -1)), mask=f < 4)
        return a

    wanted = x.copy()
    wanted[:, :4] = x[::-1, :4]
    np.testing.assert_array_equal(compute(body, x), wanted)


@given(runs=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 6)), min_size=1, max_size=8))
@few
def test_sequence_bounds(runs, compute):
    ids = np.concatenate([[value] * length for value, length in runs])
    got = compute(lambda t: nisa.sequence_bounds(segment_ids=t), ids[None].astype(np.int32))
    n = len(ids)
    for i, value in enumerate(ids):
        first = last = i
        while first and ids[first - 1] == value:
            first -= 1
        while last < n and ids[last] == value:
            last += 1
        assert tuple(got[0, :, i]) == ((first, last) if value else (n, -1))


def test_random_numbers(compute):
    def body():
        nl.random_seed(7)
        a = nl.rand((128, 500))
        b = nl.rand((128, 500))
        nl.random_seed(7)
        return a, b, nl.rand((128, 500))

    a, b, again = compute(body)
    assert a.dtype == np.float32
    assert (a >= 0).all()
    assert (a < 1).all()
    assert abs(a.mean() - 0.5) < 0.01
    assert abs(a.std() - 12**-0.5) < 0.01
    assert np.array_equal(a, again)
    assert (a != b).mean() > 0.99
    np.testing.assert_array_equal(compute(body)[0], a)


def test_the_seed_may_be_an_argument():
    @nki.jit
    def kernel(seed):
        out = nl.ndarray((2, 300), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.random_seed(nl.load(seed))
        nl.store(out, nl.rand((2, 300)))
        return out

    one, two = (kernel(np.array([[n]], np.int32)) for n in (1, 2))
    assert (one != two).mean() > 0.99
    np.testing.assert_array_equal(kernel(np.array([[1]], np.int32)), one)


def test_every_instance_draws_its_own():
    @nki.jit
    def kernel():
        out = nl.ndarray((2, 4, 100), dtype=nl.float32, buffer=nl.shared_hbm)
        nl.store(out[nl.program_id(0)], nl.rand((4, 100)))
        return out

    first, second = kernel[2]()
    assert (first != second).mean() > 0.99


RATES = (0.0, 0.2, 0.7, 1.0)


@pytest.mark.parametrize("api", ["isa", "language"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_dropout(api, dtype, compute):
    kind = BF16 if dtype == "bfloat16" else np.dtype(dtype)
    x = (np.abs(numbers((4, 4000))) * 20 + 1).astype(kind)
    rates = np.array(RATES, np.float32)[:, None]
    function = nisa.dropout if api == "isa" else nl.dropout
    if api == "isa":
        got = compute(lambda t, p: function(t, p), x, rates)
    else:  # which takes one rate at a time
        rows = [compute(lambda t, r=r: function(t, r), x[i : i + 1]) for i, r in enumerate(RATES)]
        got = np.concatenate(rows)
    assert got.dtype == kind
    assert ((got == 0) | (got == x)).all()
    np.testing.assert_allclose((got == 0).mean(1), rates[:, 0], atol=0.03)
    np.testing.assert_array_equal(got[0], x[0])
    assert (got[3] == 0).all()
    if api == "language":  # or a column of them, as in AWS's kernels
        column = compute(lambda t, p: function(t, p[:, 0]), x, rates)
        np.testing.assert_allclose((column == 0).mean(1), rates[:, 0], atol=0.03)
    half = compute(lambda t: function(t, 0.5), x)
    np.testing.assert_allclose((half == 0).mean(), 0.5, atol=0.02)


def low(dtype=nl.float32):
    return nl.full((4, 1), 0.0, dtype=dtype)


def within(t, **kwargs):
    arguments = {"on_true_tile": t, "comp_op0": np.greater_equal, "comp_op1": np.less}
    return nisa.range_select(**arguments | {"bound0": low(), "bound1": low()} | kwargs)


def replaced(t, **kwargs):
    return nisa.nc_match_replace8(**{"data": t, "vals": t[:, 0:8], "imm": 0.0} | kwargs)


X = numbers((4, 16))


@pytest.mark.parametrize(
    ("body", "target", "error", "message"),
    [
        (lambda t: replaced(t, dst_idx=t[:, 0:8]), None, ShapeError, "uint16 or uint32"),
        (lambda t: within(t), None, ParameterError, "NeuronCore-v3"),
        (lambda t: within(t, bound0=low(nl.bfloat16)), "trn2", DTypeError, "float32"),
        (lambda t: nl.rand((4, 4), dtype=nl.int32), None, DTypeError, "floating point"),
    ],
)
def test_refused(body, target, error, message, compute):
    with pytest.raises(error, match=message):
        compute(body, X, target=target)


@pytest.mark.parametrize("n", [511, 512, 543, 2808])
@pytest.mark.parametrize("kind", ["distinct", "equal", "rounded", "infinite", "sorted", "nan"])
def test_max8_of_long_rows(n, kind):
    """Groups of columns are left out of long rows; the 8 largest are never among them."""
    x = np.random.default_rng(n).standard_normal((4, n)).astype(np.float32)
    if kind == "equal":
        x[:] = 1
    elif kind == "rounded":
        x = np.round(x)
    elif kind == "infinite":
        x[:, 5:] = -np.inf
    elif kind == "sorted":
        x.sort(axis=1)
    elif kind == "nan":
        x[:, ::100] = np.nan
    found = np.sort(_with_largest(x), axis=1)[:, -8:]
    assert np.array_equal(found, np.sort(x, axis=1)[:, -8:], equal_nan=True)
