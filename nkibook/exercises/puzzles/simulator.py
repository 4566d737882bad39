"""Exercises of the page on the simulator."""

import numpy as np

from nkibook.exercises import exercise


@exercise(((8, 6),), ((12, 5),), lines=1, grid=lambda x: len(x) // 4)
def double(x):
    return np.float32(2) * x


@exercise(
    (4, 2),
    (6, 3),
    lines=1,
    reveal=False,
    unit="instructions",
    hint="Loops are unrolled: each tile of each instance has its own instructions.",
)
def instructions(instances, tiles):
    # Each instance processes `tiles` tiles: two loads, an addition and a
    # store for each tile.
    return instances * tiles * 4


@exercise(((4, 8),), ((3, 5),), lines=1)
def keep_positive(x):
    return np.maximum(x, 0)


@exercise(
    (4, 8),
    (3, 5),
    lines=1,
    data=lambda rng, *shape: ((64 + rng.integers(0, 64, shape)).astype(np.int8),),
)
def sum_of_bytes(x):
    return x.astype(np.int32).sum(axis=1, keepdims=True, dtype=np.int32)
