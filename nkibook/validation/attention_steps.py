"""Self-attention of one head of 128, softmax(q^T k) v^T, in the steps in which Autocomp, a search
for faster kernels, made it ten times as fast.

q, k and v are (128, rows), fp32, rows a multiple of 512; the result is (rows, 128). There is no
scale. The first two steps are `attention.through_hbm`; from the third on nothing goes through HBM.
As in the published text, products of q and k are marked as transposes, which makes them cheaper in
fp32. On hardware they are less exact then: by what the source prints, 1e-4 instead of 1e-6.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BANK = 512  # columns of a PSUM bank
QUARTERS = BANK // P


@nki.jit
def on_chip(q, k, v):
    """All scores are computed first, into one array in PSUM. PSUM does not hold it: for 4096 rows
    it is 64 MiB."""
    strips, banks, out = _shape(q)
    q, k, v = nl.load(q), nl.load(k), nl.load(v)
    kept = nl.ndarray((strips, banks, nl.par_dim(P), BANK), dtype=nl.float32, buffer=nl.psum)
    for i in nl.affine_range(strips):
        for j in nl.affine_range(banks):
            kept[i, j] = _scores(q, k, i, j)
    largest = nl.ndarray((P, strips), dtype=nl.float32)
    for i in nl.affine_range(strips):
        most = nl.ndarray((P, banks), dtype=nl.float32)
        for j in nl.affine_range(banks):
            most[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, kept[i, j], axis=(1,))
        largest[:, nl.ds(i, 1)] = nisa.tensor_reduce(np.max, most, axis=(1,))
    sums = nl.zeros((P, strips), dtype=nl.float32)
    for i in nl.affine_range(strips):
        least = nl.negative(largest[:, nl.ds(i, 1)])
        for j in nl.sequential_range(banks):
            _add_powers(sums[:, nl.ds(i, 1)], kept[i, j], least, nl.float32)
    share = nl.reciprocal(sums)
    for i in nl.affine_range(strips):
        total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(banks):
            least = nl.negative(largest[:, nl.ds(i, 1)])
            weights = _weights(kept[i, j], least, share[:, nl.ds(i, 1)], nl.float32)
            for c in nl.affine_range(QUARTERS):
                left = _turned(weights[:, nl.ds(c * P, P)], nl.float32)
                right = _turned(v[:, nl.ds(j * BANK + c * P, P)], nl.float32)
                total += nisa.nc_matmul(left, right)
        nl.store(out[nl.ds(i * P, P), :], nisa.tensor_copy(total))
    return out


@nki.jit
def three_passes(q, k, v, half=False, summed=False, direct=False, rounded=False):
    """Scores are computed three times, for the largest of each row, for the sums and for the
    weights, and each tile of them is used at once.

    half: powers, weights and their products are in bfloat16. summed: the instruction that computes
    the powers sums them too. direct: transposed tiles are not copied once more. rounded: tiles of v
    are rounded to bfloat16 before they are transposed, not after. Each step keeps those before."""
    strips, banks, out = _shape(q)
    dtype = nl.bfloat16 if half else nl.float32
    q, k, v = nl.load(q), nl.load(k), nl.load(v)
    largest = nl.ndarray((P, strips), dtype=nl.float32)
    for i in nl.affine_range(strips):
        most = nl.ndarray((P, 1), dtype=nl.float32)
        most[...] = nisa.tensor_reduce(np.max, _scores(q, k, i, 0), axis=(1,))
        for j in nl.sequential_range(banks - 1):
            most[...] = _larger(most, _scores(q, k, i, j + 1))
        largest[:, nl.ds(i, 1)] = nl.copy(most)
    sums = nl.zeros((P, strips), dtype=nl.float32)
    for i in nl.affine_range(strips):
        least = nl.negative(largest[:, nl.ds(i, 1)])
        if summed:
            sums[:, nl.ds(i, 1)] = nl.copy(_sum_of_powers(q, k, i, banks, least))
        else:
            for j in nl.sequential_range(banks):
                _add_powers(sums[:, nl.ds(i, 1)], _scores(q, k, i, j), least, dtype)
    share = nl.reciprocal(sums)
    for i in nl.affine_range(strips):
        total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
        for j in nl.affine_range(banks):
            scores = _scores(q, k, i, j)
            least = nl.negative(largest[:, nl.ds(i, 1)])
            weights = _weights(scores, least, share[:, nl.ds(i, 1)], dtype)
            for c in nl.affine_range(QUARTERS):
                column = v[:, nl.ds(j * BANK + c * P, P)]
                if rounded:
                    column = nisa.tensor_copy(column, dtype=dtype, engine=nisa.vector_engine)
                left = _turned(weights[:, nl.ds(c * P, P)], dtype)
                right = _turned(column, dtype)
                if not direct:
                    left, right = _copied(left), _copied(right)
                total += nisa.nc_matmul(left, right)
        nl.store(out[nl.ds(i * P, P), :], nisa.tensor_copy(total, dtype=dtype))
    return out


@nki.jit
def two_passes(q, k, v, kept=False, one_row=False):
    """The largest of each row first, then powers, their sums and the products in one pass; the
    products are divided by the sums at the end. v is transposed once.

    kept: scores of the first pass stay in SBUF, in bfloat16, for the second, which computes them
    again otherwise. one_row: the largest are those of the first 128 rows, and taken for all rows.
    The result is the same unless a power overflows or all of a row vanish, as softmax does not
    change when all scores of a row grow by a number."""
    strips, banks, out = _shape(q)
    q, k = nl.load(q), nl.load(k)
    values = nl.ndarray((strips, nl.par_dim(P), P), dtype=nl.bfloat16)
    for c in nl.affine_range(strips):
        values[c] = nisa.nc_transpose(nl.load(v[:, nl.ds(c * P, P)]), dtype=nl.bfloat16)
    if one_row:
        largest = nl.full((P, 1), -1e38, dtype=nl.float32, buffer=nl.sbuf)
        for j in nl.sequential_range(banks):
            largest[...] = _larger(largest, _scores(q, k, 0, j))
    for i in nl.affine_range(strips):
        stored = nl.ndarray((banks, nl.par_dim(P), BANK), dtype=nl.bfloat16) if kept else None
        total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
        sums = nl.zeros((P, strips), dtype=nl.float32)
        if not one_row:
            largest = _largest(q, k, i, banks, stored)
        for j in nl.affine_range(banks):
            scores = stored[j] if kept else _scores(q, k, i, j)
            for c in nl.affine_range(QUARTERS):
                least = nl.negative(largest)
                part = scores[:, nl.ds(c * P, P)]
                powers = nisa.activation(op=nl.exp, data=part, bias=least, dtype=nl.bfloat16)
                at = j * QUARTERS + c
                sums[:, nl.ds(at, 1)] = _sum(powers)
                turned = nisa.nc_transpose(powers, dtype=nl.bfloat16)
                total += nisa.nc_matmul(turned, values[at])
        share = nl.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,)))
        result = nisa.tensor_scalar(total, np.multiply, share, engine=nisa.vector_engine)
        nl.store(out[nl.ds(i * P, P), :], result)
    return out


def _shape(q):
    """Strips of 128 rows, banks of 512, and the result."""
    rows = q.shape[1]
    return rows // P, rows // BANK, nl.ndarray((rows, P), dtype=q.dtype, buffer=nl.shared_hbm)


def _scores(q, k, i, j):
    """Strip i of 128 rows of q with bank j of 512 columns of k, in PSUM."""
    return nisa.nc_matmul(q[:, nl.ds(i * P, P)], k[:, nl.ds(j * BANK, BANK)], is_transpose=True)


def _larger(most, scores):
    """The larger of `most` and the largest of a tile's rows."""
    return nl.maximum(most, nisa.tensor_reduce(np.max, scores, axis=(1,)))


