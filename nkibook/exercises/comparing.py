"""Compare an answer with what a specification gives: the first difference, or none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernels.arrays import to_numpy


@dataclass(frozen=True)
class Difference:
    """How two arrays differ.

    Attributes:
        wrong: boolean array: which elements differ.
        index: the first of them, in row-major order.
        got, expected: the two values there.
        output: which of several outputs it is.
    """

    wrong: np.ndarray
    index: tuple[int, ...]
    got: float
    expected: float
    output: int = 0

    @property
    def values(self) -> str:
        """Both values, with digits enough to tell them apart."""
        for digits in (6, 9, 17):
            got, expected = number(self.got, digits), number(self.expected, digits)
            if got != expected:
                break
        return f"{got}, and should be {expected}"

    @property
    def counts(self) -> str:
        return f"{int(self.wrong.sum()):,} of {self.wrong.size:,} elements differ"


class Mismatch(Exception):
    """The answer is not even comparable: nothing returned, another shape or dtype."""


def compare(got: Any, expected: Any, rtol: float, atol: float) -> Difference | None:
    """The first difference between two arrays, or between two tuples of arrays.

    Numbers that are not arrays are compared by value, whatever their type. NaN equals NaN.

    Raises:
        Mismatch: nothing is returned, or the number of outputs, a shape or a dtype differs.
    """
    if got is None:
        raise Mismatch("the answer returns None. Does it return its output?")
    several = isinstance(expected, tuple | list)
    if several != isinstance(got, tuple | list) or (several and len(got) != len(expected)):
        wanted = f"{len(expected)} outputs" if several else "one output"
        given = len(got) if isinstance(got, tuple | list) else "one"
        raise Mismatch(f"the answer returns {given}, and should return {wanted}.")
    if not several:
        return _compare(to_numpy(got), to_numpy(expected), rtol, atol, 0)
    for output, (g, e) in enumerate(zip(got, expected, strict=True)):
        found = _compare(to_numpy(g), to_numpy(e), rtol, atol, output)
        if found is not None:
            return found
    return None


def _compare(
    got: np.ndarray, expected: np.ndarray, rtol: float, atol: float, output: int
) -> Difference | None:
    if got.shape != expected.shape:
        raise Mismatch(f"the shape is {got.shape}, and should be {expected.shape}.")
    if expected.ndim and got.dtype != expected.dtype:
        raise Mismatch(f"the dtype is {got.dtype}, and should be {expected.dtype}.")
    if got.dtype.kind in "OUS" or expected.dtype.kind in "OUS":
        near = np.asarray(got == expected)
    else:
        exact = expected.dtype.kind in "biu" and got.dtype.kind in "biu"
        with np.errstate(invalid="ignore"):
            near = np.isclose(
                got.astype(np.float64),
                expected.astype(np.float64),
                rtol=0 if exact else rtol,
                atol=0 if exact else atol,
                equal_nan=True,
            )
    if near.all():
        return None
    index = tuple(int(i) for i in np.argwhere(~near)[0]) if near.ndim else ()
    return Difference(~near, index, got[index], expected[index], output)


def number(value: Any, digits: int = 6) -> str:
    """A value for a message: that many digits, no minus for zero; text as it is."""
    try:
        return f"{float(value) + 0.0:.{digits}g}"  # -0.0 + 0.0 is 0.0
    except (TypeError, ValueError):
        return repr(str(value))
