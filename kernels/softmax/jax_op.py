"""Softmax as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kernels.jax_rules import batchable, no_second_derivative
from kernels.softmax import nki_softmax, nki_softmax_backward
from kernels.softmax.arguments import check

# Without the keyword `lnc` of one dialect: custom_partitioning takes no keywords. JAX
# differentiates these two only for a second derivative: `_softmax` below has the first.
_values = no_second_derivative(
    batchable(lambda x: nki_softmax(x), "... c -> ... c"), "softmax", "jax.nn.softmax"
)
_gradient = no_second_derivative(
    batchable(lambda grad_y, y: nki_softmax_backward(grad_y, y), "... c, ... c -> ... c"),
    "softmax",
    "jax.nn.softmax",
)


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
