"""Reductions, scans and statistics against NumPy in double precision."""

from __future__ import annotations

import re
import warnings

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from nkisim.errors import (
    KernelError,
    MemorySpaceError,
    NkiWarning,
    ParameterError,
    UninitializedReadError,
)

BF16 = np.dtype(ml_dtypes.bfloat16)
FLOATS = [np.dtype(np.float32), np.dtype(np.float16), BF16]
few = settings(max_examples=30, deadline=None)
shapes = hnp.array_shapes(min_dims=2, max_dims=3, min_side=1, max_side=40) | hnp.array_shapes(
    min_dims=4, max_dims=5, min_side=1, max_side=8
)


def numbers(shape, dtype=np.float32, seed=0):
    return np.random.default_rng(seed).uniform(-1.5, 1.5, shape).astype(dtype)


def close(got, wanted, dtype=np.float32):
    tol = {"float32": 2e-5, "float16": 4e-3, "bfloat16": 3e-2}[np.dtype(dtype).name]
    np.testing.assert_allclose(got.astype(float), wanted, rtol=tol, atol=tol)


OPERATORS = {
    "add": (nl.add, np.sum),
    "multiply": (np.multiply, np.prod),
    "max": (np.max, np.max),
    "min": (nl.min, np.min),
    "maximum": (nl.maximum, np.max),
}


def free_axes(shape, count):
    return tuple(range(max(1, len(shape) - count), len(shape)))


def test_bf16_sums_are_made_in_fp32(compute):
    x = np.full((2, 1000), 1.0, BF16)  # a bf16 sum would stop at 256
    np.testing.assert_array_equal(
        compute(lambda t: nl.sum(t, axis=1, dtype=nl.float32), x), [[1000]] * 2
    )


def test_subtraction_goes_from_left_to_right(compute):
    x = numbers((3, 4, 5))
    got = compute(lambda t: nisa.tensor_reduce(np.subtract, t, axis=[1, 2]), x)
    rows = x.astype(float).reshape(3, -1)
    close(got[:, 0], rows[:, 0] - rows[:, 1:].sum(1))
    masked = compute(
        lambda t: nisa.tensor_reduce(
            np.subtract, t, axis=1, mask=nl.arange(20)[None, :] >= nl.arange(3)[:, None]
        ),
        rows.astype(np.float32),
    )
    close(masked[:, 0], [row[i] - row[i + 1 :].sum() for i, row in enumerate(rows)])


@given(
    window=st.tuples(st.integers(1, 18), st.integers(1, 6)),
    counts=st.tuples(st.integers(1, 5), st.integers(1, 5)),
    name=st.sampled_from(sorted(OPERATORS)),
)
@few
def test_pooling_access_patterns(window, counts, name, compute):
    """Five axes made by nl.mgrid from two, the last two reduced: average pooling's pattern."""
    (p, q), (h, w) = window, counts
    x = numbers((6, h * p, w * q))
    op, reference = OPERATORS[name]

    def body(t):
        i0, i1, i2, i3, i4 = nl.mgrid[0:6, 0:h, 0:w, 0:p, 0:q]
        return nisa.tensor_reduce(op, t[i0, p * i1 + i3, q * i2 + i4], axis=[3, 4])

    wanted = reference(x.astype(float).reshape(6, h, p, w, q), axis=(2, 4))
    close(compute(body, x), wanted)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bit_reductions(name, compute):
    x = np.random.default_rng(1).integers(0, 2**16, (5, 3, 6)).astype(np.uint16)
    op = getattr(np, name)
    got = compute(lambda t: nisa.tensor_reduce(op, t, axis=[1, 2]), x)
    np.testing.assert_array_equal(got[:, 0], op.reduce(x.reshape(5, -1), axis=1))


def test_logical_reductions(compute):
    x = (np.random.default_rng(1).uniform(size=(20, 3)) > 0.4).astype(np.float32)
    got = compute(lambda t: nl.all(t, axis=1), x)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got[:, 0], x.all(1))
    any_of = compute(lambda t: nisa.tensor_reduce(nl.logical_or, t, axis=1, dtype=nl.float32), x)
    np.testing.assert_array_equal(any_of[:, 0], x.any(1))


