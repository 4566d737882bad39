"""Answers in `import nki` to the exercises on tensor addition in JAX."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import jax
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
    nisa.scalar_tensor_tensor(
        dst=a_tile, data=b_tile, op0=nl.multiply, operand0=2.0,
        op1=nl.add, operand1=a_tile)
    nisa.dma_copy(dst=c_output, src=a_tile)
    return c_output


def gradients(a, b):
    op = jax.custom_vjp(scale_add)
    op.defvjp(
        lambda a, b: (scale_add(a, b), None),
        lambda residuals, grad: (grad, 2 * grad),
    )
    return jax.grad(lambda a, b: (op(a, b) ** 2).sum(), argnums=(0, 1))(a, b)


@nki.jit
def add_rows(a_input, b_input):
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray((n_rows, n_cols), dtype=a_input.dtype,
                          buffer=nl.shared_hbm)
    for turn in range(n_rows // 4):
        rows = slice(turn * 4, turn * 4 + 4)
        a_tile = nl.ndarray((4, n_cols), dtype=a_input.dtype, buffer=nl.sbuf)
        b_tile = nl.ndarray((4, n_cols), dtype=a_input.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a_tile, src=a_input[rows])
        nisa.dma_copy(dst=b_tile, src=b_input[rows])
        nisa.tensor_tensor(dst=a_tile, data1=a_tile, data2=b_tile, op=nl.add)
        nisa.dma_copy(dst=c_output[rows], src=a_tile)
    return c_output
