"""Launch grids: program ids, which NeuronCore an instance runs on, and what is refused."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.nki import language as nl
from nkisim.ir.grid import Grid
from nkisim.runtime.kernel import Kernel


@Kernel
def who_am_i(rank):
    """Row n: the ids and counts that the n-th instance (row-major) sees."""
    shape = tuple(nl.num_programs(a) for a in range(rank))
    out = nl.ndarray((nl.num_programs(), 2 * rank + 2), nl.int32, buffer=nl.shared_hbm)
    ids = [nl.program_id(a) for a in range(rank)]
    row = int(np.ravel_multi_index(ids, shape)) if rank else 0
    values = [*ids, *shape, nl.num_programs(), nl.program_ndim()]
    tile = nl.ndarray((1, len(values)), nl.int32)
    for j, value in enumerate(values):
        tile[0:1, j : j + 1] = value
    nl.store(out[row : row + 1], tile)
    assert nl.num_programs(tuple(range(rank))) == shape
    return out


@pytest.mark.parametrize("grid", [(1,), (3,), (2, 3), (4, 1, 2), (2, 2, 2, 2)])
def test_every_instance_knows_where_it_is(grid):
    rank, size = len(grid), int(np.prod(grid))
    got = who_am_i[grid](rank)
    want = [[*ids, *grid, size, rank] for ids in itertools.product(*map(range, grid))]
    np.testing.assert_array_equal(got, want)


def test_a_kernel_without_a_grid():
    np.testing.assert_array_equal(who_am_i(0), [[1, 0]])


@pytest.mark.parametrize("grid", [3, [3], (np.int64(3),), nl.spmd_dim(3), nl.spmd_dim(nl.nc(1), 3)])
def test_forms_of_one_grid(grid):
    np.testing.assert_array_equal(who_am_i[grid](1), who_am_i[(3,)](1))


# -- NeuronCores


def cores(*dims):
    grid = Grid.of(dims)
    return [grid.core(p) for p in range(grid.size)]


def test_a_dimension_spread_over_two_cores():
    assert cores(nl.nc(2)) == [0, 1]
    assert cores(3) == [0, 0, 0]
    assert Grid.of(nl.nc(2)).cores == 2
    assert Grid.of((4, 2)).cores == 1


def test_the_order_of_sub_dimensions_says_who_gets_what():
    # NKI documentation: spmd_dim(nc(2), 2) gives core 0 the first half, spmd_dim(2, nc(2))
    # alternates; nc(2) * 2 and 2 * nc(2) are short for them.
    assert cores(nl.spmd_dim(nl.nc(2), 3)) == [0, 0, 0, 1, 1, 1]
    assert cores(nl.spmd_dim(3, nl.nc(2))) == [0, 1, 0, 1, 0, 1]
    assert cores(nl.nc(2) * 3) == cores(nl.spmd_dim(nl.nc(2), 3))
    assert cores(3 * nl.nc(2)) == cores(nl.spmd_dim(3, nl.nc(2)))


def test_cores_of_a_grid_of_several_dimensions():
    # Row-major instances of a 2 x 4 grid.
    assert cores(nl.nc(2), 4) == [0, 0, 0, 0, 1, 1, 1, 1]
    assert cores(2, nl.spmd_dim(2, nl.nc(2))) == [0, 1, 0, 1, 0, 1, 0, 1]
    assert cores(2, nl.spmd_dim(nl.nc(2), 2)) == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    "grid",
    [(nl.nc(2),), (nl.nc(2), 2), (nl.nc(2) * 2,), (2 * nl.nc(2), 1), (nl.spmd_dim(2, nl.nc(2)),)],
    ids=str,
)
def test_results_do_not_depend_on_the_cores(grid):
    shape = Grid.of(grid).shape
    np.testing.assert_array_equal(who_am_i[grid](len(shape)), who_am_i[shape](len(shape)))


def test_coordinates_are_row_major():
    grid = Grid.of((2, 3, 4))
    for program in range(24):
        assert grid.coordinates(program) == tuple(np.unravel_index(program, (2, 3, 4)))


# -- refused


@pytest.mark.parametrize("grid", [0, -1, (2, 0), 2.0, "2", None, (2, True), (np.float32(2),)])
def test_grids_are_made_of_positive_integers(grid):
    with pytest.raises(ParameterError, match="launch grid entry"):
        who_am_i[grid]


@pytest.mark.parametrize("count", [0, 3, -1, 1.5, None])
def test_numbers_of_cores(count):
    with pytest.raises(ParameterError, match=r"nl\.nc\("):
        nl.nc(count)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nl.spmd_dim(nl.nc(2), nl.nc(2)),
        lambda: who_am_i[nl.spmd_dim(nl.nc(2), 0)],
        lambda: who_am_i[nl.spmd_dim(2, "x")],
        lambda: who_am_i[nl.nc(2), nl.nc(2)],
        lambda: who_am_i[nl.spmd_dim()],
    ],
    ids=["two in a dimension", "zero", "text", "two dimensions", "nothing"],
)
def test_dimensions_that_make_no_sense(make):
    with pytest.raises(ParameterError):
        make()


@pytest.mark.parametrize("axis", [1, -1, 0.0, None, "x"])
def test_ids_of_axes_that_the_grid_has_not(axis):
    @Kernel
    def kernel():
        nl.program_id(axis)

    with pytest.raises(ParameterError, match=r"nl\.program_id\("):
        kernel[2]()
    with pytest.raises(ParameterError, match=r"without a grid|axis is an integer"):
        kernel()
