"""Rolled traces of kernels with masks and conditions on grids: what is left out is what a mask, or
a branch on a program id, leaves out in each iteration."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import like, same, spec

import nkisim
from nkisim.errors import UninitializedReadError
from nkisim.frontends.neuronxcc.nki import isa as nisa
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.runtime.kernel import Kernel

ROWS = 4  # of a tile


def flattened(x, rows):
    """The end of the data is in the middle of a loop that is not the last one."""
    y, p, f = like(x), *nl.mgrid[0:ROWS, 0:8]
    for i in nl.affine_range(8):
        for j in nl.affine_range(8):
            r = (i * 8 + j) * ROWS + p
            nl.store(y[r, f], nl.load(x[r, f], mask=r < rows), mask=r < rows)
    return y


def in_the_middle(x, rows):
    y, p, f = like(x), *nl.mgrid[0:ROWS, 0:8]
    for i in nl.affine_range(64):
        r = i * ROWS + p
        tile = nl.load(x[r, f])
        part = (r >= rows // 3) & (r < rows // 2)
        for _ in range(3):
            tile = nl.exp(tile, mask=part)
        nl.store(y[r, f], nl.load(x[r, f]))
    return y


def triangular_loop(x, rows):
    y, p, f = like(x), *nl.mgrid[0:ROWS, 0:8]
    for i in nl.affine_range(8):
        for j in nl.affine_range(i + 1):
            r = (i * 8 + j) * ROWS + p
            nl.store(y[r, f], nl.load(x[r, f], mask=j * ROWS + p < rows // 8), mask=r < rows)
    return y


def diagonal(x, rows):
    y, p, f = like(x), *nl.mgrid[0:ROWS, 0:8]
    for i in nl.affine_range(8):
        for j in nl.affine_range(8):
            r = (i * 8 + j) * ROWS + p
            below = i * ROWS + p >= j * 8 + f - rows // 32
            nl.store(y[r, f], nl.load(x[r, f]), mask=below)
    return y


def by_arange(x, rows):
    y, f = like(x), nl.arange(8)[None, :]
    for i in nl.affine_range(64):
        r = nl.arange(i * ROWS, i * ROWS + ROWS)[:, None]
        nl.store(y[r, f], nl.load(x[r, f], mask=r < rows), mask=r < rows)
    return y


def by_instance(x, rows):
    y, p, f = like(x), *nl.mgrid[0:ROWS, 0:8]
    for j in nl.affine_range(8):
        r = (nl.program_id(0) * 8 + j) * ROWS + p
        nl.store(y[r, f], nl.load(x[r, f], mask=r < rows), mask=r < rows)
    return y


@pytest.mark.parametrize("rows", [256, 255, 224, 220, 193, 130, 40, 7, 1])
@pytest.mark.parametrize(
    "kernel", [flattened, in_the_middle, triangular_loop, diagonal, by_arange, by_instance]
)
def test_masks_leave_out_what_they_do_in_all_iterations(kernel, rows):
    bound = Kernel(kernel)[8] if kernel is by_instance else Kernel(kernel)
    with nkisim.checks(output="off", uninitialized="off"):
        same(bound, spec(64 * ROWS, 8), rows)


def test_a_ragged_end_leaves_the_rest_of_the_loops_rolled():
    found = same(Kernel(flattened), spec(256, 8), 223)
    assert sum(i.origin is not None for i in found.instructions) > len(found.instructions) / 2


def test_what_is_selected_by_loop_indices_is_data():
    """It moves with them, in iterations alike."""

    def kernel(x):
        y, (p, f) = like(x), nl.mgrid[0:128, 0:512]
        for i in nl.affine_range(12):
            tile = nisa.affine_select(i * 40 + p >= f, nl.load(x[i]), -1.0)
            nl.store(y[i], tile)
        return y

    found = same(Kernel(kernel), spec(12, 128, 512))
    assert sum(i.origin is not None for i in found.instructions) == 3 * 7


@st.composite
def masked_kernels(draw):
    """One to three loops around a store with a mask on their indices and the tile's."""
    extents = draw(st.lists(st.integers(2, 9), min_size=1, max_size=3))
    kinds = [draw(st.sampled_from([nl.affine_range, nl.static_range, range])) for _ in extents]
    numbers = st.integers(-3, 3)
    coefs = st.tuples(*[numbers for _ in extents], numbers, numbers)
    conditions = draw(st.lists(st.tuples(coefs, st.integers(-20, 20)), min_size=1, max_size=2))
    return extents, kinds, conditions, draw(st.booleans())


