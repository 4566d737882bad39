"""Self-attention of one head: softmax(q k^T / 8) v, in some of the forms that were measured.

The published kernels are AWS's reference for small heads, what Autocomp made of it, and a teaching
kernel that takes every intermediate result through HBM. These are our own, with the same tiles and
the same instructions; the last one's products are made strip by strip here, so that they fit PSUM.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BANK = 512  # columns of a PSUM bank
SCALE = 0.125


@nki.jit
def small_heads(q, k, v):
    """q (rows, head), k and v (length, head), fp32; products in bfloat16. The result is computed
    with its axes swapped, and stored that way."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tiles = k.shape[0] // P
    right, values, left = _tiles(q, k, v)
    for i in nl.affine_range(q.shape[0] // P):
        scores, least = _scores(left[i], right, tiles, q.dtype)
        powers = nisa.activation(op=nl.exp, data=scores, bias=least)
        sums = nisa.tensor_reduce(np.add, powers, axis=(1,))
        _store_swapped(out, i, nl.copy(powers, dtype=nl.bfloat16), sums, values)
    return out


@nki.jit
def small_heads_summed(q, k, v, half_scores=False, whole_powers=False):
    """The same with the sum taken by the instruction that computes the powers.

    half_scores: scores are in bfloat16. whole_powers: powers are in fp32, and copied to bfloat16
    by another instruction."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tiles = k.shape[0] // P
    right, values, left = _tiles(q, k, v)
    for i in nl.affine_range(q.shape[0] // P):
        dtype = nl.bfloat16 if half_scores else q.dtype
        scores, least = _scores(left[i], right, tiles, dtype)
        sums = nl.zeros((nl.par_dim(P), 1), dtype=q.dtype)
        powers = _powers(scores, sums, q.dtype if whole_powers else nl.bfloat16, bias=least)
        if whole_powers:
            powers = nisa.tensor_copy(powers, dtype=nl.bfloat16)
        _store_swapped(out, i, powers, sums, values)
    return out


@nki.jit
def small_heads_fused(q, k, v):
    """With the sum taken by that instruction, scores in bfloat16, and the result with its axes in
    order."""
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    length, head = k.shape
    tiles = length // P
    right, values, left = _tiles(q, k, v)
    for i in nl.affine_range(q.shape[0] // P):
        scores, least = _scores(left[i], right, tiles, nl.bfloat16)
        sums = nl.zeros((nl.par_dim(P), 1), dtype=q.dtype)
        turned = _turned(_powers(scores, sums, nl.bfloat16, bias=least), tiles)
        total = nl.zeros((P, head), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(tiles):
            total += nisa.nc_matmul(turned[:, j, :], values[:, j, :])
        share = nl.divide(1.0, sums)
        nl.store(out[nl.ds(i * P, P), :], nisa.tensor_scalar(total, np.multiply, share))
    return out


@nki.jit
def through_hbm(q, k, v, summed=False):
    """q (128, rows), k and v (128, length), fp32 and without the scale: each step of the softmax
    reads what it needs from HBM, and writes its result there.

    summed: the sum is taken by the instruction that computes the powers, not in a step of its own.
    """
    rows, length = q.shape[1], k.shape[1]
    strips, tiles = rows // P, length // P
    out = nl.ndarray((rows, P), dtype=q.dtype, buffer=nl.shared_hbm)
    shifted, powers, shares = (
        nl.ndarray((strips, P, length), dtype=q.dtype, buffer=nl.shared_hbm) for _ in range(3)
    )
    values = nl.ndarray((tiles, P, P), dtype=q.dtype, buffer=nl.shared_hbm)
    turned = nl.ndarray((tiles, strips, P, P), dtype=q.dtype, buffer=nl.shared_hbm)
    left, right, down = nl.load(q), nl.load(k), nl.load(v)
    sums = nl.ndarray((P, strips), dtype=q.dtype)
    for i in nl.affine_range(strips):
        products = nl.ndarray((length // BANK, nl.par_dim(P), BANK), nl.float32, buffer=nl.psum)
        most = nl.ndarray((P, length // BANK), dtype=q.dtype)
        for j in nl.affine_range(length // BANK):
            part = nl.ds(j * BANK, BANK)
            products[j] = nisa.nc_matmul(left[:, nl.ds(i * P, P)], right[:, part])
            most[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, products[j], axis=(1,))
        largest = nisa.tensor_reduce(np.max, most, axis=(1,))
        row = nl.ndarray((P, length), dtype=q.dtype)
        for j in nl.affine_range(length // BANK):
            row[:, nl.ds(j * BANK, BANK)] = nisa.tensor_scalar(
                products[j], np.subtract, largest, engine=nisa.vector_engine
            )
        nl.store(shifted[i], row)
    for i in nl.affine_range(strips):
        row = nl.load(shifted[i])
        if summed:
            nl.store(powers[i], _powers(row, sums[:, nl.ds(i, 1)], q.dtype))
        else:
            nl.store(powers[i], nisa.activation(op=nl.exp, data=row))
    if not summed:
        for i in nl.affine_range(strips):
            sums[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.add, nl.load(powers[i]), axis=(1,))
    share = nisa.reciprocal(sums)
    for i in nl.affine_range(strips):
        row = nisa.tensor_scalar(
            nl.load(powers[i]), np.multiply, share[:, nl.ds(i, 1)], engine=nisa.vector_engine
        )
        nl.store(shares[i], row)
    for j in nl.affine_range(tiles):
        nl.store(values[j], nl.copy(nisa.nc_transpose(down[:, nl.ds(j * P, P)])))
    for i in nl.affine_range(strips):
        for j in nl.affine_range(tiles):
            tile = nl.load(shares[i, :, nl.ds(j * P, P)])
            nl.store(turned[j, i], nl.copy(nisa.nc_transpose(tile)))
    for i in nl.affine_range(strips):
        total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(tiles):
            total += nisa.nc_matmul(nl.load(turned[j, i]), nl.load(values[j]))
        nl.store(out[nl.ds(i * P, P), :], nl.copy(total))
    return out


def _tiles(q, k, v):
    """Tiles of bfloat16: k and q as columns, the latter scaled, and v as rows."""
    length, head = k.shape
    right = nl.ndarray((length // P, nl.par_dim(head), P), dtype=nl.bfloat16)
    values = nl.ndarray((P, length // P, head), dtype=nl.bfloat16)
    for j in nl.affine_range(length // P):
        part = nl.ds(j * P, P)
        values[:, j, :] = nl.load(v[part, :], dtype=nl.bfloat16)
        right[j] = nl.load_transpose2d(k[part, :], dtype=nl.bfloat16)
    left = nl.ndarray((q.shape[0] // P, nl.par_dim(head), P), dtype=nl.bfloat16)
    for i in nl.affine_range(q.shape[0] // P):
        columns = nl.load_transpose2d(q[nl.ds(i * P, P), :], dtype=nl.bfloat16)
        left[i] = nl.multiply(columns, SCALE)
    return right, values, left


def _scores(left, right, tiles, dtype):
    """A strip of products (128, 128 tiles), and the negative of its largest element by row."""
    scores = nl.ndarray((P, tiles * P), dtype=dtype)
    least = nl.ndarray((P, tiles), dtype=nl.float32)
    for j in nl.affine_range(tiles):
        part = nl.ds(j * P, P)
        scores[:, part] = nl.copy(nisa.nc_matmul(left, right[j]), dtype=dtype)
        least[:, nl.ds(j, 1)] = nisa.tensor_reduce(
            np.max, scores[:, part], axis=(1,), dtype=nl.float32, negate=True
        )
    return scores, nisa.tensor_reduce(np.min, least, axis=(1,))


def _powers(scores, sums, dtype, **bias):
    """exp(scores + bias), and its sum by row in `sums`, by one instruction."""
    return nisa.activation(
        op=nl.exp,
        data=scores,
        reduce_op=np.add,
        reduce_res=sums,
        reduce_cmd=nisa.reduce_cmd.reset_reduce,
        dtype=dtype,
        **bias,
    )


def _store_swapped(out, i, powers, sums, values):
    """128 rows of the result, computed with its axes swapped, and stored that way."""
    _, tiles, head = values.shape
    turned = _turned(powers, tiles)
    share = nl.copy(nl.divide(1.0, sums).broadcast_to((P, head)))
    total = nl.zeros((head, P), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(tiles):
        total += nisa.nc_matmul(values[:, j, :], turned[:, j, :])
    result = nl.multiply(nl.copy(total), nisa.nc_transpose(share))
    row, column = nl.arange(P)[None, :], nl.arange(head)[:, None]
    nl.store(out[i * P + row, column], value=result)


def _turned(powers, tiles):
    """Tiles of 128 columns with their axes swapped, side by side."""
    turned = nl.ndarray((P, tiles, P), dtype=nl.bfloat16)
    for j in nl.affine_range(tiles):
        turned[:, j, :] = nisa.nc_transpose(powers[:, nl.ds(j * P, P)], engine=nisa.tensor_engine)
    return turned
