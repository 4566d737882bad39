"""What AWS's known issues say that the compiler refuses is told here, where it works."""

import operator
import warnings

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import MemorySpaceError, NkiWarning, ShapeError

X = np.random.default_rng(0).standard_normal((4, 6)).astype(np.float32)


def joined(join):
    """A kernel that joins a tile with its first row, after the tile with its first column."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        tile, row, column = nl.load(x), nl.load(x[0:1, :]), nl.load(x[:, 0:1])
        nl.store(out, join(tile + column + 1.0, row))
        return out

    return kernel


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv", "lt", "ge", "iadd", "imul"])
def test_operators_do_not_broadcast_over_partitions(name):
    join = getattr(operator, name)
    with pytest.warns(NkiWarning, match="operators do not broadcast over partitions") as caught:
        found = joined(join)(X)
    (warning,) = caught
    assert warning.filename == __file__
    want = join(X + X[:, :1] + np.float32(1), X[:1])
    np.testing.assert_allclose(found, want, rtol=1e-6)


@pytest.mark.parametrize(
    ("join", "name"), [(lambda x, row: x - row, "subtract"), (lambda x, row: row - x, "subtract")]
)
def test_the_function_to_use_is_named(join, name):
    with (
        nkisim.checks(compiler="error"),
        pytest.raises(ShapeError, match=rf"write nl\.{name}\(x, y\)"),
    ):
        joined(join)(X)


def test_functions_broadcast_over_partitions():
    with nkisim.checks(compiler="error"):
        found = joined(nl.multiply)(X)
    np.testing.assert_allclose(found, (X + X[:, :1] + 1) * X[:1], rtol=1e-6)


def through_hbm(kind, buffer):
    """A kernel whose tile goes to HBM and back."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, x.dtype, buffer=nl.shared_hbm)
        kept = nl.ndarray(x.shape, x.dtype, buffer=kind)
        tile = nl.ndarray(x.shape, x.dtype, buffer=buffer)
        tile[...] = nl.load(x)
        nl.store(kept, tile)
        tile[...] = nl.load(kept)
        nl.store(out, tile)
        return (out, kept) if kind is nl.shared_hbm else out

    return kernel


@pytest.mark.parametrize("kind", [nl.hbm, nl.private_hbm])
def test_direct_allocation_leaves_no_hbm_inside(kind):
    kernel = through_hbm(kind, ncc.sbuf.mod_alloc(base_addr=0))
    with pytest.warns(NkiWarning, match="with direct allocation") as caught:
        np.testing.assert_array_equal(kernel(X), X)
    assert len(caught) == 1
    with nkisim.checks(compiler="error"), pytest.raises(MemorySpaceError, match="is no output"):
        through_hbm(kind, ncc.sbuf.mod_alloc(base_addr=0))(X)


def test_an_output_and_tiles_that_the_compiler_places_are_no_issue():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for found in through_hbm(nl.shared_hbm, ncc.sbuf.mod_alloc(base_addr=0))(X):
            np.testing.assert_array_equal(found, X)
        np.testing.assert_array_equal(through_hbm(nl.private_hbm, nl.sbuf)(X), X)
