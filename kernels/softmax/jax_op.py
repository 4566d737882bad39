"""Softmax as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.jax_rules import compiled_once, shardable
from kernels.softmax import nki_softmax, nki_softmax_backward
from kernels.softmax.arguments import check

# Without the keyword `lnc` of one dialect: custom_partitioning takes no keywords.
_forward_on_devices = shardable(lambda x: nki_softmax(x), "... c -> ... c")
_backward_on_devices = shardable(
    lambda grad_y, y: nki_softmax_backward(grad_y, y), "... c, ... c -> ... c"
)


@custom_vmap
def _batchable_forward(x: Any) -> Any:
    return _forward_on_devices(x)


@_batchable_forward.def_vmap
def _forward_batch(size: int, batched: list[bool], x: Any) -> Any:
    return _batchable_forward(x), True  # a batch is a leading axis more


@custom_vmap
def _batchable_backward(grad_y: Any, y: Any) -> Any:
    return _backward_on_devices(grad_y, y)


@_batchable_backward.def_vmap
def _backward_batch(size: int, batched: list[bool], *args: Any) -> Any:
    args = tuple(
        x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_batched in zip(args, batched, strict=True)
    )
    return _batchable_backward(*args), True


_compiled_forward = compiled_once(_batchable_forward)
_compiled_backward = compiled_once(_batchable_backward)


@jax.custom_vjp
def _values(x: Any) -> Any:
    return _compiled_forward(x)


@jax.custom_vjp
def _gradient(grad_y: Any, y: Any) -> Any:
    return _compiled_backward(grad_y, y)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError(
        "softmax is differentiated twice, and its NKI kernels have no second derivative. Use "
        "jax.nn.softmax where you need one."
    )


# JAX differentiates these two only for a second derivative: `_softmax` below has the first.
_values.defvjp(_refuse, _refuse)
_gradient.defvjp(_refuse, _refuse)


@jax.custom_vjp
def _softmax(x: jax.Array) -> jax.Array:
    return _forward(x)[0]


def _forward(x: jax.Array) -> tuple[jax.Array, jax.Array]:
    y = _values(x) if x.size else x
    return y, y


def _backward(y: jax.Array, grad_y: jax.Array) -> tuple[jax.Array]:
    return (_gradient(grad_y, y) if y.size else grad_y,)


_softmax.defvjp(_forward, _backward)


def softmax(x: jax.Array, axis: int = -1) -> jax.Array:
    """``jax.nn.softmax`` of one axis with the NKI kernels; differentiable once, in reverse mode.

    Args:
        x: float32, bfloat16 or float16, with at least one axis.
        axis: the axis that is normalised. Others than the last one are moved there first.

    Returns:
        Shape and dtype of ``x``. Powers and sums are float32 and the result is rounded once.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: no axis, or ``axis`` is none of them.
        NotImplementedError: differentiated twice.

    Notes:
        The largest element is subtracted first, so that nothing overflows. Works under ``jit``,
        ``grad`` and ``vmap``. With any axes but the last one sharded over devices, nothing moves.

    Pseudocode:
        forward:   y = exp(x - max(x)); y = y / sum(y)
        backward:  grad_x = (grad_y - sum(grad_y * y)) * y
    """
    check(x)
    return jnp.moveaxis(_softmax(jnp.moveaxis(jnp.asarray(x), axis, -1)), -1, axis)
