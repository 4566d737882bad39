"""A kernel from the code of one tile: what the steps of the optimisation chapter share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from kernels.tiles import PARTITIONS


def over_tiles(compute: Callable, *, boxes: int = 512, dtype: Any = None) -> Callable:
    """An NKI kernel that applies the code of one tile to all pairs of boxes.

    Args:
        compute: ``compute(p, q)`` returns the scores (128, boxes) of two tiles (128, boxes, 4).
        boxes: how many a partition.
        dtype: what the DMA converts the boxes to; float32 when None.

    Returns:
        A kernel that takes two arrays (N, 4), N a multiple of 128 * `boxes`, and returns (N,)
        float32.
    """
    dtype = nl.float32 if dtype is None else dtype

    @nki.jit
    def giou(boxes1, boxes2):
        scores = nl.ndarray((boxes1.shape[0],), dtype=nl.float32, buffer=nl.shared_hbm)
        i_p, i_f, i_c = nl.mgrid[0:PARTITIONS, 0:boxes, 0:4]
        for tile in nl.affine_range(boxes1.shape[0] // (PARTITIONS * boxes)):
            rows = (tile * PARTITIONS + i_p) * boxes + i_f
            p = nl.load(boxes1[rows, i_c], dtype=dtype)
            q = nl.load(boxes2[rows, i_c], dtype=dtype)
            to_p, to_f = nl.mgrid[0:PARTITIONS, 0:boxes]
            nl.store(scores[(tile * PARTITIONS + to_p) * boxes + to_f], value=compute(p, q))
        return scores

    giou.__name__ = compute.__name__
    return giou
