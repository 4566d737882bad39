"""Exercises of the page that makes RMSNorm fast. The number of rows is a multiple of 128."""

import numpy as np

from nkibook.exercises import exercise


@exercise(((128, 64),), ((256, 33),), lines=2, rtol=1e-4, cost=((2048, 4096),), at_most=1.01)
def sum_of_squares(x):
    return (x * x).sum(axis=1, keepdims=True)


def _far_from_zero(rng, *shape):
    """Whose exponentials overflow unless the largest number of the row is taken off first."""
    return (100 + rng.standard_normal(shape, dtype=np.float32),)


@exercise(
    (128, 64), (256, 33), lines=3, data=_far_from_zero, rtol=1e-4, cost=((2048, 4096),),
    at_most=1.02,
)  # fmt: skip
def sum_of_exponentials(x):
    # The denominator of a softmax.
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers.sum(axis=1, keepdims=True)
