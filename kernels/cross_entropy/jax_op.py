"""Softmax cross-entropy as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward
from kernels.cross_entropy.arguments import check, require_classes
from kernels.jax_rules import batchable, no_second_derivative, vary_alike

_INSTEAD = "jax.nn.logsumexp and jnp.take_along_axis"
# JAX differentiates these two only for a second derivative: `_losses` below has the first.
_values = no_second_derivative(
    batchable(lambda logits, targets: nki_cross_entropy(logits, targets), "... v, ... -> ..., ..."),
    "cross_entropy",
    _INSTEAD,
)
_gradient = no_second_derivative(
    batchable(
        lambda grad, logits, targets, lse: nki_cross_entropy_backward(grad, logits, targets, lse),
        "..., ... v, ..., ... -> ... v",
    ),
    "cross_entropy",
    _INSTEAD,
)


@jax.custom_vjp
def _losses(logits: jax.Array, targets: jax.Array) -> jax.Array:
    return _forward(logits, targets)[0]


def _forward(logits: jax.Array, targets: jax.Array) -> tuple[jax.Array, tuple]:
    if not logits.size:  # no rows: nothing to launch
        loss = jnp.zeros(targets.shape, jnp.float32)
        return loss, (logits, targets, loss)
    loss, lse = _values(logits, targets)
    return loss, (logits, targets, lse)


def _backward(residuals: tuple, grad: jax.Array) -> tuple:
    logits, *_ = residuals
    return (_gradient(grad, *residuals) if logits.size else logits), None


_losses.defvjp(_forward, _backward)


def cross_entropy(logits: jax.Array, targets: jax.Array, ignore_index: int = -100) -> jax.Array:
    """``-log(softmax(logits)[target])`` of each row; differentiable once, in reverse mode.

    Dimensions:
        "...": rows, any number of axes. V: classes, up to 2**24.

    Args:
        logits: (..., V), float32, bfloat16 or float16; fewer than 2**31.
        targets: (...), integers from 0 to V - 1, or ``ignore_index``.
        ignore_index: the target of rows that do not count: their loss and their gradient are 0.

    Returns:
        (...), float32 whatever the dtype of ``logits``: the loss of each row. A mean over rows in
        16 bits would lose most of it.

    Raises:
        TypeError: not an array, or another dtype.
        ValueError: shapes that do not fit, or too many classes.
        IndexError: a target is no class, where its value is known and on the CPU.
        NotImplementedError: differentiated twice.

    Notes:
        Not as ``optax.softmax_cross_entropy_with_integer_labels``: classes are on the last axis
        only, rows that do not count are marked by a value, not by ``where``, and the result is
        float32. Under ``jit``, or on a device, nothing looks at the targets first, and the loss of
        one that is no class is NaN, as Optax's.
        Reads each logit once forward and once backward; probabilities are never in HBM. Works under
        ``jit``, ``grad`` and ``vmap``. With any axes but the last one sharded over devices, nothing
        moves.

    Pseudocode:
        forward:   lse = log(sum(exp(logits))); loss = lse - logits[target]
        backward:  grad_logits = grad_loss * (exp(logits - lse) - (class == target))
    """
    check(logits, targets)
    logits, targets = jnp.asarray(logits), jnp.asarray(targets)
    known = not isinstance(targets, jax.core.Tracer)
    if known and all(device.platform == "cpu" for device in targets.devices()):
        require_classes(np.asarray(targets), logits.shape[-1], ignore_index)
    numbers = targets.astype(jnp.int32)
    counts = numbers != ignore_index
    is_class = counts & (numbers >= 0) & (numbers < logits.shape[-1])
    losses = _losses(*vary_alike(logits, jnp.where(is_class, numbers, 0)))
    return jnp.where(is_class, losses, jnp.where(counts, jnp.nan, 0.0))
