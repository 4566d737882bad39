"""Answers to the exercises on the life of a custom call."""

import jax.numpy as jnp
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


def descend(w, grad):
    @nki.jit
    def step(w, grad, rate):
        out = nl.ndarray(w.shape, dtype=w.dtype, buffer=nl.shared_hbm)
        rates = nl.broadcast_to(nl.load(rate), shape=(w.shape[0], 1))
        scaled = nl.multiply(nl.load(grad), rates)
        nl.store(out, value=nl.subtract(nl.load(w), scaled))
        return out

    for i in range(5):
        rate = jnp.full((1, 1), 0.1 / (i + 1), jnp.float32)
        w = step(w, grad, rate)
    return w, step


def scale_by(x, factors):
    compiled = {}

    def scale(x, factor):
        @nki.jit
        def kernel(x):
            y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(y, value=nl.multiply(nl.load(x), factor))
            return y

        key = x.shape, x.dtype, factor
        return compiled.setdefault(key, kernel)(x)

    return [scale(x, factor) for factor in factors]
