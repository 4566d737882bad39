"""Tiles of a loop have one shape, as its body is traced once."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from traces import like, spec

import nkisim
from nkisim.errors import NkiWarning, ShapeError
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

X = np.random.default_rng(0).standard_normal((300, 700)).astype(np.float32)
ONCE = [nl.affine_range, nl.sequential_range]
UNROLLED = [nl.static_range, range]


def ragged(loop, inner=nl.affine_range):
    """A copy in tiles of which the last row and the last column are smaller."""

    def kernel(x):
        y = like(x)
        for i in loop(-(-x.shape[0] // 128)):
            rows = slice(i * 128, min((i + 1) * 128, x.shape[0]))
            for j in inner(-(-x.shape[1] // 256)):
                at = rows, slice(j * 256, min((j + 1) * 256, x.shape[1]))
                nl.store(y[at], nl.load(x[at]))
        return y

    return Kernel(kernel)


def quiet(kernel, *args):
    """The result of a kernel that gives no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return kernel(*args)


@pytest.mark.parametrize("loop", ONCE, ids=lambda f: f.__name__)
def test_a_smaller_last_tile_is_reported(loop):
    with pytest.warns(
        NkiWarning, match=rf"\[128, 188\], made in iteration 2 of an nl.{loop.__name__}"
    ):
        found = ragged(nl.static_range, loop)(X)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize("loop", ONCE, ids=lambda f: f.__name__)
def test_so_it_is_where_an_outer_index_tells_the_size(loop):
    with pytest.warns(
        NkiWarning, match=r"\[44, 256\], made in iteration 2 .* has shape \[128, 256\]"
    ):
        ragged(loop, nl.static_range)(X)


def test_it_is_reported_once_a_loop():
    def kernel(x):
        y = like(x)
        for j in nl.affine_range(3):
            at = slice(0, 128), slice(j * 256, min((j + 1) * 256, x.shape[1]))
            a = nl.load(x[at])
            b = nl.multiply(a, 2.0)
            nl.store(y[at], nl.add(a, b))
        return y

    with pytest.warns(NkiWarning) as seen:
        Kernel(kernel)(X[:128])
    assert sum("a tile of shape" in str(w.message) for w in seen) == 1


@pytest.mark.parametrize("loop", UNROLLED, ids=lambda f: f.__name__)
@pytest.mark.parametrize("inner", UNROLLED, ids=lambda f: f.__name__)
def test_loops_that_are_unrolled_may_make_any_tiles(loop, inner):
    np.testing.assert_array_equal(quiet(ragged(loop, inner), X), X)


def test_as_an_error_it_names_the_tile():
    with nkisim.checks(shape="error"), pytest.raises(ShapeError) as caught:
        ragged(nl.affine_range)(X)
    assert caught.value.location.text == "nl.store(y[at], nl.load(x[at]))"
    assert "mask" in caught.value.fix


def test_a_profile_reports_it_too():
    with pytest.warns(NkiWarning, match="a tile of shape"):
        nkisim.profile(ragged(nl.affine_range), spec(1000, 700))


def test_masked_tiles_are_whole():
    def kernel(x):
        y = like(x)
        p, f = nl.mgrid[0:128, 0 : x.shape[1]]
        for i in nl.affine_range(-(-x.shape[0] // 128)):
            inside = i * 128 + p < x.shape[0]
            tile = nl.load(x[i * 128 + p, f], mask=inside)
            nl.store(y[i * 128 + p, f], tile, mask=inside)
        return y

    np.testing.assert_array_equal(quiet(Kernel(kernel), X), X)


def test_lines_that_run_several_times_in_an_iteration_may_make_several_tiles():
    def halves(x, y, rows, columns):
        at = rows, slice(*columns)
        nl.store(y[at], nl.load(x[at]))

    def kernel(x):
        y = like(x)
        for i in nl.affine_range(2):
            rows = slice(i * 128, i * 128 + 128)
            if i == 0:  # functions may be called in branches of their own
                halves(x, y, rows, (0, 100))
            halves(x, y, rows, (100, 300))
            if i == 1:
                halves(x, y, rows, (0, 100))
            for columns in nl.static_range(300, 700, 200):
                width = 100 + (columns - 300) // 2
                at = rows, slice(columns, columns + width)
                nl.store(y[at], nl.load(x[at]))
                for part in nl.affine_range(2):
                    size = (200 - width) // 2
                    first = columns + width + part * size
                    if size:
                        nl.store(
                            y[rows, first : first + size], nl.load(x[rows, first : first + size])
                        )
        return y

    np.testing.assert_array_equal(quiet(Kernel(kernel), X[:256]), X[:256])


def test_a_loop_that_runs_again_may_make_other_tiles():
    def kernel(x):
        y = like(x)
        for width in (100, 200, 400):
            first = {100: 0, 200: 100, 400: 300}[width]
            for i in nl.affine_range(2):
                at = slice(i * 128, i * 128 + 128), slice(first, first + width)
                nl.store(y[at], nl.load(x[at]))
        return y

    np.testing.assert_array_equal(quiet(Kernel(kernel), X[:256]), X[:256])


def test_branches_on_the_index_make_tiles_of_their_own():
    def kernel(x):
        y = like(x)
        for i in nl.affine_range(2):
            if i == 0:
                nl.store(y[:, 0:100], nl.load(x[:, 0:100]))
            else:
                nl.store(y[:, 100:700], nl.load(x[:, 100:700]))
        return y

    np.testing.assert_array_equal(quiet(Kernel(kernel), X[:128]), X[:128])
