"""Products of NKIBench, in fp32: matmul, RMSNorm, SwiGLU, LoRA and grouped-query attention.

As in `nkibench`, these are our own, with the tiles, the instructions and the loops of the published
baselines. Arguments have the shapes that the benchmark gives its kernels: rows, and what is summed
over, are cut in tiles of 128. Where an operand lies the wrong way it is transposed on chip, by a
product with an identity matrix.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BLOCK, HALF = 1024, 512  # columns that are loaded, and that are computed on, at a time
PARTS, QUARTERS = BLOCK // P, HALF // P


@nki.jit
def matmul(x, w):
    """x (strips, 128, parts, 128) times w (parts, 128, columns): (strips, 128, columns).

    parts is a multiple of 8, columns of 1024. x is transposed for each block of columns again."""
    strips, _, parts, _ = x.shape
    out = nl.ndarray((strips, P, w.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    identity = _identity()
    for n in nl.affine_range(w.shape[2] // BLOCK):
        right = _block_of(w, n)
        for m in nl.affine_range(strips):
            left = nl.ndarray((parts // PARTS, nl.par_dim(P), PARTS, P), dtype=x.dtype)
            for i in nl.affine_range(parts // PARTS):
                rows = nl.load(x[m, :, nl.ds(i * PARTS, PARTS), :])
                for j in nl.affine_range(PARTS):
                    left[i, :, j, :] = _turned(rows[:, j, :], identity)
            tiles = [
                left[i, :, j, :]
                for i in nl.static_range(parts // PARTS)
                for j in nl.static_range(PARTS)
            ]
            nl.store(out[m, :, nl.ds(n * BLOCK, BLOCK)], _product(tiles, right))
    return out


@nki.jit
def rmsnorm_matmul(x, w):
    """x over its root mean square, times w: (strips, 128, columns).

    x (strips, 128, k), strips a multiple of 8, k of 512; w (k / 128, 128, columns), columns a
    multiple of 1024. Each strip is loaded twice, for the sum of squares and for the product."""
    strips, _, k = x.shape
    out = nl.ndarray((strips, P, w.shape[2]), dtype=x.dtype, buffer=nl.shared_hbm)
    identity = _identity()
    zero = nisa.memset((P, 1), 0, x.dtype)
    for g in nl.affine_range(strips // PARTS):
        left = nl.ndarray((PARTS, k // P, nl.par_dim(P), P), dtype=x.dtype)
        for s in nl.affine_range(PARTS):
            rows = nl.load(x[g * PARTS + s])
            sums = nl.ndarray((P, k // HALF), dtype=x.dtype)
            for h in nl.affine_range(k // HALF):
                half = nl.ds(h * HALF, HALF)
                squares = nisa.activation(op=nl.square, data=rows[:, half], bias=zero)
                squares = nisa.tensor_scalar(squares, np.multiply, 1 / k)
                sums[:, nl.ds(h, 1)] = nisa.tensor_reduce(np.add, squares, axis=(1,))
            mean = nisa.tensor_reduce(np.add, sums, axis=(1,))
            scale = nisa.activation(op=nl.rsqrt, data=mean, bias=zero)
            again = nl.load(x[g * PARTS + s])
            for h in nl.affine_range(k // HALF):
                normed = nisa.tensor_scalar(again[:, nl.ds(h * HALF, HALF)], np.multiply, scale)
                for j in nl.affine_range(QUARTERS):
                    part = nl.ds(j * P, P)
                    left[s, h * QUARTERS + j] = _turned(normed[:, part], identity)
        for n in nl.affine_range(w.shape[2] // BLOCK):
            right = _block_of(w, n)
            for s in nl.affine_range(PARTS):
                tiles = [left[s, j] for j in nl.static_range(k // P)]
                nl.store(out[g * PARTS + s, :, nl.ds(n * BLOCK, BLOCK)], _product(tiles, right))
    return out


@nki.jit
def transposed_matmul(a, b):
    """The transpose of a (128, parts, rows) times b (128, parts, columns), both summed over their
    first two axes: (rows / 128, 128, columns).

    rows is a multiple of 1024, columns any number."""
    _, parts, rows = a.shape
    columns = b.shape[2]
    out = nl.ndarray((rows // P, P, columns), dtype=a.dtype, buffer=nl.shared_hbm)
    p, wide, narrow = nl.arange(P)[:, None], nl.arange(BLOCK)[None, :], nl.arange(HALF)[None, :]
    for m in nl.affine_range(rows // BLOCK):
        left = nl.ndarray((parts, nl.par_dim(P), BLOCK), dtype=a.dtype)
        for k in nl.affine_range(parts):
            left[k] = nl.load(a[:, k, nl.ds(m * BLOCK, BLOCK)])
        for n in nl.affine_range((columns + BLOCK - 1) // BLOCK):
            at = n * BLOCK + wide
            right = nl.ndarray((parts, nl.par_dim(P), BLOCK), dtype=a.dtype)
            for k in nl.affine_range(parts):
                right[k, p, wide] = nl.load(b[p, k, at], mask=at < columns)
            for s in nl.affine_range(PARTS):
                result = nl.ndarray((P, BLOCK), dtype=a.dtype)
                for h in nl.affine_range(BLOCK // HALF):
                    half = h * HALF + narrow
                    inside = n * BLOCK + half < columns
                    total = nl.zeros((P, HALF), nl.float32, buffer=nl.psum)
                    for k in nl.affine_range(parts):
                        total[p, narrow] += nisa.nc_matmul(
                            left[k, :, nl.ds(s * P, P)], right[k, p, half], mask=inside
                        )
                    result[p, half] = nl.copy(total[p, narrow], mask=inside)
                nl.store(out[m * PARTS + s, p, at], result[p, wide], mask=at < columns)
    return out


@nki.jit
def swiglu(x, up, down, gate):
    """(silu(x gate) * (x up)) down: (4 blocks, 128, 1024).

    x (blocks, 4, 128, 8, 128), up and gate (8, 128, hidden), down (hidden / 128, 128, 1024), hidden
    a multiple of 1024. x gate stays on chip, or spills; what down multiplies goes through HBM."""
    blocks, hidden = x.shape[0], up.shape[2]
    columns = hidden // BLOCK
    out = nl.ndarray((4 * blocks, P, BLOCK), dtype=x.dtype, buffer=nl.shared_hbm)
    through = nl.ndarray((hidden // P, blocks, P, HALF), dtype=x.dtype, buffer=nl.hbm)
    identity = _identity()
    zero = nisa.memset((P, 1), 0, x.dtype)
    gated = nl.ndarray((hidden // P, blocks, nl.par_dim(P), HALF), dtype=x.dtype)
    for n in nl.affine_range(columns):
        weights = _block_of(gate, n)
        for i in nl.affine_range(blocks):
            rows = _turned_rows(x, i, 0, 1, PARTS, identity)
            for o in nl.affine_range(PARTS):
                gated[n * PARTS + o, i] = nl.copy(_summed(weights, o, rows))
    for n in nl.affine_range(columns):
        weights = _block_of(up, n)
        for i in nl.affine_range(blocks):
            rows = _turned_rows(x, i, 0, 1, PARTS, identity)
            for o in nl.affine_range(PARTS):
                total = _summed(weights, o, rows)
                tile = gated[n * PARTS + o, i]
                power = nisa.activation(op=nl.exp, data=tile, bias=zero, scale=-1.0)
                share = nisa.reciprocal(nisa.tensor_scalar(power, np.add, 1.0))
                result = nl.multiply(nl.multiply(tile, share), total)
                nl.store(through[n * PARTS + o, i], result)
    right = nl.ndarray((hidden // P, nl.par_dim(P), BLOCK), dtype=x.dtype)
    for k in nl.affine_range(hidden // P):
        right[k] = nl.load(down[k])
    for i in nl.affine_range(blocks):
        left = nl.ndarray((hidden // P, nl.par_dim(P), HALF), dtype=x.dtype)
        for k in nl.affine_range(hidden // P):
            left[k] = nl.load(through[k, i])
        for s in nl.affine_range(QUARTERS):
            tiles = [left[k, :, nl.ds(s * P, P)] for k in nl.static_range(hidden // P)]
            nl.store(out[i * QUARTERS + s], _product(tiles, right))
    return out


@nki.jit
def lora(x, w, a, b):
    """x w + (x a) b, (blocks, 4, 128, columns / 128, 128).

    x (blocks, 4, 128, parts, 128), blocks even, parts a multiple of 40; w (parts, 128, columns),
    columns a multiple of 1024; a (parts, 128, 128); b (128, columns). The products are computed
    with their axes swapped, and x w in four parts, whose sum stays in SBUF, or spills."""
    blocks, _, _, parts, _ = x.shape
    columns = w.shape[2]
    pair, fourth = blocks // 2, parts // 4
    out = nl.ndarray((blocks, 4, P, columns // P, P), dtype=x.dtype, buffer=nl.shared_hbm)
    identity = _identity()
    narrow = nl.ndarray((parts, nl.par_dim(P), P), dtype=x.dtype)
    for k in nl.affine_range(parts):
        narrow[k] = nl.load(a[k])
    low = nl.ndarray((columns // P, blocks, nl.par_dim(P), HALF), dtype=x.dtype)
    for g in nl.affine_range(2):
        inner = nl.ndarray((pair, nl.par_dim(P), HALF), dtype=x.dtype)
        for i in nl.affine_range(pair):
            rows = _turned_rows(x, g * pair + i, 0, parts // PARTS, PARTS, identity)
            inner[i] = nl.copy(_summed(narrow, 0, rows))
        for n in nl.affine_range(columns // BLOCK):
            right = nl.load(b[:, nl.ds(n * BLOCK, BLOCK)])
            for i in nl.affine_range(pair):
                for o in nl.affine_range(PARTS):
                    product = nisa.nc_matmul(right[:, nl.ds(o * P, P)], inner[i])
                    low[n * PARTS + o, g * pair + i] = nl.copy(product)
    for n in nl.affine_range(columns // BLOCK):
        total = nl.zeros((PARTS, blocks, nl.par_dim(P), HALF), dtype=x.dtype)
        for f in nl.sequential_range(4):
            weights = nl.ndarray((fourth, nl.par_dim(P), BLOCK), dtype=x.dtype)
            for k in nl.affine_range(fourth):
                weights[k] = nl.load(w[f * fourth + k, :, nl.ds(n * BLOCK, BLOCK)])
            for i in nl.affine_range(blocks):
                rows = _turned_rows(x, i, f * fourth, 2, fourth // 2, identity)
                for o in nl.affine_range(PARTS):
                    total[o, i] += _summed(weights, o, rows)
        for i in nl.affine_range(blocks):
            for o in nl.affine_range(PARTS):
                result = nl.add(total[o, i], low[n * PARTS + o, i])
                for c in nl.affine_range(QUARTERS):
                    tile = _turned(result[:, nl.ds(c * P, P)], identity)
                    nl.store(out[i, c, :, n * PARTS + o, :], tile)
    return out


@nki.jit
def grouped_attention(q, k, v):
    """softmax(q k^T / sqrt(128)) v, two heads of q for each of k and v:
    (8, 2, strips, 128, 128).

    q (strips, 128, 16, 128), k (blocks, 4, 128, 8, 128), blocks even, v (4 blocks, 128, 1024). All
    scores are computed before the first is read again: they stay on chip, or spill."""
    strips, blocks, groups = q.shape[0], k.shape[0], k.shape[3]
    out = nl.ndarray((groups, 2, strips, P, P), dtype=q.dtype, buffer=nl.shared_hbm)
    identity = _identity()
    left = nl.ndarray((2, strips, nl.par_dim(P), groups, P), dtype=q.dtype)
    for t in nl.affine_range(strips):
        for i in nl.affine_range(2):
            rows = nl.load(q[t, :, nl.ds(i * groups, groups), :])
            for j in nl.affine_range(groups):
                left[i, t, :, j, :] = _turned(rows[:, j, :], identity)
    right = nl.ndarray((blocks, nl.par_dim(P), groups, HALF), dtype=q.dtype)
    scores = nl.ndarray((strips, groups, 2, blocks, nl.par_dim(P), HALF), dtype=q.dtype)
    most = nl.ndarray((strips, groups, 2, nl.par_dim(P), blocks), dtype=q.dtype)
    for half in nl.affine_range(2):
        for i in nl.affine_range(blocks // 2):
            b = half * (blocks // 2) + i
            for c in nl.affine_range(QUARTERS):
                rows = nl.load(k[b, c])
                for j in nl.affine_range(groups):
                    right[b, :, j, nl.ds(c * P, P)] = _turned(rows[:, j, :], identity)
        for h in nl.affine_range(2):
            for j in nl.affine_range(groups // 2):
                g = h * (groups // 2) + j
                for i in nl.affine_range(blocks // 2):
                    b = half * (blocks // 2) + i
                    for twin in nl.affine_range(2):
                        for t in nl.affine_range(strips):
                            product = nisa.nc_matmul(left[h, t, :, 2 * j + twin, :], right[b, :, g])
                            _scale(product, scores[t, g, twin, b], most[t, g, twin], b)
    values = nl.ndarray((QUARTERS * blocks, nl.par_dim(P), groups * P), dtype=q.dtype)
    for i in nl.affine_range(QUARTERS * blocks):
        values[i] = nl.load(v[i])
    for twin in nl.affine_range(2):
        for g in nl.affine_range(groups):
            for t in nl.affine_range(strips):
                weights = _softmax(scores[t, g, twin], most[t, g, twin], identity)
                total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
                for i in nl.affine_range(QUARTERS * blocks):
                    total += nisa.nc_matmul(weights[i], values[i, :, nl.ds(g * P, P)])
                nl.store(out[g, twin, t], nl.copy(total))
    return out


def _scale(product, scores, most, b):
    """A product (128, 512) over sqrt(128), and its largest elements by row in column b of most."""
    scores[...] = nisa.tensor_scalar(product, np.multiply, 1 / np.sqrt(P))
    most[:, nl.ds(b, 1)] = nisa.tensor_reduce(np.max, scores, axis=(1,))


def _softmax(scores, most, identity):
    """Softmax of rows (blocks, 128, 512) with the largest of each block (128, blocks), transposed:
    (4 blocks, 128, 128)."""
    blocks = scores.shape[0]
    largest = nisa.tensor_reduce(np.max, most, axis=(1,))
    lowest = float(np.finfo(np.float32).min)
    least = nisa.tensor_scalar(largest, np.maximum, lowest, op1=np.multiply, operand1=-1.0)
    powers = nl.ndarray((blocks, nl.par_dim(P), HALF), dtype=scores.dtype)
    sums = nl.ndarray((P, blocks), dtype=scores.dtype)
    for b in nl.affine_range(blocks):
        powers[b] = nisa.activation(op=nl.exp, data=scores[b], bias=least)
        sums[:, nl.ds(b, 1)] = nisa.tensor_reduce(np.add, powers[b], axis=(1,))
    share = nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,)))
    weights = nl.ndarray((QUARTERS * blocks, nl.par_dim(P), P), dtype=scores.dtype)
    for b in nl.affine_range(blocks):
        tile = nisa.tensor_scalar(powers[b], np.multiply, share)
        for c in nl.affine_range(QUARTERS):
            weights[b * QUARTERS + c] = _turned(tile[:, nl.ds(c * P, P)], identity)
    return weights


def _identity():
    """The identity matrix, on chip."""
    return nl.load(nl.shared_constant(np.identity(P, dtype=np.float32)))


def _turned(tile, identity):
    """A tile (128, 128) with its axes swapped."""
    return nl.copy(nisa.nc_matmul(tile, identity, is_moving_onezero=True, is_transpose=True))


def _block_of(w, n):
    """Columns 1024 n to 1024 n + 1024 of w (parts, 128, columns)."""
    block = nl.ndarray((w.shape[0], nl.par_dim(P), BLOCK), dtype=w.dtype)
    for k in nl.affine_range(w.shape[0]):
        block[k] = nl.load(w[k, :, nl.ds(n * BLOCK, BLOCK)])
    return block


def _turned_rows(x, i, first, loads, count, identity):
    """Block i of x (blocks, 4, 128, parts, 128), transposed: (loads, 128, count, 512), for loads
    times count parts from `first` on."""
    rows = nl.ndarray((loads, nl.par_dim(P), count, HALF), dtype=x.dtype)
    for r in nl.affine_range(loads):
        for c in nl.affine_range(QUARTERS):
            loaded = nl.load(x[i, c, :, nl.ds(first + r * count, count), :])
            for j in nl.affine_range(count):
                rows[r, :, j, nl.ds(c * P, P)] = _turned(loaded[:, j, :], identity)
    return rows


def _summed(weights, o, rows):
    """128 columns of weights (parts, 128, ...), from 128 o on, transposed, times rows (loads, 128,
    count, 512): a PSUM tile (128, 512)."""
    total = nl.zeros((P, HALF), nl.float32, buffer=nl.psum)
    loads, _, count, _ = rows.shape
    for r in nl.affine_range(loads):
        for j in nl.affine_range(count):
            part = weights[r * count + j, :, nl.ds(o * P, P)]
            total += nisa.nc_matmul(part, rows[r, :, j, :])
    return total


def _product(tiles, right):
    """The sum of tiles (128, 128), each transposed, times right (tiles, 128, 1024): a tile
    (128, 1024)."""
    result = nl.ndarray((P, BLOCK), dtype=right.dtype)
    for h in nl.affine_range(BLOCK // HALF):
        half = nl.ds(h * HALF, HALF)
        total = nl.zeros((P, HALF), nl.float32, buffer=nl.psum)
        for k, tile in enumerate(tiles):
            total += nisa.nc_matmul(tile, right[k, :, half])
        result[:, half] = nl.copy(total)
    return result
