"""``nki.FrameworkKernel`` as documented: a framework subclasses it and asks for the config."""

from __future__ import annotations

import base64
import json

import neuronxcc.nki as nki
import neuronxcc.nki.language as nl
import numpy as np
import pytest


class Box:
    """A tensor of a framework that nobody has heard of."""

    def __init__(self, *sizes, kind="f"):
        self.sizes, self.kind = sizes, kind


class BoxKernel(nki.FrameworkKernel):
    def is_framework_tensor(self, t):
        return isinstance(t, Box)

    def map_framework_tensor(self, t):
        return t.sizes, t.kind

    def translate_to_neuron_dtype(self, _dtype):
        return {"f": np.dtype(np.float32), "b": np.dtype(nl.bfloat16)}[_dtype]


def example(in1, in2, out, scale=1.0):
    row = nl.program_id(0)
    a = nl.load(in1[nl.ds(row, 1), :])
    b = nl.load(in2[nl.ds(row, 1), :])
    nl.store(out[nl.ds(row, 1), :], value=nl.add(a, b))


def box_kernel(**options):
    return BoxKernel(func_name=example.__name__, func=example, grid=(4,), **options)


def test_config_names_and_contents():
    config, inputs, outputs = box_kernel().dump_config(Box(4, 8), Box(4, 8), out=Box(4, 8))
    assert inputs == ["in1", "in2", "out"]
    assert outputs == ["out"]
    fields = json.loads(base64.b64decode(config))
    assert fields["func_name"] == "example"
    assert fields["grid"] == [4]
    assert fields["inputs"][0] == ["in1", [4, 8], "float32"]
    assert fields["outputs"] == [["out", [4, 8], "float32"]]


def test_config_depends_on_shape_dtype_constants_and_grid():
    boxes = [Box(4, 8)] * 3
    configs = {
        box_kernel().dump_config(*boxes)[0],
        box_kernel().dump_config(*[Box(4, 16)] * 3)[0],
        box_kernel().dump_config(*[Box(4, 8, kind="b")] * 3)[0],
        box_kernel().dump_config(*boxes, scale=2.0)[0],
        BoxKernel(func=example, func_name="other", grid=(4,)).dump_config(*boxes)[0],
        BoxKernel(func=example, grid=(nl.nc(2) * 2,)).dump_config(*boxes)[0],
    }
    assert len(configs) >= 5  # the last grid has the same instances, so it may be equal


def test_cache_changes_no_result():
    boxes = [Box(4, 8)] * 3
    assert (
        box_kernel(enable_cache=True).dump_config(*boxes)
        == box_kernel(enable_cache=False).dump_config(*boxes)
        == box_kernel(enable_cache=True).dump_config(*boxes)
    )


def test_config_is_the_same_in_every_process(run_python):
    code = """
        import kernels, jax, numpy as np
        from kernels.add import nki_tensor_add_kernel
        from nkisim.runtime.frameworks.jax import JaxKernel
        x = jax.ShapeDtypeStruct((200, 600), np.float32)
        print(JaxKernel(nki_tensor_add_kernel[2, 2]).dump_config(x, x)[0])
    """
    pytest.importorskip("jax")
    printed = {run_python(code, env={"PYTHONHASHSEED": seed}).stdout for seed in ("1", "2")}
    assert len(printed) == 1


def test_methods_must_be_defined():
    class Empty(nki.FrameworkKernel):
        pass

    with pytest.raises(NotImplementedError, match="Empty must define is_framework_tensor"):
        Empty(example).dump_config(Box(4, 8), Box(4, 8), Box(4, 8))


def test_torch_dtypes_translate_as_documented():
    torch = pytest.importorskip("torch")
    from nkisim.runtime.frameworks.torch import TorchKernel

    kernel = TorchKernel(example)
    assert kernel.translate_to_neuron_dtype(torch.bfloat16) == nl.bfloat16
    assert kernel.is_framework_tensor(torch.rand(2, 3))
    assert not kernel.is_framework_tensor("this is not a tensor")
    shape_and_dtype = kernel.map_framework_tensor(torch.rand(2, 3, dtype=torch.bfloat16))
    assert shape_and_dtype == (torch.Size([2, 3]), torch.bfloat16)


def test_numpy_calls_import_no_framework(run_python):
    run_python(
        """
        import sys
        import numpy as np
        from kernels.add import nki_tensor_add
        nki_tensor_add(np.ones((3, 4), np.float32), np.ones((3, 4), np.float32))
        loaded = {name.split(".")[0] for name in sys.modules}
        assert not loaded & {"torch", "torch_xla", "jax", "jaxlib"}, loaded
        """
    )
