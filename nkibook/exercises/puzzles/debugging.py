"""Exercises of the page on debugging a kernel: all of them are bug hunts."""

import numpy as np

from nkibook.exercises import exercise


def _numbers_around(rng, shape, centre):
    return (rng.standard_normal(shape, dtype=np.float32) + np.float32(centre),)


# All of the last case are negative, so zero is no start for the maximum.
@exercise(((4, 16), 0), ((3, 24), 0), ((3, 24), -9), lines=2, data=_numbers_around)
def best(x):
    return x.max(axis=1, keepdims=True)


@exercise(((4, 10),), ((3, 7),), lines=1)
def padded(x):
    # One column of zeros to the left and to the right.
    return np.pad(x, ((0, 0), (1, 1)))


@exercise(((8, 6),), ((12, 5),), lines=1, rtol=1e-4, atol=1e-5)
def gram(x):
    return x.T @ x


# The exponentials of the last case are infinite in float32, unless the largest is taken off.
@exercise(((4, 8), 0), ((5, 7), 0), ((5, 7), 100), lines=1, data=_numbers_around)
def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
