"""Average pooling in ``import nki``, forward and backward.

The plan is that of ``neuronxcc``: channels lie on the partitions of SBUF, and a window is an
access pattern. What differs: windows are read and written through ``.ap``, whose pairs are a step
and a count for each axis, in elements; and this dialect has no division on the device, so a sum is
multiplied by one over the count of its window, where ``neuronxcc`` divides.

Callers make the plan, which part of an image is read when, and pass it as tuples of numbers
(``plan``), so the kernel has no classes and no errors of its own, which NKI 0.6 does not take.
"""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl

from kernels.tiles import PARTITIONS, pieces


@nki.jit
def nki_avg_pool2d_kernel(in_tensor, plan):
    """Average the windows of any number of channels, of any size.

    Dimensions:
        C: channels, of all images of a batch. H, W: height and width. All at least 1.

    Args:
        in_tensor: (C, H, W) in HBM; float32, bfloat16 or float16.
        plan: constants, from :func:`kernels.avgpool.plan.forward_plan` for H and W.

    Returns:
        (C, out_H, out_W) in HBM, dtype of `in_tensor`.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. Sums and
        products are float32, rounded once.

    Pseudocode:
        for each tile of 128 channels and as many outputs as fit:
            slab = zeros where the windows reach over the edge, else in
            out = sum of each window of slab * (1 / count of the window)
    """
    out_size, strides, tiles = plan
    channels = in_tensor.shape[0]
    out_tensor = nl.ndarray(
        (channels, out_size[0], out_size[1]), dtype=in_tensor.dtype, buffer=nl.shared_hbm
    )
    blocks = pieces(channels, PARTITIONS)
    for number in range(nl.program_id(0), len(blocks) * len(tiles), nl.num_programs(0)):
        lanes, tile = blocks[number // len(tiles)], tiles[number % len(tiles)]
        pool_tile(in_tensor, out_tensor, lanes, strides, tile)
    return out_tensor


def pool_tile(in_tensor, out_tensor, lanes, strides, tile):
    """Compute one tile of outputs, for `lanes` = (first channel, number of channels)."""
    (top, bottom, left, right), parts, factors = tile
    first, n = lanes
    shape = (n, bottom - top, right - left)
    total = None
    for part in parts:
        high, wide = part[0]
        slab, begin = _load_padded(in_tensor, lanes, part)
        line = slab.shape[2]
        windows = slab.ap(
            [
                [slab.shape[1] * line, n],
                [strides[0] * line, shape[1]],
                [strides[1], shape[2]],
                [line, high],
                [1, wide],
            ],
            offset=begin,
        )
        some = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_reduce(dst=some, op=nl.add, data=windows, axis=(3, 4))
        if total == None:
            total = some
        else:
            nisa.tensor_tensor(dst=total, data1=total, data2=some, op=nl.add)
    mean = nl.ndarray(shape, dtype=out_tensor.dtype, buffer=nl.sbuf)
    _multiply(mean, total, factors)
    nisa.dma_copy(dst=out_tensor[first : first + n, top:bottom, left:right], src=mean)


def _load_padded(in_tensor, lanes, part):
    """Load a part of the image, with zeros where it reaches over the edge.

    Returns:
        The tile and the column in it where the windows begin.
    """
    (top, bottom, left, right), begin, frame = part[1:]
    first, n = lanes
    loaded = nl.ndarray((n, bottom - top, right - left), dtype=in_tensor.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=loaded, src=in_tensor[first : first + n, top:bottom, left:right])
    if frame == None:
        return loaded, begin
    # An engine has time to move the rows apart; a DMA would take a run for each of them.
    size, (down, across, rows, cols), strips = frame
    slab = nl.ndarray((n, size[0], size[1]), dtype=in_tensor.dtype, buffer=nl.sbuf)
    for y0, y1, x0, x1 in strips:
        nisa.memset(dst=slab[0:n, y0:y1, x0:x1], value=0.0)
    nisa.tensor_copy(
        dst=slab[0:n, down : down + rows, across : across + cols],
        src=loaded[0:n, 0:rows, begin : begin + cols],
    )
    return slab, 0


def _multiply(dst, sums, factors):
    """sums / the counts of their windows, for a block of windows: dst and sums are (n, rows, cols).

    One over a count is rounded to float32, and the product once more, to the dtype of `dst`.
    """
    n = sums.shape[0]
    for (top, bottom, left, right), factor in factors:
        nisa.tensor_scalar(
            dst=dst[0:n, top:bottom, left:right],
            data=sums[0:n, top:bottom, left:right],
            op0=nl.multiply,
            operand0=factor,
        )


@nki.jit
def nki_avg_pool2d_backward_kernel(grad_out, plan):
    """Gradient of average pooling with respect to its input.

    Dimensions:
        C: channels, of all images of a batch. H, W: height and width of the input.

    Args:
        grad_out: (C, out_H, out_W) in HBM, gradient with respect to the output.
        plan: constants, from :func:`kernels.avgpool.plan.backward_plan` for H and W.

    Returns:
        (C, H, W) in HBM, dtype of `grad_out`.

    Notes:
        Launch as ``kernel[1]`` or ``kernel[2]``: the cores take the tiles in turn. Each output is
        spread over its window, first in height, then in width, in as many steps as windows overlap.

    Pseudocode:
        for each tile of 128 channels and as many inputs as fit:
            share = grad_out * (1 / count), for all windows that reach into the tile
            tall[stride * (y + q) + r, x] += share[y, x]    for all q, r in the window
            grad_in[y, stride * (x + q) + r] += tall[y, x]  for all q, r in the window
    """
    (height, width), tiles = plan
    channels = grad_out.shape[0]
    grad_in = nl.ndarray((channels, height, width), dtype=grad_out.dtype, buffer=nl.shared_hbm)
    blocks = pieces(channels, PARTITIONS)
    for number in range(nl.program_id(0), len(blocks) * len(tiles), nl.num_programs(0)):
        lanes, tile = blocks[number // len(tiles)], tiles[number % len(tiles)]
        unpool_tile(grad_out, grad_in, lanes, tile)
    return grad_in


def unpool_tile(grad_out, grad_in, lanes, tile):
    """Compute one tile of the input's gradient, for `lanes` = (first channel, channels)."""
    (top, bottom, left, right), factors, rows, cols, kept, (down, across) = tile
    first, n = lanes
    last = first + n
    spread = nl.ndarray((n, rows[0], cols[0]), dtype=nl.float32, buffer=nl.sbuf)
    if bottom > top and right > left:
        shape = (n, bottom - top, right - left)
        loaded = nl.ndarray(shape, dtype=grad_out.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=loaded, src=grad_out[first:last, top:bottom, left:right])
        share = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
        _multiply(share, loaded, factors)
        tall = nl.ndarray((n, rows[0], shape[2]), dtype=nl.float32, buffer=nl.sbuf)
        _spread(tall, share, rows, 1)
        _spread(spread, tall, cols, 2)
    else:  # between windows, or after the last one
        nisa.memset(dst=spread, value=0.0)
    y0, y1, x0, x1 = kept
    part = spread[0:n, down : down + y1 - y0, across : across + x1 - x0]
    where = grad_in[first:last, y0:y1, x0:x1]
    if grad_in.dtype == nl.float32:
        nisa.dma_copy(dst=where, src=part)
        return
    rounded = nl.ndarray((n, y1 - y0, x1 - x0), dtype=grad_in.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(dst=rounded, src=part)
    nisa.dma_copy(dst=where, src=rounded)


def _spread(dst, source, plan, along):
    """Add what each window received to all elements of the window, along rows (1) or columns (2).

    The access pattern that reads windows in the forward pass is written here: element
    ``stride * i + r`` for window `i`. The source repeats along `r` at no cost, with step 0.
    """
    n, high, wide = dst.shape
    line = source.shape[2]
    _, step, complete, steps = plan
    if not complete:
        nisa.memset(dst=dst, value=0.0)
    for number in range(len(steps)):
        at, outs, to, phases = steps[number]
        if along == 1:
            read = source.ap(
                [[source.shape[1] * line, n], [line, outs], [0, phases], [1, wide]],
                offset=at * line,
            )
            write = dst.ap(
                [[high * wide, n], [step * wide, outs], [wide, phases], [1, wide]],
                offset=to * wide,
            )
        else:
            read = source.ap(
                [[source.shape[1] * line, n], [line, high], [1, outs], [0, phases]],
                offset=at,
            )
            write = dst.ap(
                [[high * wide, n], [wide, high], [step, outs], [1, phases]],
                offset=to,
            )
        if number:
            nisa.tensor_tensor(dst=write, data1=write, data2=read, op=nl.add)
        else:
            nisa.tensor_copy(dst=write, src=read)
