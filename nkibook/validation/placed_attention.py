"""Self-attention of one head of 128, softmax(q^T k / 8) v, with all tiles placed by hand: two tiles
of 128 queries are under way at a time, each with four banks of PSUM.

The algorithm and the places are those of AWS's kernel for Stable Diffusion. By its docstring it is
18 % better, with SDK 2.21, than the same with its tiles placed by the compiler, which is what
`nki.compiler.force_auto_alloc` makes of this one.
"""

from __future__ import annotations

import neuronxcc.nki as nki
import neuronxcc.nki.compiler as ncc
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np

P = 128
BANK = 512  # columns of a PSUM bank
WIDE = 1024  # columns of an instruction on Scalar
SCALE = 0.125


@nki.jit
def placed(q, k, v):
    """q and k (128, rows), v (rows, 128), rows a multiple of 1024 up to 5120; the result is
    (128, rows). Products are in bfloat16, the rest is in fp32."""
    rows = q.shape[1]
    strips, banks, parts = rows // P, rows // BANK, rows // WIDE
    out = nl.ndarray(q.shape, dtype=q.dtype, buffer=nl.shared_hbm)
    tile = nl.par_dim(P), P

    kept = _Sbuf()
    eye, whole_eye = kept.tiles((1, *tile), nl.bfloat16, 1), kept.tiles((1, *tile), nl.float32, 1)
    ones = nl.shared_constant(np.identity(P, dtype=np.int8), dtype=nl.bfloat16)
    eye[0], whole_eye[0] = nl.load(ones), nl.load(ones)
    values = kept.tiles((strips, *tile), nl.bfloat16, strips)
    left = kept.tiles((strips, *tile), nl.bfloat16, strips)
    right = kept.tiles((banks, nl.par_dim(P), BANK), nl.bfloat16, banks)
    for i in nl.affine_range(strips):
        part = nl.ds(i * P, P)
        values[i] = nl.load(v[part, :], dtype=nl.bfloat16)
        left[i] = nl.load(q[:, part], dtype=nl.bfloat16)
        left[i] = nl.multiply(left[i], SCALE)
    for j in nl.affine_range(banks):
        right[j] = nl.load(k[:, nl.ds(j * BANK, BANK)], dtype=nl.bfloat16)

    for i in nl.affine_range(strips // 2):
        sbuf = _Sbuf(kept.free)
        scores = sbuf.tiles((2, nl.par_dim(P), rows), nl.float32, 1)
        powers, turned = (sbuf.tiles((2, nl.par_dim(P), rows), nl.bfloat16, 2) for _ in range(2))
        total, share, result = (sbuf.tiles((2, *tile), nl.float32, 2) for _ in range(3))
        most = sbuf.tiles((2, nl.par_dim(P), banks), nl.float32, 2)
        parted = sbuf.tiles((2, nl.par_dim(P), parts), nl.float32, 2)
        column = 2, nl.par_dim(P), 1
        least, sums, inverse = (sbuf.tiles(column, nl.float32, 2) for _ in range(3))
        bank = 2, banks, nl.par_dim(P), BANK
        products = nl.ndarray(bank, dtype=nl.float32, buffer=_four_banks_each())
        turning = nl.ndarray(bank, dtype=nl.float32, buffer=_four_banks_each())
        weighted = nl.ndarray((2, *tile), dtype=nl.float32, buffer=_in_banks(1, 5))
        spread = nl.ndarray((2, nl.par_dim(P), BANK), dtype=nl.float32, buffer=_in_banks(2, 7))
        for g in nl.affine_range(2):
            for j in nl.affine_range(banks):
                products[g, j] = nisa.nc_matmul(left[2 * i + g], right[j])
                scores[g, :, nl.ds(j * BANK, BANK)] = nisa.tensor_scalar_reduce(
                    data=products[g, j],
                    op0=np.add,
                    operand0=0.0,
                    reduce_op=np.max,
                    reduce_res=most[g, :, nl.ds(j, 1)],
                    dtype=nl.float32,
                )
            least[g] = nisa.tensor_reduce(np.max, most[g], axis=(1,), negate=True)
            for j in nl.affine_range(parts):
                part = nl.ds(j * WIDE, WIDE)
                powers[g, :, part] = nisa.activation_reduce(
                    np.exp,
                    data=scores[g, :, part],
                    reduce_op=np.sum,
                    reduce_res=parted[g, :, nl.ds(j, 1)],
                    bias=least[g],
                    scale=1.0,
                )
            sums[g] = nisa.tensor_reduce(np.add, parted[g], axis=(1,))
            inverse[g] = nl.divide(1.0, sums[g])
            share[g] = nl.copy(inverse[g].broadcast_to((P, P)))
            for j in nl.affine_range(banks):
                for c in nl.affine_range(BANK // P):
                    strip = powers[g, :, nl.ds(j * BANK + c * P, P)]
                    turning[g, j, :, nl.ds(c * P, P)] = nisa.nc_matmul(strip, eye[0])
                turned[g, :, nl.ds(j * BANK, BANK)] = nl.copy(turning[g, j])
            for j in nl.affine_range(strips):
                weighted[g] += nisa.nc_matmul(values[j], turned[g, :, nl.ds(j * P, P)])
            total[g] = nisa.tensor_copy(weighted[g], engine=nisa.vector_engine)
            spread[g, :, nl.ds(0, P)] = nisa.nc_matmul(share[g], whole_eye[0])
            result[g] = nl.multiply(total[g], spread[g, :, nl.ds(0, P)])
            nl.store(out[:, nl.ds((2 * i + g) * P, P)], result[g])
    return out


placed_by_compiler = ncc.force_auto_alloc(placed)
"""The same kernel, its tiles placed by the compiler."""


class _Sbuf:
    """Addresses in a partition of SBUF, one tile after the other.

    Attributes:
        free: the first byte that is not given away.
    """

    def __init__(self, free=0):
        self.free = free

    def tiles(self, shape, dtype, copies):
        """A tensor of tiles, of which so many are in SBUF at a time."""
        at, self.free = self.free, self.free + copies * shape[-1] * np.dtype(dtype).itemsize
        buffer = ncc.sbuf.mod_alloc(base_addr=at, num_free_tiles=(copies,))
        return nl.ndarray(shape, dtype=dtype, buffer=buffer)


def _four_banks_each():
    """Places in PSUM for two rows of tiles of a bank: banks 0 to 3 in turn, and banks 4 to 7."""
    return ncc.psum.mod_alloc(base_bank=0, num_bank_tiles=(2, 4))


def _in_banks(*numbers):
    """Places in PSUM for as many tiles, at the start of a bank."""
    return ncc.psum.alloc(lambda at, *size: (numbers[at[0]], 0, 0))
