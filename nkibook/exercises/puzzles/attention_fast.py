"""Exercises of the page on fast attention."""

import ml_dtypes
import numpy as np

from nkibook.exercises import exercise


def _in_16_bits(rng, *shapes):
    """Matrices of bfloat16: the Tensor Engine multiplies one of their rows in a cycle."""
    return tuple(rng.standard_normal(s, np.float32).astype(ml_dtypes.bfloat16) for s in shapes)


@exercise(
    ((64, 256), (64, 300)),
    ((128, 4096), (128, 512)),
    lines=6,
    data=_in_16_bits,
    rtol=1e-3,
    atol=1e-4,
    at_most=1.05,
)
def one_reading(q_t, k_t):
    # The denominators of a softmax over the keys.
    # Column t contains those of queries 128 t to 128 t + 127.
    scores = q_t.astype(np.float32).T @ k_t.astype(np.float32)
    exponentials = np.exp(scores - scores.max(axis=1, keepdims=True))
    return exponentials.sum(axis=1).reshape(-1, 128).T


@exercise(((8, 11),), ((5, 4),), ((3, 16),), lines=1, rtol=1e-3)
def last_piece(x):
    return np.exp(x).sum(axis=1, keepdims=True)
