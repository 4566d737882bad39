"""bn_stats and bn_aggr: mean and variance of long rows, in pieces."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nkisim.ir.instruction import Engine, Instruction, OpKind, flow_by_axis, opcode, reads_by_axis
from nkisim.numerics.ops.cycles import Cycles, one_cycle
from nkisim.numerics.ops.float32 import as_f32, write

_BY_AXIS: dict = {"flow": flow_by_axis, "reads": reads_by_axis}


@opcode("bn_stats", Engine.VECTOR, OpKind.REDUCTION, cost=one_cycle, **_BY_AXIS)
def _bn_stats(instr: Instruction) -> Callable:
    """(partitions, 1, ..., 6): count, mean and variance * count of even, then of odd elements."""

    def run(out: np.ndarray, x: np.ndarray) -> None:
        rows = as_f32(x).reshape(x.shape[0], -1)
        stats = np.zeros((x.shape[0], 6), np.float32)
        for at, part in ((0, rows[:, 0::2]), (3, rows[:, 1::2])):
            if part.shape[1]:
                mean = part.mean(axis=1, keepdims=True)
                stats[:, at] = part.shape[1]
                stats[:, at + 1] = mean[:, 0]
                stats[:, at + 2] = np.square(part - mean).sum(axis=1)
        write(out, stats.reshape(out.shape))

    return run


@opcode(
    "bn_aggr",
    Engine.VECTOR,
    OpKind.REDUCTION,
    cost=lambda on: Cycles(on.timing.bn_aggr_cycles),
    **_BY_AXIS,
)
def _bn_aggr(instr: Instruction) -> Callable:
    """Merge (count, mean, variance * count) triples into (mean, variance)."""

    def run(out: np.ndarray, x: np.ndarray) -> None:
        triples = as_f32(x).reshape(x.shape[0], -1, 3)
        count, mean, spread = triples[..., 0], triples[..., 1], triples[..., 2]
        total = count.sum(axis=1, keepdims=True)
        center = (count * mean).sum(axis=1, keepdims=True) / total
        apart = (spread + count * np.square(mean - center)).sum(axis=1, keepdims=True)
        write(out, np.concatenate([center, apart / total], axis=1).reshape(out.shape))

    return run
