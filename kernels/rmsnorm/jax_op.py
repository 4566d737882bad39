"""RMSNorm as a differentiable JAX function around the NKI kernels."""

from __future__ import annotations

import jax

from kernels.rmsnorm import nki_rms_norm, nki_rms_norm_backward
from kernels.rmsnorm.arguments import leading_shape
from kernels.rmsnorm.jax_layers import differentiable

_rms_norm = differentiable(nki_rms_norm, nki_rms_norm_backward, "NKI")


def rms_norm(x: jax.Array, weight: jax.Array, eps: float = 1e-5) -> jax.Array:
    """Normalise over the last axes with the NKI kernels, differentiable once, in reverse mode.

    Dimensions:
        weight.shape: the axes that are normalised, together of 1 to 16384 elements.

    Args:
        x: (..., *weight.shape), float32, bfloat16 or float16.
        weight: the scale of each element; any of these dtypes.
        eps: added to the mean square of a row; a Python number.

    Returns:
        Shape and dtype of ``x``.

    Raises:
        TypeError, ValueError: as :func:`kernels.rmsnorm.nki_rms_norm`; no rows give no
            rows.
        TypeError: a traced eps.
        NotImplementedError: differentiated twice.

    Notes:
        Works under ``jit``, ``grad`` and ``vmap`` (a batch of x is one launch, also for the
        gradients of each element; a batch of weights is one launch an element). With any axes
        before those of the weight sharded over devices, nothing moves forward, and backward one
        all-reduce adds up the weight's gradient. In a ``shard_map`` of some axes of a mesh, an
        array sharded over the others is gathered over those first. Under a mesh with axes of
        ``AxisType.Explicit`` the gradient is refused, with NotImplementedError.

    Pseudocode:
        invvar = rsqrt(mean(x**2) + eps)
        forward:   y = x * invvar * weight
        backward:  g = grad_y * weight
                   grad_x = invvar * (g - x_hat * mean(g * x_hat)), x_hat = x * invvar
                   grad_weight = sum over rows of grad_y * x_hat
    """
    leading_shape(x, weight)  # refuses what does not fit
    return _rms_norm(x, weight, eps)
