"""Values against NumPy, and the modelled time against the stored one."""

import ml_dtypes
import nkisim
import numpy as np
import pytest

from product import product

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("rows", [128, 256])
def test_values(rows):
    rng = np.random.default_rng(0)
    a_t, b = (rng.integers(-4, 5, (256, n)).astype(BF16) for n in (256, 512))
    exact = a_t.astype(np.float32).T @ b.astype(np.float32)
    assert (product(a_t, b, rows) == exact.astype(BF16)).all()


def test_time(modelled_time):
    square = nkisim.TensorSpec((2048, 2048), BF16)
    found = modelled_time(product, square, square, 1024)
    loads_of_a, loads_of_b, stores_of_c = 4, 2, 1
    transfers = loads_of_a + loads_of_b + stores_of_c
    assert found.hbm_bytes == transfers * 2048 * 2048 * 2
