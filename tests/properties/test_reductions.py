"""Every instruction that reduces or scans, through drawn access patterns and masks, against NumPy
in double precision. Masked elements do not count, and nothing else is written."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from drawn_operands import FLOATS, close, masks, numbers, patterns, run, shapes, some
from hypothesis import assume, given
from hypothesis import strategies as st

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")
REDUCTIONS = {
    "add": (np.add.reduce, 0.0),
    "multiply": (np.multiply.reduce, 1.0),
    "maximum": (np.maximum.reduce, -np.inf),
    "minimum": (np.minimum.reduce, np.inf),
}
types = st.sampled_from(FLOATS)
flat = shapes.filter(lambda shape: len(shape) == 2)


def last_axes(shape, count):
    """The last `count` axes, as many as there are free ones."""
    return list(range(len(shape)))[max(1, len(shape) - count) :]


def masked(name, values, keep, axes):
    """The reference reduction over what `keep` leaves."""
    reduce, neutral = REDUCTIONS[name]
    values = np.where(keep, values, neutral)
    return reduce(values, axis=tuple(axes), keepdims=True)


def near_one(x):
    """Products of many stay in range."""
    return (1 + x.astype(np.float32) / 40).astype(x.dtype)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@given(data=st.data(), shape=shapes, count=st.integers(1, 2), dtype=types)
@some
def test_tensor_reduce(name, data, shape, count, dtype):
    source, mask = data.draw(patterns(shape)), data.draw(masks(shape))
    axes = last_axes(shape, count)
    x = near_one(numbers(source.base, dtype))
    keep = mask.of_array(shape)
    seen = keep.any(axis=tuple(axes), keepdims=True)
    assume(seen.all())  # what nothing counts for is left undefined

    def body(tile, t):
        tile[...] = nisa.tensor_reduce(
            getattr(nl, name),
            source.of_tile(t),
            axes,
            dtype=nl.float32,
            keepdims=True,
            mask=mask.of_kernel(shape),
        )

    wanted = masked(name, source.of_array(x).astype(float), keep, axes)
    close(run(body, np.zeros(wanted.shape, np.float32), x), wanted)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean", "var"])
@given(data=st.data(), shape=shapes, count=st.integers(1, 2), dtype=types, keepdims=st.booleans())
@some
def test_language_reductions(name, data, shape, count, dtype, keepdims):
    source = data.draw(patterns(shape))
    axes = last_axes(shape, count)
    x = near_one(numbers(source.base, dtype))
    options = {"keepdims": keepdims} if name != "var" else {}  # nl.var has no keepdims

    wanted = getattr(np, name)(
        source.of_array(x).astype(float), axis=tuple(axes), keepdims=options.get("keepdims", False)
    )
    if wanted.ndim == 1:
        wanted = wanted[:, None]  # a tile has two axes at least

    def body(tile, t):
        tile[...] = getattr(nl, name)(source.of_tile(t), axis=axes, dtype=nl.float32, **options)

    close(run(body, np.zeros(wanted.shape, np.float32), x), wanted)


@pytest.mark.parametrize("name", ["add", "maximum"])
@given(data=st.data(), shape=shapes, dtype=types)
@some
def test_tensor_partition_reduce(name, data, shape, dtype):
    source = data.draw(patterns(shape))
    x = numbers(source.base, dtype)
    op = getattr(np, name)

    def body(tile, t):
        tile[...] = nisa.tensor_partition_reduce(op, source.of_tile(t), dtype=nl.float32)

    wanted = op.reduce(source.of_array(x).astype(float), axis=0, keepdims=True)
    close(run(body, np.zeros(wanted.shape, np.float32), x), wanted)


@given(data=st.data(), shape=flat, dtype=types, scale=st.sampled_from([1.0, -0.5]))
@some
def test_activation_reduce(data, shape, dtype, scale):
    source, mask = data.draw(patterns(shape)), data.draw(masks(shape))
    keep = mask.of_array(shape)
    assume(keep.any(axis=1).all())
    x = numbers(source.base, dtype)

    def body(tile, t):
        sums = nl.ndarray((shape[0], 1), dtype=nl.float32)
        nisa.activation_reduce(
            nl.square,
            source.of_tile(t),
            reduce_op=nl.add,
            reduce_res=sums,
            scale=scale,
            dtype=nl.float32,
            mask=mask.of_kernel(shape),
        )
        tile[...] = nl.copy(sums)

    squares = np.square(scale * source.of_array(x).astype(float))
    wanted = np.where(keep, squares, 0).sum(axis=1, keepdims=True)
    close(run(body, np.zeros((shape[0], 1), np.float32), x), wanted)


@pytest.mark.parametrize("reduction", ["add", "maximum", "minimum"])
@given(data=st.data(), shape=flat, dtype=types, op=st.sampled_from(["add", "multiply", "maximum"]))
@some
def test_tensor_scalar_reduce(reduction, data, shape, dtype, op):
    source, mask = data.draw(patterns(shape)), data.draw(masks(shape))
    keep = mask.of_array(shape)
    assume(keep.any(axis=1).all())
    x, column = numbers(source.base, dtype), numbers((shape[0], 1), np.float32, 5)

    def body(tile, t, v):
        result = nl.ndarray((shape[0], 1), dtype=nl.float32)
        nisa.tensor_scalar_reduce(
            data=source.of_tile(t),
            op0=getattr(nl, op),
            operand0=v,
            reduce_op=getattr(nl, reduction),
            reduce_res=result,
            dtype=nl.float32,
            mask=mask.of_kernel(shape),
        )
        tile[...] = nl.copy(result)

    values = getattr(np, op)(source.of_array(x).astype(float), column.astype(float))
    wanted = masked(reduction, values, keep, [1])
    close(run(body, np.zeros((shape[0], 1), np.float32), x, column), wanted)


@given(data=st.data(), shape=flat, dtype=types)
@some
def test_tensor_tensor_scan(data, shape, dtype):
    left, right = data.draw(patterns(shape)), data.draw(patterns(shape))
    a, b = numbers(left.base, dtype, 0, -0.9, 0.9), numbers(right.base, dtype, 1)

    def body(tile, x, y):
        tile[...] = nisa.tensor_tensor_scan(
            left.of_tile(x), right.of_tile(y), 0.5, np.multiply, np.add, dtype=nl.float32
        )

    state, columns = np.full(shape[0], 0.5), []
    pairs = zip(left.of_array(a).T.astype(float), right.of_array(b).T.astype(float), strict=True)
    for x, y in pairs:
        state = state * x + y
        columns.append(state)
    close(run(body, np.zeros(shape, np.float32), a, b), np.stack(columns, 1))


@given(data=st.data(), shape=flat, dtype=types)
@some
def test_bn_stats_and_bn_aggr(data, shape, dtype):
    source = data.draw(patterns(shape))
    x = numbers(source.base, dtype)

    def body(tile, t):
        tile[...] = nisa.bn_aggr(nisa.bn_stats(source.of_tile(t), dtype=nl.float32))

    values = source.of_array(x).astype(float)
    wanted = np.stack([values.mean(1), values.var(1)], 1)
    close(run(body, np.zeros((shape[0], 2), np.float32), x), wanted)


@given(data=st.data(), shape=flat.filter(lambda shape: shape[1] >= 8))
@some
def test_max8_and_its_indices(data, shape):
    source = data.draw(patterns(shape))
    x = numbers(source.base, np.dtype(np.float32))

    def body(tile, t):
        values = nl.ndarray(shape, dtype=nl.float32)
        values[...] = nl.copy(source.of_tile(t))
        best = nisa.max8(src=values)
        tile[:, 0:8] = nl.copy(best)
        at = nisa.nc_find_index8(data=values, vals=best)
        tile[:, 8:16] = nl.copy(at, dtype=nl.float32)

    values = source.of_array(x)
    order = np.argsort(-values, axis=1, kind="stable")[:, :8]
    wanted = np.concatenate([np.take_along_axis(values, order, 1), order], 1)
    close(run(body, np.zeros((shape[0], 16), np.float32), x), wanted)
