"""Data that a test draws from a generator of its module do not depend on which tests ran before."""

import numpy as np
import pytest

RNG = np.random.default_rng(0)
FIRST = np.random.default_rng(0).random(3)


@pytest.mark.parametrize("_", range(2))
def test_a_generator_of_a_module_begins_again_in_each_test(_) -> None:
    np.testing.assert_array_equal(RNG.random(3), FIRST)
