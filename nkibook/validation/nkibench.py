"""Kernels of NKIBench, a suite of fp32 workloads that was measured on trn1.

The published baselines are in the form in which the compiler prints kernels. These are our own,
with the same tiles and the same instructions in the same loops.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BLOCK, HALF = 1024, 512  # columns that are loaded, and that are computed on, at a time


@nki.jit
def silu(x):
    """x / (1 + exp(-x)) of x (128, planes, columns), columns a multiple of 1024."""
    _, planes, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(planes):
        for j in nl.affine_range(columns // BLOCK):
            block = nl.ds(j * BLOCK, BLOCK)
            tile = nl.load(x[:, i, block])
            result = nl.ndarray((P, BLOCK), dtype=x.dtype)
            for k in nl.affine_range(BLOCK // HALF):
                half = nl.ds(k * HALF, HALF)
                exp = nisa.activation(op=nl.exp, data=tile[:, half], scale=-1.0)
                share = nisa.reciprocal(nisa.tensor_scalar(exp, np.add, 1.0))
                result[:, half] = nl.multiply(tile[:, half], share)
            nl.store(out[:, i, block], result)
    return out


@nki.jit
def adamw(theta, grad, first, second):
    """One step of AdamW on (rows, columns), columns a multiple of 1024: rate 0.01, decay 1e-3,
    betas 0.9 and 0.999, in step 1 without the correction of the first moment."""
    rows, columns = theta.shape
    out = nl.ndarray(theta.shape, dtype=theta.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:BLOCK]
    for i in nl.affine_range((rows + P - 1) // P):
        row = i * P + p
        inside = row < rows
        for j in nl.affine_range(columns // BLOCK):
            block = j * BLOCK + f
            t, m, v, g = (nl.load(a[row, block], mask=inside) for a in (theta, first, second, grad))
            result = nl.ndarray(t.shape, dtype=theta.dtype)
            for k in nl.affine_range(BLOCK // HALF):
                half = nl.ds(k * HALF, HALF)
                kept = nl.subtract(t[:, half], _times(t[:, half], 1e-5))
                moment = nl.add(_times(m[:, half], 0.9), _times(g[:, half], 0.1))
                step = _times(moment, 0.01)
                square = nl.multiply(_times(g[:, half], 0.001), g[:, half])
                square = nl.add(_times(v[:, half], 0.999), square)
                root = nisa.activation(op=nl.sqrt, data=square, scale=1000.0)
                share = nisa.reciprocal(nisa.tensor_scalar(root, np.add, 1e-8))
                result[:, half] = nl.subtract(kept, nl.multiply(step, share))
            nl.store(out[row, block], result, mask=inside)
    return out


def _times(tile, factor):
    return nisa.tensor_scalar(tile, np.multiply, factor)


@nki.jit
def rope(x, cos, sin):
    """Rotary embedding of x (128, positions), halves of the head in the two halves of the
    partitions; cos and sin (64, positions), positions a multiple of 512."""
    heads, positions = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    top, bottom = slice(0, heads // 2), slice(heads // 2, heads)
    for i in nl.affine_range(positions // HALF):
        at = nl.ds(i * HALF, HALF)
        tile, c, s = nl.load(x[:, at]), nl.load(cos[:, at]), nl.load(sin[:, at])
        result = nl.ndarray((heads, HALF), dtype=x.dtype)
        even, odd = tile[top, :], nl.copy(tile[bottom, :])
        products = [nl.multiply(a, b) for a in (even, odd) for b in (c, s)]
        result[top, :] = nl.subtract(products[0], products[3])
        result[bottom, :] = nl.add(products[2], products[1])
        nl.store(out[:, at], result)
    return out


@nki.jit
def rope_tuned(x, cos, sin, width=2048):
    """As `rope`, tuned by AccelOpt: `width` positions at a time, and halves loaded where they are
    used, so that nothing is copied between partitions. positions is a multiple of `width`."""
    heads, positions = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    top, bottom = slice(0, heads // 2), slice(heads // 2, heads)
    for i in nl.sequential_range(positions // width):
        at = nl.ds(i * width, width)
        products = [
            nisa.tensor_tensor(nl.load(x[half, at]), nl.load(angle[:, at]), nl.multiply)
            for half, angle in ((top, cos), (bottom, sin), (top, sin), (bottom, cos))
        ]
        even_cos, odd_sin, even_sin, odd_cos = products
        nl.store(out[top, at], nisa.tensor_tensor(even_cos, odd_sin, nl.subtract))
        nl.store(out[bottom, at], nisa.tensor_tensor(odd_cos, even_sin, nl.add))
    return out


@nki.jit
def bmm(a, b):
    """a (batch, rows, k) times b (batch, k, columns); k up to 128, the others multiples of 1024.

    a is transposed on chip, in fp32 through the Tensor Engine, for each block of columns again."""
    batches, rows, k = a.shape
    columns = b.shape[2]
    out = nl.ndarray((batches, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batches):
        for n in nl.affine_range(columns // BLOCK):
            at = nl.ds(n * BLOCK, BLOCK)
            right = nl.load(b[i, :, at])
            for m in nl.affine_range(rows // BLOCK):
                left = _transposed(a, i, m, k)
                for r in nl.affine_range(BLOCK // P):
                    result = nl.ndarray((P, BLOCK), dtype=a.dtype)
                    for h in nl.affine_range(BLOCK // HALF):
                        half = nl.ds(h * HALF, HALF)
                        product = nisa.nc_matmul(left[:, nl.ds(r * P, P)], right[:, half])
                        result[:, half] = nl.copy(product)
                    nl.store(out[i, nl.ds(m * BLOCK + r * P, P), at], result)
    return out


@nki.jit
def bmm_softmax(a, b):
    """Softmax along the columns of `bmm`, whose products stay on chip, or spill, in between."""
    batches, rows, k = a.shape
    columns = b.shape[2]
    blocks, strips, halves = columns // BLOCK, rows // P, columns // HALF
    out = nl.ndarray((batches, rows, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(batches):
        scores = nl.ndarray((strips, halves, nl.par_dim(P), HALF), dtype=a.dtype)
        most = nl.ndarray((strips, nl.par_dim(P), halves), dtype=a.dtype)
        for n in nl.affine_range(blocks):
            right = nl.load(b[i, :, nl.ds(n * BLOCK, BLOCK)])
            for m in nl.affine_range(rows // BLOCK):
                left = _transposed(a, i, m, k)
                for r in nl.affine_range(BLOCK // P):
                    strip = m * (BLOCK // P) + r
                    for h in nl.affine_range(BLOCK // HALF):
                        at = n * (BLOCK // HALF) + h
                        product = nisa.nc_matmul(
                            left[:, nl.ds(r * P, P)], right[:, nl.ds(h * HALF, HALF)]
                        )
                        scores[strip, at] = nl.copy(product)
                        most[strip, :, nl.ds(at, 1)] = nisa.tensor_reduce(
                            np.max, scores[strip, at], axis=(1,)
                        )
        for strip in nl.affine_range(strips):
            least = nisa.tensor_reduce(np.max, most[strip], axis=(1,), negate=True)
            powers = nl.ndarray((halves, nl.par_dim(P), HALF), dtype=a.dtype)
            sums = nl.ndarray((P, halves), dtype=a.dtype)
            for h in nl.affine_range(halves):
                powers[h] = nisa.activation(op=nl.exp, data=scores[strip, h], bias=least)
                sums[:, nl.ds(h, 1)] = nisa.tensor_reduce(np.add, powers[h], axis=(1,))
            share = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,)))
            for n in nl.affine_range(blocks):
                result = nl.ndarray((P, BLOCK), dtype=a.dtype)
                for h in nl.affine_range(BLOCK // HALF):
                    part = powers[n * (BLOCK // HALF) + h]
                    result[:, nl.ds(h * HALF, HALF)] = nisa.tensor_scalar(part, np.multiply, share)
                at = nl.ds(n * BLOCK, BLOCK)
                nl.store(out[i, nl.ds(strip * P, P), at], result)
    return out


def _transposed(a, i, m, k):
    """1024 rows of a (batch, rows, k) as columns."""
    left = nl.ndarray((k, BLOCK), dtype=a.dtype)
    for r in nl.affine_range(BLOCK // P):
        rows = nl.load(a[i, nl.ds(m * BLOCK + r * P, P), :])
        left[:, nl.ds(r * P, P)] = nl.copy(nisa.nc_transpose(rows, engine=nisa.tensor_engine))
    return left


@nki.jit
def add_rmsnorm_matmul(x, w, z, gain):
    """RMSNorm(x + z) times w: x and z (rows, k), w (k, columns), gain (k,).

    The kernel's text loads w again for each 128 rows; it fits SBUF, where the compiler keeps it."""
    rows, k = x.shape
    out = nl.ndarray((rows, w.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.load(gain.reshape((1, k)))
    for i in nl.affine_range(rows // P):
        strip = nl.ds(i * P, P)
        total = nl.add(nl.load(x[strip, :]), nl.load(z[strip, :]))
        normed = _rmsnorm(total, row)
        for n in nl.affine_range(w.shape[1] // HALF):
            nl.store(out[strip, nl.ds(n * HALF, HALF)], nl.copy(_product(normed, w, n)))
    return out


@nki.jit
def matmul_add_rmsnorm(x, w, z, gain):
    """RMSNorm(x times w, plus z): x (rows, k), w (k, columns), z (rows, columns), gain (columns,).

    As above, w is loaded in the innermost loop."""
    rows, columns = z.shape
    out = nl.ndarray((rows, columns), dtype=x.dtype, buffer=nl.shared_hbm)
    row = nl.load(gain.reshape((1, columns)))
    for i in nl.affine_range(rows // P):
        strip = nl.ds(i * P, P)
        left = nl.load(x[strip, :])
        total = nl.ndarray((P, columns), dtype=x.dtype)
        for n in nl.affine_range(columns // HALF):
            total[:, nl.ds(n * HALF, HALF)] = nl.copy(_product(left, w, n))
        total = nl.add(total, nl.load(z[strip, :]))
        nl.store(out[strip, :], _rmsnorm(total, row))
    return out


def _rmsnorm(tile, gain):
    """A tile (128, columns) over its root mean square, times gain (1, columns)."""
    squares = nl.sum(nl.square(tile), axis=[1])
    scale = nl.rsqrt(nl.add(nl.multiply(squares, 1 / tile.shape[1]), 1e-6))
    return nl.multiply(nl.multiply(tile, scale), gain.broadcast_to(tile.shape))


def _product(left, w, n):
    """A tile (128, k) times 512 columns of w, 128 rows of it at a time; each part transposed."""
    product = nl.zeros((P, HALF), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(left.shape[1] // P):
        part = nl.ds(j * P, P)
        product += nl.matmul(left[:, part], nl.load(w[part, nl.ds(n * HALF, HALF)]))
    return product
