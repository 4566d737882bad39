"""Random whole kernels against a reference interpreter; `make fuzz` runs many more."""

from __future__ import annotations

import pytest
from fuzz_check import check, check_today

KERNELS = 300
_EACH = 25  # in one test


@pytest.mark.parametrize("first", range(0, KERNELS, _EACH))
def test_random_kernels(first):
    for seed in range(first, first + _EACH):
        check(seed)


@pytest.mark.parametrize("first", range(0, 75, _EACH))
def test_random_kernels_of_today(first):
    for seed in range(first, first + _EACH):
        check_today(seed)
