"""Loops over Python's range in `neuronxcc.nki`, which AWS's compiler does not unroll: a warning
where a kernel needs it to."""

from __future__ import annotations

import inspect
import warnings

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest

X = np.arange(512 * 4, dtype=np.float32).reshape(512, 4)


def out_of(x):
    return nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)


def decides(x, loop):
    y = out_of(x)
    for i in loop(4):
        tile = nl.load(x[nl.ds(128 * i, 128)])
        if i % 2 == 1:
            tile = tile + 0
        nl.store(y[nl.ds(128 * i, 128)], value=tile)
    return y


def last_is_smaller(x, loop):
    y = out_of(x)
    for i in loop(5):
        start = 120 * i
        rows = min(120, 512 - start)
        nl.store(y[start : start + rows], value=nl.load(x[start : start + rows]))
    return y


def keeps_a_list(x, loop):
    y, tiles = out_of(x), []
    for i in loop(4):
        tiles.append(nl.load(x[nl.ds(128 * i, 128)]))
    for i in nl.static_range(4):
        nl.store(y[nl.ds(128 * i, 128)], value=tiles[i])
    return y


def reads_a_list(x, loop):
    y = out_of(x)
    tiles = [nl.load(x[nl.ds(128 * i, 128)]) for i in nl.static_range(4)]
    for i in loop(4):
        nl.store(y[nl.ds(128 * i, 128)], value=tiles[i])
    return y


def list_of_tiles(x, loop):
    y = out_of(x)
    tiles = [nl.load(x[nl.ds(128 * i, 128)]) for i in loop(4)]
    for i in nl.static_range(4):
        nl.store(y[nl.ds(128 * i, 128)], value=tiles[i])
    return y


def counts(x, loop):
    y, row = out_of(x), 0
    for _ in loop(4):
        nl.store(y[row : row + 128], value=nl.load(x[row : row + 128]))
        row += 128
    return y


def tile_before(x, loop):
    y = out_of(x)
    last = nl.load(x[0:128])
    for i in loop(4):
        last = nl.maximum(last, nl.load(x[nl.ds(128 * i, 128)]))
        nl.store(y[nl.ds(128 * i, 128)], value=last)
    return y


def bounds_another(x, loop):
    y = out_of(x)
    for i in loop(3):
        for j in nl.static_range(i, i + 1):
            nl.store(y[nl.ds(128 * j, 128)], value=nl.load(x[nl.ds(128 * j, 128)]))
    nl.store(y[384:512], value=nl.load(x[384:512]))
    return y


def part(x, y, loop):
    for i in loop(4):
        last = i == 3
        nl.store(y[nl.ds(128 * i, 128)], value=nl.load(x[nl.ds(128 * i, 128)]))
        if last:
            break


def in_a_helper(x, loop):
    y = out_of(x)
    part(x, y, loop)
    return y


NEED_PYTHON = [
    decides, last_is_smaller, keeps_a_list, reads_a_list, list_of_tiles, counts, tile_before,
    bounds_another, in_a_helper,
]  # fmt: skip


def by_index(x, loop):
    """As any loop of the device: offsets are affine in the index, and sums are in place."""
    y = out_of(x)
    total = nl.zeros((128, 4), nl.float32, buffer=nl.sbuf)
    for i in loop(4):
        start = i * 128
        tile = nl.load(x[nl.ds(start, 128)])
        total += tile
        for j in nl.affine_range(4):
            nl.store(y[nl.ds(start, 128), j], value=tile[:, j])
    nl.store(y[0:128], value=total)
    return y


@pytest.fixture
def kernel_with(tmp_path):
    """A kernel with a loop written in the place of its argument `loop`: the text is looked at."""

    def make(function, loop):
        parts = [function, part] if function is in_a_helper else [function]
        text = "\n".join(map(inspect.getsource, parts))
        path = tmp_path / f"{loop}.py"
        path.write_text(text.replace(", loop)", ")").replace(" loop(", f" {loop}("))
        names = {"nl": nl, "out_of": out_of, "__name__": "of_a_user"}
        exec(compile(path.read_text(), str(path), "exec", dont_inherit=True), names)
        return nki.jit(names[function.__name__])

    return make


@pytest.mark.parametrize("function", NEED_PYTHON)
def test_a_loop_that_needs_python_is_a_warning_that_names_static_range(function, kernel_with):
    with pytest.warns(match="a loop over Python's range") as told:
        found = kernel_with(function, "range")(X)
    assert len([w for w in told if "Python's range" in str(w.message)]) == 1
    assert "nl.static_range" in str(told[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(kernel_with(function, "nl.static_range")(X), found)


@pytest.mark.parametrize("loop", ["range", "nl.sequential_range"])
def test_a_loop_that_a_device_runs_gets_none(loop, kernel_with):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = kernel_with(by_index, loop)(X)
    np.testing.assert_array_equal(found[128:], X[128:])
    np.testing.assert_array_equal(found[:128], X.reshape(4, 128, 4).sum(0))
