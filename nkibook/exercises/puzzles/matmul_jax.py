"""Exercises of the page on matmul in JAX."""

from nkibook.exercises import exercise


@exercise(((6, 6), (6, 6)), ((7, 5), (9, 5)), lines=1, rtol=1e-5, atol=1e-5, framework="jax")
def times_transposed(x, w):
    return x @ w.T


@exercise(((8, 5), (8, 6)), ((11, 5), (11, 6)), lines=2, rtol=1e-5, atol=1e-5, framework="jax")
def weight_gradient(x, grad_y):
    return x.T @ grad_y
