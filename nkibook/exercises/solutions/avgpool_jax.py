"""Answers to the exercises on average pooling in JAX."""

import jax
import jax.numpy as jnp
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

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


@nki.jit
def pool_columns(x, k):
    c, h, w = x.shape
    out = nl.ndarray((c, h, w // k), x.dtype, buffer=nl.shared_hbm)
    i_c, i_y, i_x, i_u = nl.mgrid[0:c, 0:h, 0 : w // k, 0:k]
    windows = nl.load(x)[i_c, i_y, k * i_x + i_u]
    nl.store(out, value=nl.sum(windows, axis=[3]) / k)
    return out


@nki.jit
def unpool(grad):
    rows, n = grad.shape
    out = nl.ndarray((rows, 2 * n + 1), grad.dtype, buffer=nl.shared_hbm)
    tile = nl.zeros((rows, 2 * n + 1), grad.dtype)
    share = nl.load(grad) / 3
    i_p, i_x = nl.mgrid[0:rows, 0:n]
    for u in range(3):
        tile[i_p, 2 * i_x + u] = nl.add(tile[i_p, 2 * i_x + u], share)
    nl.store(out, value=tile)
    return out