def _largest(q, k, i, banks, stored):
    """The largest score of each row of strip i; the scores go to `stored` if there is one."""
    most = nl.ndarray((P, banks), dtype=nl.float32)
    for j in nl.affine_range(banks):
        scores = _scores(q, k, i, j)
        most[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, scores, axis=(1,))
        if stored is not None:
            stored[j] = nisa.tensor_copy(scores, engine=nisa.vector_engine, dtype=stored.dtype)
    return nisa.tensor_reduce(np.max, most, axis=(1,))


def _sum(powers):
    """The sum of each row, in fp32."""
    return nisa.tensor_reduce(np.add, powers, axis=(1,), dtype=nl.float32)


def _add_powers(total, scores, least, dtype):
    """exp(scores + least), summed by row, is added to `total`, by three instructions."""
    powers = nisa.activation(op=nl.exp, data=scores, bias=least, dtype=dtype)
    total[...] = nl.add(total, _sum(powers))


def _sum_of_powers(q, k, i, banks, least):
    """The sum of exp(scores + least) by row, kept by the Scalar Engine from bank to bank. It is
    written out after the first and the last."""
    total = nl.ndarray((P, 1), dtype=nl.float32)
    for j in nl.static_range(banks):
        nisa.activation(
            op=nl.exp,
            data=_scores(q, k, i, j),
            bias=least,
            reduce_op=np.add,
            reduce_cmd=nisa.reduce_cmd.reduce if j else nisa.reduce_cmd.reset_reduce,
            reduce_res=total if j in (0, banks - 1) else None,
        )
    return total


def _weights(scores, least, share, dtype):
    """exp(scores + least), divided by the sum."""
    powers = nisa.activation(op=nl.exp, data=scores, bias=least, dtype=dtype)
    return nisa.tensor_scalar(powers, np.multiply, share, engine=nisa.vector_engine, dtype=dtype)


def _turned(tile, dtype):
    """A tile with its axes swapped, in SBUF."""
    return nisa.tensor_copy(nisa.nc_transpose(tile), dtype=dtype)


def _copied(tile):
    """Another tile with the same."""
    copy = nl.ndarray(tile.shape, dtype=tile.dtype)
    copy[...] = tile
    return copy
