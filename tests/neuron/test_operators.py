"""The operators on a NeuronCore, in each framework and dtype, against NumPy in float64 and float32.

Run by `make test-neuron`, once a framework: a process has the NeuronCores once.
"""

from __future__ import annotations

import numpy as np
import pytest

from kernels import operators
from kernels.arrays import error_in_tolerances

OPERATORS = {operator.name: operator for operator in operators.operators()}

pytestmark = pytest.mark.neuron


def assert_close(got: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    """Compare as the hardware allows: see kernels.arrays."""
    assert got.shape == expected.shape
    assert got.dtype == expected.dtype
    assert error_in_tolerances(got, expected, operators.DTYPES[dtype]) <= 1


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