def test_mean_of_integers_is_a_float(compute):
    x = np.arange(12, dtype=np.int32).reshape(3, 4)
    got = compute(lambda t: nl.mean(t, axis=1, keepdims=True), x)
    assert got.dtype == np.float32
    close(got, x.mean(1, keepdims=True))


@given(
    rows=st.integers(1, 12),
    columns=st.integers(1, 12),
    box=st.booleans(),
    name=st.sampled_from(["add", "max", "min", "multiply"]),
    data=st.data(),
)
@few
def test_masks(rows, columns, box, name, data, compute):
    """Only what the mask leaves counts, and results of nothing are not written."""
    x = numbers((rows, columns))
    a, b = data.draw(st.integers(0, rows)), data.draw(st.integers(0, columns))
    i, j = np.mgrid[0:rows, 0:columns]
    inside = (i < a) & (j >= b) if box else j + a >= i + b
    op, reference = OPERATORS[name]

    def mask():
        p, f = nl.arange(rows)[:, None], nl.arange(columns)[None, :]
        return (p < a) & (f >= b) if box else f + a >= p + b

    seen = inside.any(axis=1)

    def where():
        # The rows with anything in them are a range, from the top or from the bottom.
        p = nl.arange(rows)[:, None]
        full = np.flatnonzero(seen)
        return (p >= int(full[0])) & (p <= int(full[-1])) if full.size else False

    got = compute(lambda t: nisa.tensor_reduce(op, t, axis=1, mask=mask()), x, mask=where)
    wanted = [
        reference(r[m]) if m.any() else 77 for r, m in zip(x.astype(float), inside, strict=True)
    ]
    close(got[:, 0], wanted)


def test_undefined_rows_stay_rows(compute):
    x = numbers((8, 6))

    def body(t, stored):
        part = nl.ndarray((8, 6), dtype=nl.float32)
        part[0:5, :] = nl.copy(t[0:5, :])
        return nl.sum(part, axis=1)[0:stored, :]

    close(compute(lambda t: body(t, 5), x)[:, 0], x[:5].astype(float).sum(1))
    with pytest.raises(UninitializedReadError):
        compute(lambda t: body(t, 6), x)


def test_partition_reduce_of_bits(compute):
    x = np.random.default_rng(1).integers(0, 256, (9, 5)).astype(np.uint8)
    got = compute(lambda t: nisa.tensor_partition_reduce(np.bitwise_or, t), x)
    np.testing.assert_array_equal(got[0], np.bitwise_or.reduce(x, axis=0))


def test_scan_in_place(compute):
    a, b = numbers((4, 10)), numbers((4, 10), seed=1)

    def body(x, y):
        x[...] = nisa.tensor_tensor_scan(x, y, 0.0, nl.multiply, nl.add)
        return x

    state, wanted = np.zeros(4), np.empty((4, 10))
    for i in range(10):
        state = wanted[:, i] = a[:, i] * state + b[:, i]
    close(compute(body, a, b), wanted)


@given(rows=st.integers(1, 9), columns=st.integers(1, 512), dtype=st.sampled_from(FLOATS))
@few
def test_bn_stats(rows, columns, dtype, compute):
    x = numbers((rows, columns), dtype)
    stats = compute(lambda t: nisa.bn_stats(t, dtype=nl.float32), x)
    for at, part in ((0, x[:, 0::2]), (3, x[:, 1::2])):
        n = part.shape[1]
        assert (stats[:, at] == n).all()
        if n:
            close(stats[:, at + 1], part.astype(float).mean(1))
            close(stats[:, at + 2], part.astype(float).var(1) * n)
    moments = compute(lambda t: nisa.bn_aggr(nisa.bn_stats(t, dtype=nl.float32)), x)
    close(moments[:, 0], x.astype(float).mean(1))
    close(moments[:, 1], x.astype(float).var(1))


