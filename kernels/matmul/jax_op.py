"""Matrix product as a differentiable JAX function around the NKI kernel.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradients, which are matrix products again).
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.jax_rules import batched, compiled_once, of_no_elements, shardable, vary_alike
from kernels.matmul import nki_matmul
from kernels.matmul.arguments import result_shape

# The products that there are: forward, and what their gradients are made of. "..." are rows. Rows
# need each other only in the last one, a sum over them.
_RULES = {
    (False, False): "... k, k n -> ... n",
    (False, True): "... k, n k -> ... n",
    (True, False): "... m, ... n -> m n",
}


@functools.cache
def _batchable(transpose_a: bool, transpose_b: bool) -> Any:
    """The product, with rules for sharding and for ``vmap``."""
    on_devices = shardable(
        lambda a, b: nki_matmul(a, b, transpose_a, transpose_b), _RULES[transpose_a, transpose_b]
    )

    @custom_vmap
    def product(a: jax.Array, b: jax.Array) -> jax.Array:
        return on_devices(a, b)

    @product.def_vmap
    def batch(size: int, in_batched: list[bool], a: jax.Array, b: jax.Array) -> Any:
        if not size:
            return of_no_elements(product, in_batched, (a, b)), True
        if not in_batched[1] and not transpose_a:  # a batch is a leading axis more
            return product(a, b), True
        both = batched(size, in_batched, (a, b))
        return jax.lax.map(lambda one: product(*one), both), True  # one launch for each

    return compiled_once(product)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def _product(a: jax.Array, b: jax.Array, transpose_a: bool, transpose_b: bool) -> jax.Array:
    shape = result_shape(a, b, transpose_a, transpose_b)
    if 0 in (*a.shape, *b.shape):  # nothing to multiply
        return jnp.zeros(shape, a.dtype)
    return _batchable(transpose_a, transpose_b)(a, b)


def _forward(a: jax.Array, b: jax.Array, transpose_a: bool, transpose_b: bool) -> tuple[Any, Any]:
    return _product(a, b, transpose_a, transpose_b), (a, b)


def _backward(transpose_a: bool, transpose_b: bool, operands: tuple, grad: jax.Array) -> tuple:
    """The gradients of both operands: products, which can be differentiated in turn."""
    a, b = operands
    if transpose_a:  # c = a.T @ b
        return _product(b, grad, False, True), _product(a, grad, False, False)
    grad_a = _product(grad, b, False, not transpose_b)
    if transpose_b:  # c = a @ b.T
        return grad_a, _product(grad, a, True, False)
    return grad_a, _product(a, grad, True, False)


_product.defvjp(_forward, _backward)


def matmul(a: jax.Array, b: jax.Array) -> jax.Array:
    """``jnp.matmul`` with a matrix on the right, with the NKI kernel.

    Dimensions:
        K: the contraction. N: columns of the result. "...": rows, any number of axes.

    Args:
        a: (..., K), float32, bfloat16 or float16.
        b: (K, N), dtype of ``a``.

    Returns:
        (..., N), dtype of ``a``. Products are summed in float32 and rounded once.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: shapes that do not fit, or a ``b`` that is no matrix (map it with ``jax.vmap``).

    Notes:
        Not as ``jnp.matmul``: b is a matrix, two dtypes are not promoted, and there are no
        ``precision`` and no ``preferred_element_type``. Works under ``jit``, ``grad`` and ``vmap``
        (a batch of a is one launch; a batch of b, and the gradient of b for each element of a
        batch, one launch an element). Differentiable in reverse mode, any number of times. With the
        rows of a sharded over devices, nothing moves forward, and backward one all-reduce adds up
        the gradient of b, which each device has rounded to its dtype. A b whose columns are
        sharded, as in tensor parallelism, is gathered first; in a ``shard_map`` over that axis each
        device multiplies with its own columns, and nothing moves. Axes of no elements give an empty
        result, or zeros.

    Pseudocode:
        forward:   c = a @ b
        backward:  grad_a = grad_c @ b.T
                   grad_b = a.T @ grad_c      # over all rows
    """
    result_shape(a, b)  # refuses what does not fit
    return _product(*vary_alike(*map(jnp.asarray, (a, b))), False, False)
