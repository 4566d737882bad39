"""Exercises of the page on matmul in PyTorch."""

import numpy as np

from nkibook.exercises import exercise


@exercise(((6, 5), (6, 5)), ((7, 4), (7, 9)), lines=1, rtol=1e-5, atol=1e-5)
def swapped(a_t, b):
    return a_t.T @ b


@exercise(
    ((8, 5), (8, 6)),
    ((11, 5), (11, 6)),
    lines=2,
    rtol=1e-5,
    atol=1e-5,
    breaks="total)\n    if k_size % 4:",
)
def read_too_early(a_t, b):
    return a_t.T @ b


@exercise(
    ((8, 6), (6, 5)),
    ((11, 6), (6, 5)),
    lines=2,
    rtol=1e-5,
    atol=1e-5,
    breaks="range(0, m_size // 4 * 4, 4)",
)
def any_rows(a, b):
    return a @ b


@exercise(((6, 4), (6, 8), (1, 8)), ((7, 5), (7, 9), (1, 9)), lines=4, rtol=1e-5, atol=1e-5)
def linear_relu(x_t, weight, bias):
    return np.maximum(x_t.T @ weight + bias, 0)
