"""Exercises of the page on RMSNorm in PyTorch."""

import numpy as np

from kernels.rmsnorm import reference
from nkibook.exercises import exercise


@exercise(((4, 8), (1, 8)), ((5, 7), (1, 7)), lines=1, rtol=1e-4, atol=1e-5)
def one_plus(x, weight):
    # Some models store the weight as a difference from 1.
    return reference.rms_norm(x, 1 + weight[0], 1e-5)[0]


@exercise(((4, 8),), ((5, 7),), lines=1, rtol=1e-4, atol=1e-5)
def layer_norm(x):
    centered = x - x.mean(axis=1, keepdims=True)
    variance = (centered**2).mean(axis=1, keepdims=True)
    return centered / np.sqrt(variance + np.float32(1e-5))


@exercise(((4, 8), (4, 8)), ((5, 7), (5, 7)), lines=1, rtol=1e-4, atol=1e-5)
def add_and_norm(x, residual):
    # Between two layers of a transformer, the sum and its norm are needed.
    total = x + residual
    ones = np.ones_like(x[0])
    return total, reference.rms_norm(total, ones, 1e-5)[0]


@exercise(((4, 8), (4, 8)), ((7, 5), (7, 5)), lines=2, rtol=1e-4, atol=1e-5)
def weight_gradient(grad_y, x_hat):
    return (grad_y * x_hat).sum(axis=0, keepdims=True)


@exercise(((4, 8),), ((5, 7),), lines=1, rtol=1e-4, atol=1e-5)
def unscaled(x):
    return reference.rms_norm(x, np.ones_like(x[0]), 1e-5)[0]
