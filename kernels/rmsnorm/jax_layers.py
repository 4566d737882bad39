"""What JAX must be told about RMSNorm, whatever its two kernels are written in.

A kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient, with one all-reduce for the weight when rows are sharded).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.jax_rules import (
    batched,
    compiled_once,
    no_second_derivative,
    of_no_elements,
    shardable,
    vary_alike,
)

# The layers normalise one axis: x is (..., cols), weight (cols,), invvar (...). A row lies on one
# device as a whole, because it is normalised as a whole. No row needs another; the gradient of the
# weight is a sum over all.


def differentiable(forward: Callable, backward: Callable, language: str) -> Callable:
    """RMSNorm for JAX, made of a forward and a backward kernel.

    Args:
        forward: takes x (..., cols), weight (cols,) and eps, a float, and returns y, of the shape
            and dtype of x, and invvar, (...), float32.
        backward: takes grad_y, x, weight and invvar, and returns grad_x, of the shape and dtype of
            x, and grad_weight, (cols,), float32.
        language: what the kernels are written in, for the error of a second derivative.

    Returns:
        A function of x (..., *weight.shape), weight and eps, a Python number, which returns y. It
        can be differentiated once, in reverse mode, batched and sharded. Its arguments must fit.

    Raises:
        TypeError: a traced eps.
        NotImplementedError: differentiated twice.
    """
    # Named arguments of a kernel are none of JAX's business.
    sharded_backward = shardable(
        lambda *arrays: backward(*arrays), "... c, ... c, c, ... -> ... c, c"
    )

    @functools.cache
    def batchable_forward(eps: float) -> Any:
        """The forward function for one eps, with rules for sharding and for ``vmap``."""
        on_devices = shardable(lambda x, weight: forward(x, weight, eps), "... c, c -> ... c, ...")

        @custom_vmap
        def values(x: jax.Array, weight: jax.Array) -> Any:
            return on_devices(x, weight)

        @values.def_vmap
        def batch(size: int, in_batched: list[bool], x: jax.Array, weight: jax.Array) -> Any:
            if not size:
                return of_no_elements(values, in_batched, (x, weight)), (True, True)
            if in_batched[1]:  # a weight for each element: one launch for each
                return _map(values, size, in_batched, x, weight), (True, True)
            return values(x, weight), (True, True)  # a batch is a leading axis more

        return compiled_once(values)

    @custom_vmap
    def batchable_backward(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
        return sharded_backward(grad_y, x, weight, invvar)

    @batchable_backward.def_vmap
    def backward_batch(size: int, in_batched: list[bool], *args: jax.Array) -> Any:
        """One launch: a batch is a leading axis more. Each element has a weight gradient of its
        own, which the kernel would add up with the others', so JAX sums it. A weight for each
        element is one launch for each."""
        if not size:
            return of_no_elements(batchable_backward, in_batched, args), (True, True)
        if not in_batched[2]:
            grad_y, x, invvar = batched(size, in_batched[:2] + in_batched[3:], args[:2] + args[3:])
            grad_x, _ = batchable_backward(grad_y, x, args[2], invvar)
            wide = grad_y.astype(jnp.float32) * x.astype(jnp.float32) * invvar[..., None]
            return (grad_x, wide.sum(tuple(range(1, x.ndim - 1)))), (True, True)
        return _map(batchable_backward, size, in_batched, *args), (True, True)

    compiled_backward = compiled_once(batchable_backward)

    # JAX differentiates these two only for a second derivative: `norm` below has the first.
    @functools.cache
    def values(eps: float) -> Any:
        return no_second_derivative(batchable_forward(eps), "rms_norm", "jax.numpy", language)

    gradients = no_second_derivative(compiled_backward, "rms_norm", "jax.numpy", language)

    @functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
    def norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
        return norm_forward(x, weight, eps)[0]

    def norm_forward(x: jax.Array, weight: jax.Array, eps: float) -> tuple[jax.Array, tuple]:
        """y, and what the backward pass reads."""
        lead = x.shape[: x.ndim - weight.ndim]
        if 0 in lead:  # no rows: nothing to launch
            return x, (x, weight, None)
        rows = (*lead, math.prod(weight.shape))
        y, invvar = values(eps)(x.reshape(rows), weight.reshape(-1))
        return y.reshape(x.shape), (x, weight, invvar)

    def norm_backward(eps: float, residuals: tuple, grad_y: jax.Array) -> tuple:
        """Gradients of x and of the weight, which is rounded to its dtype after all sums."""
        x, weight, invvar = residuals
        if invvar is None:
            return grad_y, jnp.zeros_like(weight)
        rows = (*invvar.shape, weight.size)
        grad_x, grad_weight = gradients(
            grad_y.reshape(rows), x.reshape(rows), weight.reshape(-1), invvar
        )
        return grad_x.reshape(x.shape), grad_weight.reshape(weight.shape).astype(weight.dtype)

    norm.defvjp(norm_forward, norm_backward)

    def rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
        if isinstance(eps, jax.core.Tracer):
            raise TypeError(
                "eps is traced. It is compiled into the kernel, so it must be a Python number. "
                "Leave it out of what jax.jit traces: jax.jit(rms_norm, static_argnums=2)."
            )
        return norm(*vary_alike(x, weight), float(eps))

    return rms_norm


def _map(function: Any, size: int, in_batched: list[bool], *args: jax.Array) -> Any:
    return jax.lax.map(lambda one: function(*one), batched(size, in_batched, args))
