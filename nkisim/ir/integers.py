"""Integers as kernels give them: of Python, of NumPy, or of anything that stands for one."""

from __future__ import annotations

import operator
from collections.abc import Iterable

import numpy as np


def as_int(value: object) -> int | None:
    """`value` as a Python int if it is an integer (of any NumPy type), else None."""
    if type(value) is int:
        return value
    if isinstance(value, bool | np.bool_):
        return None
    try:
        return int(operator.index(value))  # an exact int, also of a subclass
    except TypeError:
        return None


def fix_of_integers(given: Iterable[object], fix: str) -> str:
    """The fix in an error about integers: `fix`, or another one for a float, mostly the result of
    `/`."""
    if any(isinstance(x, float | np.floating) for x in given):
        return "divide with //, which gives an integer"
    return fix
