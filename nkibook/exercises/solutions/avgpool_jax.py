"""Answers to the exercises on average pooling in JAX."""

import jax
import jax.numpy as jnp

from kernels.avgpool.jax_op import avg_pool2d


def gradient(x):
    @jax.custom_vjp
    def window_sum(x):
        return avg_pool2d(x, 2, divisor_override=1)

    def backward(residuals, grad):
        zeros = jnp.zeros_like(x)
        return jax.vjp(lambda x: avg_pool2d(x, 2), zeros)[1](4 * grad)

    window_sum.defvjp(lambda x: (window_sum(x), None), backward)
    return jax.grad(lambda x: (window_sum(x) ** 2).sum())(x)
