"""What the operators' JAX functions share."""

from __future__ import annotations

import jax


def vary_alike(*arrays: jax.Array) -> tuple[jax.Array, ...]:
    """Mark all arrays as varying over every mesh axis that one of them varies over.

    Inside ``jax.shard_map`` JAX keeps, for each array, the mesh axes over which its values differ
    between devices. A function with ``custom_vjp`` must return gradients that vary as its arguments
    do. That of a weight which all devices share, and which meets rows that they do not, varies as
    the rows. The derivative of the mark is the sum over the devices that is missing then.

    Args:
        arrays: JAX arrays, tracers or NumPy arrays.

    Returns:
        The same values. Outside ``shard_map``, and with ``check_vma=False``, the same objects.
    """
    axes = [jax.typeof(array).vma for array in arrays]
    every = frozenset().union(*axes)
    return tuple(
        jax.lax.pvary(array, tuple(sorted(every - own))) if every - own else array
        for array, own in zip(arrays, axes, strict=True)
    )
