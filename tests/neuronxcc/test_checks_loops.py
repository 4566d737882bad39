"""Checks about loops: where a tile lives, and what iterations may share."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import LoopError, ScopeError
from nkisim.ir import boxes

X = np.random.default_rng(0).standard_normal((4, 32, 16)).astype(np.float32)


@pytest.fixture(autouse=True, params=["cells", "elements"])
def way(request, monkeypatch):
    """The ways in which the check looks at memory."""
    if request.param == "elements":
        monkeypatch.setattr(boxes, "_MOST", 0)


def launch(body):
    """body(x, out): a kernel body on x and out of X's shape, in HBM."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        body(x, out)
        return out

    return kernel(X)


# -- scope


@pytest.mark.parametrize("loop", [nl.affine_range, nl.sequential_range])
def test_a_tile_used_after_its_loop(loop):
    def body(x, out):
        for i in loop(4):
            tile = nl.load(x[i])
        for i in nl.affine_range(4):
            nl.store(out[i], tile)

    with pytest.raises(ScopeError, match="after that iteration has ended") as caught:
        launch(body)
    assert caught.value.code == "err_local_variable_used_out_of_scope"
    assert "nl.store(out[i], tile)" in str(caught.value)


def test_a_name_that_is_bound_again_in_a_loop():
    def body(x, out):
        total = nl.zeros((32, 16), dtype=nl.float32)
        for i in nl.sequential_range(4):
            total = nl.add(total, nl.load(x[i]))
        for i in nl.affine_range(4):
            nl.store(out[i], total)

    with pytest.raises(ScopeError, match="in iteration 1 of the same loop"):
        launch(body)


def test_writing_into_a_tile_from_outside_is_in_scope():
    def body(x, out):
        total = nl.zeros((32, 16), dtype=nl.float32)
        for i in nl.sequential_range(4):
            total[...] = nl.add(total, nl.load(x[i]))
        for i in nl.affine_range(4):
            nl.store(out[i], total)

    np.testing.assert_allclose(launch(body), np.broadcast_to(X.sum(0), X.shape), rtol=1e-5)


@pytest.mark.parametrize("loop", [nl.static_range, range])
def test_lists_of_tiles_made_in_unrolled_loops(loop):
    def body(x, out):
        tiles = []
        for i in loop(4):
            tiles.append(nl.load(x[i]))
        for i in nl.static_range(4):
            nl.store(out[i], tiles[i])

    np.testing.assert_array_equal(launch(body), X)


def test_a_tile_of_an_outer_iteration_in_an_inner_loop():
    def body(x, out):
        for i in nl.affine_range(2):
            factor = nl.load(x[i])
            for j in nl.affine_range(2):
                nl.store(out[2 * i + j], nl.multiply(factor, factor))

    np.testing.assert_allclose(launch(body), np.repeat(X[:2] ** 2, 2, axis=0))


