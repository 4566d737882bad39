"""Answers in `import nki` to the exercises on matmul in JAX."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def times_transposed(x, w):
    shape = (x.shape[0], w.shape[0])
    y = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
    left = nl.load_transpose2d(x)
    right = nl.load_transpose2d(w)
    product = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    result = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.nc_matmul(dst=product, stationary=left, moving=right)
    nisa.tensor_copy(dst=result, src=product)
    nisa.dma_copy(dst=y, src=result)
    return y


@nki.jit
def weight_gradient(x, grad_y):
    shape = (x.shape[1], grad_y.shape[1])
    grad_w = nl.ndarray(shape, dtype=x.dtype, buffer=nl.shared_hbm)
    total = nl.ndarray(shape, dtype=nl.float32, buffer=nl.psum)
    result = nl.ndarray(shape, dtype=x.dtype, buffer=nl.sbuf)
    for at in range(0, x.shape[0], 4):
        rows = slice(at, min(at + 4, x.shape[0]))
        nisa.nc_matmul(dst=total, stationary=nl.load(x[rows]),
                       moving=nl.load(grad_y[rows]), accumulate=at > 0)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=grad_w, src=result)
    return grad_w
