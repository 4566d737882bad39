"""The pairs of "Moving a kernel": each kernel against NumPy, and both with the same bits."""

import pytest

from nkibook import moving


@pytest.mark.parametrize("pair", moving.PAIRS, ids=lambda pair: pair.topic)
def test_both_kernels_of_a_pair_compute_what_numpy_does(pair) -> None:
    # Today's dialect has no division on the device: a reciprocal, rounded, and a product.
    assert pair.check() == (pair.topic != "division")
    assert moving.lines_of(pair.old)
    assert moving.lines_of(pair.new)
