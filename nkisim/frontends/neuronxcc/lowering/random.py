"""Random numbers and dropout. The generator's state belongs to the kernel instance."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkisim.errors import DTypeError, ParameterError, ShapeError
from nkisim.frontends.neuronxcc.lowering.memory import ndarray
from nkisim.frontends.neuronxcc.lowering.movement import copy
from nkisim.frontends.neuronxcc.lowering.operands import lane_operand, narrow, require_tile, spread
from nkisim.frontends.neuronxcc.rules.compatibility import drops_nothing
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.masks import restriction
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor
from nkisim.ir.dtypes import F32, FLOATS, INTEGERS, as_dtype
from nkisim.ir.integers import as_int
from nkisim.ir.memory import check_shapes
from nkisim.trace.tracer import current


def _state() -> Tensor:
    """The state, seeded with 0 if the kernel has not seeded it: runs repeat each other."""
    tracer = current()
    fresh = not tracer.has_hidden("random state")
    state = tracer.hidden("random state", (1, 2), np.dtype(np.int32))
    if fresh:
        tracer.emit("random_seed", (state,), (0,))
    return state


def random_seed(seed: int | Tensor, *, mask: Mask | None = None, **kwargs: Any) -> None:
    """Seed the generator that `rand` and `dropout` draw from.

    A kernel that does not seed it draws the same numbers in every call. Each instance of a launch
    grid draws its own.

    Args:
        seed: a 32-bit number, or an on-chip tile of one 32-bit integer.
        mask: whether to do it.

    Raises:
        ParameterError: the seed is not one 32-bit integer.
    """
    if isinstance(seed, Tensor):
        seed = require_tile("nl.random_seed", seed)
        if seed.size != 1 or seed.dtype.name not in ("int32", "uint32"):
            raise ParameterError(
                f"nl.random_seed of {seed.describe()}",
                rule="the seed is one 32-bit integer",
                fix="load it as a (1, 1) tile of int32",
            )
    elif (value := as_int(seed)) is None or not -(2**31) <= value < 2**32:
        raise ParameterError(
            f"nl.random_seed({seed!r})",
            rule="the seed is one 32-bit integer",
            fix="pass an int from -2**31 to 2**32 - 1, or a (1, 1) tile of int32",
        )
    state = current().hidden("random state", (1, 2), np.dtype(np.int32))
    if not restriction(mask, (1, 1)).empty:
        current().emit("random_seed", (state,), (seed,))


def rand(shape: tuple[int, ...], dtype: Any = np.float32, **kwargs: Any) -> Tensor:
    """An SBUF tile of uniform random numbers in [0, 1).

    Args:
        shape: (partitions <= 128, free...).
        dtype: a floating-point type.

    Raises:
        DTypeError: dtype is not floating point.
    """
    kind = as_dtype(dtype)
    if kind not in FLOATS:
        raise DTypeError(
            f"nl.rand with dtype={kind}",
            rule="random numbers between 0 and 1 are floating point",
            fix="draw float32 and scale it to integers",
        )
    out = ndarray(check_shapes(shape), kind)
    state = _state()
    current().emit("rand", (out, state), (state,))
    return out


def dropout(
    x: Tensor, rate: float | Tensor, *, dtype: Any = None, mask: Mask | None = None, **kwargs: Any
) -> Tensor:
    """Zero elements at random, each with probability `rate`. Nothing is scaled.

    Args:
        x: on-chip tile.
        rate: a number from 0 (keep all) to 1 (drop all), or a tile of one element, or a column
            of a tile, `rate[:, 0]`, with one for each partition.
        dtype: of the result; x's when None, and x's if x holds integers.
        mask: where to compute.

    Returns:
        An SBUF tile of x's shape.

    Raises:
        ShapeError: a rate of several elements that is no such column.
    """
    if isinstance(rate, Tensor) and rate.size != 1:
        rows = require_tile("nl.dropout", x).shape[0]
        if rate.shape != (rows,):
            raise ShapeError(
                f"nl.dropout: the rate is {rate.describe()}",
                rule="the rate is a number, or a tile of one element; kernels of AWS pass a column "
                "of a tile, rate[:, 0], too",
                fix="use nisa.dropout for a rate a partition",
            )
        rate = rate.reshape((rows,) + (1,) * (x.ndim - 1))
    return drop("nl.dropout", x, rate, dtype=dtype, mask=mask)


def drop(
    what: str, x: Tensor, prob: float | Tensor, *, dtype: Any, mask: Mask | bool | None
) -> Tensor:
    """Lower a dropout: Vector Engine, a random number for each element."""
    x = require_tile(what, x)
    result = x.dtype if dtype is None else as_dtype(dtype)
    if x.dtype in INTEGERS and result != x.dtype:
        raise DTypeError(
            f"{what} of {x.describe()} into {result}",
            rule="integers stay what they are: the result has the data's type",
            fix="drop dtype=, and convert afterwards",
        )
    if isinstance(prob, Tensor):
        allowed = {F32} if x.dtype in INTEGERS else FLOATS
        if prob.dtype not in allowed:
            raise DTypeError(
                f"{what}: the probability is {prob.describe()}",
                rule="it is floating point, and float32 for integer data",
                fix="convert it: nl.copy(prob, dtype=nl.float32)",
            )
        if prob.size == 1 and x.shape[0] != 1:
            prob = require_tile(what, prob)
            prob = spread(prob, (x.shape[0],) + (1,) * (prob.ndim - 1))
    else:
        prob = float(prob)
        if not 0 <= prob <= 1:
            raise ParameterError(
                f"{what}: probability {prob}",
                rule="a probability lies between 0 and 1",
                fix="0.1 drops one element in ten",
            )
    if drops_nothing(current(), what):
        return copy(x, mask=mask, dtype=result)
    out = ndarray(x.shape, result)
    left = restriction(mask, x.shape)
    if left.empty:
        return out
    chance = lane_operand(f"{what}: probability", prob, x)
    if isinstance(chance, Tensor):
        chance = narrow(chance, left)
    state = _state()
    current().emit(
        "dropout",
        (narrow(out, left), state),
        (narrow(x, left), chance, state),
        where=left.dense,
    )
    return out
