"""The first layer of an MLP: a product, a bias and GELU, in one kernel."""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl

P, COLUMNS = 128, 512


@nki.jit
def product_gelu(lhs_t, rhs, bias):
    """gelu(lhs_t.T @ rhs + bias) of lhs_t (K, M), rhs (K, N), bias (1, N).

    K and M are multiples of 128 and N of 512. Tiles of both operands are loaded where they are
    used.
    """
    (depth, rows), columns = lhs_t.shape, rhs.shape[1]
    out = nl.ndarray((rows, columns), dtype=lhs_t.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(rows // P):
        for n in nl.affine_range(columns // COLUMNS):
            row, column = nl.ds(m * P, P), nl.ds(n * COLUMNS, COLUMNS)
            total = nl.zeros((P, COLUMNS), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(depth // P):
                part = nl.ds(k * P, P)
                left, right = nl.load(lhs_t[part, row]), nl.load(rhs[part, column])
                total += nl.matmul(left, right, transpose_x=True)
            result = nl.copy(total, dtype=lhs_t.dtype)
            shift = nl.load(bias[:, column]).broadcast_to((P, COLUMNS))
            nl.store(out[row, column], nl.gelu(nl.add(result, shift)))
    return out
