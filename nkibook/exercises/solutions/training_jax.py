"""Answers to the exercises on training graphs in JAX."""

import jax

from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward


def silu_gradient(x, grad):
    def forward(x):
        return x * jax.nn.sigmoid(x), (x,)

    def backward(residuals, grad):
        (x,) = residuals
        s = jax.nn.sigmoid(x)
        return grad * (s + x * s * (1 - s))

    _, residuals = forward(x)
    kept = sum(r.size for r in residuals) // x.size
    return backward(residuals, grad), kept


def norm_gradients(x, weight):
    @jax.custom_vjp
    def norm(x, weight):
        return nki_rms_norm(x, weight, 1e-5)[0]

    def forward(x, weight):
        y, invvar = nki_rms_norm(x, weight, 1e-5)
        return y, (x, weight, invvar)

    def backward(residuals, grad_y):
        return tuple(nki_rms_norm_backward(grad_y, *residuals))

    norm.defvjp(forward, backward)
    return jax.grad(lambda *a: norm(*a).sum(), argnums=(0, 1))(x, weight)


def calls_of_nested_checkpoints():
    forward, backward = 5, 2
    return forward, backward
