"""Exercises of the page on debugging a kernel: all of them are bug hunts."""

import numpy as np

from kernels.exercises import exercise


@exercise(((4, 16),), ((3, 24),), lines=2)
def best(x):
    return x.max(axis=1, keepdims=True)


@exercise(((4, 10),), ((3, 7),), lines=1)
def padded(x):
    # One column of zeros to the left and to the right.
    return np.pad(x, ((0, 0), (1, 1)))


@exercise(((8, 6),), ((12, 5),), lines=2, rtol=1e-4, atol=1e-5)
def gram(x):
    return x.T @ x


@exercise(((4, 8),), ((5, 7),), lines=1)
def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)
