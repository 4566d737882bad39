"""Answers to the exercises on tensor addition in JAX."""

import jax
import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def scale_add(a_input, b_input):
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    nl.store(c_output, value=nl.load(a_input) + nl.load(b_input) * 2)
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
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    rows = nl.ds(nl.program_id(0) * 4, 4)
    c_tile = nl.load(a_input[rows, :]) + nl.load(b_input[rows, :])
    nl.store(c_output[rows, :], value=c_tile)
    return c_output
