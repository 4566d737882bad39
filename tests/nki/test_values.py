"""What tensors of `import nki` show while the kernel is traced, to `print` and to a debugger."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

import nkisim
from nkisim.errors import OutOfBoundsError

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def test_tensors_have_values_while_the_kernel_runs():
    seen = {}

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=nl.bfloat16, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x)
        part = nl.ndarray((3, 3), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=part[:, 1:2], src=x[:, 0:1])
        gram = nl.ndarray((4, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(dst=gram, stationary=tile, moving=tile)
        tensors = {"tile": tile, "every second": tile[:, 0:4:2], "part": part, "gram": gram}
        for name, tensor in tensors.items():
            seen[name] = nkisim.values(tensor).astype(np.float32)
        seen["text"] = f"{tile[0:1]}"
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        seen["twice"] = nkisim.values(tile).astype(np.float32)
        nisa.dma_copy(dst=out, src=tile)
        return out

    np.testing.assert_array_equal(kernel(X), 2 * X)
    np.testing.assert_array_equal(seen["tile"], X)
    np.testing.assert_array_equal(seen["every second"], X[:, ::2])
    np.testing.assert_array_equal(seen["part"][:, 1], X[:, 0])
    assert np.isnan(seen["part"][:, [0, 2]]).all()  # nothing has written these
    np.testing.assert_array_equal(seen["gram"], X.T @ X)
    np.testing.assert_array_equal(seen["twice"], 2 * X)
    assert "bfloat16[1, 4]" in seen["text"]
    assert "[[0., 1., 2., 3.]]" in seen["text"]


def test_a_message_of_the_simulator_has_no_values():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.load(x)
        nisa.dma_copy(dst=out, src=tile[0:5])
        return out

    with pytest.raises(OutOfBoundsError) as error:
        kernel(X)
    assert "[0., 1." not in str(error.value)


def test_without_data_a_tensor_is_described():
    seen = []

    @nki.jit
    def kernel(x):
        tile = nl.load(x)
        seen.append(repr(tile))
        return nkisim.values(tile)

    with pytest.raises(LookupError, match="without data"):
        nkisim.explain(kernel, nkisim.TensorSpec(X.shape, X.dtype))
    assert seen == ["NkiTensor(float32[3, 4] in SBUF)"]


@nki.jit
def embedded(a):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.shared_constant(np.exp(nkisim.values(a))))
    return out


@nki.jit
def read_as_text(a):
    nki_text = repr(a)
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.shared_constant(np.full(a.shape, "7." in nki_text, np.float32)))
    return out


def test_values_that_are_embedded_give_a_warning_and_are_refused_where_kernels_are_judged():
    x = np.full((4, 3), 7, np.float32)
    with pytest.warns(nkisim.NkiWarning, match="48 bytes is embedded after nkisim.values"):
        embedded(x)
    with nkisim.checks(values="error"):
        with pytest.raises(nkisim.KernelError, match="reads values of a tensor on the host"):
            embedded(x)
        assert not read_as_text(x).any()