def test_bn_aggr_merges_tiles_far_from_zero(compute):
    x = numbers((4, 1300)) * 0.01 + 100  # sum of squares minus square of sum would lose everything

    def body(t):
        stats = nl.ndarray((4, 3, 6), dtype=nl.float32)
        for i, (low, high) in enumerate(((0, 512), (512, 1024), (1024, 1300))):
            stats[:, i, :] = nisa.bn_stats(t[:, low:high])
        return nisa.bn_aggr(stats)

    got = compute(body, x)
    np.testing.assert_allclose(got[:, 0], x.astype(float).mean(1), rtol=1e-6)
    np.testing.assert_allclose(got[:, 1], x.astype(float).var(1), rtol=1e-3)


@given(shape=shapes, count=st.integers(1, 4), dtype=st.sampled_from(FLOATS))
@few
def test_softmax(shape, count, dtype, compute):
    x = numbers(shape, dtype) * 8
    axes = free_axes(shape, count)
    got = compute(lambda t: nl.softmax(t, axis=axes), x)
    power = np.exp(x.astype(float) - x.astype(float).max(axis=axes, keepdims=True))
    assert got.dtype == dtype
    close(got, power / power.sum(axis=axes, keepdims=True), dtype)


@given(rows=st.integers(1, 9), columns=st.integers(1, 40), dtype=st.sampled_from(FLOATS))
@few
def test_rms_norm(rows, columns, dtype, compute):
    x, w = numbers((rows, columns), dtype), numbers((1, columns), dtype, seed=1)
    got = compute(lambda t, g: nl.rms_norm(t, g, axis=1, n=columns, epsilon=1e-5), x, w)
    y = x.astype(float)
    wanted = y / np.sqrt((y * y).mean(1, keepdims=True) + 1e-5) * w.astype(float)
    assert got.dtype == dtype
    close(got, wanted, dtype)


def test_masked_composites(compute):
    x = numbers((9, 12))

    def mask():
        return (nl.arange(9)[:, None] < 6) & (nl.arange(12)[None, :] < 10)

    y = x[:6, :10].astype(float)
    power = np.exp(y - y.max(1, keepdims=True))
    soft = compute(lambda t: nl.softmax(t, axis=1, mask=mask()), x, mask=mask)
    close(soft[:6, :10], power / power.sum(1, keepdims=True))

    def rows():
        return nl.arange(9)[:, None] < 6

    for name in ("mean", "var"):
        got = compute(lambda t, n=name: getattr(nl, n)(t, axis=1, mask=mask()), x, mask=rows)
        close(got[:6, 0], getattr(np, name)(y, axis=1))
        assert (got[6:] == 77).all()


def psum(t):
    tile = nl.ndarray(t.shape, dtype=t.dtype, buffer=nl.psum)
    tile[...] = nl.copy(t)
    return tile


def scan(t, u=None, **kwargs):
    arguments = {"initial": 0.0, "op0": nl.add, "op1": nl.add} | kwargs
    return nisa.tensor_tensor_scan(t, t if u is None else u, **arguments)


X = numbers((4, 6, 5))
# fmt: off
REFUSED = {
    "partition axis, too": (lambda t: nisa.tensor_reduce(nl.add, t, axis=[0, 1]), ParameterError,
        r"last free axes.*\[1, 2\]"),
    "no axis": (lambda t: nl.max(t, axis=None), ParameterError, "axis=None"),
    "partitions by product": (lambda t: nisa.tensor_partition_reduce(nl.multiply, t),
        ParameterError, "operator multiply"),
    "partitions of psum": (lambda t: nisa.tensor_partition_reduce(nl.add, psum(t)),
        MemorySpaceError, "GpSimd"),
    "scan of bits": (lambda t: scan(t, op0=nl.bitwise_or), ParameterError, "operator bitwise_or"),
    "all elements undefined": (lambda t: nl.sum(nl.ndarray((4, 6), dtype=nl.float32), axis=1),
        KernelError, "nothing wrote"),
}
# fmt: on


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_refused(case, compute):
    body, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        compute(body, X)


