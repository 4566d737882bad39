"""Answers to the exercises on a transformer in JAX."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import jax

from kernels.cross_entropy import nki_cross_entropy
from kernels.rope import nki_rope


def calls_of_a_step(layers):
    return 7 + 22 * layers


def rope_gradient(x, grad, cos, sin):
    @jax.custom_vjp
    def rope(x, cos, sin):
        return nki_rope(x, cos, sin)

    def forward(x, cos, sin):
        return rope(x, cos, sin), (cos, sin)

    def backward(tables, grad):
        return nki_rope(grad, *tables, inverse=True), None, None

    rope.defvjp(forward, backward)
    return jax.vjp(lambda x: rope(x, cos, sin), x)[1](grad)[0]


def padded_loss(logits, targets, keep):
    loss, _ = nki_cross_entropy(logits, targets)
    return (loss * keep).sum() / keep.sum()
