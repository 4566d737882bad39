"""Answers to the exercises on matmul in PyTorch."""

import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl


@nki.jit
def swapped(a_t, b):
    shape = (a_t.shape[1], b.shape[1])
    c = nl.ndarray(shape, a_t.dtype, buffer=nl.shared_hbm)
    left, right = nl.load(a_t), nl.load(b)
    product = nisa.nc_matmul(left, right)
    nl.store(c, value=nl.copy(product))
    return c


@nki.jit
def read_too_early(a_t, b):
    k_size, m_size = a_t.shape
    c = nl.ndarray((m_size, b.shape[1]), a_t.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((m_size, b.shape[1]), nl.float32, buffer=nl.psum)
    for k in nl.affine_range(k_size // 4):
        part = nl.ds(k * 4, 4)
        total += nisa.nc_matmul(nl.load(a_t[part]), nl.load(b[part]))
    if k_size % 4:
        tail = nl.ds(k_size // 4 * 4, k_size % 4)
        total += nisa.nc_matmul(nl.load(a_t[tail]), nl.load(b[tail]))
    result = nl.copy(total)
    nl.store(c, value=result)
    return c


@nki.jit
def any_rows(a, b):
    m_size, n_size = a.shape[0], b.shape[1]
    c = nl.ndarray((m_size, n_size), a.dtype, buffer=nl.shared_hbm)
    right = nl.load(b)
    for at in nl.static_range(0, m_size, 4):
        rows = nl.ds(at, min(4, m_size - at))
        left = nl.load_transpose2d(a[rows])
        nl.store(c[rows], value=nl.copy(nisa.nc_matmul(left, right)))
    return c


@nki.jit
def linear_relu(x_t, weight, bias):
    shape = (x_t.shape[1], weight.shape[1])
    y = nl.ndarray(shape, x_t.dtype, buffer=nl.shared_hbm)
    product = nl.zeros(shape, nl.float32, buffer=nl.psum)
    product += nisa.nc_matmul(nl.load(x_t), nl.load(weight))
    ones = nl.ones((1, x_t.shape[1]), dtype=nl.float32)
    product += nisa.nc_matmul(ones, nl.load(bias))
    nl.store(y, value=nl.relu(product))
    return y
