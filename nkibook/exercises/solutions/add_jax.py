"""Answers to the exercises on tensor addition in JAX."""

import jax

from kernels.add.jax_op import add


def add_to_each(batch, b):
    return jax.vmap(add, in_axes=(0, None))(batch, b)
