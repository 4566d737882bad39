"""The operators on a NeuronCore, in each framework and dtype, against NumPy in float64 and float32.

Run by `make test-neuron`, once a framework: a process has the NeuronCores once.
"""

from __future__ import annotations

import numpy as np
import pytest

import kernels
from nkibook.exercises.comparing import tolerance
from nkibook.instance import operators

OPERATORS = {operator.name: operator for operator in operators.operators()}

pytestmark = pytest.mark.neuron


def assert_close(got: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Compare as the hardware allows: see nkibook.exercises.comparing.

    Absolute differences are measured by the largest value: a sum that cancels has the rounding of
    its terms.
    """
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    dtypes = [operators.DTYPES[dtype]]
    rtol, atol = tolerance(dtypes, on_a_device=kernels.backend != "nkisim")
    wide = expected.astype(np.float64)
    scale = max(1.0, float(np.abs(wide).max()))
    np.testing.assert_allclose(
        got.astype(np.float64), wide, rtol=rtol, atol=max(atol, rtol * scale)
    )


@pytest.mark.parametrize("dtype", operators.DTYPES)
@pytest.mark.parametrize("name", OPERATORS)
def test_forward(device, name, dtype):
    operator = OPERATORS[name]
    arrays = operator.arrays(dtype)
    assert_close(operators.forward(operator, device, arrays), operator.reference(*arrays), dtype)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(device, name, dtype):
    operator = OPERATORS[name]
    arrays = operator.arrays(dtype)
    result = operator.reference(*arrays)
    rng = np.random.default_rng(1)
    grad = rng.standard_normal(result.shape, np.float32).astype(result.dtype)
    found = operators.backward(operator, device, arrays, grad)
    expected = operator.gradients(grad, *arrays)
    assert len(found) == len(expected)
    for got, want in zip(found, expected, strict=True):
        assert_close(got, want, dtype)
