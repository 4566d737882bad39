"""A 2-D convolution as matrix products, with a max pooling on the way out."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


@nki.jit
def conv2d(x, weights, bias, pool=1):
    """x (batch, c_in, h, w), weights (c_out, c_in, k, k), bias (c_out, 1); no padding.

    Channels are multiples of 128. Two output rows at a time: a strip of k + 1 input rows is
    loaded, each filter position copies its window out of the strip, and a matmul for each half of
    the output channels adds its share in PSUM. The weights are transposed where they are used.
    """
    batch, c_in, height, width = x.shape
    c_out, _, k, _ = weights.shape
    out_h, out_w = height - k + 1, width - k + 1
    rows = 2
    out = nl.ndarray((batch, c_out, out_h // pool, out_w // pool), dtype=x.dtype,
                     buffer=nl.shared_hbm)  # fmt: skip
    x_rows = x.reshape((batch, c_in, height * width))
    flat = weights.reshape((c_out, c_in, k * k))
    halves, depths = c_out // P, c_in // P
    w_tiles, b_tiles = [], []
    for m in nl.static_range(halves):
        tile = nl.ndarray((P, P, depths, k * k), dtype=weights.dtype, buffer=nl.sbuf)
        for d in nl.affine_range(depths):
            tile[:, :, d, :] = nl.load(flat[m * P : (m + 1) * P, d * P : (d + 1) * P, :])
        w_tiles.append(tile)
        b_tiles.append(nl.load(bias[m * P : (m + 1) * P]))
    for b in nl.affine_range(batch):
        for r in nl.affine_range(out_h // rows):
            sums = [nl.zeros((P, rows * out_w), nl.float32, buffer=nl.psum) for _ in w_tiles]
            for d in nl.affine_range(depths):
                strip = nl.ndarray((P, (rows + k - 1) * width), dtype=x.dtype, buffer=nl.sbuf)
                for s in nl.affine_range(rows + k - 1):
                    at = (r * rows + s) * width
                    strip[:, s * width : (s + 1) * width] = nl.load(
                        x_rows[b, d * P : (d + 1) * P, at : at + width]
                    )
                for i in nl.affine_range(k):
                    for j in nl.affine_range(k):
                        window = nl.ndarray((P, rows * out_w), dtype=x.dtype, buffer=nl.sbuf)
                        for s in nl.affine_range(rows):
                            at = (s + i) * width + j
                            window[:, s * out_w : (s + 1) * out_w] = strip[:, at : at + out_w]
                        for m in nl.static_range(halves):
                            sums[m] += nl.matmul(w_tiles[m][:, :, d, i * k + j], window)
            for m in nl.static_range(halves):
                _finish(out[b, m * P : (m + 1) * P], sums[m], b_tiles[m], r, rows, out_w, pool)
    return out


@nki.jit
def conv2d_rows(x, weights, bias, pool=1):
    """The same, a row of one half of the output channels at a time; a pooling takes `pool` rows.

    Weights are transposed before the first row. Each row of the input is loaded where a row of the
    filter meets it, and the bias for each row that is stored.
    """
    batch, c_in, height, width = x.shape
    c_out, _, k, _ = weights.shape
    out_h, out_w = height - k + 1, width - k + 1
    out = nl.ndarray((batch, c_out, out_h // pool, out_w // pool), dtype=x.dtype,
                     buffer=nl.shared_hbm)  # fmt: skip
    halves, depths = c_out // P, c_in // P
    turned = nl.ndarray((P, halves, depths, k, k, P), dtype=weights.dtype, buffer=nl.sbuf)
    for m in nl.affine_range(halves):
        for d in nl.affine_range(depths):
            block = nl.load(weights[nl.ds(m * P, P), nl.ds(d * P, P)])
            for i in nl.affine_range(k):
                for j in nl.affine_range(k):
                    tile = nisa.nc_transpose(nl.copy(block[:, :, i, j]))
                    turned[:, m, d, i, j, :] = nl.copy(tile, dtype=weights.dtype)
    for b in nl.affine_range(batch):
        for m in nl.affine_range(halves):
            for r in nl.affine_range(out_h // pool):
                rows = nl.ndarray((P, pool, out_w), dtype=x.dtype, buffer=nl.sbuf)
                for s in nl.affine_range(pool):
                    total = nl.zeros((P, out_w), nl.float32, buffer=nl.psum)
                    for d in nl.affine_range(depths):
                        for i in nl.affine_range(k):
                            row = nl.load(x[b, nl.ds(d * P, P), r * pool + s + i, :])
                            for j in nl.affine_range(k):
                                window = row[:, nl.ds(j, out_w)]
                                total += nisa.nc_matmul(turned[:, m, d, i, j, :], window)
                    rows[:, s, :] = nl.copy(total, dtype=x.dtype)
                result = nl.add(_largest(rows), nl.load(bias[nl.ds(m * P, P)]))
                nl.store(out[b, nl.ds(m * P, P), r, :], result)
    return out


@nki.jit
def conv2d_strips(x, weights, bias, pool=1):
    """The same for as many pairs of output rows at a time as one PSUM bank has columns for.

    Of each output row, the k input rows that it needs are loaded into a tile of all of them, in a
    loop in order, so a product takes its operand from there without a copy. Weights of one half of
    the output channels are one load, and so are as many rows of the output.
    """
    batch, c_in, height, width = x.shape
    c_out, _, k, _ = weights.shape
    out_h, out_w = height - k + 1, width - k + 1
    out = nl.ndarray((batch, c_out, out_h // pool, out_w // pool), dtype=x.dtype,
                     buffer=nl.shared_hbm)  # fmt: skip
    halves, depths = c_out // P, c_in // P
    turned = nl.ndarray((P, halves, depths, k, k, P), dtype=weights.dtype, buffer=nl.sbuf)
    offsets = nl.ndarray((P, halves), dtype=bias.dtype, buffer=nl.sbuf)
    for m in nl.affine_range(halves):
        block = nl.load(weights[nl.ds(m * P, P)])
        for d in nl.affine_range(depths):
            for i in nl.affine_range(k):
                for j in nl.affine_range(k):
                    tile = nisa.nc_transpose(block[:, nl.ds(d * P, P), i, j])
                    turned[:, m, d, i, j, :] = nisa.tensor_copy(tile, dtype=weights.dtype)
    for m in nl.affine_range(halves):
        offsets[:, nl.ds(m, 1)] = nl.load(bias[nl.ds(m * P, P)])
    pairs = min(512 // (2 * width), out_h // 2)
    rows = 2 * pairs
    for b in nl.affine_range(batch):
        for strip in nl.affine_range(out_h // rows):
            windows = nl.zeros((depths, nl.par_dim(P), k, rows, width), x.dtype, buffer=nl.sbuf)
            for r in nl.sequential_range(rows):
                for d in nl.sequential_range(depths):
                    windows[d, :, :, r, :] = nl.load(
                        x[b, nl.ds(d * P, P), nl.ds(strip * rows + r, k), :]
                    )
            for m in nl.affine_range(halves):
                total = nl.zeros((P, rows, out_w), nl.float32, buffer=nl.psum)
                for i in nl.affine_range(k):
                    for j in nl.affine_range(k):
                        for d in nl.affine_range(depths):
                            window = windows[d, :, i, :, nl.ds(j, out_w)]
                            total += nisa.nc_matmul(turned[:, m, d, i, j, :], window)
                result = nisa.tensor_copy(total, dtype=x.dtype)
                result = nisa.tensor_tensor(result, offsets[:, nl.ds(m, 1)], op=nl.add)
                if pool == 2:
                    result = _largest_of_pairs(result)
                height_of_strip = rows // pool
                nl.store(
                    out[b, nl.ds(m * P, P), nl.ds(strip * height_of_strip, height_of_strip), :],
                    result,
                )
    return out


def _largest_of_pairs(rows):
    """(128, 2 n, 2 m): the largest of each two by two, (128, n, m)."""
    _, height, width = rows.shape
    at = nl.mgrid[0:P, 0 : height // 2, 0:width, 0:2]
    wide = nisa.tensor_reduce(nl.maximum, rows[at.p, 2 * at.x + at.z, at.y], axis=3)
    at = nl.mgrid[0:P, 0 : height // 2, 0 : width // 2, 0:2]
    return nisa.tensor_reduce(nl.maximum, wide[at.p, at.x, 2 * at.y + at.z], axis=3)


def _largest(rows):
    """Of windows of (128, pool, width): (128, width / pool)."""
    _, pool, width = rows.shape
    if pool == 1:
        return nl.copy(rows[:, 0, :])
    at = nl.mgrid[0:P, 0 : width // pool, 0:pool, 0:pool]
    p, column, row, step = at.p, at.x, at.y, at.z
    return nisa.tensor_reduce(np.max, rows[p, row, column * pool + step], axis=(2, 3))


def _finish(out, total, bias, r, rows, out_w, pool):
    """Add the bias row by row, pool pairs of rows and columns if asked, and store."""
    result = nl.copy(total, dtype=out.dtype)
    biased = []
    for s in nl.static_range(rows):
        row = nl.ndarray((P, out_w), dtype=out.dtype, buffer=nl.sbuf)
        row[...] = result[:, s * out_w : (s + 1) * out_w]
        biased.append(nl.add(row, bias))
    if pool == 1:
        for s in nl.static_range(rows):
            nl.store(out[:, r * rows + s, :], biased[s])
        return
    larger = nl.maximum(biased[0], biased[1])
    half = nl.arange(out_w // 2)[None, :]
    p = nl.arange(P)[:, None]
    even = nl.ndarray((P, out_w // 2), dtype=out.dtype, buffer=nl.sbuf)
    odd = nl.ndarray((P, out_w // 2), dtype=out.dtype, buffer=nl.sbuf)
    even[...] = larger[p, 2 * half]
    odd[...] = larger[p, 2 * half + 1]
    nl.store(out[:, r, :], nl.maximum(even, odd))
