"""Answers in `import nki` to the exercises on matmul in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def swapped(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    c = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    result = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.sbuf)
    left, right = nl.load(a_t), nl.load(b)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    nisa.tensor_copy(dst=result, src=product)
    nisa.dma_copy(dst=c, src=result)
    return c


@nki.jit
def read_too_early(a_t, b):
    k_size, m_size = a_t.shape
    shape = (m_size, b.shape[1])
    c = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    result = nl.ndarray(shape, dtype=a_t.dtype, buffer=nl.sbuf)
    for k in range(k_size // 4):
        part = slice(k * 4, k * 4 + 4)
        x, y = nl.load(a_t[part]), nl.load(b[part])
        nisa.nc_matmul(dst=total, stationary=x, moving=y, accumulate=k > 0)
    if k_size % 4:
        tail = slice(k_size // 4 * 4, k_size)
        x, y = nl.load(a_t[tail]), nl.load(b[tail])
        nisa.nc_matmul(dst=total, stationary=x, moving=y, accumulate=True)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=c, src=result)
    return c


@nki.jit
def any_rows(a, b):
    m_size, n_size = a.shape[0], b.shape[1]
    c = nl.ndarray((m_size, n_size), dtype=a.dtype, buffer=nl.shared_hbm)
    right = nl.load(b)
    for at in range(0, m_size, 4):
        rows = slice(at, min(at + 4, m_size))
        shape = (min(4, m_size - at), n_size)
        left = nl.load_transpose2d(a[rows])
        product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
        result = nl.ndarray(shape, dtype=a.dtype, buffer=nl.sbuf)
        nisa.nc_matmul(dst=product, stationary=left, moving=right)
        nisa.tensor_copy(dst=result, src=product)
        nisa.dma_copy(dst=c[rows], src=result)
    return c


@nki.jit
def linear_relu(x_t, weight, bias):
    shape = (x_t.shape[1], weight.shape[1])
    y = nl.ndarray(shape, dtype=x_t.dtype, buffer=nl.shared_hbm)
    product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    result = nl.ndarray(shape, dtype=x_t.dtype, buffer=nl.sbuf)
    nisa.nc_matmul(
        dst=product, stationary=nl.load(x_t), moving=nl.load(weight))
    ones = nl.ndarray((1, x_t.shape[1]), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=product, stationary=ones, moving=nl.load(bias),
                   accumulate=True)
    nisa.activation(dst=result, data=product, op=nl.relu)
    nisa.dma_copy(dst=y, src=result)
    return y
