"""A destination with a step of 0 is one element written many times: the last stays, and what is
reduced on the way is reduced over all."""

from __future__ import annotations

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

CASES = {
    "activation_reduce": (
        lambda dst, x, s: nisa.activation_reduce(
            dst=dst, op=nl.square, data=x, reduce_op=nl.add, reduce_res=s
        ),
        lambda x: (x**2, (x**2).sum(1)),
    ),
    "tensor_scalar_reduce": (
        lambda dst, x, s: nisa.tensor_scalar_reduce(
            dst=dst, data=x, op0=nl.multiply, operand0=2.0, reduce_op=nl.add, reduce_res=s
        ),
        lambda x: (2 * x, (2 * x).sum(1)),
    ),
    "activation": (
        lambda dst, x, s: (nisa.activation(dst=dst, op=nl.square, data=x), nisa.memset(s, 0.0)),
        lambda x: (x**2, np.zeros(len(x))),
    ),
    "tensor_scalar": (
        lambda dst, x, s: (
            nisa.tensor_scalar(dst, x, nl.add, 1.0, op1=nl.multiply, operand1=3.0),
            nisa.memset(s, 0.0),
        ),
        lambda x: ((x + 1) * 3, np.zeros(len(x))),
    ),
    "tensor_copy": (
        lambda dst, x, s: (nisa.tensor_copy(dst, x), nisa.memset(s, 0.0)),
        lambda x: (x, np.zeros(len(x))),
    ),
}


@pytest.mark.parametrize("read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize(("rows", "cols"), [(128, 64), (77, 3), (5, 1)])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("name", CASES)
def test_the_last_element_stays_and_sums_are_of_all(name, dtype, rows, cols, read):
    instruction, reference = CASES[name]

    @nki.jit
    def kernel(x):
        out = nl.ndarray((rows, 2), dtype=nl.float32, buffer=nl.shared_hbm)
        tile = nl.load(x)
        one = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        total = nl.ndarray((rows, 1), dtype=nl.float32, buffer=nl.sbuf)
        instruction(one.ap([[1, rows], [0, cols]]), tile, total)
        nl.store(out[:, 0:1], one if read else total)
        nl.store(out[:, 1:2], total)
        return out

    x = np.random.default_rng(0).standard_normal((rows, cols)).astype(dtype)
    values, sums = reference(x.astype(np.float32))
    got = kernel(x)
    np.testing.assert_allclose(got[:, 1], sums, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(got[:, 0], values[:, -1] if read else sums, rtol=1e-5, atol=1e-4)
