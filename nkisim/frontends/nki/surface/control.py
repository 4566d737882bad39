"""Loops that are unrolled, slices, the cores of a launch, and the order of instructions."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from nkisim.errors import IndexingError, ParameterError
from nkisim.frontends.nki.registers import RunTimeInteger
from nkisim.frontends.nki.session import current
from nkisim.frontends.nki.tensors.indexing import DynamicSlice
from nkisim.frontends.nki.tensors.tensor import NkiTensor

__all__ = [
    "affine_range",
    "ds",
    "no_reorder",
    "num_programs",
    "program_id",
    "program_ndim",
    "sequential_range",
    "static_range",
]


def affine_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("affine_range", start, stop, step)


def sequential_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("sequential_range", start, stop, step)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """range(start, stop, step); its iterations are unrolled in order. Deprecated: use range.

    Raises:
        ParameterError: a bound that is known at run time only, or a step of 0.
    """
    return _range("static_range", start, stop, step)


def _range(name: str, start: Any, stop: Any, step: Any) -> range:
    for bound in (start, stop, step):
        if isinstance(bound, RunTimeInteger):
            raise ParameterError(
                f"nl.{name} up to {bound._what}",
                rule="it is unrolled while tracing, so its bounds are integers",
                fix="use nl.fori_loop(lower, upper, body)",
            )
    if step == 0:
        raise ParameterError(
            f"nl.{name}: step=0",
            rule="a loop has a step other than 0, as range has",
            fix="leave the step out, which is 1",
        )
    return range(0, start, step) if stop is None else range(start, stop, step)


def ds(start: Any, size: int) -> Any:
    """The slice start:start + size; `start` may be a scalar, a register or a one-element tile.

    Raises:
        IndexingError: a size that is known only at run time.
    """
    if isinstance(size, (RunTimeInteger, NkiTensor)):
        raise IndexingError(
            "nl.ds with a size that is known only at run time",
            rule="the size of a view is known while tracing; its start may be a register or a "
            "scalar",
            fix="write an integer for the size, such as a shape's",
        )
    if isinstance(start, (RunTimeInteger, NkiTensor)):
        return DynamicSlice(start, size)
    return slice(start, start + size)


def program_id(axis: int = 0) -> int:
    """Which core of the logical core this is: 0 or 1.

    Raises:
        ParameterError: another axis than 0.
    """
    session = current()
    session.trace.tells_apart = True
    _check_axis("nl.program_id", axis)
    return session.program


def num_programs(axes: int = 0) -> int:
    """How many cores the kernel was launched on: 1 or 2.

    Raises:
        ParameterError: another axis than 0.
    """
    _check_axis("nl.num_programs", axes)
    return current().trace.grid.size


def program_ndim() -> int:
    """Axes of the launch grid: 0 without one, else 1.

    Raises:
        TraceContextError: no kernel is traced.
    """
    return len(current().trace.grid.shape)


def _check_axis(call: str, axis: Any) -> None:
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    if any(a not in (0, None) for a in given):
        raise ParameterError(
            f"{call}({axis!r})",
            rule="kernel[lnc] launches on one axis, of 1 or 2 cores",
            fix="use axis 0",
        )


@contextlib.contextmanager
def no_reorder() -> Iterator[None]:
    """Instructions in this block run in the order in which they are written, each after the one
    before. Results do not depend on it, modelled times do.

    Raises:
        ParameterError: a loop of the device in the block.
    """
    session = current()
    session.ordered += 1
    try:
        with session.in_order():
            yield
    finally:
        session.ordered -= 1
