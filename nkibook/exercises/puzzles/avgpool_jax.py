"""Exercises of the page on average pooling in JAX."""

import numpy as np

from nkibook.exercises import exercise


@exercise(((2, 6, 6),), ((1, 4, 10),), lines=1, framework="jax", rtol=1e-4, atol=1e-5)
def gradient(x):
    # The gradient of the sum of s^2, where s are the sums of 2 x 2 windows.
    c, h, w = x.shape
    windows = x.reshape(c, h // 2, 2, w // 2, 2)
    sums = windows.sum(axis=(2, 4), keepdims=True)
    return np.broadcast_to(2 * sums, windows.shape).reshape(c, h, w)


@exercise(((2, 4, 6), 3), ((3, 5, 10), 2), lines=3)
def pool_columns(x, k):
    c, h, w = x.shape
    return x.reshape(c, h, w // k, k).mean(axis=3)


@exercise(((3, 4),), ((2, 7),), lines=1)
def unpool(grad):
    # The gradient of the means over overlapping windows of 3, with stride 2.
    rows, n = grad.shape
    out = np.zeros((rows, 2 * n + 1), grad.dtype)
    for u in range(3):
        out[:, u : u + 2 * n - 1 : 2] += grad / 3
    return out
