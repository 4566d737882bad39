"""RMSNorm as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient, with one all-reduce for the weight when rows are sharded).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.jax_rules import compiled_once, shardable, vary_alike
from kernels.rmsnorm.nki_kernels import leading_shape, nki_rms_norm, nki_rms_norm_backward

# The layers below normalise one axis: x is (..., cols), weight (cols,), invvar (...). A row lies on
# one device as a whole, because it is normalised as a whole. No row needs another; the gradient of
# the weight is a sum over all.

_shardable_backward = shardable(nki_rms_norm_backward, "... c, ... c, c, ... -> ... c, c")


@functools.cache
def _batchable_forward(eps: float) -> Any:
    """The forward function for one eps, with rules for sharding and for ``vmap``."""
    on_devices = shardable(lambda x, weight: nki_rms_norm(x, weight, eps), "... c, c -> ... c, ...")

    @custom_vmap
    def forward(x: jax.Array, weight: jax.Array) -> Any:
        return on_devices(x, weight)

    @forward.def_vmap
    def batch(size: int, batched: list[bool], x: jax.Array, weight: jax.Array) -> Any:
        if batched[1]:  # a weight for each element: one launch for each
            return _map(forward, size, batched, x, weight), (True, True)
        return forward(x, weight), (True, True)  # a batch is a leading axis more

    return compiled_once(forward)


@custom_vmap
def _batchable_backward(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
    return _shardable_backward(grad_y, x, weight, invvar)


@_batchable_backward.def_vmap
def _backward_batch(size: int, batched: list[bool], *args: jax.Array) -> Any:
    """One launch for each element of the batch: each has a weight gradient of its own."""
    return _map(_batchable_backward, size, batched, *args), (True, True)


_compiled_backward = compiled_once(_batchable_backward)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _values(x: Any, weight: Any, eps: float) -> Any:
    return _batchable_forward(eps)(x, weight)


@jax.custom_vjp
def _gradients(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
    return _compiled_backward(grad_y, x, weight, invvar)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError(
        "rms_norm is differentiated twice, and its NKI kernels have no second derivative. "
        "Write the norm with jax.numpy where you need one."
    )


# JAX differentiates these two only for a second derivative: `_rms_norm` below has the first.
_values.defvjp(_refuse, _refuse)
_gradients.defvjp(_refuse, _refuse)


def _map(function: Any, size: int, batched: list[bool], *args: jax.Array) -> Any:
    args = tuple(
        x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_batched in zip(args, batched, strict=True)
    )
    return jax.lax.map(lambda one: function(*one), args)


def rms_norm(x: jax.Array, weight: jax.Array, eps: float = 1e-5) -> jax.Array:
    """Normalise over the last axes with the NKI kernels, differentiable once, in reverse mode.

    Dimensions:
        weight.shape: the axes that are normalised, together of 1 to 16384 elements.

    Args:
        x: (..., *weight.shape), float32, bfloat16 or float16.
        weight: the scale of each element; any of these dtypes.
        eps: added to the mean square of a row; a Python number.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError, ValueError: as :func:`kernels.rmsnorm.nki_kernels.nki_rms_norm`; no rows give no
            rows.
        TypeError: a traced eps.
        NotImplementedError: differentiated twice.

    Notes:
        Works under ``jit``, ``grad`` and ``vmap`` (a batch of x is one launch; a batch of weights,
        and the gradient for each element of a batch, one launch an element). With any axes
        before those of the weight sharded over devices, nothing moves forward, and backward one
        all-reduce adds up the weight's gradient. In a ``shard_map`` of some axes of a mesh, an
        array sharded over the others is gathered over those first.

    Pseudocode:
        invvar = rsqrt(mean(x**2) + eps)
        forward:   y = x * invvar * weight
        backward:  g = grad_y * weight
                   grad_x = invvar * (g - x_hat * mean(g * x_hat)), x_hat = x * invvar
                   grad_weight = sum over rows of grad_y * x_hat
    """
    leading_shape(x, weight)  # refuses what does not fit
    if isinstance(eps, jax.core.Tracer):
        raise TypeError(
            "eps is traced. It is compiled into the kernel, so it must be a Python number. Leave "
            "it out of what jax.jit traces: jax.jit(rms_norm, static_argnums=2)."
        )
    return _rms_norm(*vary_alike(x, weight), float(eps))


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    return _forward(x, weight, eps)[0]


def _forward(x: jax.Array, weight: jax.Array, eps: float) -> tuple[jax.Array, tuple]:
    """y, and what the backward pass reads."""
    lead = leading_shape(x, weight)
    if 0 in lead:  # no rows: nothing to launch
        return x, (x, weight, None)
    rows = (*lead, math.prod(weight.shape))
    y, invvar = _values(x.reshape(rows), weight.reshape(-1), eps)
    return y.reshape(x.shape), (x, weight, invvar)


def _backward(eps: float, residuals: tuple, grad_y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradients of x and of the weight, which is rounded to its dtype after all sums."""
    x, weight, invvar = residuals
    if invvar is None:
        return grad_y, jnp.zeros_like(weight)
    rows = (*invvar.shape, weight.size)
    grad_x, grad_weight = _gradients(
        grad_y.reshape(rows), x.reshape(rows), weight.reshape(-1), invvar
    )
    return grad_x.reshape(x.shape), grad_weight.reshape(weight.shape).astype(weight.dtype)


_rms_norm.defvjp(_forward, _backward)
