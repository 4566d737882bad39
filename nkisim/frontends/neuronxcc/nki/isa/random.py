"""Dropout."""

from __future__ import annotations

from typing import Any

from nkisim.frontends.neuronxcc.lowering.random import drop
from nkisim.frontends.neuronxcc.tensors.index import Mask
from nkisim.frontends.neuronxcc.tensors.tensor import Tensor


def dropout(
    data: Tensor,
    prob: float | Tensor,
    *,
    mask: Mask | None = None,
    dtype: Any = None,
    **kwargs: Any,
) -> Tensor:
    """Zero elements at random, each with probability `prob`, on the Vector Engine.

    Nothing is scaled. Seed the generator with nl.random_seed.

    Args:
        data: on-chip tile.
        prob: a number from 0 (keep all) to 1 (drop all), or a tile of shape (partitions, 1), of a
            floating-point type, float32 for integer data.
        mask: where to compute.
        dtype: of the result; data's when None, and data's if data holds integers.

    Returns:
        An SBUF tile of data's shape.
    """
    return drop("nisa.dropout", data, prob, dtype=dtype, mask=mask)


__all__ = ["dropout"]
