"""One value a partition, `t[:, j]`, of tiles however they were made, wherever an operand may be
one: what comes out is what the column written as an array (partitions, 1) gives in NumPy."""

from __future__ import annotations

import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from neuronxcc import nki

from nkisim.errors import KernelError

pytestmark = pytest.mark.filterwarnings("ignore::nkisim.errors.NkiWarning")


def _loaded(x):
    return nl.load(x)


def _of_a_row(x):
    return nl.load(x[0:1, :]).broadcast_to(x.shape)


def _of_a_copied_row(x):
    return nl.broadcast_to(nl.load(x[0:1, :]), shape=x.shape)


def _of_a_column(x):
    return nl.load(x[:, 0:1]).broadcast_to(x.shape)


def _of_an_element(x):
    return nl.load(x[0:1, 0:1]).broadcast_to(x.shape)


# How a tile is made of an array, and the same in NumPy.
MADE = {
    "loaded": (_loaded, lambda x: x),
    "computed": (lambda x: nl.multiply(nl.load(x), 2.0), lambda x: x * 2),
    "a row, broadcast": (_of_a_row, lambda x: np.broadcast_to(x[:1], x.shape)),
    "a row, copied": (_of_a_copied_row, lambda x: np.broadcast_to(x[:1], x.shape)),
    "a column, broadcast": (_of_a_column, lambda x: np.broadcast_to(x[:, :1], x.shape)),
    "an element, broadcast": (_of_an_element, lambda x: np.broadcast_to(x[:1, :1], x.shape)),
}

# How the column is taken, given j.
TAKEN = {
    "integer": lambda t, j: t[:, j],
    "ellipsis": lambda t, j: t[..., j],
    "nl.ds": lambda t, j: t[nl.ds(0, t.shape[0]), j],
    "of a part": lambda t, j: t[:, j : j + 1][:, 0],
    "new axis": lambda t, j: t[:, j][:, None],
}


# What is done with a tile t (p, f) and a column c: by a kernel, and in NumPy with c as (p, 1).
USES = {
    "t * c": (lambda t, c: t * c, lambda t, c: t * c),
    "c - t": (lambda t, c: c - t, lambda t, c: c - t),
    "c + c": (lambda t, c: c + c, lambda t, c: c + c),
    "c * 2": (lambda t, c: c * 2.0, lambda t, c: c * 2),
    "t < c": (lambda t, c: nl.copy(t < c, dtype=nl.float32), lambda t, c: t < c),
    "c > t": (lambda t, c: nl.copy(c > t, dtype=nl.float32), lambda t, c: c > t),
    "nl.maximum": (lambda t, c: nl.maximum(c, t), lambda t, c: np.maximum(c, t)),
    "nl.exp": (lambda t, c: nl.exp(c), lambda t, c: np.exp(c)),
    "where, condition": (lambda t, c: nl.where(c > 0, t, 0.0), lambda t, c: np.where(c > 0, t, 0)),
    "where, x": (lambda t, c: nl.where(t > 0, c, t), lambda t, c: np.where(t > 0, c, t)),
    "where, y": (lambda t, c: nl.where(t > 0, t, c), lambda t, c: np.where(t > 0, t, c)),
    "sum": (lambda t, c: nl.sum(c, axis=1), lambda t, c: c),
    "max of t * c": (
        lambda t, c: nl.max(t * c, axis=1),
        lambda t, c: (t * c).max(1, keepdims=True),
    ),
    "broadcast_to": (lambda t, c: c.broadcast_to(t.shape) + 0.0, lambda t, c: c + 0 * t),
    "nl.broadcast_to": (
        lambda t, c: nl.broadcast_to(c, shape=t.shape) + 0.0,
        lambda t, c: c + 0 * t,
    ),
    "tensor_scalar": (
        lambda t, c: nisa.tensor_scalar(t, op0=nl.multiply, operand0=c),
        lambda t, c: t * c,
    ),
    "activation, scale": (
        lambda t, c: nisa.activation(nl.tanh, t, scale=c),
        lambda t, c: np.tanh(t * c),
    ),
    "activation, bias": (
        lambda t, c: nisa.activation(nl.tanh, t, bias=c),
        lambda t, c: np.tanh(t + c),
    ),
    "tensor_copy": (lambda t, c: nisa.tensor_copy(c), lambda t, c: c),
    "astype": (lambda t, c: c.astype(nl.float32), lambda t, c: c),
    "reshape": (lambda t, c: nl.copy(c.reshape((c.shape[0], 1))), lambda t, c: c),
    "t[:, 0] = c": (lambda t, c: assigned(t, c, 0), lambda t, c: np.hstack([c, t[:, 1:]])),
    "t += c": (lambda t, c: added(t, c), lambda t, c: t + c),
    "t[...] = c": (lambda t, c: assigned(t, c, ...), lambda t, c: c + 0 * t),
    "t3 * c": (
        lambda t, c: tripled(t) * (c[:, 0] if c.ndim == 2 else c),
        lambda t, c: np.repeat(t, 3, 1).reshape(*t.shape, 3) * c[:, :, None],
    ),
    "transpose": (lambda t, c: nl.copy(nisa.nc_transpose(c)), lambda t, c: c.T),
    "matmul": (
        lambda t, c: nl.copy(nl.matmul(t, c, transpose_x=True)),
        lambda t, c: t.T @ c,
    ),
}


