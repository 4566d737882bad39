"""Instructions with several results, some of which nobody reads."""

from __future__ import annotations

import ml_dtypes
import neuronxcc.nki as nki
import neuronxcc.nki.isa as nisa
import neuronxcc.nki.language as nl
import numpy as np
import pytest


def square_sums(rows, *, keep_squares=False, op=nl.square, scale=1.0):
    """A kernel that returns the sums of squares, and if asked the squares."""

    @nki.jit
    def kernel(x):
        sums = nl.ndarray((x.shape[0], 1), dtype=nl.float32, buffer=nl.shared_hbm)
        squares = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
        i_p, i_f = nl.arange(x.shape[0])[:, None], nl.arange(x.shape[1])[None, :]
        total = nl.zeros((x.shape[0], 1), dtype=nl.float32, buffer=nl.sbuf)
        tile = nisa.activation_reduce(
            op=op,
            data=nl.load(x),
            scale=scale,
            reduce_op=nl.add,
            reduce_res=total,
            dtype=nl.float32,
            mask=(i_p < rows) & (i_f >= 0),
        )
        nl.store(sums, value=total)
        if keep_squares:
            nl.store(squares, value=tile)
            return sums, squares
        return sums

    return kernel


def unread(kernel, x):
    """The attribute that the plan gives to the only instruction with several results."""
    program = kernel.specialize([x], {}).program
    program.run([x])
    from nkisim.numerics.plan import plan

    steps = plan(program.trace, {b.number for b in program.output_buffers})
    (step,) = [s for s in steps if len(s.outs) > 1]
    return step.instr.unread or (False,) * len(step.outs)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("rows", [100, 57])
def test_sums_of_squares_that_nobody_keeps(dtype, rows):
    x = np.random.default_rng(0).standard_normal((100, 333), np.float32).astype(dtype)
    kernel = square_sums(rows)
    assert unread(kernel, x)[0]
    expected = (x[:rows].astype(np.float64) ** 2).sum(axis=1)
    sums = kernel(x)[:, 0]
    np.testing.assert_allclose(sums[:rows], expected, rtol=1e-6)
    assert not sums[rows:].any()


def test_results_that_are_read_are_written():
    x = np.random.default_rng(1).standard_normal((64, 70), np.float32)
    kernel = square_sums(64, keep_squares=True)
    assert not unread(kernel, x)[0]
    sums, squares = kernel(x)
    np.testing.assert_array_equal(squares, x * x)
    np.testing.assert_allclose(sums[:, 0], (x.astype(np.float64) ** 2).sum(axis=1), rtol=1e-6)


def test_other_functions_and_scales_are_left_as_they_are():
    x = np.random.default_rng(2).standard_normal((8, 40), np.float32)
    wide = x.astype(np.float64)
    sums = square_sums(8, op=nl.exp)(x)[:, 0]
    np.testing.assert_allclose(sums, np.exp(wide).sum(axis=1), rtol=1e-5)
    sums = square_sums(8, scale=3.0)(x)[:, 0]
    np.testing.assert_allclose(sums, 9 * (wide**2).sum(axis=1), rtol=1e-5)


def test_special_values():
    x = np.ones((4, 20), np.float32)
    x[1, 3], x[2, 4], x[3, 5] = np.nan, np.inf, 1e30
    sums = square_sums(4)(x)[:, 0]
    np.testing.assert_array_equal(sums, np.array([20, np.nan, np.inf, np.inf], np.float32))


def test_the_trace_stays_as_it_was():
    x = np.ones((4, 20), np.float32)
    kernel = square_sums(4)
    program = kernel.specialize([x], {}).program
    digest = program.digest
    program.run([x])
    assert program.digest == digest
    assert not any(i.unread for i in program.instructions)
