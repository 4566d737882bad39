"""Exercises of the page that optimises GIOU, about time: the skeletons are right, and slow."""

import numpy as np

from nkibook.exercises import exercise


@exercise((128, 512), (256, 200), lines=1, data=lambda rng, *shape: tuple(
    rng.uniform(1, 2, shape).astype(np.float32) for _ in range(2)
), cost=((2048, 512), (2048, 512)), at_most=1.05)  # fmt: skip
def contrast(a, b):
    return a / (a + b) - b / (a + b)


@exercise(
    ((128, 512),), ((256, 200),), lines=2, rtol=1e-4, atol=1e-4, cost=((4096, 512),), at_most=1.02
)
def two_factors(x):
    return (x * x + x) * (x * x - x)
