"""Layer normalisation in the two versions of the NKI tutorial.

Both take x (rows, columns), gamma and beta (columns,) and give (x - mean) / sqrt(var + eps) *
gamma + beta, with mean and variance of each row.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


def _parameters(gamma, beta, columns):
    row = nl.arange(1)[:, None], nl.arange(columns)[None, :]
    return [nl.load(v.reshape((1, columns))[row]).broadcast_to((P, columns)) for v in (gamma, beta)]


@nki.jit
def layernorm_v1(x, gamma, beta, eps=1e-5):
    """With nki.language only: two passes over a tile for its moments, one instruction a step."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:columns]
    gamma_row, beta_row = _parameters(gamma, beta, columns)
    for i in nl.affine_range((rows + P - 1) // P):
        inside = i * P + p < rows
        tile = nl.load(x[i * P + p, f], mask=inside)
        mean = nl.mean(tile, axis=1)
        variance = nl.mean(nl.square(tile), axis=1) - mean * mean
        normal = (tile - mean) * nl.rsqrt(variance + eps)
        nl.store(out[i * P + p, f], normal * gamma_row + beta_row, mask=inside)
    return out


@nki.jit
def layernorm_v2(x, gamma, beta, eps=1e-5):
    """With bn_stats and bn_aggr for the moments, and shift and scale in one instruction."""
    rows, columns = x.shape
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p, f = nl.mgrid[0:P, 0:columns]
    gamma_row, beta_row = _parameters(gamma, beta, columns)
    piece = nl.tile_size.bn_stats_fmax
    pieces = (columns + piece - 1) // piece
    for i in nl.affine_range((rows + P - 1) // P):
        inside = i * P + p < rows
        tile = nl.load(x[i * P + p, f], mask=inside)
        stats = nl.ndarray((P, 6 * pieces), dtype=np.float32)
        for j in nl.static_range(pieces):  # unrolled: the last piece may be shorter
            at = slice(j * piece, min((j + 1) * piece, columns))
            stats[:, 6 * j : 6 * j + 6] = nisa.bn_stats(tile[:, at], dtype=np.float32)
        moments = nisa.bn_aggr(stats)
        scale = nl.rsqrt(moments[:, 1:2] + eps)
        normal = nisa.tensor_scalar(
            data=tile,
            op0=np.subtract,
            operand0=moments[:, 0:1],
            op1=np.multiply,
            operand1=scale,
        )
        nl.store(out[i * P + p, f], normal * gamma_row + beta_row, mask=inside)
    return out
