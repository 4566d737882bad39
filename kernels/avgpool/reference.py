"""Average pooling in NumPy, straight from its definition: what the NKI kernels are checked against.

Nothing here imports NKI. Each function loops over the positions inside a window and moves whole
images at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kernels.avgpool.geometry import Pooling, pooling


def mean_of_blocks(x: np.ndarray, pool_size: int) -> np.ndarray:
    """Average windows that tile the image: split both axes, take the mean of the inner ones.

    Args:
        x: (C, H, W), H and W multiples of `pool_size`.
        pool_size: height and width of the window.

    Returns:
        (C, H // pool_size, W // pool_size), same dtype.
    """
    channels, height, width = x.shape
    k = pool_size
    return x.reshape(channels, height // k, k, width // k, k).mean(axis=(2, 4))


def mean_of_slices(x: np.ndarray, pool_size: int) -> np.ndarray:
    """The same, as a sum of strided slices: NumPy's reductions are slow along short axes.

    Arguments and result as :func:`mean_of_blocks`.
    """
    k = pool_size
    total = x[:, ::k, ::k].copy()
    for place in range(1, k * k):
        down, across = divmod(place, k)
        total += x[:, down::k, across::k]
    total /= k * k
    return total


def avg_pool2d(x: np.ndarray, kernel_size: Any, *args: Any, **kwargs: Any) -> np.ndarray:
    """Average pooling in float64, rounded once to the input dtype.

    Args:
        x: (..., H, W).
        kernel_size, ...: as :func:`kernels.avgpool.geometry.pooling`.

    Returns:
        (..., out_H, out_W), same dtype.
    """
    settings = pooling(kernel_size, *args, **kwargs)
    padded, steps = _padded(x.astype(np.float64), settings)
    total = sum(padded[..., rows, cols] for rows, cols in steps)
    return (total / divisors(x.shape[-2:], settings)).astype(x.dtype)


def avg_pool2d_backward(
    grad_out: np.ndarray, size: tuple[int, int], kernel_size: Any, *args: Any, **kwargs: Any
) -> np.ndarray:
    """Gradient with respect to the input, in float64, rounded once.

    Args:
        grad_out: (..., out_H, out_W).
        size: H and W of the input.
        kernel_size, ...: as :func:`kernels.avgpool.geometry.pooling`.

    Returns:
        (..., H, W), same dtype.
    """
    settings = pooling(kernel_size, *args, **kwargs)
    zeros = np.zeros((*grad_out.shape[:-2], *size))
    padded, steps = _padded(zeros, settings)
    share = grad_out.astype(np.float64) / divisors(size, settings)
    for rows, cols in steps:
        padded[..., rows, cols] += share
    down, across = settings.padding
    inside = padded[..., down : down + size[0], across : across + size[1]]
    return inside.astype(grad_out.dtype)


def divisors(size: tuple[int, int], settings: Pooling) -> np.ndarray:
    """What each output is divided by, counted element by element: (out_H, out_W), float64."""
    if settings.divisor_override is not None:
        return np.full(settings.out_size(*size), float(settings.divisor_override))
    counted = np.ones(size)
    if settings.count_include_pad:
        counted = np.pad(counted, [(p, p) for p in settings.padding], constant_values=1)
    else:
        counted = np.pad(counted, [(p, p) for p in settings.padding])
    # What ceil mode adds beyond the padding never counts.
    padded, steps = _padded(np.zeros(size), settings)
    padded[: counted.shape[0], : counted.shape[1]] = counted[: padded.shape[0], : padded.shape[1]]
    return np.sum([padded[rows, cols] for rows, cols in steps], axis=0)


def _padded(x: np.ndarray, settings: Pooling) -> tuple[np.ndarray, Iterator[tuple[slice, slice]]]:
    """`x` with zeros as far as windows reach, and for each position in the window, the slices
    that hold this element of every window."""
    outs = settings.out_size(*x.shape[-2:])
    widths, axes = [(0, 0)] * (x.ndim - 2), []
    for size, out, k, s, p in zip(
        x.shape[-2:], outs, settings.kernel_size, settings.stride, settings.padding, strict=True
    ):
        reach = (out - 1) * s + k
        widths.append((p, max(reach - size - p, p)))
        axes.append([slice(v, v + (out - 1) * s + 1, s) for v in range(k)])
    return np.pad(x, widths), ((rows, cols) for rows in axes[0] for cols in axes[1])
