"""Launch grids and loops as kernels see them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nkisim.errors import ParameterError
from nkisim.ir.grid import NeuronCores, SpmdDim
from nkisim.ir.integers import as_int, fix_of_integers
from nkisim.trace.tracer import current, tracing


def nc(count: int) -> NeuronCores:
    """Mark a launch-grid dimension as spread over `count` physical NeuronCores."""
    return NeuronCores(count)


def spmd_dim(*parts: int | NeuronCores) -> SpmdDim:
    """One launch-grid dimension made of sub-dimensions, the last varying fastest.

    `spmd_dim(nc(2), n)` gives each core a block of `n` instances; `spmd_dim(n, nc(2))` deals
    instances to the cores in turn.
    """
    return SpmdDim(parts)


def program_id(axis: int) -> int:
    """Index of this kernel instance along launch-grid dimension `axis`."""
    tracer = current()
    _check_grid_axis("program_id", axis)
    tracer.trace.tells_apart = True
    return tracer.trace.grid.coordinates(tracer.program)[axis]


def num_programs(axes: int | tuple[int, ...] | None = None) -> int | tuple[int, ...]:
    """Number of kernel instances along launch-grid dimension `axes`; of all when None."""
    grid = current().trace.grid
    if axes is None:
        return grid.size
    if isinstance(axes, tuple | list):
        return tuple(num_programs(a) for a in axes)
    _check_grid_axis("num_programs", axes)
    return grid.shape[axes]


def program_ndim() -> int:
    """Number of dimensions of the launch grid; 0 when launched without one."""
    return len(current().trace.grid.shape)


def _check_grid_axis(what: str, axis: int) -> None:
    grid = current().trace.grid
    if as_int(axis) is None or not 0 <= axis < len(grid.shape):
        raise ParameterError(
            f"nl.{what}({axis!r}) in a kernel launched "
            + (f"on a {grid} grid" if grid.shape else "without a grid"),
            rule="the axis is one of the launch grid's dimensions",
            fix="launch with a grid, kernel[n, m](...), or drop the call",
        )


def _loop(name: str, args: tuple) -> Iterator[int]:
    numbers = [as_int(a) for a in args]
    if not 1 <= len(args) <= 3 or None in numbers or numbers[2:] == [0]:
        raise ParameterError(
            f"nl.{name}({', '.join([repr(a) for a in args])})",
            rule="loop bounds are integers known while tracing, as for range()",
            fix=fix_of_integers(
                args, "compute the trip count from shapes, e.g. (rows + 127) // 128"
            ),
        )
    indices = range(*numbers)
    return current().loop(indices, name) if tracing() else iter(indices)


def affine_range(*args: int, **kwargs: Any) -> Iterator[int]:
    """Loop whose iterations do not depend on one another; the compiler may overlap them.

    The compiler traces the body once, so a number that the body changes in Python is the same in
    each iteration. Published kernels pass `precise_schedule=True`, which no page explains. The
    simulator then keeps the order of the source: an iteration may read what earlier ones wrote.

    Args:
        *args: `stop`, or `start, stop`, or `start, stop, step`, as those of Python's `range`: whole
            numbers known while tracing.
    """
    ordered = kwargs.get("precise_schedule")
    return _loop("sequential_range" if ordered else "affine_range", args)


def sequential_range(*args: int, **kwargs: Any) -> Iterator[int]:
    """Loop whose iterations run in order, each seeing what the ones before it wrote in memory.

    The compiler traces the body once, so a number that the body changes in Python is the same in
    each iteration.

    Args:
        *args: `stop`, or `start, stop`, or `start, stop, step`, as those of Python's `range`: whole
            numbers known while tracing.
    """
    return _loop("sequential_range", args)


def static_range(*args: int) -> Iterator[int]:
    """Loop that is unrolled while tracing.

    Args:
        *args: `stop`, or `start, stop`, or `start, stop, step`, as those of Python's `range`: whole
            numbers known while tracing.
    """
    return _loop("static_range", args)
