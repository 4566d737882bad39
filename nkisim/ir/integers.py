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
    """What to do where integers are wanted: `fix`, but with a float, which comes of `/` mostly."""
    if any(isinstance(x, float | np.floating) for x in given):
        return "divide with //, which gives an integer"
    return fix
