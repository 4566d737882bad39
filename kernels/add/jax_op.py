"""Tensor addition as a differentiable JAX function around the NKI kernel.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (a sharded array stays sharded), ``custom_vmap`` (a batch is one launch) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

import jax

from kernels.add import nki_tensor_add
from kernels.add.arguments import check
from kernels.jax_rules import batchable, vary_alike


def _add_rows(a: jax.Array, b: jax.Array) -> jax.Array:
    """Add arrays of any rank from 2: the axes before the last one are rows."""
    rows = nki_tensor_add(a.reshape(-1, a.shape[-1]), b.reshape(-1, b.shape[-1]))
    return rows.reshape(a.shape)


# Addition needs no neighbour along any axis, and a batch is an axis more.
_batchable_add = batchable(_add_rows, "..., ... -> ...")


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
        TypeError, ValueError: as :func:`kernels.add.nki_tensor_add`.

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
    return _batchable_add(a, b)


def _add_forward(a: jax.Array, b: jax.Array) -> tuple[jax.Array, None]:
    """The sum, and nothing to keep: its gradient does not depend on its terms."""
    return _add(a, b), None


def _add_backward(_: None, grad_c: jax.Array) -> tuple[jax.Array, jax.Array]:
    """dc/da = dc/db = 1, so both gradients are the incoming one."""
    return grad_c, grad_c


_add.defvjp(_add_forward, _add_backward)
