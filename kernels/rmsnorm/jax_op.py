"""RMSNorm as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (rows stay on their devices), ``custom_vmap`` (a batch is more rows) and
``custom_vjp`` (the gradient, with one all-reduce for the weight when rows are sharded).
"""

from __future__ import annotations

import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
from jax.custom_batching import custom_vmap
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from kernels.jax_rules import vary_alike
from kernels.rmsnorm.nki_kernels import leading_shape, nki_rms_norm, nki_rms_norm_backward

# The layers below see matrices: x is (rows, cols), weight (cols,), invvar (rows,).


def _row_axes(x: Any) -> Any:
    """The mesh axes that the rows of a matrix are sharded over, as a PartitionSpec entry."""
    spec = x.sharding.spec
    return spec[0] if len(spec) else None


def _shardings(mesh: Any, rows: Any) -> tuple[NamedSharding, NamedSharding, NamedSharding]:
    """Shardings of a matrix, a vector over its rows and one over its columns.

    Rows stay where they are. A row lies on one device as a whole, because it is normalised as a
    whole.
    """
    specs = PartitionSpec(rows, None), PartitionSpec(rows), PartitionSpec(None)
    return tuple(NamedSharding(mesh, spec) for spec in specs)


@functools.partial(custom_partitioning, static_argnums=(2,))
def _partitioned_forward(x: jax.Array, weight: jax.Array, eps: float) -> Any:
    return nki_rms_norm(x, weight, eps)


def _infer_forward(eps: float, mesh: Any, args: Any, results: Any) -> Any:
    """Shardings of (y, invvar), given those of the arguments (used without Shardy)."""
    matrix, over_rows, _ = _shardings(mesh, _row_axes(args[0]))
    return matrix, over_rows


def _partition_forward(eps: float, mesh: Any, args: Any, results: Any) -> Any:
    """Each device normalises its own rows. A row needs no neighbour."""
    matrix, over_rows, over_cols = _shardings(mesh, _row_axes(results[0]))

    def on_each_device(x: jax.Array, weight: jax.Array) -> Any:
        return nki_rms_norm(x, weight, eps)

    return mesh, on_each_device, (matrix, over_rows), (matrix, over_cols)


_partitioned_forward.def_partition(
    partition=_partition_forward,
    infer_sharding_from_operands=_infer_forward,
    sharding_rule="rows cols, cols -> rows cols, rows",
)


@custom_partitioning
def _partitioned_backward(
    grad_y: jax.Array, x: jax.Array, weight: jax.Array, invvar: jax.Array
) -> Any:
    return nki_rms_norm_backward(grad_y, x, weight, invvar)


def _infer_backward(mesh: Any, args: Any, results: Any) -> Any:
    matrix, _, over_cols = _shardings(mesh, _row_axes(args[1]))
    return matrix, over_cols


