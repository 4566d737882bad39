"""Random whole kernels against a reference interpreter; `make fuzz` runs many more."""

from __future__ import annotations

import pytest
from fuzz_check import check_neuronxcc, check_nki

KERNELS = 300
_EACH = 25  # in one test


@pytest.mark.parametrize("first", range(0, KERNELS, _EACH))
def test_random_kernels(first):
    for seed in range(first, first + _EACH):
        check_neuronxcc(seed)


@pytest.mark.parametrize("first", range(0, 75, _EACH))
def test_random_kernels_of_nki(first):
    for seed in range(first, first + _EACH):
        check_nki(seed)
