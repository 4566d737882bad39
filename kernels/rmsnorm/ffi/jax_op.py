"""RMSNorm as a differentiable JAX function around the C++ handlers."""

from __future__ import annotations

import math

import jax

from kernels.arguments import FLOATS
from kernels.rmsnorm.ffi import handlers
from kernels.rmsnorm.jax_layers import differentiable

_rms_norm = differentiable(handlers.ffi_rms_norm, handlers.ffi_rms_norm_backward, "C++")


def rms_norm(x: jax.Array, weight: jax.Array, eps: float = 1e-5) -> jax.Array:
    """Normalise over the last axes with the FFI handlers, differentiable once, in reverse mode.

    Dimensions:
        weight.shape: the axes that are normalised, one or more, together of 1 or more elements.

    Args:
        x: (..., *weight.shape), float32, bfloat16 or float16.
        weight: the scale of each element; any of these dtypes.
        eps: added to the mean square of a row; a Python number.

    Returns:
        Shape and dtype of ``x``. Sums are taken in float32.

    Raises:
        TypeError: not JAX or NumPy arrays, another dtype, or a traced eps.
        ValueError: shapes that do not fit, or rows of no elements.
        NotImplementedError: differentiated twice.
        building.CompilerMissingError: in the first call of a process, without a C++ compiler.

    Notes:
        Compiled on first use (some ten seconds), for this machine. Under ``jit``, ``vmap`` and
        sharding as :func:`kernels.rmsnorm.jax_op.rms_norm`.

    Pseudocode:
        invvar = rsqrt(mean(x**2) + eps)
        forward:   y = x * invvar * weight
        backward:  g = grad_y * weight
                   grad_x = invvar * (g - x_hat * mean(g * x_hat)), x_hat = x * invvar
                   grad_weight = sum over rows of grad_y * x_hat
    """
    for name, array in (("x", x), ("weight", weight)):
        if not hasattr(array, "shape") or not hasattr(array, "dtype"):
            raise TypeError(f"{name} is a {type(array).__name__}. Pass a JAX or a NumPy array.")
        if str(array.dtype) not in FLOATS:
            raise TypeError(
                f"{name} is {array.dtype}. The RMSNorm handlers take {', '.join(FLOATS)}. "
                "Cast it first."
            )
    shape, axes = tuple(x.shape), tuple(weight.shape)
    if not axes or math.prod(axes) == 0:
        raise ValueError(
            f"weight has shape {axes}: no elements to take a mean of. Its shape names the last "
            "axes of x, for example (x.shape[-1],)."
        )
    if shape[-len(axes) :] != axes:
        raise ValueError(
            f"weight has shape {axes} and x {shape}. The last axes of x, which are normalised, "
            "must be those of weight."
        )
    return _rms_norm(x, weight, eps)
