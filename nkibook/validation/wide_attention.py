"""Self-attention of one head of 128, softmax(q^T k) v^T, in two forms that were measured on trn2:
in one pass, and in three phases that take what they hand on through HBM.

q, k and v are (128, rows), rows a multiple of 512; the result is (rows, 128). There is no scale.
Scores are in fp32, whatever the operands are.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BANK = 512  # columns of a PSUM bank


@nki.jit
def one_pass(q, k, v):
    """Scores, softmax and sum of 128 rows at a time; scores never leave SBUF."""
    rows = q.shape[1]
    out = nl.ndarray((rows, P), dtype=q.dtype, buffer=nl.shared_hbm)
    q, k, v = nl.load(q), nl.load(k), nl.load(v)
    values = _turned(v)
    for i in nl.affine_range(rows // P):
        powers, share = _softmax(_scores(q[:, nl.ds(i * P, P)], k))
        total = _weighted(powers, values)
        nl.store(out[nl.ds(i * P, P), :], _times(total, share, q.dtype))
    return out


@nki.jit
def three_phases(q, k, v):
    """All scores, then all of the softmax, then all sums."""
    rows = q.shape[1]
    out = nl.ndarray((rows, P), dtype=q.dtype, buffer=nl.shared_hbm)
    scores = nl.ndarray((rows // P, nl.par_dim(P), rows), dtype=nl.float32, buffer=nl.hbm)
    weights = nl.ndarray((rows // P, nl.par_dim(P), rows), dtype=nl.float32, buffer=nl.hbm)
    q, k, v = nl.load(q), nl.load(k), nl.load(v)
    for i in nl.affine_range(rows // P):
        nl.store(scores[i], _scores(q[:, nl.ds(i * P, P)], k))
    for i in nl.affine_range(rows // P):
        powers, share = _softmax(nl.load(scores[i]))
        row = nl.ndarray((P, rows), dtype=nl.float32)
        for j in nl.affine_range(rows // BANK):
            bank = nl.ds(j * BANK, BANK)
            row[:, bank] = _times(powers[:, bank], share, nl.float32)
        nl.store(weights[i], row)
    values = _turned(v)
    for i in nl.affine_range(rows // P):
        total = _weighted(nl.load(weights[i]), values)
        nl.store(out[nl.ds(i * P, P), :], nl.copy(total, dtype=q.dtype))
    return out


def _scores(queries, k):
    """(128, rows) of a tile of 128 queries."""
    scores = nl.ndarray((P, k.shape[1]), dtype=nl.float32)
    for j in nl.affine_range(k.shape[1] // BANK):
        bank = nl.ds(j * BANK, BANK)
        scores[:, bank] = nisa.tensor_copy(nisa.nc_matmul(queries, k[:, bank]))
    return scores


def _softmax(scores):
    """exp(scores - max), and one over its sum."""
    banks = scores.shape[1] // BANK
    largest = nl.ndarray((P, banks), dtype=nl.float32)
    for j in nl.affine_range(banks):
        part = scores[:, nl.ds(j * BANK, BANK)]
        largest[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.max, part, axis=(1,))
    least = nisa.tensor_reduce(np.max, largest, axis=(1,), negate=True)
    powers = nl.ndarray(scores.shape, dtype=nl.float32)
    sums = nl.ndarray((P, banks), dtype=nl.float32)
    for j in nl.affine_range(banks):
        bank = nl.ds(j * BANK, BANK)
        powers[:, bank] = nisa.activation(op=nl.exp, data=scores[:, bank], bias=least)
        sums[:, nl.ds(j, 1)] = nisa.tensor_reduce(np.add, powers[:, bank], axis=(1,))
    return powers, nisa.reciprocal(nisa.tensor_reduce(np.add, sums, axis=(1,)))


def _turned(row):
    """Tiles of 128 columns with their axes swapped, side by side."""
    tiles = row.shape[1] // P
    turned = nl.ndarray((P, tiles, P), dtype=nl.float32)
    for j in nl.affine_range(tiles):
        turned[:, j, :] = nisa.tensor_copy(nisa.nc_transpose(row[:, nl.ds(j * P, P)]))
    return turned


def _weighted(powers, values):
    """The sum of 128 rows of powers with the values, in PSUM."""
    turned = _turned(powers)
    total = nl.zeros((P, P), nl.float32, buffer=nl.psum)
    for j in nl.affine_range(values.shape[1]):
        total += nisa.nc_matmul(turned[:, j, :], values[:, j, :])
    return total


def _times(tile, share, dtype):
    return nisa.tensor_scalar(tile, np.multiply, share, engine=nisa.vector_engine, dtype=dtype)