@settings(max_examples=60, deadline=None)
@given(masked_kernels())
def test_masks_of_any_loops_are_as_in_the_whole_trace(recipe):
    extents, kinds, conditions, adds = recipe

    def kernel(x):
        y, (p, f) = like(x), nl.mgrid[0:ROWS, 0:6]

        def inside(indices):
            if len(indices) < len(extents):
                for i in kinds[len(indices)](extents[len(indices)]):
                    inside([*indices, i])
                return
            at = 0
            for i, n in zip(indices, extents, strict=True):
                at = at * n + i
            mask = None
            for (*coefs, down, along), bound in conditions:
                value = down * p + along * f
                for c, i in zip(coefs, indices, strict=True):
                    value = value + c * i
                one = value >= bound
                mask = one if mask is None else mask & one
            tile = nl.load(x[at])
            if adds:
                tile = nl.add(tile, 1.0, mask=mask)
            nl.store(y[at], tile, mask=mask)

        inside([])
        return y

    with nkisim.checks(output="off", uninitialized="off", loop="off"):
        same(Kernel(kernel), spec(math.prod(extents), ROWS, 6))


@pytest.mark.parametrize("on_chip", [True, False])
@pytest.mark.parametrize("steps", [(1, 1), (2, 3), (3, 3), (4, 1), (0, 2)])
def test_what_nested_loops_write_twice_counts_once(steps, on_chip):
    """Both traces say how many elements of the output nothing writes."""

    def kernel(x):
        y = nl.ndarray((128, 104), x.dtype, buffer=nl.shared_hbm)
        tile = nl.zeros((128, 1), x.dtype)
        held = nl.ndarray((128, 104), x.dtype, buffer=nl.sbuf) if on_chip else y
        for i in nl.sequential_range(11):
            for j in nl.sequential_range(7):
                column = nl.ds(i * steps[0] + j * steps[1], 1)
                if on_chip:
                    held[:, column] = nl.exp(tile)
                else:
                    nl.store(held[:, column], tile)
        if on_chip:
            nl.store(y, held)
        return y

    left = 104 - len({i * steps[0] + j * steps[1] for i in range(11) for j in range(7)})
    for run in (nkisim.profile, lambda k, x: k.specialize([x], {})):
        if on_chip:
            with pytest.raises(UninitializedReadError, match=f"reads {left * 128:,} of 13,312"):
                run(Kernel(kernel), spec(128, 1))
        else:
            with pytest.warns(nkisim.NkiWarning, match=f"{left * 128:,} of 13,312 elements"):
                run(Kernel(kernel), spec(128, 1))


CONDITIONS = {
    "the last row left out": lambda i, j, n: i < n - 1,
    "the last row": lambda i, j, n: i == n - 1,
    "all but one": lambda i, j, n: i != 2,
    "every other": lambda i, j, n: i % 2 == 0,
    "columns": lambda i, j, n: j > 0,
    "above the diagonal": lambda i, j, n: i < j,
    "below the other one": lambda i, j, n: i + j < n,
    "an edge": lambda i, j, n: i < 4 or j == 0,
}


@pytest.mark.parametrize("grid", [(8, 8), (5, 12), (9, 4), (12, 1), (2, 7), (3, 6, 5)])
@pytest.mark.parametrize("condition", CONDITIONS)
def test_instances_of_grids_with_several_axes_may_differ(condition, grid):
    def kernel(x):
        y, i, j = like(x), nl.program_id(0), nl.program_id(1)
        at = i * grid[1] + j
        if len(grid) > 2:
            at = at * grid[2] + nl.program_id(2)
        tile = nl.load(x[at])
        if CONDITIONS[condition](i, j, grid[0]):
            tile = nl.exp(tile)
            nl.store(y[at], tile)
        return y

    with nkisim.checks(output="off"):
        found = same(Kernel(kernel)[grid], spec(math.prod(grid), ROWS, 8))
    rolls = any(i.origin is not None for i in found.instructions)
    assert rolls or condition != "the last row left out" or max(grid[1:]) < 6
