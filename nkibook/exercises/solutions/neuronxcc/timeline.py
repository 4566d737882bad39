"""Answers to the exercises on measuring a kernel."""

# fmt: off
# The lines are those of the page, which shows 77 columns.
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np


@nki.jit
def exponentials(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in nl.affine_range(x.shape[0] // 128):
        at = nl.ds(i * 128, 128)
        nl.store(y[at, :], value=nl.exp(nl.load(x[at, :])))
    return y


@nki.jit
def six_steps(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for t in nl.affine_range(x.shape[0] // 128):
        rows = nl.ds(t * 128, 128)
        tile = nl.load(x[rows, :])
        for i in nl.static_range(6):
            tile = nisa.tensor_scalar(tile, np.multiply, 0.5,
                                      op1=np.add, operand1=i)
        nl.store(y[rows, :], value=tile)
    return y
