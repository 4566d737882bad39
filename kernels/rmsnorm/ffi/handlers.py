"""Tells XLA where the handlers are, and calls them from JAX.

XLA knows a handler by the name of a target and by a platform, here the CPU. One name may stand for
a handler on each platform: XLA takes that of the device it compiles for.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kernels.rmsnorm.ffi import building

FORWARD, BACKWARD = "rms_norm_forward", "rms_norm_backward"

PARTS = 64
"""Partial sums over rows in which the gradient of the weight is computed, at most: enough to share
among the threads of a CPU, and rows enough in each."""


@functools.cache
def load() -> None:
    """Compile the handlers and register them for the CPU.

    Done once in a process, before the first call of a handler.

    Raises:
        building.CompilerMissingError, building.CompileError: as there.
    """
    library = ctypes.CDLL(str(building.build_cpu()))
    for target, handler in ((FORWARD, library.RmsNormForward), (BACKWARD, library.RmsNormBackward)):
        jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")


def ffi_rms_norm(x: jax.Array, weight: jax.Array, eps: float = 1e-5) -> tuple[Any, Any]:
    """RMSNorm over the last axes by the handler of this platform: a custom call, opaque to JAX.

    Args:
        x: (..., *weight.shape), float32, bfloat16 or float16.
        weight: the scale of each element of a row; any of these dtypes.
        eps: added to the mean square of a row; a Python number.

    Returns:
        y: shape and dtype of x.
        invvar: (...), float32: ``1 / sqrt(mean(x**2) + eps)`` of each row.

    Raises:
        jax.errors.JaxRuntimeError: what the handler refuses, when the call runs.
    """
    load()
    lead = x.shape[: max(0, x.ndim - weight.ndim)]
    results = (
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct(lead, jnp.float32),
    )
    # XLA passes an attribute in the type that it has here; a Python float would be a double.
    y, invvar = jax.ffi.ffi_call(FORWARD, results)(x, weight, eps=np.float32(eps))
    return y, invvar


def ffi_rms_norm_backward(
    grad_y: jax.Array, x: jax.Array, weight: jax.Array, invvar: jax.Array
) -> tuple[Any, Any]:
    """The gradients of :func:`ffi_rms_norm`, by a custom call.

    Args:
        grad_y: gradient of the loss for y, shape and dtype of x.
        x, weight: as in the forward pass.
        invvar: what the forward pass returned.

    Returns:
        grad_x: shape and dtype of x.
        grad_weight: shape of weight, float32, summed over all rows. The same in every run on one
            machine, whatever the number of threads.

    Raises:
        jax.errors.JaxRuntimeError: what the handler refuses, when the call runs.
    """
    load()
    parts = min(PARTS, invvar.size)
    results = (
        jax.ShapeDtypeStruct(x.shape, x.dtype),
        jax.ShapeDtypeStruct(weight.shape, jnp.float32),
        jax.ShapeDtypeStruct((parts, *weight.shape), jnp.float32),  # for the handler to work in
    )
    call = jax.ffi.ffi_call(BACKWARD, results)
    grad_x, grad_weight, _ = call(grad_y, x, weight, invvar)
    return grad_x, grad_weight