def _partition_backward(mesh: Any, args: Any, results: Any) -> Any:
    """Each device has the gradient of its own rows, and a term of the weight's gradient."""
    rows = _row_axes(args[1])
    matrix, over_rows, over_cols = _shardings(mesh, rows)

    def on_each_device(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
        grad_x, grad_weight = nki_rms_norm_backward(grad_y, x, weight, invvar)
        if rows is not None:
            grad_weight = jax.lax.psum(grad_weight, rows)  # the one all-reduce
        return grad_x, grad_weight

    return mesh, on_each_device, (matrix, over_cols), (matrix, matrix, over_cols, over_rows)


_partitioned_backward.def_partition(
    partition=_partition_backward,
    infer_sharding_from_operands=_infer_backward,
    sharding_rule="rows cols, rows cols, cols, rows -> rows cols, cols",
)


@functools.cache
def _batchable_forward(eps: float) -> Any:
    """The forward function for one eps, with a rule for ``vmap``."""

    @custom_vmap
    def forward(x: jax.Array, weight: jax.Array) -> Any:
        return _partitioned_forward(x, weight, eps)

    @forward.def_vmap
    def batch(size: int, batched: list[bool], x: jax.Array, weight: jax.Array) -> Any:
        if batched[1]:  # a weight for each element: one launch for each
            return _map(forward, size, batched, x, weight), (True, True)
        y, invvar = forward(x.reshape(-1, x.shape[-1]), weight)
        return (y.reshape(x.shape), invvar.reshape(x.shape[:-1])), (True, True)

    return forward


@custom_vmap
def _batchable_backward(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
    return _partitioned_backward(grad_y, x, weight, invvar)


@_batchable_backward.def_vmap
def _backward_batch(size: int, batched: list[bool], *args: jax.Array) -> Any:
    """One launch for each element of the batch: each has a weight gradient of its own."""
    return _map(_batchable_backward, size, batched, *args), (True, True)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _values(x: Any, weight: Any, eps: float) -> Any:
    return _batchable_forward(eps)(x, weight)


@jax.custom_vjp
def _gradients(grad_y: Any, x: Any, weight: Any, invvar: Any) -> Any:
    return _batchable_backward(grad_y, x, weight, invvar)


def _refuse(*_: Any) -> Any:
    raise NotImplementedError(
        "rms_norm is differentiated twice, and its NKI kernels have no second derivative. "
        "Write the norm with jax.numpy where you need one."
    )


# JAX differentiates these two only for a second derivative: `_rms_norm` below has the first.
_values.defvjp(_refuse, _refuse)
_gradients.defvjp(_refuse, _refuse)


def _map(function: Any, size: int, batched: list[bool], *args: jax.Array) -> Any:
    args = tuple(
        x if is_batched else jnp.broadcast_to(x, (size, *x.shape))
        for x, is_batched in zip(args, batched, strict=True)
    )
    return jax.lax.map(lambda one: function(*one), args)


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
        TypeError, ValueError: as :func:`kernels.rmsnorm.nki_kernels.nki_rms_norm`; no rows give no
            rows.
        NotImplementedError: differentiated twice.

    Notes:
        Works under ``jit``, ``grad`` and ``vmap`` (a batch of x is one launch; a batch of weights,
        and the gradient for each element of a batch, one launch an element). With rows sharded over
        devices, nothing moves forward, and backward one all-reduce adds up the weight's gradient.

    Pseudocode:
        invvar = rsqrt(mean(x**2) + eps)
        forward:   y = x * invvar * weight
        backward:  g = grad_y * weight
                   grad_x = invvar * (g - x_hat * mean(g * x_hat)), x_hat = x * invvar
                   grad_weight = sum over rows of grad_y * x_hat
    """
    leading_shape(x, weight)  # refuses what does not fit
    return _rms_norm(*vary_alike(x, weight), eps)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2,))
def _rms_norm(x: jax.Array, weight: jax.Array, eps: float) -> jax.Array:
    return _forward(x, weight, eps)[0]


def _forward(x: jax.Array, weight: jax.Array, eps: float) -> tuple[jax.Array, tuple]:
    """y, and what the backward pass reads."""
    if 0 in leading_shape(x, weight):  # no rows: nothing to launch
        return x, (x, weight, None)
    matrix = x.reshape(-1, math.prod(weight.shape))
    y, invvar = _values(matrix, weight.reshape(-1), float(eps))
    return y.reshape(x.shape), (x, weight, invvar)


def _backward(eps: float, residuals: tuple, grad_y: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Gradients of x and of the weight, which is rounded to its dtype after all sums."""
    x, weight, invvar = residuals
    if invvar is None:
        return grad_y, jnp.zeros_like(weight)
    matrix = (-1, math.prod(weight.shape))
    grad_x, grad_weight = _gradients(
        grad_y.reshape(matrix), x.reshape(matrix), weight.reshape(-1), invvar
    )
    return grad_x.reshape(x.shape), grad_weight.reshape(weight.shape).astype(weight.dtype)


_rms_norm.defvjp(_forward, _backward)
