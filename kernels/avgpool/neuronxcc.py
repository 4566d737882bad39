"""Average pooling as NKI kernels, forward and backward.

Channels lie on the partitions of SBUF, rows and columns on the free axes. A window is an access
pattern: no element is moved or copied to line windows up. The channels of all images of a batch
are one long axis, cut in tiles of 128.
"""

from __future__ import annotations

from typing import Any

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

from kernels.avgpool.arguments import (
    WHOLE_ROWS,
)
from kernels.avgpool.geometry import (
    Axis,
    BackwardTile,
    ForwardTile,
    Pooling,
    Run,
    around,
    backward_tiles,
    forward_tiles,
    pooling,
    runs,
)
from kernels.tiles import PARTITIONS


@nki.jit
def nki_avg_pool2d_kernel_strict(in_tensor, pool_size):
    """Average square windows that tile the image, for at most 128 channels.

    Dimensions:
        C: channels, at most 128. H, W: height and width, multiples of `pool_size`, small enough
        that a channel fits into an SBUF partition.

    Args:
        in_tensor: (C, H, W) in HBM.
        pool_size: height and width of the window, an integer of at least 1.

    Returns:
        (C, H // pool_size, W // pool_size) in HBM, dtype of `in_tensor`.

    Raises:
        ValueError: a pool size below 1, or one that does not divide height and width.

    Notes:
        One load, one reduction, one division, one store. The two axes of the window come last in
        the access pattern, since an engine reduces the last axes of its operand.

    Pseudocode:
        out[c, y, x] = sum over v, u of in[c, pool_size * y + v, pool_size * x + u] / pool_size^2
    """
    channels, height, width = in_tensor.shape
    if pool_size < 1 or height % pool_size or width % pool_size:
        raise ValueError(
            f"pool_size is {pool_size} for an image of {height}x{width}: this kernel takes sizes "
            "of at least 1 that divide both. nki_avg_pool2d takes any window."
        )
    out_rows, out_cols = height // pool_size, width // pool_size
    out_tensor = nl.ndarray(
        (channels, out_rows, out_cols), dtype=in_tensor.dtype, buffer=nl.shared_hbm
    )

    i_c, i_y, i_x, i_v, i_u = nl.mgrid[0:channels, 0:out_rows, 0:out_cols, 0:pool_size, 0:pool_size]
    in_tile = nl.load(in_tensor)
    windows = in_tile[i_c, pool_size * i_y + i_v, pool_size * i_x + i_u]
    total = nl.sum(windows, axis=[3, 4], dtype=nl.float32)
    nl.store(out_tensor, value=total / (pool_size * pool_size))

    return out_tensor


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
        in_tensor: (C, H, W) in HBM.
        kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override: constants, as
            :func:`kernels.avgpool.geometry.pooling` takes them.

    Returns:
        (C, out_H, out_W) in HBM, dtype of `in_tensor`.

    Raises:
        TypeError, ValueError: settings that are no pooling, or a window larger than the image.

    Notes:
        Launch without a grid. After a loop the last tile may be smaller; the instances of a grid
        all have tiles of one shape. Sums and divisions are float32, rounded once. Windows that
        overlap read shared elements from SBUF.

    Pseudocode:
        for each tile of 128 channels and as many outputs as fit:
            slab = zeros where the windows reach over the edge, else in
            out = sum of each window of slab / count of the window
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    channels, height, width = in_tensor.shape
    rows, cols = settings.axes(height, width)
    out_tensor = nl.ndarray(
        (channels, rows.out, cols.out), dtype=in_tensor.dtype, buffer=nl.shared_hbm
    )

    tiles = list(forward_tiles(rows, cols))
    for block in nl.affine_range(channels // PARTITIONS):
        for tile in tiles:
            lanes = block * PARTITIONS, PARTITIONS
            pool_tile(in_tensor, out_tensor, lanes, settings, (rows, cols), tile)
    if channels % PARTITIONS:
        for tile in tiles:
            lanes = channels - channels % PARTITIONS, channels % PARTITIONS
            pool_tile(in_tensor, out_tensor, lanes, settings, (rows, cols), tile)

    return out_tensor


def pool_tile(
    in_tensor: Any,
    out_tensor: Any,
    lanes: tuple[Any, int],
    settings: Pooling,
    axes: tuple[Axis, Axis],
    tile: tuple[ForwardTile, ForwardTile],
) -> None:
    """Compute one tile of outputs, for `lanes` = (first channel, number of channels)."""
    (rows, cols), (row_tile, col_tile) = axes, tile
    first, n = lanes
    out_rows, out_cols = row_tile.outs, col_tile.outs
    total = None
    for row_part in row_tile.parts:
        for col_part in col_tile.parts:
            image = row_tile.image(rows, row_part), col_tile.image(cols, col_part)
            found = _load_padded(in_tensor, lanes, image)
            if found is None:
                continue
            slab, left = found
            i_c, i_y, i_x, i_v, i_u = nl.mgrid[
                0:n, 0 : out_rows.size, 0 : out_cols.size, 0 : row_part.size, 0 : col_part.size
            ]
            windows = slab[i_c, rows.stride * i_y + i_v, left + cols.stride * i_x + i_u]
            part = nl.sum(windows, axis=[3, 4], dtype=nl.float32)
            total = part if total is None else nl.add(total, part)
    divisor = _divisor(settings, axes, (out_rows, out_cols), n)
    mean = nl.divide(total, divisor, dtype=out_tensor.dtype)
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : out_rows.size, 0 : out_cols.size]
    nl.store(out_tensor[first + i_c, out_rows.first + i_y, out_cols.first + i_x], value=mean)


