"""Tensor addition as a differentiable JAX function around the NKI kernel.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (a sharded array stays sharded), ``custom_vmap`` (a batch is one launch) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kernels.add import nki_tensor_add
from kernels.add.arguments import check
from kernels.jax_rules import batchable, vary_alike

# Addition needs no neighbour along any axis, and a batch is an axis more.
_batchable_add = batchable(lambda a, b: nki_tensor_add(a, b), "..., ... -> ...")


def add(a: jax.Array, b: jax.Array) -> jax.Array:
    """``jax.numpy.add`` with the NKI kernel, differentiable any number of times, in reverse mode.

    Args:
        a: float32, bfloat16 or float16, with at least one axis.
        b: shape and dtype of ``a``.

    Returns:
        Shape and dtype of ``a``.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: no axis, or two shapes.

    Notes:
        Not as ``jax.numpy.add``: nothing is broadcast, and two dtypes are not promoted. Works under
        ``jit``, ``grad`` and ``vmap``. On several devices a sharded array is added where it lies,
        with no all-gather.

    Pseudocode:
        forward:   c = a + b
        backward:  grad_a = grad_b = grad_c
    """
    check(a, b)
    return _add(*vary_alike(jnp.asarray(a), jnp.asarray(b)))


@jax.custom_vjp
def _add(a: jax.Array, b: jax.Array) -> jax.Array:
    return _batchable_add(a, b) if a.size else a


def _add_forward(a: jax.Array, b: jax.Array) -> tuple[jax.Array, None]:
    """The sum, and nothing to keep: its gradient does not depend on its terms."""
    return _add(a, b), None


def _add_backward(_: None, grad_c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """dc/da = dc/db = 1, so both gradients are the incoming one."""
    return grad_c, grad_c


_add.defvjp(_add_forward, _add_backward)