def assigned(t, c, at):
    out = nl.copy(t)
    if at is ...:
        out[...] = c
    else:
        out[:, at] = c
    return out


def added(t, c):
    out = nl.copy(t)
    out += c
    return out


def tripled(t):
    out = nl.ndarray((*t.shape, 3), t.dtype)
    for i in range(3):
        out[:, :, i] = nl.copy(t)
    return out


@pytest.mark.parametrize("use", USES)
@given(
    st.sampled_from(sorted(MADE)),
    st.sampled_from(sorted(TAKEN)),
    st.sampled_from([(1, 1), (1, 6), (6, 1), (6, 6), (5, 7), (128, 4), (33, 128)]),
    st.integers(0, 200),
)
@settings(max_examples=15, deadline=None)
def test_a_column_is_one_value_a_partition(use, made, taken, shape, j):
    make, as_array = MADE[made]
    compute, wanted = USES[use]
    j %= shape[1]
    rng = np.random.default_rng(sum(shape) + j)
    x, w = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))

    @nki.jit
    def kernel(x, w):
        result = compute(nl.load(x), TAKEN[taken](make(w), j))
        out = nl.ndarray(result.shape, dtype=result.dtype, buffer=nl.shared_hbm)
        nl.store(out, result)
        return out

    column = as_array(w)[:, j : j + 1]
    np.testing.assert_allclose(kernel(x, w), wanted(x, column), rtol=1e-4, atol=1e-4)


@given(
    st.sampled_from(sorted(MADE)),
    st.sampled_from(sorted(TAKEN)),
    st.sampled_from([(4, 4), (5, 7), (16, 3)]),
    st.booleans(),
)
@settings(max_examples=30, deadline=None)
def test_a_column_is_stored_and_loaded_as_one(made, taken, shape, flat):
    make, as_array = MADE[made]
    w = np.random.default_rng(0).standard_normal(shape).astype(np.float32)

    @nki.jit
    def kernel(w):
        extents = (shape[0],) if flat else (shape[0], 1)
        out = nl.ndarray(extents, dtype=w.dtype, buffer=nl.shared_hbm)
        nl.store(out, TAKEN[taken](make(w), 1))
        return out

    np.testing.assert_array_equal(kernel(w).reshape(-1), as_array(w)[:, 1])


@given(st.sampled_from(sorted(TAKEN)), st.sampled_from([(4, 4), (5, 7), (16, 3)]), st.data())
@settings(max_examples=30, deadline=None)
def test_a_column_of_integers_picks_rows(taken, shape, data):
    n = shape[0]
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    rows = np.array(data.draw(st.permutations(range(n))), np.int32)
    table = np.stack([rows[::-1], rows], axis=1).copy()

    @nki.jit
    def kernel(x, table):
        gathered = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        scattered = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        index = TAKEN[taken](nl.load(table), 1)
        along = nl.arange(shape[1])[None, :]
        nl.store(gathered, nl.load(x[index, along]))
        nl.store(scattered[index, along], nl.load(x))
        return gathered, scattered

    gathered, scattered = kernel(x, table)
    np.testing.assert_array_equal(gathered, x[rows])
    wanted = np.empty_like(x)
    wanted[rows] = x
    np.testing.assert_array_equal(scattered, wanted)


@pytest.mark.parametrize(
    "body",
    [
        lambda t: nl.multiply(t, nl.sum(t, axis=1)[:, None]),
        lambda t: nl.where(nl.sum(t, axis=1)[:, None] > 0, t, t),
        lambda t: t + nl.copy(t[:, 0:3]),
        lambda t: t[:, 0:2] * t[0:3, :],
    ],
)
def test_shapes_that_do_not_fit_are_named_as_the_kernel_has_them(body):
    @nki.jit
    def kernel(x):
        body(nl.load(x))
        return x

    with pytest.raises(KernelError) as caught:
        kernel(np.ones((8, 32), np.float32))
    assert "(8, 32)" in caught.value.problem or "(8, 2)" in caught.value.problem
    assert "[8, 8, 32]" not in caught.value.problem
