"""Operands that are numbers, which an instruction carries with it."""

from __future__ import annotations

import numpy as np

from nkisim.errors import DTypeError
from nkisim.frontends.neuronxcc.tensors.index import IndexTensor, Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import check_constant


def number(value: object) -> object:
    """`value`, a Python or NumPy number of at most 32 bits. Raises DTypeError for anything else."""
    if type(value) is float:  # mostly
        return value
    if isinstance(value, IndexTensor):
        raise DTypeError(
            "an index tensor is used as data",
            rule="nl.arange and nl.mgrid describe addresses; they are not memory",
            fix="materialise it as a tile with nisa.iota",
        )
    if isinstance(value, Mask):
        raise DTypeError(
            "a mask is used as data",
            rule="a mask, a comparison of nl.arange / nl.mgrid expressions, says where an "
            "operation computes",
            fix="pass it as mask=, or choose with it: nl.where(mask, x, y), nisa.affine_select",
        )
    if isinstance(value, Tensor):
        raise DTypeError(
            f"{value.describe()} is given where a number is wanted",
            rule="the number is part of the instruction, and known while tracing",
            fix="copy the tile with nl.broadcast_to or nl.copy, or compute with it",
        )
    if not np.isscalar(value) or isinstance(value, str | bytes | complex):
        raise DTypeError(
            f"operand {brief(value)} is neither a tile nor a number",
            rule="operands are on-chip tiles, Python numbers or NumPy scalars",
            fix="pass arrays as kernel arguments and nl.load them",
        )
    if isinstance(value, int | np.integer) and not -(2**31) <= value < 2**32:
        raise DTypeError(
            f"operand {value} has more than 32 bits",
            rule="integers have 32 bits at most: -2**31..2**31-1, or 0..2**32-1 without sign",
            fix="pass a float, or compute in two halves",
        )
    return value


def constant(what: str, value: object, dtype: np.dtype) -> object:
    """`value`, a number that a tile of `dtype` is filled with."""
    found = number(value)
    check_constant(what, found, dtype)
    return found


def brief(x: object) -> str:
    """An argument, short enough for a message."""
    shape = getattr(x, "shape", None)
    kind = type(x).__name__
    return f"{x!r} ({kind})" if shape is None else f"a {kind} of shape {tuple(shape)}"
