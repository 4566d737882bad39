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


def result_shape(shape, axes, keepdims):
    """Of a reduction: a tile has two axes at least."""
    kept = shape[: axes[0]]
    return (*kept, *[1] * len(axes)) if keepdims else kept if len(kept) > 1 else (*kept, 1)


def masked(name, values, keep, axes):
    """The reference reduction over what `keep` leaves."""
    reduce, neutral = REDUCTIONS[name]
    values = np.where(keep, values, neutral)
    return reduce(values, axis=tuple(axes), keepdims=True)


def near_one(x):
    """Products of many stay in range."""
    return (1 + x.astype(np.float32) / 40).astype(x.dtype)


@pytest.mark.parametrize("name", sorted(REDUCTIONS))
@given(
    data=st.data(),
    shape=shapes,
    count=st.integers(1, 2),
    dtypes=st.tuples(types, types),
    keepdims=st.booleans(),
    negate=st.booleans(),
)
@some
def test_tensor_reduce(name, data, shape, count, dtypes, keepdims, negate):
    source, mask = data.draw(patterns(shape)), data.draw(masks(shape))
    axes = last_axes(shape, count)
    x = near_one(numbers(source.base, dtypes[0]))
    keep = mask.of_array(shape)
    seen = keep.any(axis=tuple(axes), keepdims=True)
    assume(seen.all())  # what nothing counts for is left undefined

    def body(tile, t):
        tile[...] = nisa.tensor_reduce(
            getattr(nl, name),
            source.of_tile(t),
            axes,
            dtype=dtypes[1],
            keepdims=keepdims,
            negate=negate,
            mask=mask.of_kernel(shape),
        )

    wanted = masked(name, source.of_array(x).astype(float), keep, axes)
    wanted = (-wanted if negate else wanted).reshape(result_shape(shape, axes, keepdims))
    close(run(body, np.zeros(wanted.shape, dtypes[1]), x), wanted)


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod", "mean", "var"])
@given(
    data=st.data(),
    shape=shapes,
    count=st.integers(1, 2),
    dtype=types,
    out=st.sampled_from([None, *FLOATS]),
    keepdims=st.booleans(),
)
@some
def test_language_reductions(name, data, shape, count, dtype, out, keepdims):
    source = data.draw(patterns(shape))
    axes = last_axes(shape, count)
    x = near_one(numbers(source.base, dtype))
    options = {"keepdims": keepdims} if name != "var" else {}  # nl.var has no keepdims

    wanted = getattr(np, name)(source.of_array(x).astype(float), axis=tuple(axes))
    wanted = wanted.reshape(result_shape(shape, axes, options.get("keepdims", False)))
    destination = np.zeros(wanted.shape, dtype if out is None else out)

    def body(tile, t):
        result = getattr(nl, name)(source.of_tile(t), axis=axes, dtype=out, **options)
        assert result.dtype == destination.dtype
        tile[...] = result

    close(run(body, destination, x), wanted)


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


STEPS = {"multiply": np.multiply, "add": np.add, "subtract": np.subtract, "maximum": np.maximum}


@pytest.mark.parametrize("second", sorted(STEPS))
@given(
    data=st.data(),
    shape=flat,
    dtypes=st.tuples(types, types),
    first=st.sampled_from(sorted(STEPS)),
    reverse=st.tuples(st.booleans(), st.booleans()),
    vector=st.booleans(),
)
@some
def test_tensor_tensor_scan(second, data, shape, dtypes, first, reverse, vector):
    names = first, second
    left, right = data.draw(patterns(shape)), data.draw(patterns(shape))
    a, b = (numbers(p.base, dtypes[0], i, -0.9, 0.9) for i, p in enumerate((left, right)))
    start = numbers((shape[0], 1), np.float32, 2)

    def body(tile, x, y, v):
        ops = getattr(nl, names[0]), getattr(np, names[1])
        tile[...] = nisa.tensor_tensor_scan(
            left.of_tile(x),
            right.of_tile(y),
            v if vector else 0.5,
            *ops,
            *reverse,
            dtype=dtypes[1],
        )

    def apply(name, back, x, y):
        return STEPS[name](*((y, x) if back else (x, y)))

    state, columns = start[:, 0].astype(float) if vector else np.full(shape[0], 0.5), []
    pairs = zip(left.of_array(a).T.astype(float), right.of_array(b).T.astype(float), strict=True)
    for x, y in pairs:
        state = apply(names[1], reverse[1], apply(names[0], reverse[0], x, state), y)
        columns.append(state)
    wanted = np.stack(columns, 1)
    got = run(body, np.zeros(shape, dtypes[1]), a, b, start)
    size = np.maximum(
        np.abs(wanted).max(axis=1, keepdims=True), 1
    )  # what is subtracted is as large
    close((got / size).astype(dtypes[1]), wanted / size)


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
