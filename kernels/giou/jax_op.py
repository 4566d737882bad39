"""Generalized IoU as a differentiable JAX function around the NKI kernels, and the loss.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (sharded boxes stay where they are), ``custom_vmap`` (a batch is one launch)
and ``custom_vjp`` (the gradient). ``eps`` and ``clamp`` are compiled into the kernels, so each pair
of them has its own layers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.giou import nki_giou, nki_giou_backward
from kernels.giou.arguments import check_arguments
from kernels.jax_rules import batchable, no_second_derivative, vary_alike


@functools.cache
def _operator(eps: float, clamp: bool) -> Callable:
    """The differentiable GIOU of one definition."""
    settings: dict[str, Any] = {"eps": eps, "clamp": clamp}
    forward = batchable(lambda p, q: nki_giou(p, q, **settings), "... c, ... c -> ...")
    backward_both = batchable(
        lambda g, p, q: nki_giou_backward(g, p, q, **settings),
        "..., ... c, ... c -> ... c, ... c",
    )
    backward_one = batchable(
        lambda g, p, q: nki_giou_backward(g, p, q, both=False, **settings)[0],
        "..., ... c, ... c -> ... c",
    )

    plain = "jax.numpy"
    backward_both = no_second_derivative(backward_both, "giou", plain)
    backward_one = no_second_derivative(backward_one, "giou", plain)

    @jax.custom_vjp
    def operator(boxes1: jax.Array, boxes2: jax.Array) -> jax.Array:
        return forward(boxes1, boxes2)

    def keep(boxes1: Any, boxes2: Any) -> tuple[jax.Array, Any]:
        """Keep the boxes, and in the residuals' structure, which of them need a gradient."""
        needed = tuple(() if boxes.perturbed else None for boxes in (boxes1, boxes2))
        return operator(boxes1.value, boxes2.value), (boxes1.value, boxes2.value, needed)

    def gradients(residuals: Any, grad: Any) -> tuple[jax.Array, jax.Array]:
        """Gradients of both boxes, zeros for those that need none.

        Not None: under ``jit``, JAX gives the results the structure that they had for the first
        choice of arguments.
        """
        boxes1, boxes2, needed = residuals
        if needed == ((), ()):
            return backward_both(grad, boxes1, boxes2)
        if needed == ((), None):
            return backward_one(grad, boxes1, boxes2), jnp.zeros_like(boxes2)
        # GIOU is symmetric.
        return jnp.zeros_like(boxes1), backward_one(grad, boxes2, boxes1)

    operator.defvjp(keep, gradients, symbolic_zeros=True)
    return operator


def giou(
    boxes1: jax.Array, boxes2: jax.Array, eps: float = 1e-7, *, clamp: bool = False
) -> jax.Array:
    """Generalized IoU of each box with its partner by NKI kernels, differentiably.

    Dimensions:
        Any leading axes, such as (batch, n). The last axis is x1, y1, x2, y2.

    Args:
        boxes1: (..., 4), float32, bfloat16, float16 or an integer type. Integers are taken to
            float32, as torchvision does.
        boxes2: (..., 4), same shape; any of these dtypes.
        eps, clamp: as for :func:`kernels.giou.nki_giou`; Python values, not traced.

    Returns:
        (...), float32, also for 16-bit boxes, as torchvision's loss.

    Raises:
        TypeError, ValueError: as :func:`kernels.giou.nki_giou`.
        NotImplementedError: in a second derivative.

    Notes:
        Works under ``jit``, ``grad`` (reverse mode, once) and ``vmap``. Gradients have the dtype
        of their boxes. On several devices boxes sharded along any axis but the last
        are worked on where they lie. In a ``shard_map`` of some axes of a mesh, boxes sharded over
        the others are gathered over those first. ``jax.numpy.clip`` splits a gradient at its limit
        where ``torch.clamp`` passes it; with ``clamp`` this operator does as PyTorch.

    Pseudocode:
        forward:   I / (U + eps) - (C - U) / (C + eps)
        backward:  see nki_giou_backward_kernel
    """
    boxes1, boxes2 = _floating(boxes1), _floating(boxes2)
    if isinstance(eps, np.number):  # a constant too, as rms_norm takes it
        eps = eps.item()
    eps = check_arguments(boxes1, boxes2, eps)
    if 0 in boxes1.shape:
        return jnp.zeros(boxes1.shape[:-1], jnp.float32)
    return _operator(eps, bool(clamp))(*vary_alike(boxes1, boxes2))


def generalized_box_iou_loss(
    boxes1: jax.Array, boxes2: jax.Array, reduction: str = "none", eps: float = 1e-7
) -> jax.Array:
    """The loss ``1 - GIOU``, defined as ``torchvision.ops.generalized_box_iou_loss``.

    Args:
        boxes1: (..., 4) predictions, as for :func:`giou`.
        boxes2: (..., 4) targets.
        reduction: "none", "mean" or "sum".
        eps: added to both denominators.

    Returns:
        (...) float32 with ``reduction="none"``, otherwise a scalar. The mean of no boxes is 0.

    Raises:
        TypeError, ValueError: as :func:`giou`, and for another reduction.
    """
    if reduction not in ("none", "mean", "sum"):
        raise ValueError(f"reduction is {reduction!r}. It is one of 'none', 'mean' and 'sum'.")
    loss = 1 - giou(boxes1, boxes2, eps)
    if reduction == "none":
        return loss
    # The sum of nothing is 0; its mean would be NaN.
    return loss.sum() if reduction == "sum" or loss.size == 0 else loss.mean()


def _floating(boxes: Any) -> Any:
    """Integers as float32; anything else as it is, for the kernel's caller to judge."""
    integers = hasattr(boxes, "dtype") and (
        jnp.issubdtype(boxes.dtype, jnp.integer) or boxes.dtype == jnp.bool_
    )
    return jnp.asarray(boxes, jnp.float32) if integers else boxes
