"""The rotary embedding as a differentiable JAX function around the NKI kernel.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (heads stay on their devices), ``custom_vmap`` (a batch is more heads) and
``custom_vjp`` (the gradient, which is the same kernel).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.jax_rules import batched, compiled_once, of_no_elements, shardable, vary_alike
from kernels.rope import nki_rope
from kernels.rope.arguments import check


@functools.cache
def _batchable(inverse: bool) -> Any:
    """The rotation, with rules for sharding and for ``vmap``."""
    on_devices = shardable(
        lambda x, cos, sin: nki_rope(x, cos, sin, inverse), "... s d, s h, s h -> ... s d"
    )

    @custom_vmap
    def rotation(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
        return on_devices(x, cos, sin)

    @rotation.def_vmap
    def batch(size: int, in_batched: list[bool], *arrays: jax.Array) -> Any:
        if not size:
            return of_no_elements(rotation, in_batched, arrays), True
        if in_batched == [True, False, False]:  # a batch is a leading axis more
            return rotation(*arrays), True
        each = batched(size, in_batched, arrays)
        return jax.lax.map(lambda one: rotation(*one), each), True  # one launch for each

    return compiled_once(rotation)


@functools.partial(jax.custom_vjp, nondiff_argnums=(3,))
def _rope(x: jax.Array, cos: jax.Array, sin: jax.Array, inverse: bool) -> jax.Array:
    return _batchable(inverse)(x, cos, sin) if x.size else x


def _forward(x: jax.Array, cos: jax.Array, sin: jax.Array, inverse: bool) -> tuple[Any, Any]:
    return _rope(x, cos, sin, inverse), (cos, sin)


def _backward(inverse: bool, tables: tuple[Any, Any], grad: jax.Array) -> tuple[Any, ...]:
    """The rotation back, which can be differentiated in turn. Tables are constants."""
    return _rope(grad, *tables, not inverse), *map(jnp.zeros_like, tables)


_rope.defvjp(_forward, _backward)


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
    """Rotate each pair of elements of queries or keys by an angle of its position.

    Dimensions:
        "...": sequences and heads: any axes. S: positions. D: elements of a head, even, 2 to 2048.

    Args:
        x: (..., S, D), float32, bfloat16 or float16.
        cos, sin: (S, D / 2) float32: see :func:`kernels.rope.reference.rotations`. Constants: their
            gradients are zeros.

    Returns:
        Shape and dtype of ``x``. Element i is paired with element i + D / 2, as in Llama's
        published code for Hugging Face.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: shapes that do not fit, or a head that is too long.

    Notes:
        Works under ``jit``, ``grad`` (reverse mode, any order) and ``vmap`` (a batch of x is one
        launch; a batch of tables one launch an element). With any axes before the positions sharded
        over devices, nothing moves.

    Pseudocode:
        forward:   left, right = halves of x
                   y = left * cos - right * sin, right * cos + left * sin
        backward:  the same for grad_y, with -sin
    """
    check(x, cos, sin)
    return _rope(*vary_alike(*map(jnp.asarray, (x, cos, sin))), False)
