"""The tiles read from a trace are those that the reference cuts."""

import numpy as np
import pytest

import kernels
from kernels.add import nki_tensor_add_kernel, reference
from nkibook.tracing import written_tiles

nl = pytest.importorskip("neuronxcc.nki.language")
pytestmark = pytest.mark.skipif(kernels.backend != "nkisim", reason="traces are the simulator's")


@pytest.mark.parametrize("shape", [(256, 4096), (300, 2100), (1, 1), (128, 2049)])
def test_tiles_of_add_are_those_of_the_reference(shape):
    x = np.zeros(shape, np.float32)
    grid = (-(-shape[0] // 128), -(-shape[1] // 2048))
    tiles = written_tiles(nki_tensor_add_kernel[grid], x, x)
    expected = [(r.start, r.stop, c.start, c.stop) for r, c in reference.tiles(*shape)]
    assert [t[:4] for t in tiles] == expected
    assert [t[4] for t in tiles] == [(i, j) for i in range(grid[0]) for j in range(grid[1])]


def test_cores_take_row_blocks_in_turn():
    x = np.zeros((512, 512), np.float32)
    tiles = written_tiles(nki_tensor_add_kernel[nl.spmd_dim(2, nl.nc(2)), 1], x, x, by="core")
    assert [t[4] for t in tiles] == [0, 1, 0, 1]


def test_an_output_with_three_axes_is_refused():
    import neuronxcc.nki as nki

    @nki.jit
    def copy(x):
        y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(y, nl.load(x))
        return y

    with pytest.raises(ValueError, match="2-D"):
        written_tiles(copy, np.zeros((4, 2, 3), np.float32))
