"""Softmax cross-entropy as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient).
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.cross_entropy import nki_cross_entropy, nki_cross_entropy_backward
from kernels.cross_entropy.arguments import check, require_classes, require_ignore_index
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
        TypeError: not an array, another dtype, or an ``ignore_index`` that is no integer.
        ValueError: shapes that do not fit, too many classes, or an ``ignore_index`` of more than
            31 bits.
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
    if not isinstance(ignore_index, jax.core.Tracer):
        ignore_index = require_ignore_index(ignore_index)
        if abs(ignore_index) >= 2**31:
            raise ValueError(
                f"ignore_index is {ignore_index}, and targets are compared with it in int32. Mark "
                "rows that do not count with a number of at most 31 bits, such as -100."
            )
    if _on_cpu(targets):
        require_classes(np.asarray(targets), logits.shape[-1], ignore_index)
    logits, targets = jnp.asarray(logits), jnp.asarray(targets)
    numbers = targets.astype(jnp.int32)
    fits = (numbers == targets) & ((numbers < 0) == (targets < 0))
    counts = ~fits | (numbers != ignore_index)
    is_class = fits & counts & (numbers >= 0) & (numbers < logits.shape[-1])
    losses = _losses(*vary_alike(logits, jnp.where(is_class, numbers, 0)))
    return jnp.where(is_class, losses, jnp.where(counts, jnp.nan, 0.0))


def _on_cpu(targets: Any) -> bool:
    """Whether values can be read, here and for free."""
    if isinstance(targets, jax.core.Tracer):
        return False
    return not isinstance(targets, jax.Array) or all(
        device.platform == "cpu" for device in targets.devices()
    )
