"""A product of bfloat16 matrices, with the sizes of its blocks as parameters."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


def at(i, size):
    """Piece number i of an axis."""
    return nl.ds(i * size, size)


@nki.jit
def product(a_t, b, rows=128, columns=512):
    (k_size, m_size), n_size = a_t.shape, b.shape[1]
    high, wide = rows // 128, columns // 512
    assert m_size % rows == 0, "blocks fill the result"
    assert n_size % columns == 0, "blocks fill the result"
    assert high * columns * 4 <= 16 * 1024, "the sums must fit into PSUM"
    c = nl.ndarray((m_size, n_size), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for m in nl.affine_range(m_size // rows):
        for n in nl.affine_range(n_size // columns):
            sums = nl.zeros((high, wide, nl.par_dim(128), 512), nl.float32, buffer=nl.psum)
            for k in nl.affine_range(k_size // 128):
                left = nl.load(a_t[at(k, 128), at(m, rows)])
                right = nl.load(b[at(k, 128), at(n, columns)])
                for i in nl.affine_range(high):
                    for j in nl.affine_range(wide):
                        sums[i, j] += nisa.nc_matmul(left[:, at(i, 128)], right[:, at(j, 512)])
            for i in nl.affine_range(high):
                block = nl.ndarray((128, columns), c.dtype)
                for j in nl.affine_range(wide):
                    block[:, at(j, 512)] = nl.copy(sums[i, j], dtype=c.dtype)
                nl.store(c[at(m * high + i, 128), at(n, columns)], block)
    return c
