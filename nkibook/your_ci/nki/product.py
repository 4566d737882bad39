"""A product of bfloat16 matrices, with the sizes of its blocks as parameters."""

import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def product(a_t, b, rows=128, columns=512):
    k_size, m_size = a_t.shape
    n_size = b.shape[1]
    assert m_size % rows == 0, "blocks fill the result"
    assert n_size % columns == 0, "blocks fill the result"
    c = nl.ndarray((m_size, n_size), dtype=a_t.dtype, buffer=nl.shared_hbm)
    for m in range(0, m_size, rows):
        for n in range(0, n_size, columns):
            sums = nl.ndarray((128, rows // 128, columns), dtype=nl.float32, buffer=nl.psum)
            for k in range(0, k_size, 128):
                left = nl.ndarray((128, rows), dtype=a_t.dtype, buffer=nl.sbuf)
                right = nl.ndarray((128, columns), dtype=b.dtype, buffer=nl.sbuf)
                nisa.dma_copy(dst=left, src=a_t[k : k + 128, m : m + rows])
                nisa.dma_copy(dst=right, src=b[k : k + 128, n : n + columns])
                for i in range(rows // 128):
                    for j in range(0, columns, 512):
                        nisa.nc_matmul(
                            dst=sums[:, i, j : j + 512],
                            stationary=left[:, i * 128 : i * 128 + 128],
                            moving=right[:, j : j + 512],
                            accumulate=k > 0,
                        )
            for i in range(rows // 128):
                first = m + i * 128
                block = nl.ndarray((128, columns), dtype=c.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(dst=block, src=sums[:, i, :])
                nisa.dma_copy(dst=c[first : first + 128, n : n + columns], src=block)
    return c
