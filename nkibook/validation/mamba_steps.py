"""Mamba's scan in the steps in which Autocomp, a search for faster kernels, made it 1.8 times as
fast. It begins with `mamba.mamba_v1` and ends with `mamba.mamba_chunks`.

Arguments and result are as in `mamba`: delta and u (batch, channels, length), A (channels, states),
B and C (batch, states, length), fp32, channels a multiple of 128.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
CHUNK = 512  # columns of a PSUM bank


@nki.jit
def rows_hoisted(delta, u, A, B, C):
    """v1 with rows of B and C loaded once for all channels."""
    batches, channels, length = delta.shape
    tiles = channels // P
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        total = nl.zeros((tiles, nl.par_dim(P), length), dtype=delta.dtype)
        for s in nl.affine_range(A.shape[1]):
            b_row, c_row = nl.load(B[b, s : s + 1, :]), nl.load(C[b, s : s + 1, :])
            for t in nl.affine_range(tiles):
                rows = slice(t * P, (t + 1) * P)
                delta_tile, a_tile = nl.load(delta[b, rows, :]), nl.load(A[rows, s : s + 1])
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile)
                product = nisa.tensor_tensor(delta_tile, nl.load(u[b, rows, :]), op=nl.multiply)
                total[t] += _weighted(_scan(decay, _weighted(product, b_row), 0), c_row)
        for t in nl.affine_range(tiles):
            nl.store(out[b, t * P : (t + 1) * P, :], total[t])
    return out


@nki.jit
def reordered(delta, u, A, B, C, a_hoisted=False):
    """Channels outside, states inside: delta and u are loaded, and multiplied, once.

    a_hoisted: A is loaded once for all states of 128 channels."""
    batches, channels, length = delta.shape
    states = A.shape[1]
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        for t in nl.affine_range(channels // P):
            rows = slice(t * P, (t + 1) * P)
            delta_tile, product = _loaded(delta, u, b, rows)
            if a_hoisted:
                a_tile = nl.load(A[rows, :])
            total = nl.zeros((nl.par_dim(P), length), dtype=delta.dtype)
            for s in nl.affine_range(states):
                column = a_tile[:, s : s + 1] if a_hoisted else nl.load(A[rows, s : s + 1])
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=column)
                b_row, c_row = nl.load(B[b, s : s + 1, :]), nl.load(C[b, s : s + 1, :])
                total += _weighted(_scan(decay, _weighted(product, b_row), 0), c_row)
            nl.store(out[b, rows, :], total)
    return out


@nki.jit
def chunked(delta, u, A, B, C, buffers=False, operators=False):
    """In chunks of 512 columns, whose sum over states stays in PSUM. A scan begins with the last
    column of the same state's scan of the chunk before.

    buffers: rows of B and C go to two buffers in turn, each row copied there while the row before
    is used. operators: rows are spread over the partitions by the products themselves."""
    batches, channels, length = delta.shape
    states = A.shape[1]
    weighted = nl.multiply if operators else _weighted
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        for t in nl.affine_range(channels // P):
            rows = slice(t * P, (t + 1) * P)
            delta_tile, product = _loaded(delta, u, b, rows)
            a_tile = nl.load(A[rows, :])
            carry = nl.zeros((nl.par_dim(P), states), dtype=delta.dtype)
            for i in nl.sequential_range(length // CHUNK):
                part = slice(i * CHUNK, (i + 1) * CHUNK)
                total = nl.zeros((nl.par_dim(P), CHUNK), dtype=delta.dtype, buffer=nl.psum)
                pairs = [_pair(B) for _ in range(2)] if buffers else []
                if buffers:
                    _copy_rows(pairs[0], B, C, b, 0, part)
                for s in nl.static_range(states):
                    column = a_tile[:, s : s + 1]
                    decay = nisa.activation(op=nl.exp, data=delta_tile[:, part], scale=column)
                    if buffers:
                        if s + 1 < states:
                            _copy_rows(pairs[(s + 1) % 2], B, C, b, s + 1, part)
                        b_row, c_row = pairs[s % 2]
                    else:
                        b_row, c_row = (nl.load(x[b, s : s + 1, part]) for x in (B, C))
                    begin = carry[:, s : s + 1]
                    scan = _scan(decay, weighted(product[:, part], b_row), begin)
                    carry[:, s : s + 1] = scan[:, CHUNK - 1 : CHUNK]
                    total += weighted(scan, c_row)
                nl.store(out[b, rows, part], nisa.tensor_copy(total, engine=nisa.vector_engine))
    return out


def _loaded(delta, u, b, rows):
    """Some rows of delta, and their product with those of u."""
    delta_tile, u_tile = nl.load(delta[b, rows, :]), nl.load(u[b, rows, :])
    return delta_tile, nisa.tensor_tensor(delta_tile, u_tile, op=nl.multiply)


def _weighted(tile, row):
    """A tile (128, columns) times a row (1, columns), which is spread over the partitions first."""
    return nisa.tensor_tensor(tile, row.broadcast_to(tile.shape), op=nl.multiply)


def _scan(decay, product, initial):
    """x(i) = decay(i) x(i - 1) + product(i) along the columns."""
    return nisa.tensor_tensor_scan(decay, product, initial=initial, op0=np.multiply, op1=np.add)


def _pair(rows):
    """Buffers for a row of B and for one of C."""
    return [nl.ndarray((1, CHUNK), dtype=rows.dtype, buffer=nl.sbuf) for _ in range(2)]


def _copy_rows(pair, B, C, b, s, part):
    """Part of the rows of state s into the buffers of a pair."""
    for buffer, x in zip(pair, (B, C), strict=True):
        nisa.dma_copy(dst=buffer, src=x[b, s : s + 1, part])