def test_shared_hbm_is_not_made_in_a_loop():
    def body(x, out):
        for i in nl.affine_range(4):
            other = nl.ndarray((32, 16), dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(other, nl.load(x[i]))

    with pytest.raises(ScopeError) as caught:
        launch(body)
    assert caught.value.code == "err_shared_hbm_must_in_kernel_level"


# -- dependences between iterations


def running_sum(loop):
    def body(x, out):
        total = nl.zeros((32, 16), dtype=nl.float32)
        for i in loop(4):
            total[...] = nl.add(total, nl.load(x[i]))
            nl.store(out[i], total)  # each iteration needs the sum so far

    return body


def test_a_running_sum_needs_sequential_range():
    np.testing.assert_allclose(
        launch(running_sum(nl.sequential_range)), np.cumsum(X, axis=0), rtol=1e-5, atol=1e-6
    )
    with pytest.raises(LoopError, match="affine_range") as caught:
        launch(running_sum(nl.affine_range))
    assert caught.value.code == "err_unexpected_output_dependencies"
    assert caught.value.location.function == "body"


def test_iterations_that_write_the_same_elements():
    def body(x, out):
        for i in nl.affine_range(4):
            nl.store(out[0], nl.load(x[i]))

    with pytest.raises(LoopError, match=r"iterations 0 and 1 .* both write"):
        launch(body)


def test_overlapping_windows_of_a_tile():
    def body(step):
        def inner(x, out):
            tile = nl.zeros((32, 16), dtype=x.dtype)
            for i in nl.affine_range(4):
                tile[:, step * i : step * i + 4] = nl.load(x[i, :, 0:4])
            for i in nl.affine_range(4):
                nl.store(out[i], tile)

        return inner

    np.testing.assert_array_equal(launch(body(4))[0, :, 4:8], X[1, :, 0:4])
    with pytest.raises(LoopError, match=r"element \[0, 3\]"):
        launch(body(3))


def test_reading_what_a_later_iteration_writes():
    def body(loop):
        def inner(x, out):
            tile = nl.load(x[0])
            for i in loop(8):
                tile[:, i : i + 1] = nl.multiply(tile[:, i + 1 : i + 2], 2.0)
            for i in nl.affine_range(4):
                nl.store(out[i], tile)

        return inner

    launch(body(nl.sequential_range))
    with pytest.raises(LoopError, match="writes later"):
        launch(body(nl.affine_range))


@pytest.mark.parametrize("how", ["matmul", "+=", "assigned", "maximum"])
def test_accumulators_are_no_dependence(how):
    def body(x, out):
        buffer = nl.psum if how == "matmul" else nl.sbuf
        total = nl.zeros((16, 16) if how == "matmul" else (32, 16), nl.float32, buffer=buffer)
        for i in nl.affine_range(4):
            tile = nl.load(x[i])
            if how == "matmul":
                total += nisa.nc_matmul(tile, tile)
            elif how == "+=":
                total += tile
            elif how == "assigned":
                total[...] = nl.add(total, tile)
            else:
                total[...] = nl.maximum(total, tile)
        rows = total.shape[0]
        for i in nl.affine_range(4):
            nl.store(out[i, 0:rows], nl.copy(total))
            if rows < 32:
                nl.store(out[i, rows:32], 0.0)

    got = launch(body)[0]
    if how == "matmul":
        want = np.zeros_like(X[0])
        want[:16] = sum(t.T @ t for t in X)
    else:
        want = np.maximum(X.max(0), 0) if how == "maximum" else X.sum(0)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_blocks_indexed_with_the_loop_index_are_apart():
    def body(x, out):
        tiles = nl.ndarray((4, nl.par_dim(32), 16), dtype=x.dtype, buffer=nl.sbuf)
        for i in nl.affine_range(4):
            tiles[i] = nl.load(x[i])
            tiles[i] = nl.exp(tiles[i])
        for i in nl.affine_range(4):
            nl.store(out[i], tiles[i])

    np.testing.assert_allclose(launch(body), np.exp(X), rtol=1e-6)


def test_an_inner_loop_may_write_again_in_the_next_outer_iteration_of_a_sequential_loop():
    def body(x, out):
        tile = nl.ndarray((32, 16), dtype=x.dtype)
        for i in nl.sequential_range(4):
            for j in nl.affine_range(4):
                tile[:, 4 * j : 4 * j + 4] = nl.load(x[i, :, 4 * j : 4 * j + 4])
            nl.store(out[i], tile)

    np.testing.assert_array_equal(launch(body), X)


@pytest.mark.parametrize("affine_first", [True, False])
def test_the_same_uses_in_loops_of_two_kinds(affine_first):
    def body(x, out):
        kinds = [nl.sequential_range, nl.affine_range]
        for loop in reversed(kinds) if affine_first else kinds:
            total = nl.zeros((32, 16), dtype=nl.float32)
            for i in loop(4):
                total[...] = nl.subtract(nl.load(x[i]), total)
                nl.store(out[i], total)

    with pytest.raises(LoopError, match=r"an nl\.affine_range loop"):
        launch(body)


def test_the_same_uses_of_tiles_made_inside_and_outside_of_a_loop():
    def body(x, out):
        for i in nl.affine_range(4):
            inside = nl.zeros((32, 16), dtype=nl.float32)
            for _ in nl.sequential_range(2):
                inside[...] = nl.subtract(nl.load(x[i]), inside)
            nl.store(out[i], inside)
        outside = nl.zeros((32, 16), dtype=nl.float32)
        for i in nl.affine_range(4):
            for _ in nl.sequential_range(2):
                outside[...] = nl.subtract(nl.load(x[i]), outside)

    with pytest.raises(LoopError, match=r"an nl\.affine_range loop") as caught:
        launch(body)
    assert "outside[...] =" in str(caught.value)


def test_both_checks_can_be_turned_down():
    with nkisim.checks(loop="off"):
        launch(running_sum(nl.affine_range))
    with nkisim.checks(loop="warn"), pytest.warns(nkisim.NkiWarning, match="affine_range"):
        launch(running_sum(nl.affine_range))
