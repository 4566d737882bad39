"""Tensor addition as a differentiable JAX function around the NKI kernel.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (a sharded array stays sharded), ``custom_vmap`` (a batch is one launch) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap

from kernels.add import nki_tensor_add
from kernels.add.arguments import check
from kernels.jax_rules import compiled_once, shardable, vary_alike


def _add_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Add arrays of any rank from 2: the axes before the last one are rows."""
    rows = nki_tensor_add(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
    return rows.reshape(a.shape)


# Addition needs no neighbour along any axis.
_shardable_add = shardable(_add_rows, "..., ... -> ...")


@custom_vmap
def _batchable_add(a: jax.Array, b: jax.Array) -> jax.Array:
    return _shardable_add(a, b)


@_batchable_add.def_vmap
def _add_batch(
    batch_size: int, in_batched: list[bool], a: jax.Array, b: jax.Array
) -> tuple[jax.Array, bool]:
    """A batch is an axis more: one kernel launch, whatever the batch size."""
    a, b = (
        x if batched else jnp.broadcast_to(x, (batch_size, *x.shape))
        for x, batched in zip((a, b), in_batched, strict=True)
    )
    return _batchable_add(a, b), True


_compiled_add = compiled_once(_batchable_add)


def add(a: jax.Array, b: jax.Array) -> jax.Array:
    """Add two matrices with the NKI kernel, differentiably.

    Dimensions:
        M: rows. N: columns. Any sizes of at least 1.

    Args:
        a: (M, N), float32, bfloat16 or float16.
        b: (M, N), same dtype.

    Returns:
        (M, N), same dtype.

    Raises:
        TypeError, ValueError: as :func:`kernels.add.nki_kernels.nki_tensor_add`.

    Notes:
        Works under ``jit``, ``grad`` (reverse mode, any order) and ``vmap``. On several devices
        a sharded array is added where it lies, with no all-gather.

    Pseudocode:
        forward:   c = a + b
        backward:  grad_a = grad_b = grad_c
    """
    check(a, b)
    return _add(*vary_alike(a, b))


@jax.custom_vjp
def _add(a: jax.Array, b: jax.Array) -> jax.Array:
    return _compiled_add(a, b)


def _add_forward(a: jax.Array, b: jax.Array) -> tuple[jax.Array, None]:
    """The sum, and nothing to keep: its gradient does not depend on its terms."""
    return _add(a, b), None


def _add_backward(_: None, grad_c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """dc/da = dc/db = 1, so both gradients are the incoming one."""
    return grad_c, grad_c


_add.defvjp(_add_forward, _add_backward)
