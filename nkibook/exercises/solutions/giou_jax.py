"""Answers to the exercises on GIOU in JAX."""

import jax
import jax.numpy as jnp

from kernels.giou import nki_giou, nki_giou_backward
from kernels.giou.jax_op import giou


def masked_loss(p, t):
    real = t.any(-1)
    return jnp.where(real, 1 - giou(p, t), 0).sum() / real.sum()


def all_pairs(p, t):
    one_with_all = jax.vmap(giou, in_axes=(None, 0))
    return jax.vmap(one_with_all, in_axes=(0, None))(p, t)


def square_gradient(p, t):
    op = jax.custom_vjp(lambda p, t: nki_giou(p, t))
    op.defvjp(
        lambda p, t: (nki_giou(p, t), (p, t)),
        lambda boxes, grad: nki_giou_backward(grad, *boxes),
    )
    return jax.grad(lambda p: (op(p, t) ** 2).sum())(p)