def _load_padded(in_tensor: Any, lanes: tuple[Any, int], image: tuple[Run, Run]) -> Any:
    """Load a part of the image, with zeros where it reaches over the edge.

    Returns:
        The tile and the column in it where `image` begins; None when all of it is over the edge.
    """
    first, n = lanes
    height, width = in_tensor.shape[1:]
    rows, cols = (
        run.common(Run(0, size)) for run, size in zip(image, (height, width), strict=True)
    )
    if not rows.size or not cols.size:
        return None
    # Whole rows lie in HBM as one run, which DMA moves far faster than a run for each row.
    read = Run(0, width) if width <= WHOLE_ROWS * cols.size else cols
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : rows.size, 0 : read.size]
    loaded = nl.load(in_tensor[first + i_c, rows.first + i_y, read.first + i_x])
    left = cols.first - read.first
    if (rows, cols) == image:
        return loaded, left
    # An engine has time to move the rows apart; a DMA would take a run for each of them.
    size = image[0].size, image[1].size
    slab = nl.ndarray((n, *size), dtype=in_tensor.dtype)
    inside = rows.first - image[0].first, cols.first - image[1].first
    for strip in around(size, inside, (rows.size, cols.size)):
        _fill_zeros(slab, n, strip)
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : rows.size, 0 : cols.size]
    slab[i_c, inside[0] + i_y, inside[1] + i_x] = nl.copy(loaded[i_c, i_y, left + i_x])
    return slab, 0


def _fill_zeros(slab: Any, n: int, block: tuple[Run, Run]) -> None:
    rows, cols = block
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : rows.size, 0 : cols.size]
    zeros = nl.zeros((n, rows.size, cols.size), dtype=slab.dtype)
    slab[i_c, rows.first + i_y, cols.first + i_x] = zeros[i_c, i_y, i_x]


