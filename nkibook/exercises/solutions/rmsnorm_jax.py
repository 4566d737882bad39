"""Answers to the exercises on RMSNorm in JAX."""

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.extend.core import Primitive
from jax.interpreters import mlir

from kernels.rmsnorm import nki_rms_norm
from kernels.rmsnorm.jax_op import rms_norm


def as_primitive(shapes):
    """RMSNorm as a primitive with the rule `shapes` for its results."""
    primitive = Primitive("norm")
    primitive.multiple_results = True
    primitive.def_abstract_eval(shapes)
    lowering = mlir.lower_fun(nki_rms_norm, multiple_results=True)
    mlir.register_lowering(primitive, lowering)
    return jax.jit(lambda x, weight: primitive.bind(x, weight, eps=1e-5))


def inverse_rms(x, weight):
    def shapes(x, weight, *, eps):
        rows = x.shape[: x.ndim - weight.ndim]
        return ShapedArray(x.shape, x.dtype), ShapedArray(rows, jnp.float32)

    return as_primitive(shapes)(x, weight)[1]


def weight_gradient(shards, weight):
    def on_each_device(x):
        gradient = jax.grad(lambda w: (rms_norm(x, w) ** 2).sum())(weight)
        return jax.lax.psum(gradient, "data")

    return jax.vmap(on_each_device, axis_name="data")(shards)[0]


def split_rows(parts):
    def on_each_device(x):
        squares = jax.lax.psum((x * x).sum(axis=1, keepdims=True), "data")
        mean = squares / (x.shape[1] * jax.lax.psum(1, "data"))
        return x * jax.lax.rsqrt(mean + 1e-5)

    return jax.vmap(on_each_device, axis_name="data")(parts)