@pytest.mark.parametrize(
    ("size", "window", "padding", "stride"),
    [((7, 9), 3, 1, 1), ((8, 6), 4, 1, 2), ((5, 5), 5, 2, 1), ((6, 7), 2, 0, 2)],
)
def test_a_pooling_window_over_the_edge_counts_what_the_mask_leaves(
    size, window, padding, stride, compute
):
    x = numbers((3, *size)) - 5  # all negative: padding read as 0 would show
    h, w = ((n + 2 * padding - window) // stride + 1 for n in size)

    def body(t):
        p = nl.arange(3)[:, None, None, None, None]
        i = stride * nl.arange(h)[None, :, None, None, None] - padding
        j = stride * nl.arange(w)[None, None, :, None, None] - padding
        i = i + nl.arange(window)[None, None, None, :, None]
        j = j + nl.arange(window)[None, None, None, None, :]
        inside = (i >= 0) & (i < size[0]) & (j >= 0) & (j < size[1])
        return nl.max(t[p, i, j], axis=[3, 4], mask=inside)

    edge = np.full((3, *(n + 2 * padding for n in size)), -np.inf, np.float32)
    edge[:, padding : padding + size[0], padding : padding + size[1]] = x
    windows = np.lib.stride_tricks.sliding_window_view(edge, (window, window), axis=(1, 2))
    wanted = windows[:, ::stride, ::stride].max(axis=(3, 4))
    np.testing.assert_array_equal(compute(body, x), wanted)


@pytest.mark.parametrize("axes", [(1, 3), (1, 2), (1,)])
def test_free_axes_that_are_not_the_last_under_a_mask(axes, compute):
    x = numbers((5, 4, 6, 3))

    def body(t):
        return nl.sum(t, axis=list(axes), mask=nl.arange(4)[None, :, None, None] < 3)

    with pytest.warns(NkiWarning, match="the last free axes only"):
        close(compute(body, x), x[:, :3].astype(float).sum(axis=axes))


@pytest.mark.parametrize("axes", [(1,), (-2,), (1, 3), (2, 1), (3, -2), (-1, 2, 1)])
@pytest.mark.parametrize("name", ["max", "mean", "min", "prod", "sum", "var"])
def test_how_to_reduce_free_axes_that_are_not_the_last_is_said(name, axes, compute):
    """The message has an index to copy; what comes of that is what NumPy gives."""
    x = numbers((5, 4, 6, 3))
    function, wanted = getattr(nl, name), getattr(np, name)(x.astype(float), axis=axes)
    warns, last = name not in ("mean", "var"), set(axes) in ({3, -2}, {-1, 2, 1})

    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        if warns or last:
            got = compute(lambda t: function(t, axis=list(axes)), x)
            close(got, wanted.reshape(got.shape))
        else:
            with pytest.raises(ParameterError, match="the last free axes, in a row") as caught:
                compute(lambda t: function(t, axis=list(axes)), x)
    if last:
        assert not found
        return
    message = str(found[0].message if warns else caught.value)
    assert f"nl.{name}: axis={list(axes)} of" in message
    grid, axis, index = re.search(
        r"i0, i1, i2, i3 = nl.mgrid(\[.*\]), then axis=(\[.*\]) of t(\[.*\])$", message
    ).groups()

    def body(t):
        i = eval("nl.mgrid" + grid, {"nl": nl})
        permuted = eval("t" + index, {"t": t} | {f"i{d}": part for d, part in enumerate(i)})
        return function(permuted, axis=eval(axis))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        close(compute(body, x), wanted)


@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_negatives_in_a_column_of_a_wider_tile(width, dtype):
    """NumPy's own in-place negative is wrong for some strides (2.4.6: 16 bytes, on x86)."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray((x.shape[0], 2 * width), np.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        found = nl.zeros((x.shape[0], width), np.float32)
        turned = nl.zeros((x.shape[0], width), np.float32)
        for i in range(width):
            found[:, i : i + 1] = nisa.tensor_reduce(
                nl.max, tile, axis=(1,), negate=True, keepdims=True
            )
            turned[:, i : i + 1] = nl.negative(found[:, i : i + 1])
        nl.store(out[:, 0:width], found)
        nl.store(out[:, width : 2 * width], turned)
        return out

    x = np.random.default_rng(0).integers(-50, 50, (100, 20)).astype(dtype)
    largest = x.max(axis=1, keepdims=True)
    np.testing.assert_array_equal(kernel(x)[:, :width], np.repeat(-largest, width, axis=1))
    np.testing.assert_array_equal(kernel(x)[:, width:], np.repeat(largest, width, axis=1))
