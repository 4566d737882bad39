"""Answers in `import nki` to the exercises on RMSNorm in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


def loaded(part):
    tile = nl.ndarray(part.shape, dtype=part.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=part)
    return tile


def mean(tile):
    """The mean of each row of a tile, a column."""
    column = nl.ndarray((tile.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_reduce(dst=column, op=nl.add, data=tile, axis=1,
                       keepdims=True)
    nisa.tensor_scalar(dst=column, data=column, op0=nl.multiply,
                       operand0=1 / tile.shape[1])
    return column


def inverse_rms(tile):
    """One over the root mean square of each row of a tile, a column."""
    square = nl.ndarray(tile.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_tensor(dst=square, data1=tile, data2=tile, op=nl.multiply)
    column = mean(square)
    nisa.tensor_scalar(dst=column, data=column, op0=nl.add, operand0=1e-5)
    nisa.activation(dst=column, op=nl.rsqrt, data=column)
    return column


@nki.jit
def one_plus(x, weight):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows, columns = x.shape
    tile, scale = loaded(x), loaded(weight.ap([[0, rows], [1, columns]]))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,
                       operand0=inverse_rms(tile))
    nisa.tensor_scalar(dst=scale, data=scale, op0=nl.add,
                       operand0=1.0)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=scale, op=nl.multiply)
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def layer_norm(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = loaded(x)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.subtract,
                       operand0=mean(tile))
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply,
                       operand0=inverse_rms(tile))
    nisa.dma_copy(dst=y, src=tile)
    return y


@nki.jit
def add_and_norm(x, residual):
    total = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, more = loaded(x), loaded(residual)
    nisa.tensor_tensor(dst=tile, data1=tile, data2=more, op=nl.add)
    nisa.dma_copy(dst=total, src=tile)
    result = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.tensor_scalar(dst=result, data=tile, op0=nl.multiply,
                       operand0=inverse_rms(tile))
    nisa.dma_copy(dst=y, src=result)
    return total, y


@nki.jit
def weight_gradient(grad_y, x_hat):
    rows, columns = x_hat.shape
    out = nl.ndarray((1, columns), dtype=x_hat.dtype, buffer=nl.shared_hbm)
    products, x_tile = loaded(grad_y), loaded(x_hat)
    nisa.tensor_tensor(dst=products, data1=products, data2=x_tile,
                       op=nl.multiply)
    total = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.psum)
    ones = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=ones, value=1.0)
    nisa.nc_matmul(dst=total, stationary=ones, moving=products)
    result = nl.ndarray((1, columns), dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=result, src=total)
    nisa.dma_copy(dst=out, src=result)
    return out


@nki.jit
def unscaled(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = loaded(x)
    invvar = inverse_rms(tile)
    nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=invvar)
    nisa.dma_copy(dst=y, src=tile)
    return y
