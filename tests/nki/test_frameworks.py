"""Kernels of `import nki` on arrays of PyTorch and JAX."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import KernelError


@nki.jit
def scaled(x, factor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nl.store(out, value=tile)
    return out


VALUES = np.arange(60, dtype=np.float32).reshape(12, 5)


def test_jax_jit_and_grad():
    jax = pytest.importorskip("jax")

    @jax.custom_vjp
    def triple(x):
        return scaled(x, 3.0)

    triple.defvjp(lambda x: (triple(x), None), lambda _, g: (scaled(g, 3.0),))
    np.testing.assert_array_equal(jax.jit(triple)(VALUES), VALUES * 3)
    slope = jax.jit(jax.grad(lambda x: (triple(x) ** 2).sum()))(VALUES)
    np.testing.assert_allclose(slope, 18 * VALUES)


def test_jax_lowers_to_the_custom_call():
    jax = pytest.importorskip("jax")
    text = jax.jit(lambda x: scaled[2](x, 2.0)).lower(VALUES).as_text()
    assert "AwsNeuronCustomNativeKernel" in text


def test_torch_tensors_stay_torch_tensors():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(VALUES.copy())
    for kernel in (scaled, nki.simulate(scaled)):
        found = kernel(x, 0.5)
        assert isinstance(found, torch.Tensor)
        torch.testing.assert_close(found, x * 0.5)


def test_both_dialects_live_in_one_process():
    import neuronxcc.nki as old
    import neuronxcc.nki.language as old_nl

    @old.jit
    def doubled(x):
        out = old_nl.ndarray(x.shape, x.dtype, buffer=old_nl.shared_hbm)
        old_nl.store(out, old_nl.load(x) * 2)
        return out

    np.testing.assert_array_equal(doubled(VALUES), scaled(VALUES, 2.0))


def test_a_function_of_the_other_dialect_is_refused():
    import neuronxcc.nki as old

    @old.jit
    def mixed(x):
        return nl.load(x)

    with pytest.raises(KernelError, match="destination first"):
        mixed(VALUES)


def test_a_function_of_neuronxcc_is_refused_in_a_kernel_of_nki():
    import neuronxcc.nki.language as old_nl

    with pytest.raises(KernelError, match="neuronxcc"):
        nki.simulate(lambda x: old_nl.load(x))(VALUES)


def test_a_kernel_is_profiled_on_two_cores():
    import nkisim

    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        rows = x.shape[0] // nl.num_programs(0)
        part = nl.ds(nl.program_id(0) * rows, rows)
        nl.store(out[part], value=nl.exp(nl.load(x[part])))
        return out

    wide = np.ones((128, 8192), np.float32)
    one, two = (nkisim.profile(nki.jit(kernel)[n], wide) for n in (1, 2))
    assert two.body_us < one.body_us
