"""Slips of who comes from NumPy or PyTorch, and what is said of them."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

from nkisim.errors import (
    DTypeError,
    IndexingError,
    KernelError,
    ParameterError,
    ShapeError,
)

X = np.random.default_rng(0).standard_normal((32, 48)).astype(np.float32)


def run(body):
    """What `body(tile, i, j)` of the tile of X, and the indices of its axes, gives."""

    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        i, j = nl.arange(x.shape[0])[:, None], nl.arange(x.shape[1])[None, :]
        nl.store(out, body(nl.load(x), i, j))
        return out

    return nki.simulate_kernel(nki.jit(kernel), X)


def refused(body, error) -> str:
    """What is said of `body`: at its line, with a rule and a fix, in a few lines."""
    with pytest.raises(error) as caught:
        run(body)
    assert isinstance(caught.value, KernelError)
    message = str(caught.value)
    assert caught.value.location.filename == __file__
    _, at, line, rule, fix = message.splitlines()  # one line each: no values of a tile
    assert at.startswith("  at:   test_slips.py:")
    assert line.strip()
    assert rule.startswith("  rule: ")
    assert fix.startswith("  fix:  ")
    return message


# -- masks

MASKED = {
    "exp": lambda t, m: nl.exp(t, mask=m),
    "sum": lambda t, m: nl.sum(t, axis=1, mask=m),
    "mean": lambda t, m: nl.mean(t, axis=1, mask=m),
    "softmax": lambda t, m: nl.softmax(t, axis=1, mask=m),
    "where": lambda t, m: nl.where(t, t, 0.0, mask=m),
    "matmul": lambda t, m: nl.matmul(t, t, transpose_x=True, mask=m),
    "nc_matmul": lambda t, m: nisa.nc_matmul(t, t, mask=m),
    "nc_transpose": lambda t, m: nisa.nc_transpose(t, mask=m),
    "tensor_scalar": lambda t, m: nisa.tensor_scalar(t, nl.add, 1.0, mask=m),
    "activation": lambda t, m: nisa.activation(nl.exp, t, mask=m),
}


@pytest.mark.parametrize("name", MASKED)
def test_a_tile_is_no_mask(name):
    message = refused(lambda t, i, j: MASKED[name](t, t > 0), ShapeError)
    assert message.startswith("mask=tile #3 (bool[32, 48] in SBUF), which is not a mask")
    assert "comparisons of nl.arange / nl.mgrid expressions" in message
    assert "nl.where(condition, x, y)" in message


def test_what_is_said_to_use_instead_of_a_tile_as_mask_does_that():
    found = run(lambda t, i, j: nl.where(t > 0, nl.exp(t), t))
    np.testing.assert_allclose(found, np.where(X > 0, np.exp(X), X), rtol=1e-5)


@pytest.mark.parametrize(
    "body",
    [
        lambda t, i, j: nl.exp(t, mask=(t > 0) & (j < 3)),
        lambda t, i, j: nl.exp(t, mask=(j < 3) & (t > 0)),
        lambda t, i, j: t * (i < j),
        lambda t, i, j: (i < j) * t,
        lambda t, i, j: t.__iadd__(i < j),
    ],
)
def test_a_mask_is_no_data(body):
    message = refused(body, IndexingError)
    assert message.startswith("a mask and ")
    assert "nl.where(mask, x, y)" in message


def test_functions_take_no_mask_for_data():
    message = refused(lambda t, i, j: nl.multiply(t, j < 3), DTypeError)
    assert message.startswith("a mask is used as data")


def test_what_is_said_to_use_instead_of_a_mask_as_data_does_that():
    found = run(lambda t, i, j: nl.where(i >= j, t, 0.0))
    np.testing.assert_array_equal(found, np.tril(X))


def test_a_tile_of_truth_values_is_no_index():
    message = refused(lambda t, i, j: t[t > 0], DTypeError)
    assert "nl.where(condition, x, y)" in message


# -- tiles where a number, a shape or a type is wanted

MISPLACED = {
    "axis": (lambda t: nl.sum(t, axis=t), ParameterError),
    "shape": (lambda t: nl.zeros((32, t), nl.float32), ShapeError),
    "trips": (lambda t: list(nl.affine_range(t)), ParameterError),
    "memory": (lambda t: nl.zeros((32, 2), nl.float32, buffer=t), KernelError),
    "type": (lambda t: nl.zeros((32, 2), t), DTypeError),
    "operator": (lambda t: nisa.tensor_tensor(t, t, t), ParameterError),
    "fill": (lambda t: nl.full((32, 2), t[0:1, 0:1], nl.float32), DTypeError),
    "memset": (lambda t: nisa.memset((32, 2), t[0:1, 0:1], nl.float32), ParameterError),
    "extent": (lambda t: t.reshape((32, t)), ShapeError),
    "range": (lambda t: nl.arange(t), IndexingError),
    "slice": (lambda t: t[:, t:t], IndexingError),
    "elements": (lambda t: nl.rms_norm(t, t, 1, n=t), ParameterError),
    "predicate": (lambda t: nisa.affine_select(t > 0, t, 0.0), ParameterError),
}


@pytest.mark.parametrize("name", MISPLACED)
def test_a_tile_in_a_message_is_described_and_not_computed(name):
    body, error = MISPLACED[name]
    refused(lambda t, i, j: body(t), error)


def test_printing_a_tile_still_shows_what_it_holds():
    seen = []

    def body(t, i, j):
        seen.extend([repr(t), f"{t}", str([t])])
        return t

    run(body)
    assert all(f"{X[0, 0]:.4f}"[:6] in text for text in seen)


def test_no_type_is_told_as_such():
    assert "dtype None" in refused(lambda t, i, j: nl.zeros((32, 2), None), DTypeError)
