"""The state space model scan of Mamba, in the three versions of the NKI tutorial and a fourth.

All take delta and u (batch, channels, length), A (channels, states), B and C (batch, states,
length) and give (batch, channels, length). Channels are a multiple of 128.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128


@nki.jit
def mamba_v1(delta, u, A, B, C):
    """States outside, channels inside: delta and u are loaded again for every state."""
    batches, channels, length = delta.shape
    states, tiles = A.shape[1], channels // P
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        total = nl.ndarray((tiles, nl.par_dim(P), length), dtype=delta.dtype)
        for t in nl.affine_range(tiles):
            total[t, 0:P, 0:length] = 0
        for s in nl.affine_range(states):
            for t in nl.affine_range(tiles):
                rows = slice(t * P, (t + 1) * P)
                delta_tile = nl.load(delta[b, rows, 0:length])
                a_tile = nl.load(A[rows, s : s + 1])
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile)
                u_tile = nl.load(u[b, rows, 0:length])
                b_row = nl.load(B[b, s : s + 1, 0:length]).broadcast_to((P, length))
                product = nisa.tensor_tensor(delta_tile, u_tile, op=nl.multiply)
                product = nisa.tensor_tensor(product, b_row, op=nl.multiply)
                scan = nisa.tensor_tensor_scan(
                    decay, product, initial=0, op0=np.multiply, op1=np.add
                )
                c_row = nl.load(C[b, s : s + 1, 0:length]).broadcast_to((P, length))
                total[t, 0:P, 0:length] += nisa.tensor_tensor(scan, c_row, op=nl.multiply)
        for t in nl.affine_range(tiles):
            nl.store(out[b, t * P : (t + 1) * P, 0:length], total[t, 0:P, 0:length])
    return out


@nki.jit
def mamba_v2(delta, u, A, B, C):
    """Channels outside, states inside: delta and u are loaded once."""
    batches, channels, length = delta.shape
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        for t in nl.affine_range(channels // P):
            rows = slice(t * P, (t + 1) * P)
            total = nl.zeros((nl.par_dim(P), length), dtype=delta.dtype)
            delta_tile = nl.load(delta[b, rows, 0:length])
            u_tile = nl.load(u[b, rows, 0:length])
            for s in nl.affine_range(A.shape[1]):
                a_tile = nl.load(A[rows, s : s + 1])
                decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile)
                b_row = nl.load(B[b, s : s + 1, 0:length]).broadcast_to((P, length))
                product = nisa.tensor_tensor(delta_tile, u_tile, op=nl.multiply)
                product = nisa.tensor_tensor(product, b_row, op=nl.multiply)
                scan = nisa.tensor_tensor_scan(
                    decay, product, initial=0, op0=np.multiply, op1=np.add
                )
                c_row = nl.load(C[b, s : s + 1, 0:length]).broadcast_to((P, length))
                total[0:P, 0:length] += nisa.tensor_tensor(scan, c_row, op=nl.multiply)
            nl.store(out[b, rows, 0:length], total[0:P, 0:length])
    return out


@nki.jit
def mamba_v3(delta, u, A, B, C, columns=512):
    """As v2, with the sequence cut in pieces of `columns`, so that intermediates stay small."""
    batches, channels, length = delta.shape
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        for t in nl.affine_range(channels // P):
            rows = slice(t * P, (t + 1) * P)
            total = nl.zeros((nl.par_dim(P), length), dtype=delta.dtype)
            delta_tile = nl.load(delta[b, rows, 0:length])
            u_tile = nl.load(u[b, rows, 0:length])
            for s in nl.affine_range(A.shape[1]):
                a_tile = nl.load(A[rows, s : s + 1])
                last = nl.zeros((P, 1), dtype=delta.dtype)
                for piece in nl.static_range(length // columns):
                    at = slice(piece * columns, (piece + 1) * columns)
                    decay = nisa.activation(op=nl.exp, data=delta_tile[0:P, at], scale=a_tile)
                    b_row = nl.load(B[b, s : s + 1, at]).broadcast_to((P, columns))
                    product = nisa.tensor_tensor(
                        delta_tile[0:P, at], u_tile[0:P, at], op=nl.multiply
                    )
                    product = nisa.tensor_tensor(product, b_row, op=nl.multiply)
                    scan = nisa.tensor_tensor_scan(
                        decay, product, initial=last, op0=np.multiply, op1=np.add
                    )
                    last[...] = scan[0:P, columns - 1 : columns]
                    c_row = nl.load(C[b, s : s + 1, at]).broadcast_to((P, columns))
                    total[0:P, at] += nisa.tensor_tensor(scan, c_row, op=nl.multiply)
            nl.store(out[b, rows, 0:length], total[0:P, 0:length])
    return out


@nki.jit
def mamba_chunks(delta, u, A, B, C):
    """As v3 in chunks of 512, which fit a PSUM bank; rows of B and C go to all partitions by the
    operators themselves, and the sum over states stays in PSUM."""
    batches, channels, length = delta.shape
    states, chunk = A.shape[1], 512
    out = nl.ndarray(delta.shape, dtype=delta.dtype, buffer=nl.shared_hbm)
    for b in nl.affine_range(batches):
        for t in nl.affine_range(channels // P):
            rows = slice(t * P, (t + 1) * P)
            a_tile = nl.load(A[rows, 0:states])
            carry = nl.zeros((nl.par_dim(P), states), dtype=delta.dtype)
            for i in nl.sequential_range(length // chunk):
                part = slice(i * chunk, (i + 1) * chunk)
                delta_tile = nl.load(delta[b, rows, part])
                product = nl.multiply(delta_tile, nl.load(u[b, rows, part]))
                total = nl.zeros((nl.par_dim(P), chunk), dtype=delta.dtype, buffer=nl.psum)
                for s in range(states):
                    decay = nisa.activation(op=nl.exp, data=delta_tile, scale=a_tile[:, s : s + 1])
                    scan = nisa.tensor_tensor_scan(
                        decay,
                        nl.multiply(product, nl.load(B[b, s : s + 1, part])),
                        initial=carry[:, s : s + 1],
                        op0=np.multiply,
                        op1=np.add,
                    )
                    carry[:, s : s + 1] = scan[:, chunk - 1 : chunk]
                    total += nl.multiply(scan, nl.load(C[b, s : s + 1, part]))
                nl.store(out[b, rows, part], nl.copy(total))
    return out
