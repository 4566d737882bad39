"""SwiGLU as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (a sharded array stays sharded), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradients).
"""

from __future__ import annotations

import jax
import jax.numpy as jnp

from kernels.jax_rules import batchable, no_second_derivative, vary_alike
from kernels.swiglu import nki_swiglu, nki_swiglu_backward
from kernels.swiglu.arguments import check

# Every element is on its own, so that any axis may be sharded. JAX differentiates these two only
# for a second derivative: `_swiglu` below has the first.
_values = no_second_derivative(
    batchable(lambda gate, up: nki_swiglu(gate, up), "..., ... -> ..."),
    "swiglu",
    "jax.nn.silu(gate) * up",
)
_gradients = no_second_derivative(
    batchable(
        lambda grad_y, gate, up: nki_swiglu_backward(grad_y, gate, up),
        "..., ..., ... -> ..., ...",
    ),
    "swiglu",
    "jax.nn.silu(gate) * up",
)


@jax.custom_vjp
def _swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    return _values(gate, up) if gate.size else gate


def _forward(gate: jax.Array, up: jax.Array) -> tuple[jax.Array, tuple]:
    return _swiglu(gate, up), (gate, up)


def _backward(operands: tuple, grad_y: jax.Array) -> tuple:
    return tuple(_gradients(grad_y, *operands)) if grad_y.size else (grad_y, grad_y)


_swiglu.defvjp(_forward, _backward)


def swiglu(gate: jax.Array, up: jax.Array) -> jax.Array:
    """``jax.nn.silu(gate) * up`` with the NKI kernels; differentiable once, in reverse mode.

    Args:
        gate: float32, bfloat16 or float16, with at least one axis.
        up: shape and dtype of ``gate``.

    Returns:
        Shape and dtype of ``gate``. Computed in float32 and rounded once.

    Raises:
        TypeError: not an array, another dtype, or two dtypes.
        ValueError: no axis, or two shapes: nothing is broadcast.
        NotImplementedError: differentiated twice.

    Notes:
        Works under ``jit``, ``grad`` and ``vmap``. With any axes sharded over devices, nothing
        moves. Keeps ``gate`` and ``up`` for the backward pass.

    Pseudocode:
        forward:   y = silu(gate) * up,  silu(x) = x * sigmoid(x)
        backward:  grad_gate = grad_y * up * sigmoid(gate) * (1 + gate * (1 - sigmoid(gate)))
                   grad_up = grad_y * silu(gate)
    """
    check(gate, up)
    return _swiglu(*vary_alike(*map(jnp.asarray, (gate, up))))