def _divisor(settings: Pooling, axes: tuple[Axis, Axis], outs: tuple[Run, Run], n: int) -> Any:
    """What the sums of a block of windows are divided by: a number when it is the same for all,
    else a tile (n, rows, columns), float32."""
    if settings.divisor_override is not None:
        return settings.divisor_override
    row_counts, col_counts = (
        settings.counts(axis, *run) for axis, run in zip(axes, outs, strict=True)
    )
    if len({*row_counts}) == len({*col_counts}) == 1:
        return row_counts[0] * col_counts[0]
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : outs[0].size, 0 : outs[1].size]
    by_row = nl.ndarray((n, outs[0].size, 1), dtype=nl.float32)
    for run, count in runs(row_counts):
        at_c, at_y, at_x = nl.mgrid[0:n, 0 : run.size, 0:1]
        by_row[at_c, run.first + at_y, at_x] = nl.full((n, run.size, 1), count, nl.float32)
    by_col = nl.ndarray((n, 1, outs[1].size), dtype=nl.float32)
    for run, count in runs(col_counts):
        at_c, at_y, at_x = nl.mgrid[0:n, 0:1, 0 : run.size]
        by_col[at_c, at_y, run.first + at_x] = nl.full((n, 1, run.size), count, nl.float32)
    return nl.multiply(by_row[i_c, i_y, 0], by_col[i_c, 0, i_x])


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
        TypeError, ValueError: settings that are no pooling, or that give another output size than
            `grad_out` has.

    Notes:
        Each input element collects ``grad_out / count`` from every window that it lies in. The
        kernel goes the other way and spreads each output over its window, first in height, then
        in width, in as many steps as windows overlap (one when they do not). Sums are float32,
        rounded once. Each element of the result is written once, by one tile.

    Pseudocode:
        for each tile of 128 channels and as many inputs as fit:
            share = grad_out / count, for all windows that reach into the tile
            tall[stride * (y + q) + r, x] += share[y, x]    for all q, r in the window
            grad_in[y, stride * (x + q) + r] += tall[y, x]  for all q, r in the window
    """
    settings = pooling(kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    channels, *out_size = grad_out.shape
    rows, cols = settings.axes(height, width)
    if tuple(out_size) != (rows.out, cols.out):
        raise ValueError(
            f"grad_out has height and width {tuple(out_size)}. Pooling {height}x{width} gives "
            f"{(rows.out, cols.out)}. Pass the settings of the forward."
        )
    grad_in = nl.ndarray((channels, height, width), dtype=grad_out.dtype, buffer=nl.shared_hbm)

    tiles = list(backward_tiles(rows, cols))
    for block in nl.affine_range(channels // PARTITIONS):
        for tile in tiles:
            lanes = block * PARTITIONS, PARTITIONS
            unpool_tile(grad_out, grad_in, lanes, settings, (rows, cols), tile)
    if channels % PARTITIONS:
        for tile in tiles:
            lanes = channels - channels % PARTITIONS, channels % PARTITIONS
            unpool_tile(grad_out, grad_in, lanes, settings, (rows, cols), tile)

    return grad_in


def unpool_tile(
    grad_out: Any,
    grad_in: Any,
    lanes: tuple[Any, int],
    settings: Pooling,
    axes: tuple[Axis, Axis],
    tile: tuple[BackwardTile, BackwardTile],
) -> None:
    """Compute one tile of the input's gradient, for `lanes` = (first channel, channels)."""
    first, n = lanes
    images = [part.image(axis) for part, axis in zip(tile, axes, strict=True)]
    kept = [run.common(Run(0, axis.size)) for run, axis in zip(images, axes, strict=True)]
    outs = tile[0].outs(axes[0]), tile[1].outs(axes[1])
    if outs[0].size and outs[1].size:
        i_c, i_y, i_x = nl.mgrid[0:n, 0 : outs[0].size, 0 : outs[1].size]
        loaded = nl.load(grad_out[first + i_c, outs[0].first + i_y, outs[1].first + i_x])
        share = nl.divide(loaded, _divisor(settings, axes, outs, n), dtype=nl.float32)
        tall = _spread(share, axes[0], tile[0], along=0)
        spread = _spread(tall, axes[1], tile[1], along=1)
    else:  # between windows, or after the last one
        spread = nl.zeros((n, tile[0].size, tile[1].size), dtype=nl.float32)
    i_c, i_y, i_x = nl.mgrid[0:n, 0 : kept[0].size, 0 : kept[1].size]
    down, across = (run.first - image.first for run, image in zip(kept, images, strict=True))
    nl.store(
        grad_in[first + i_c, kept[0].first + i_y, kept[1].first + i_x],
        value=spread[i_c, down + i_y, across + i_x],
    )


def _spread(source: Any, axis: Axis, tile: BackwardTile, along: int) -> Any:
    """Add what each window received to all elements of the window, along rows (0) or columns (1).

    The access pattern that reads windows in the forward pass is written here: element
    ``stride * i + r`` for window `i`. The source repeats along `r` at no cost, with step 0.
    """
    n, *sizes = source.shape
    sizes[along] = tile.size
    origin = tile.outs(axis).first
    step = tile.phases.size
    spreads = list(tile.spreads(axis))
    complete = len(spreads) == 1 and spreads[0].outs.size * spreads[0].phases == tile.size
    empty = nl.ndarray if complete else nl.zeros
    spread = empty((n, *sizes), dtype=nl.float32)
    for number, (outs, to, phases) in enumerate(spreads):
        at = outs.first - origin
        if along == 0:
            i_c, i_y, i_r, i_x = nl.mgrid[0:n, 0 : outs.size, 0:phases, 0 : sizes[1]]
            read, write = (i_c, at + i_y, i_x), (i_c, to + step * i_y + i_r, i_x)
        else:
            i_c, i_y, i_x, i_r = nl.mgrid[0:n, 0 : sizes[0], 0 : outs.size, 0:phases]
            read, write = (i_c, i_y, at + i_x), (i_c, i_y, to + step * i_x + i_r)
        spread[write] = nl.add(spread[write], source[read]) if number else nl.copy(source[read])
    return spread
