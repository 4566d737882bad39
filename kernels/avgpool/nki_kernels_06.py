"""Average pooling in ``import nki`` (NKI 0.6), forward and backward, and the callers.

The plan is that of ``nki_kernels``: channels lie on the partitions of SBUF, and a window is an
access pattern. What differs: windows are read and written through ``.ap``, whose pairs are a step
and a count for each axis, in elements; and this dialect has no division on the device, so a sum is
multiplied by one over the count of its window, where ``nki_kernels`` divides.

The plan is plain Python with classes (``geometry``), run while the kernel is specialised. The
compiler's tracer runs such code; its parser, the default up to NKI 0.6, takes a subset of Python,
and these kernels were not tried on it.
"""

from __future__ import annotations

from typing import Any

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.avgpool.arguments import WHOLE_ROWS, check, constants
from kernels.avgpool.geometry import (
    Pooling,
    Run,
    around,
    backward_tiles,
    forward_tiles,
    pooling,
    pooling_in_kernel,
    runs,
)
from kernels.logical_core import cores
from kernels.tiles import PARTITIONS, pieces


@nki.jit
def nki_avg_pool2d_kernel(
    in_tensor,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    """Average the windows of any number of channels, of any size.

    Dimensions:
        C: channels, of all images of a batch. H, W: height and width. All at least 1.

    Args:
        in_tensor: (C, H, W) in HBM; float32, bfloat16 or float16.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: constants, as
            :func:`kernels.avgpool.geometry.pooling` takes them.

    Returns:
        (C, out_H, out_W) in HBM, dtype of `in_tensor`.

    Raises:
        AssertionError, ValueError: settings that are no pooling, or a window larger than the image.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. Sums and
        products are float32, rounded once.

    Pseudocode:
        for each tile of 128 channels and as many outputs as fit:
            slab = zeros where the windows reach over the edge, else in
            out = sum of each window of slab * (1 / count of the window)
    """
    settings = pooling_in_kernel(
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
    channels, height, width = in_tensor.shape
    axes = settings.axes(height, width)
    out_tensor = nl.ndarray(
        (channels, axes[0].out, axes[1].out), dtype=in_tensor.dtype, buffer=nl.shared_hbm
    )
    tiles = list(forward_tiles(axes[0], axes[1]))
    blocks = pieces(channels, PARTITIONS)
    for number in range(nl.program_id(0), len(blocks) * len(tiles), nl.num_programs(0)):
        lanes, tile = blocks[number // len(tiles)], tiles[number % len(tiles)]
        pool_tile(in_tensor, out_tensor, lanes, settings, axes, tile)
    return out_tensor


def pool_tile(in_tensor, out_tensor, lanes, settings, axes, tile):
    """Compute one tile of outputs, for `lanes` = (first channel, number of channels)."""
    rows, cols = axes
    row_tile, col_tile = tile
    first, n = lanes
    last = first + n
    outs = (row_tile.outs, col_tile.outs)
    shape = (n, outs[0].size, outs[1].size)
    total = None
    for row_part in row_tile.parts:
        for col_part in col_tile.parts:
            image = (row_tile.image(rows, row_part), col_tile.image(cols, col_part))
            found = _load_padded(in_tensor, lanes, image)
            if found == None:
                continue
            slab, left = found
            line = slab.shape[2]
            windows = slab.ap(
                [
                    [slab.shape[1] * line, n],
                    [rows.stride * line, shape[1]],
                    [cols.stride, shape[2]],
                    [line, row_part.size],
                    [1, col_part.size],
                ],
                offset=left,
            )
            part = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
            nisa.tensor_reduce(dst=part, op=nl.add, data=windows, axis=(3, 4))
            if total == None:
                total = part
            else:
                nisa.tensor_tensor(dst=total, data1=total, data2=part, op=nl.add)
    mean = nl.ndarray(shape, dtype=out_tensor.dtype, buffer=nl.sbuf)
    _divide(mean, total, settings, axes, outs)
    nisa.dma_copy(
        dst=out_tensor[first:last, outs[0].first : outs[0].last, outs[1].first : outs[1].last],
        src=mean,
    )


def _load_padded(in_tensor, lanes, image):
    """Load a part of the image, with zeros where it reaches over the edge.

    Returns:
        The tile and the column in it where `image` begins; None when all of it is over the edge.
    """
    first, n = lanes
    last = first + n
    height, width = in_tensor.shape[1], in_tensor.shape[2]
    rows, cols = image[0].common(Run(0, height)), image[1].common(Run(0, width))
    if not rows.size or not cols.size:
        return None
    # Whole rows lie in HBM as one run, which DMA moves far faster than a run for each row.
    read = Run(0, width) if width <= WHOLE_ROWS * cols.size else cols
    loaded = nl.ndarray((n, rows.size, read.size), dtype=in_tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(
        dst=loaded, src=in_tensor[first:last, rows.first : rows.last, read.first : read.last]
    )
    left = cols.first - read.first
    if (rows, cols) == image:
        return loaded, left
    # An engine has time to move the rows apart; a DMA would take a run for each of them.
    size = (image[0].size, image[1].size)
    slab = nl.ndarray((n, size[0], size[1]), dtype=in_tensor.dtype, buffer=nl.sbuf)
    down, across = rows.first - image[0].first, cols.first - image[1].first
    for strip in around(size, (down, across), (rows.size, cols.size)):
        nisa.memset(
            dst=slab[0:n, strip[0].first : strip[0].last, strip[1].first : strip[1].last], value=0.0
        )
    nisa.tensor_copy(
        dst=slab[0:n, down : down + rows.size, across : across + cols.size],
        src=loaded[0:n, 0 : rows.size, left : left + cols.size],
    )
    return slab, 0


def _divide(dst, sums, settings, axes, outs):
    """sums / the counts of their windows, for a block of windows: dst and sums are (n, rows, cols).

    One over a count is rounded to float32, and the product once more, to the dtype of `dst`.
    """
    if settings.divisor_override != None:
        nisa.tensor_scalar(
            dst=dst, data=sums, op0=nl.multiply, operand0=1 / settings.divisor_override
        )
        return
    row_counts = settings.counts(axes[0], outs[0].first, outs[0].last)
    col_counts = settings.counts(axes[1], outs[1].first, outs[1].last)
    n = sums.shape[0]
    # Windows of one count are a few rectangles: the inner ones, and those at edges and corners.
    for row_run, row_count in runs(row_counts):
        for col_run, col_count in runs(col_counts):
            (top, bottom), (left, right) = row_run, col_run
            nisa.tensor_scalar(
                dst=dst[0:n, top:bottom, left:right],
                data=sums[0:n, top:bottom, left:right],
                op0=nl.multiply,
                operand0=1 / (row_count * col_count),
            )


@nki.jit
def nki_avg_pool2d_backward_kernel(
    grad_out,
    height,
    width,
    kernel_size,
    stride=None,
    padding=0,
    ceil_mode=False,
    count_include_pad=True,
    divisor_override=None,
):
    """Gradient of average pooling with respect to its input.

    Dimensions:
        C: channels, of all images of a batch. H, W: height and width of the input.

    Args:
        grad_out: (C, out_H, out_W) in HBM, gradient with respect to the output.
        height, width: H and W, constants.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: as forward.

    Returns:
        (C, H, W) in HBM, dtype of `grad_out`.

    Raises:
        TypeError, ValueError: settings that are no pooling.
        AssertionError: settings that give another output size than `grad_out` has.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. Each output is
        spread over its window, first in height, then in width, in as many steps as windows overlap.

    Pseudocode:
        for each tile of 128 channels and as many inputs as fit:
            share = grad_out * (1 / count), for all windows that reach into the tile
            tall[stride * (y + q) + r, x] += share[y, x]    for all q, r in the window
            grad_in[y, stride * (x + q) + r] += tall[y, x]  for all q, r in the window
    """
    settings = pooling_in_kernel(
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override
    )
    channels = grad_out.shape[0]
    axes = settings.axes(height, width)
    out_size = (grad_out.shape[1], grad_out.shape[2])
    assert out_size == (axes[0].out, axes[1].out), (
        f"grad_out has height and width {out_size}. Pooling {height}x{width} gives "
        f"{(axes[0].out, axes[1].out)}. Pass the settings of the forward."
    )
    grad_in = nl.ndarray((channels, height, width), dtype=grad_out.dtype, buffer=nl.shared_hbm)
    tiles = list(backward_tiles(axes[0], axes[1]))
    blocks = pieces(channels, PARTITIONS)
    for number in range(nl.program_id(0), len(blocks) * len(tiles), nl.num_programs(0)):
        lanes, tile = blocks[number // len(tiles)], tiles[number % len(tiles)]
        unpool_tile(grad_out, grad_in, lanes, settings, axes, tile)
    return grad_in


def unpool_tile(grad_out, grad_in, lanes, settings, axes, tile):
    """Compute one tile of the input's gradient, for `lanes` = (first channel, channels)."""
    first, n = lanes
    last = first + n
    images = (tile[0].image(axes[0]), tile[1].image(axes[1]))
    rows, cols = images[0].common(Run(0, axes[0].size)), images[1].common(Run(0, axes[1].size))
    outs = (tile[0].outs(axes[0]), tile[1].outs(axes[1]))
    if outs[0].size and outs[1].size:
        shape = (n, outs[0].size, outs[1].size)
        loaded = nl.ndarray(shape, dtype=grad_out.dtype, buffer=nl.sbuf)
        nisa.dma_copy(
            dst=loaded,
            src=grad_out[first:last, outs[0].first : outs[0].last, outs[1].first : outs[1].last],
        )
        share = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        _divide(share, loaded, settings, axes, outs)
        tall = nl.ndarray((n, tile[0].size, shape[2]), dtype=nl.float32, buffer=nl.sbuf)
        spread = nl.ndarray((n, tile[0].size, tile[1].size), dtype=nl.float32, buffer=nl.sbuf)
        _spread(tall, share, axes[0], tile[0], 1)
        _spread(spread, tall, axes[1], tile[1], 2)
    else:  # between windows, or after the last one
        spread = nl.ndarray((n, tile[0].size, tile[1].size), dtype=nl.float32, buffer=nl.sbuf)
        nisa.memset(dst=spread, value=0.0)
    down, across = rows.first - images[0].first, cols.first - images[1].first
    part = spread[0:n, down : down + rows.size, across : across + cols.size]
    where = grad_in[first:last, rows.first : rows.last, cols.first : cols.last]
    if grad_in.dtype == nl.float32:
        nisa.dma_copy(dst=where, src=part)
        return
    rounded = nl.ndarray((n, rows.size, cols.size), dtype=grad_in.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=rounded, src=part)
    nisa.dma_copy(dst=where, src=rounded)


def _spread(dst, source, axis, tile, along):
    """Add what each window received to all elements of the window, along rows (1) or columns (2).

    The access pattern that reads windows in the forward pass is written here: element
    ``stride * i + r`` for window `i`. The source repeats along `r` at no cost, with step 0.
    """
    n, high, wide = dst.shape
    step = tile.phases.size
    origin = tile.outs(axis).first
    spreads = list(tile.spreads(axis))
    complete = len(spreads) == 1 and spreads[0].outs.size * spreads[0].phases == tile.size
    if not complete:
        nisa.memset(dst=dst, value=0.0)
    for number in range(len(spreads)):
        outs, to, phases = spreads[number]
        at = outs.first - origin
        line = source.shape[2]
        if along == 1:
            read = source.ap(
                [[source.shape[1] * line, n], [line, outs.size], [0, phases], [1, wide]],
                offset=at * line,
            )
            write = dst.ap(
                [[high * wide, n], [step * wide, outs.size], [wide, phases], [1, wide]],
                offset=to * wide,
            )
        else:
            read = source.ap(
                [[source.shape[1] * line, n], [line, high], [1, outs.size], [0, phases]],
                offset=at,
            )
            write = dst.ap(
                [[high * wide, n], [wide, high], [step, outs.size], [1, phases]],
                offset=to,
            )
        if number:
            nisa.tensor_tensor(dst=write, data1=write, data2=read, op=nl.add)
        else:
            nisa.tensor_copy(dst=write, src=read)


def nki_avg_pool2d(
    x: Any,
    kernel_size: int | tuple[int, int],
    stride: int | tuple[int, int] | None = None,
    padding: int | tuple[int, int] = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    lnc: int | None = None,
) -> Any:
    """Average pooling with :func:`nki_avg_pool2d_kernel`; arguments as ``avg_pool2d`` in PyTorch.

    Args:
        x: (C, H, W) or (N, C, H, W), all at least 1; float32, bfloat16 or float16. A NumPy array,
            a PyTorch tensor (CPU or XLA) or a JAX array.
        kernel_size: height and width of the window; one number for both.
        stride: distance between windows, down and across; the window's size when None.
        padding: zeros around the image, on both sides; at most half the window.
        ceil_mode: whether the last window may reach over the edge.
        count_include_pad: whether padding counts in the divisor.
        divisor_override: a fixed divisor, in place of the count.
        lnc: physical cores of the logical core, 1 or 2; 2 from Trainium2 on. By default as many as
            the runtime joins (:func:`kernels.logical_core.cores`).

    Returns:
        (C, out_H, out_W) or (N, C, out_H, out_W), dtype and framework of `x`.

    Raises:
        TypeError: a dtype that the kernel does not take, or a size that is not an integer.
        ValueError: another rank, no elements, sizes out of range, a window larger than the image.
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return pool(x, settings, lnc=lnc)


def pool(x: Any, settings: Pooling, *, lnc: int | None = None) -> Any:
    """:func:`nki_avg_pool2d` with validated settings."""
    check("x", x)
    out_size = settings.out_size(*x.shape[-2:])
    planes = x.reshape(-1, *x.shape[-2:])
    out = nki_avg_pool2d_kernel[cores(lnc)](planes, *constants(settings))
    return out.reshape(*x.shape[:-2], *out_size)


def unpool(
    grad_out: Any, size: tuple[int, int], settings: Pooling, *, lnc: int | None = None
) -> Any:
    """Gradient of :func:`nki_avg_pool2d` with respect to its input.

    Args:
        grad_out: (C, out_H, out_W) or (N, C, out_H, out_W), gradient with respect to the output.
        size: height and width of the input.
        settings: those of the forward, from :func:`kernels.avgpool.geometry.pooling`.
        lnc: physical cores of the logical core, 1 or 2, as in the forward pass.

    Returns:
        (C, H, W) or (N, C, H, W), dtype and framework of `grad_out`.

    Raises:
        TypeError, ValueError: as :func:`nki_avg_pool2d`; ValueError also when `grad_out` does not
            have the size that the settings give.
    """
    check("grad_out", grad_out)
    planes = grad_out.reshape(-1, *grad_out.shape[-2:])
    grad_in = nki_avg_pool2d_backward_kernel[cores(lnc)](planes, *size, *constants(settings))
    return grad_in.reshape(*grad_out.shape[:-2], *size)
