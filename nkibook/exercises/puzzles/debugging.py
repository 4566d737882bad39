"""Exercises of the page on debugging a kernel: all of them are bug hunts."""

import numpy as np

from nkibook.exercises import exercise


def _numbers_around(rng, shape, centre):
    return (rng.standard_normal(shape, dtype=np.float32) + np.float32(centre),)


def _with_a_row_of_infinities(rng, shape):
    x = rng.standard_normal(shape, dtype=np.float32) - np.float32(9)
    x[-1] = -np.inf
    return (x,)


# All are negative, and one row has no finite number: no number is a start for the maximum.
@exercise(((4, 16),), ((3, 20),), ((2, 5),), lines=2, data=_with_a_row_of_infinities)
def best(x):
    return x.max(axis=1, keepdims=True)


_UNWRITTEN = "tile = nl.ndarray((rows, cols + 2), dtype=x.dtype, buffer=nl.sbuf)\n    "


@exercise(
    ((4, 10),), ((3, 7),), lines=1, breaks=(_UNWRITTEN + "tile[", _UNWRITTEN + "nisa.dma_copy")
)
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
