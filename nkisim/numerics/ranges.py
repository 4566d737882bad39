"""Inputs of activation functions lie where the documentation says that the function is valid.

Values are known when the kernel runs. While it is traced, the instructions to watch are chosen;
then each run compares the smallest and the largest input with the range.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from nkisim.errors import KernelError, RangeError, warn
from nkisim.ir.dtypes import F32
from nkisim.ir.instruction import Instruction

# Smallest and largest valid magnitude, or value for functions of any sign (table of activation
# functions in the NKI API common fields, SDK 2.26). The others take every input.
RANGES: dict[str, tuple[float, float]] = {
    "log": (2.0**-64, 2.0**64),
    "sin": (-math.pi, math.pi),
    "arctan": (-math.pi / 2, math.pi / 2),
    "sqrt": (2.0**-116, 2.0**118),
    "rsqrt": (2.0**-87, 2.0**97),
    "reciprocal": (2.0**-42, 2.0**42),
}
_EITHER_SIGN = frozenset({"reciprocal"})
_ZERO_TOO = frozenset({"sqrt"})  # outside of the printed range, and surely no mistake
_SLACK = 1 + 1e-6  # the fp32 number next to pi is larger than pi


def has_range(instr: Instruction) -> bool:
    """Whether the instruction computes a function that has a range."""
    return instr.spec.table and not instr.settings.steps and instr.settings.op in RANGES


def range_check(instr: Instruction, strict: bool) -> Callable[..., None]:
    """`f(*tiles_in)` that looks at the input of an instruction with a range.

    Args:
        instr: an activation, op(data * scale + bias).
        strict: raise a RangeError; otherwise warn, once.
    """
    op = instr.settings.op
    low, high = RANGES[op]
    numbers = [x if not hasattr(x, "shape") or not x.shape else None for x in instr.ins[:3]]
    where = instr.where
    told = False

    def check(*tiles: np.ndarray) -> None:
        nonlocal told
        if told:
            return
        rest = iter(tiles)
        data, scale, bias = (next(rest) if n is None else n for n in numbers)
        x = data if np.isscalar(scale) and scale == 1 else np.multiply(data, scale, dtype=F32)
        x = x if np.isscalar(bias) and bias == 0 else np.add(x, bias, dtype=F32)
        if where is not None:
            x = x[where]
        if op in _EITHER_SIGN:
            x = np.abs(x)
        if op in _ZERO_TOO:
            x = x[x != 0]
        if not x.size:
            return
        least, most = float(x.min()), float(x.max())
        bound = (low * _SLACK if low < 0 else low / _SLACK), high * _SLACK
        if least < bound[0] or most > bound[1]:
            told = True
            error = _error(instr, op, least if least < bound[0] else most)
            if strict:
                raise error
            warn(error)

    return check


def _error(instr: Instruction, op: str, value: float) -> KernelError:
    low, high = RANGES[op]
    sign = "the magnitude of " if op in _EITHER_SIGN else ""
    return RangeError(
        f"{instr.label} on the Scalar Engine is given {value:g}",
        rule=f"for {op}, {sign}the input is valid from {low:g} to {high:g}: outside, the device "
        "promises nothing, and need not give the number that NumPy gives here",
        fix=_FIXES.get(op, "clip the input first, with nl.maximum and nl.minimum"),
        location=instr.location,
    )


_FIXES = {
    "sin": "bring the angle into -pi..pi first: nl.mod(x + pi, 2 * pi) - pi",
    "reciprocal": "use nisa.reciprocal, which the Vector Engine computes, or clip the input",
}
