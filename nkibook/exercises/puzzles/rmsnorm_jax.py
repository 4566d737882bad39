"""Exercises of the page on RMSNorm in JAX."""

import ml_dtypes
import numpy as np

from kernels.rmsnorm import reference
from nkibook.exercises import exercise


def _rows_and_weight(rng, rows, columns, dtype):
    x = rng.standard_normal((rows, columns)).astype(dtype)
    return x, (1 + rng.standard_normal(columns)).astype(dtype)


@exercise(
    (4, 8, np.float32),
    (4, 8, ml_dtypes.bfloat16),
    lines=1,
    data=_rows_and_weight,
    framework="jax",
    rtol=1e-4,
    atol=1e-5,
)
def inverse_rms(x, weight):
    # invvar is float32 for any type of x: the backward pass needs invvar in
    # full precision.
    return reference.rms_norm(x, weight, 1e-5)[1]


@exercise(((2, 4, 8), (8,)), ((4, 3, 6), (6,)), lines=1, framework="jax", rtol=1e-4, atol=1e-5)
def weight_gradient(shards, weight):
    # The gradient of the sum of the squared norm with respect to the weight.
    # The shape of shards is (devices, rows, columns).
    x = shards.reshape(-1, shards.shape[-1])
    x_hat = reference.rms_norm(x, np.ones_like(weight), 1e-5)[0]
    return 2 * weight * (x_hat**2).sum(axis=0)


@exercise(((2, 4, 8),), ((4, 3, 6),), lines=2, framework="jax", rtol=1e-4, atol=1e-5)
def split_rows(parts):
    # The shape of parts is (devices, rows, columns of each device).
    x = np.concatenate(list(parts), axis=1)
    y = reference.rms_norm(x, np.ones_like(x[0]), 1e-5)[0]
    return np.stack(np.split(y, len(parts), axis=1))
