"""Kernels of `import nki` on arrays of PyTorch and JAX."""

import base64
import json
import re

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkisim import KernelError


@nki.jit
def scaled(x, factor):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    rows = -(-x.shape[0] // nl.num_programs(0))
    start = nl.program_id(0) * rows
    end = min(start + rows, x.shape[0])
    tile = nl.load(x[start:end])
    nisa.tensor_scalar(tile, tile, nl.multiply, factor)
    nl.store(out[start:end], value=tile)
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


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("check", [True, False])
def test_eight_devices_under_shard_map(cores, check):
    """Each device runs the kernel on its own rows, on one core or two; so does the gradient."""
    jax = pytest.importorskip("jax")

    @nki.jit
    def product(a, b):
        out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
        columns = a.shape[1] // nl.num_programs(0)
        part = (slice(0, a.shape[0]), nl.ds(nl.program_id(0) * columns, columns))
        x, y = nl.load(a[part]), nl.load(b[part])
        nisa.tensor_tensor(x, x, y, nl.multiply)
        nl.store(out[part], value=x)
        return out

    rows = jax.P("d")
    mesh = jax.sharding.Mesh(np.array(jax.devices()), ("d",))
    rng = np.random.default_rng(0)
    a, b = jax.numpy.asarray(rng.standard_normal((2, 24, 10), np.float32))

    @jax.custom_vjp
    def times(a, b):
        return product[cores](a, b)

    times.defvjp(
        lambda a, b: (product[cores](a, b), (a, b)),
        lambda kept, g: (product[cores](g, kept[1]), product[cores](g, kept[0])),
    )
    shared = jax.jit(
        jax.shard_map(times, mesh=mesh, in_specs=(rows, rows), out_specs=rows, check_vma=check)
    )
    out = shared(a, b)
    np.testing.assert_array_equal(out, np.asarray(a) * np.asarray(b))
    assert {s.data.shape for s in out.addressable_shards} == {(3, 10)}
    text = shared.lower(a, b).compile().as_text()
    assert text.count("AwsNeuronCustomNativeKernel") == 1
    assert "all-gather" not in text
    slope = jax.jit(jax.grad(lambda a, b: (shared(a, b) ** 2).sum()))(a, b)
    np.testing.assert_allclose(slope, 2 * a * b * b, rtol=1e-6)


class TestXla:
    """On torch_xla's CPU client."""

    @pytest.fixture
    def device(self):
        return pytest.importorskip("torch_xla").device()

    @pytest.mark.parametrize("cores", [1, 2])
    @pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
    def test_runs(self, device, dtype, cores):
        import torch

        x = torch.arange(35.0).reshape(5, 7).to(getattr(torch, dtype))
        out = scaled[cores](x.to(device), 3.0)
        assert out.device.type == "xla"
        assert torch.equal(out.cpu(), x * 3)

    @pytest.mark.parametrize("cores", [1, 2])
    def test_lowers_to_the_custom_call(self, device, cores):
        import torch
        import torch_xla

        from nkisim.runtime.frameworks.torch import lowering

        x = torch.ones(5, 7, dtype=torch.bfloat16, device=device)
        with lowering():
            y = scaled[cores](x, 2.0)
        assert (y.dtype, y.shape) == (torch.bfloat16, (5, 7))
        hlo = torch_xla._XLAC._get_xla_tensors_hlo([y + x])
        (line,) = [line for line in hlo.splitlines() if "custom-call(" in line]
        assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in line
        assert "bf16[5,7]" in line
        (config,) = re.findall(r'backend_config="([^"]*)"', line)
        fields = json.loads(base64.b64decode(config))
        assert fields["func_name"] == "scaled"
        assert fields["grid"] == [cores]
        assert fields["outputs"] == [["output0", [5, 7], "bfloat16"]]


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
