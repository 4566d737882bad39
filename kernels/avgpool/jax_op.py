"""Average pooling as a differentiable JAX function around the NKI kernels.

A raw NKI kernel is a custom call, opaque to JAX. Three layers, inside out, teach JAX about it:
``custom_partitioning`` (images and channels stay on their devices), ``custom_vmap`` (a batch is
more channels) and ``custom_vjp`` (the gradient). Pooling is linear, so the backward function is
the transpose of the forward one, and the other way round.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from kernels.avgpool import pool, unpool
from kernels.avgpool.arguments import check
from kernels.avgpool.geometry import Pooling, pooling
from kernels.jax_rules import batchable


def _over_planes(launch: Callable[[jax.Array], jax.Array]) -> Callable[[jax.Array], jax.Array]:
    """A launch on (planes, height, width), for any axes before the last two, with rules.

    Planes, the channels of all images, are independent of one another: each device pools its own.
    Height and width are gathered if they are sharded, since windows cross the borders.
    """

    def flat(x: jax.Array) -> jax.Array:
        out = launch(x.reshape(-1, *x.shape[-2:]))
        return out.reshape(*x.shape[:-2], *out.shape[-2:])

    return batchable(flat, "... h w -> ... y x")


@functools.cache
def _pool(settings: Pooling) -> Callable[[jax.Array], jax.Array]:
    return _over_planes(lambda planes: pool(planes, settings))


@functools.cache
def _unpool(settings: Pooling, size: tuple[int, int]) -> Callable[[jax.Array], jax.Array]:
    return _over_planes(lambda planes: unpool(planes, size, settings))


@functools.partial(jax.custom_vjp, nondiff_argnums=(1,))
def _forward(x: jax.Array, settings: Pooling) -> jax.Array:
    return _pool(settings)(x)


@functools.partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _backward(
    grad_out: jax.Array,
    size: tuple[int, int],
    settings: Pooling,
) -> jax.Array:
    return _unpool(settings, size)(grad_out)


# A backward pass needs only sizes, which are static. The shape of an
# array without elements carries them through jit.
_forward.defvjp(
    lambda x, how: (_forward(x, how), jnp.empty((0, *x.shape[-2:]))),
    lambda how, kept, grad: (_backward(grad, kept.shape[1:], how),),
)
_backward.defvjp(
    lambda grad, size, how: (_backward(grad, size, how), None),
    lambda size, how, _, grad: (_forward(grad, how),),
)


def avg_pool2d(
    x: jax.Array,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> jax.Array:
    """Average pooling with the NKI kernels, differentiably.

    Dimensions:
        N: images, any number. C: channels. H, W: height and width. At least 1.

    Args:
        x: (N, C, H, W) or (C, H, W), float32, bfloat16 or float16. Channels come first.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: Python
            numbers, with the meaning that ``torch.nn.functional.avg_pool2d`` gives them. JAX has no
            average pooling; ``jax.lax.reduce_window`` sums, and leaves the division to you.

    Returns:
        (N, C, out_H, out_W) or (C, out_H, out_W), same dtype. No images give no images.

    Raises:
        TypeError: a dtype that the kernels do not take, or a size that is not an integer.
        ValueError: another rank, sizes out of range, a window larger than the image.

    Notes:
        Works under ``jit``, ``grad`` (reverse mode, any order) and ``vmap``. On several devices,
        images and channels are pooled where they lie, with no all-gather; height and width are
        gathered first. In a ``shard_map`` of some axes of a mesh, an array sharded over the others
        is gathered over those first.

    Pseudocode:
        forward:   out = sum of each window / count
        backward:  grad_x = sum of grad_out / count over the windows that an element lies in
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    check("x", x, no_images=True)
    if x.shape[0] == 0:  # no images: nothing to launch
        return jnp.zeros((*x.shape[:2], *settings.out_size(*x.shape[2:])), x.dtype)
    return _forward(x, settings)
