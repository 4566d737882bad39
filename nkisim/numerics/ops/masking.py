"""Masks that are not boxes, for any instruction."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nkisim.ir.instruction import Instruction


def masked(instr: Instruction, fn: Callable) -> Callable:
    """`fn` with `instr.where` applied: elements outside the mask keep their old value."""
    where = instr.where
    if where is None:
        return fn

    def write_where(out: np.ndarray, *ins: np.ndarray) -> None:
        result = np.empty_like(out)
        fn(result, *ins)
        np.copyto(out, result, where=where)

    return write_where
