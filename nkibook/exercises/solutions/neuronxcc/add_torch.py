"""Answers to the exercises on tensor addition in PyTorch."""

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl


@nki.jit
def scale_add(a_input, b_input):
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    a_tile = nl.load(a_input)
    b_tile = nl.load(b_input)
    nl.store(c_output, value=a_tile + b_tile * 2)
    return c_output


@nki.jit
def add_row(a_input, row_input):
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    row = nl.load(row_input)
    nl.store(c_output, value=nl.add(nl.load(a_input), row))
    return c_output


@nki.jit
def add_any_shape(a_input, b_input):
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    i_row, i_col = nl.mgrid[0:4, 0:8]
    rows = nl.program_id(0) * 4 + i_row
    cols = nl.program_id(1) * 8 + i_col
    inside = (rows < n_rows) & (cols < n_cols)
    a_tile = nl.load(a_input[rows, cols], mask=inside)
    b_tile = nl.load(b_input[rows, cols], mask=inside)
    c_tile = nl.add(a_tile, b_tile, mask=inside)
    nl.store(c_output[rows, cols], value=c_tile, mask=inside)
    return c_output


@nki.jit
def product_of_sum(a_input, b_input):
    n_rows, n_cols = a_input.shape
    c_output = nl.ndarray(a_input.shape, a_input.dtype, buffer=nl.shared_hbm)
    height = min(n_rows, 128)
    i_row, cols = nl.mgrid[0:height, 0:n_cols]
    rows = nl.program_id(0) * height + i_row
    a_tile = nl.load(a_input[rows, cols])
    b_tile = nl.load(b_input[rows, cols])
    c_tile = a_tile * b_tile * (a_tile + b_tile)
    nl.store(c_output[rows, cols], value=c_tile)
    return c_output
