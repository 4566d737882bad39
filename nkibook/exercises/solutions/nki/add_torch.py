"""Answers in `import nki` to the exercises on tensor addition in PyTorch."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import nki
import nki.isa as nisa
import nki.language as nl


@nki.jit
def scale_add(a_input, b_input):
    shape, dtype = a_input.shape, a_input.dtype
    c_output = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
    a_tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    b_tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=a_tile, src=a_input)
    nisa.dma_copy(dst=b_tile, src=b_input)
    nisa.tensor_scalar(dst=b_tile, data=b_tile, op0=nl.multiply,
                       operand0=2.0)
    nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
    nisa.dma_copy(dst=c_output, src=a_tile)
    return c_output


@nki.jit
def add_row(a_input, row_input):
    shape, dtype = a_input.shape, a_input.dtype
    c_output = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=a_input)
    row = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=row, src=row_input.ap([[0, shape[0]], [1, shape[1]]]))
    nisa.tensor_tensor(dst=tile, data1=tile, data2=row, op=nl.add)
    nisa.dma_copy(dst=c_output, src=tile)
    return c_output


@nki.jit
def add_any_shape(a_input, b_input):
    n_rows, n_cols = a_input.shape
    dtype = a_input.dtype
    c_output = nl.ndarray(a_input.shape, dtype=dtype, buffer=nl.shared_hbm)
    for row in range(0, n_rows, 4):
        for col in range(0, n_cols, 8):
            end, right = min(row + 4, n_rows), min(col + 8, n_cols)
            here = slice(row, end), slice(col, right)
            shape = (end - row, right - col)
            a_tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
            b_tile = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=a_tile, src=a_input[here])
            nisa.dma_copy(dst=b_tile, src=b_input[here])
            nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile,
                               op=nl.add)
            nisa.dma_copy(dst=c_output[here], src=a_tile)
    return c_output


@nki.jit
def product_of_sum(a_input, b_input):
    shape, dtype = a_input.shape, a_input.dtype
    c_output = nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)
    for start in range(0, shape[0], 128):
        rows = slice(start, min(start + 128, shape[0]))
        a_tile = nl.ndarray(a_input[rows].shape, dtype=dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray(a_tile.shape, dtype=dtype, buffer=nl.sbuf)
        total = nl.ndarray(a_tile.shape, dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_input[rows])
        nisa.dma_copy(dst=b_tile, src=b_input[rows])
        nisa.tensor_tensor(dst=total, data1=a_tile, data2=b_tile, op=nl.add)
        nisa.tensor_tensor(dst=total, data1=total, data2=a_tile,
                           op=nl.multiply)
        nisa.tensor_tensor(dst=total, data1=total, data2=b_tile,
                           op=nl.multiply)
        nisa.dma_copy(dst=c_output[rows], src=total)
    return c_output
