"""Arguments `mask=` of kernels, as restrictions of an instruction's iteration domain."""

from __future__ import annotations

import functools

import numpy as np

from nkisim.errors import ShapeError
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.ir.access import AccessPattern
from nkisim.ir.restriction import Restriction


def restriction(mask: Mask | bool | None, shape: tuple[int, ...]) -> Restriction:
    """The restriction of an iteration domain of `shape` by `mask`.

    Raises:
        ShapeError: `mask` is not a mask, or its shape does not broadcast to `shape`.
    """
    if mask is None or (isinstance(mask, bool | np.bool_) and mask):
        return _all_of(shape)
    if isinstance(mask, bool | np.bool_):
        return Restriction(((0, 0),) * len(shape), None)
    if not isinstance(mask, Mask):
        raise not_a_mask(mask)
    return mask.restrict(shape).tightened()


def not_a_mask(mask: object) -> ShapeError:
    """The error for what is given as `mask=` and is none: a tile, an array, a number."""
    rule = "masks are comparisons of nl.arange / nl.mgrid expressions, joined with &"
    if isinstance(mask, AccessPattern):
        return ShapeError(
            f"mask={mask.describe()}, which is not a mask",
            rule=rule + ": they are known while tracing, and what a tile holds is not",
            fix="compute on all of the tile, and choose by its values: nl.where(condition, x, y), "
            "or nisa.tensor_copy_predicated, which keeps the rest",
            code="err_unsupported_expression_in_mask",
        )
    shape = getattr(mask, "shape", None)
    kind = type(mask).__name__
    given = f"{mask!r} ({kind})" if shape is None else f"a {kind} of shape {tuple(shape)}"
    return ShapeError(
        f"mask={given} is not a mask",
        rule=rule,
        fix="write e.g. mask=(i_p < rows) & (i_f < columns)",
    )


@functools.lru_cache(maxsize=4096)
def _all_of(shape: tuple[int, ...]) -> Restriction:
    return Restriction(tuple((0, n) for n in shape), None)
