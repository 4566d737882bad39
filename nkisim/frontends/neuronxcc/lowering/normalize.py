"""Softmax and RMSNorm of tiles, as the instructions a kernel would write."""

from __future__ import annotations

import numpy as np

from nkisim.errors import ParameterError
from nkisim.frontends.neuronxcc.lowering.chain import activate, chain
from nkisim.frontends.neuronxcc.lowering.elementwise import elementwise
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.op_cache import remembered
from nkisim.frontends.neuronxcc.lowering.operands import require_tile
from nkisim.frontends.neuronxcc.lowering.reduce import float_type, free_axes, kept_mask, reduce
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import F32


@remembered
def softmax(x, axis, *, dtype=None, compute_dtype=None, mask=None, **kwargs):
    """exp(x - max(x)) / sum(exp(x - max(x))) along free axes, in fp32."""
    x = require_tile("nl.softmax", x)
    axes = free_axes("nl.softmax", axis, x)
    result = float_type(x, compute_dtype if dtype is None else dtype)
    top = reduce("nl.softmax", "maximum", x, axis, dtype=F32, mask=mask, keepdims=True)
    if axes == tuple(range(1, x.ndim)) and _plain(mask, x):
        return _softmax_rows(x, top, result, mask)
    power = elementwise("subtract", x, top, dtype=F32, mask=mask)
    power = elementwise("exp", power, mask=mask)
    total = reduce("nl.softmax", "add", power, axis, mask=mask, keepdims=True)
    scale = elementwise("reciprocal", total, mask=kept_mask(mask, x, total))
    return elementwise("multiply", power, scale, dtype=result, mask=mask)


def _plain(mask: Mask | None, x: Tensor) -> bool:
    return restriction(mask, x.shape).dense is None


def _softmax_rows(x: Tensor, top: Tensor, result: np.dtype, mask: Mask | None) -> Tensor:
    """Softmax over all free axes: the Scalar Engine subtracts, exponentiates and adds up."""
    part = kept_mask(mask, x, top)
    low = elementwise("negative", top, mask=part)
    power = ndarray(x.shape, F32)
    total = ndarray((x.shape[0], 1), F32)
    activate("exp", x, power, bias=low, reductions=(total,), mask=mask)
    scale = elementwise("reciprocal", total, mask=kept_mask(mask, x, total))
    out = ndarray(x.shape, result)
    chain("tensor_scalar", out, x=power, steps=(("multiply", False),), rest=(scale,), mask=mask)
    return out


@remembered
def rms_norm(x, w, axis, n, epsilon=1e-06, *, dtype=None, compute_dtype=None, mask=None, **kwargs):
    """x / sqrt(sum(x * x) / n + epsilon) * w along free axes, in fp32.

    Args:
        x: on-chip tile.
        w: weight, a tile or number that broadcasts to x.
        axis: the last axes of x.
        n: number of elements in the mean of squares.
        epsilon: added to the mean of squares.

    Raises:
        ParameterError: n is a tile, or zero.
    """
    x = require_tile("nl.rms_norm", x)
    free_axes("nl.rms_norm", axis, x)
    if isinstance(n, Tensor) or not n:
        raise ParameterError(
            f"nl.rms_norm: n={n!r}",
            rule="n is the number of elements, known while tracing and not zero",
            fix="pass the extent of the normalised axis",
        )
    result = float_type(x, compute_dtype if dtype is None else dtype)
    squares = elementwise("square", x, dtype=F32, mask=mask)
    total = reduce("nl.rms_norm", "add", squares, axis, mask=mask, keepdims=True)
    part = kept_mask(mask, x, total)
    scale = ndarray(total.shape, F32)
    chain(
        "tensor_scalar",
        scale,
        x=total,
        steps=(("multiply", False), ("add", False)),
        rest=(1.0 / n, float(epsilon)),
        mask=part,
    )
    scale = elementwise("rsqrt", scale, mask=part)
    normal = elementwise("multiply", x, scale, dtype=F32, mask=mask)
    return elementwise("multiply", normal, w, dtype=result, mask=mask)
