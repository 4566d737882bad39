"""NKI kernels called on PyTorch tensors."""

from __future__ import annotations

import base64
import json
import re
import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")
import neuronxcc.nki as nki  # noqa: E402
import neuronxcc.nki.language as nl  # noqa: E402
import torch_devices  # noqa: E402, F401

from nkisim.errors import KernelError  # noqa: E402
from nkisim.frontends.neuronxcc.shims.torch_neuronx import nki_jit  # noqa: E402


@nki.jit
def twice(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.load(x)
    nl.store(out, value=nl.add(tile, tile))
    return out


@nki.jit
def to_dtype(x, dtype):
    out = nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)
    nl.store(out, value=nl.load(x))
    return out


@nki_jit
def add_into(a, b, out):
    nl.store(out, value=nl.load(a) + nl.load(b))


@nki.jit
def increment(x: nki.typing.mutable_tensor):
    nl.store(x, value=nl.load(x) + 1.0)
    return x


def operand_count(hlo):
    """How many operands the one custom call in HLO text has."""
    (operands,) = re.findall(r"custom-call\(([^)]*)\)", hlo)
    return operands.count("%")


X = torch.arange(12.0).reshape(3, 4)

DTYPES = [
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.float16,
    torch.float32,
    torch.bfloat16,
    torch.float8_e5m2,
]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes(dtype):
    x = X.to(dtype)
    out = twice(x)
    assert out.dtype == dtype
    expected = (x.to(torch.float32) * 2).to(dtype)
    assert torch.equal(out.to(torch.float32), expected.to(torch.float32))


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        (torch.float64, r"torch\.float32\)"),
        (torch.int64, r"torch\.int32\)"),
        (torch.complex64, "Cast"),
        (torch.float8_e4m3fn, "240"),
    ],
)
def test_dtypes_that_nki_does_not_have(dtype, message):
    with pytest.raises(TypeError, match=rf"(?s)`twice`.*{message}"):
        twice(X.to(dtype))


def test_output_dtype_that_pytorch_does_not_have():
    with pytest.raises(TypeError, match="float8_e4m3, which PyTorch does not have"):
        to_dtype(X, dtype=nl.float8_e4m3)


def test_output_dtype_differs_from_input():
    assert torch.equal(to_dtype(X, dtype=nl.bfloat16), X.bfloat16())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_output_argument_is_written_in_place(dtype):
    a, out = X.to(dtype), torch.zeros(3, 4, dtype=dtype)
    assert add_into(a, a, out) is None
    assert torch.equal(out, 2 * a)


def test_output_argument_that_is_a_view():
    base = torch.zeros(6, 8)
    add_into(X, X, base[::2, 1::2])
    assert torch.equal(base[::2, 1::2], 2 * X)
    base[::2, 1::2] = 0
    assert not base.any()


def test_returned_argument_is_the_argument():
    x = X.clone()
    assert increment(x) is x
    assert torch.equal(x, X + 1)


def test_writing_in_place_is_known_to_autograd():
    """Autograd refuses to use a tensor that changed after it was saved."""
    w = torch.ones(3, 4, requires_grad=True)
    x = X.clone()
    loss = (w * x).sum()
    increment(x)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_cpu_tensors_are_not_copied(monkeypatch):
    seen = []
    from nkisim.numerics.program import Program

    run = Program.run

    def spy(self, inputs, outputs=None):
        seen.extend(array.ctypes.data for array in inputs)
        return run(self, inputs, outputs)

    monkeypatch.setattr(Program, "run", spy)
    for dtype in (torch.float32, torch.bfloat16, torch.float8_e5m2):
        x = X.to(dtype)
        twice(x)
        assert seen.pop() == x.data_ptr()


def test_lost_gradient_is_warned_of():
    x = X.clone().requires_grad_()
    with pytest.warns(UserWarning, match=r"`twice`.*torch\.autograd\.Function") as caught:
        out = twice(x)
    assert caught[0].filename == __file__
    assert not out.requires_grad
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        twice(x)


@pytest.mark.parametrize("arrays", ["torch", "numpy"])
def test_torch_compile_does_not_look_into_a_kernel(arrays):
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph.forward

    @torch.compile(backend=count)
    def before_and_after(x):
        doubled = twice(x + 1) if arrays == "torch" else torch.from_numpy(twice((x + 1).numpy()))
        return doubled - 3

    for _ in range(2):
        torch.testing.assert_close(before_and_after(X), 2 * (X + 1) - 3)
    assert len(graphs) == 2
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):  # one graph is not to be had
        torch.compile(lambda x: twice(x + 1) - 3, backend=count, fullgraph=True)(X)
    torch._dynamo.reset()


def test_refused_devices():
    with pytest.raises(ValueError, match="on cpu, meta"):
        add_into(X, X.to("meta"), X)


@pytest.mark.parametrize("pre_dispatch", [False, True])
@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_graph_does_not_take_a_result_for_a_constant(mode, pre_dispatch):
    from torch.fx.experimental.proxy_tensor import make_fx

    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return twice(x)

    for function in (twice, Twice.apply, lambda x: x + twice(torch.ones(3, 4))):
        record = make_fx(function, tracing_mode=mode, pre_dispatch=pre_dispatch)
        with pytest.raises(TypeError, match=r"(?s)`twice`.*constants.*custom_op.*register_fake"):
            record(X)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_a_traced_module_does_not_take_a_result_for_a_constant():
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return twice(x)

    with pytest.raises(TypeError, match=r"torch.jit.trace.*constants"):
        torch.jit.trace(twice, (X,))
    traced = torch.jit.trace(Twice.apply, (X,), check_trace=False)
    assert torch.equal(traced(3 * X), 6 * X)


def test_a_registered_operator_is_recorded():
    """The fix that the message names."""
    from torch.fx.experimental.proxy_tensor import make_fx

    op = torch.library.custom_op(
        "nkisim_test::twice", lambda x: twice(x), mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    op.register_fake(torch.empty_like)
    for mode in ("real", "fake", "symbolic"):
        graph = make_fx(op, tracing_mode=mode)(torch.zeros(3, 4))
        assert torch.equal(graph(X), 2 * X)


def test_tensors_without_values_give_shapes():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    mode = FakeTensorMode()
    with mode:
        result = twice(torch.ones(3, 4))
        with pytest.raises(TypeError, match=r"records a graph.*custom_op"):
            twice(X)  # which has values: they would be read while none are
    for found in (result, twice(mode.from_tensor(X))):
        assert isinstance(found, FakeTensor)
        assert found.shape == X.shape
        assert found.dtype == X.dtype
    found = twice(X.to("meta"))
    assert found.is_meta
    assert found.shape == X.shape


def test_export_and_functionalize_are_refused():
    class Module(torch.nn.Module):
        def forward(self, x):
            return twice(x)

    with pytest.raises(TypeError, match="custom_op"):
        torch.export.export(Module(), (X,), strict=False)
    with pytest.raises(TypeError, match="custom_op"):
        torch.func.functionalize(twice)(X)


@pytest.mark.parametrize(
    ("transform", "message"),
    [
        (torch.func.vmap, "static method vmap"),
        (lambda f: torch.func.grad(lambda x: f(x).sum()), "write its backward"),
        (lambda f: lambda x: torch.func.jvp(f, (x,), (x,)), "write its backward"),
        (lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum())), "`twice`.*Function"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_transforms_are_refused(transform, message):
    with pytest.raises(TypeError, match=message):
        transform(twice)(X)


class Twice(torch.autograd.Function):
    """With a kernel for its gradient."""

    @staticmethod
    def forward(ctx, x):
        return x + x

    @staticmethod
    def backward(ctx, grad):
        return twice(grad)


def test_batches_of_gradients_are_refused():
    x = X.clone().requires_grad_()
    with pytest.raises(TypeError, match=r"vectorize=True.*torch\.func\.jacrev"):
        torch.autograd.functional.jacobian(Twice.apply, x, vectorize=True)
    assert torch.autograd.functional.jacobian(Twice.apply, x).shape == (3, 4, 3, 4)


def test_sparse_tensors_are_refused():
    with pytest.raises(TypeError, match=r"sparse_coo.*x\.to_dense\(\)"):
        twice(X.to_sparse())


def test_subclasses_with_operators_of_their_own_are_refused():
    class Wrapped(torch.Tensor):
        @classmethod
        def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
            raise NotImplementedError

    wrapped = torch.Tensor._make_wrapper_subclass(Wrapped, (3, 4))
    with pytest.raises(TypeError, match=r"got a Wrapped.*Pass the plain tensor"):
        twice(wrapped)


def test_modes_that_look_on_are_no_recording():
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False):
        assert torch.equal(twice(X), 2 * X)


def test_numpy_among_tensors_is_refused():
    with pytest.raises(TypeError, match=r"NumPy array of shape \(3, 4\)"):
        add_into(X, X.numpy(), X)


def test_kernel_errors_reach_the_user():
    with pytest.raises(KernelError, match=r"(?s)256.*test_torch_bridge\.py:\d+ in twice.*fix:"):
        twice(torch.ones(256, 4))


def test_parameter_subclass():
    with torch.no_grad():
        assert torch.equal(twice(torch.nn.Parameter(X)), 2 * X)


def test_a_dtype_among_numpy_arguments_does_not_make_it_a_torch_call():
    """Only tensors choose the framework, not whatever else comes from it."""

    @nki.jit
    def first(x, hint):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, value=nl.load(x))
        return out

    out = first(X.numpy(), torch.float32)
    assert isinstance(out, np.ndarray)


class TestXla:
    """On torch_xla's CPU client."""

    @pytest.fixture
    def device(self):
        return pytest.importorskip("torch_xla").device()

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
    def test_eager(self, device, dtype):
        out = twice(X.to(dtype).to(device))
        assert out.device.type == "xla"
        assert torch.equal(out.cpu(), 2 * X.to(dtype))

    def test_output_argument(self, device):
        a, out = X.to(device), torch.zeros(3, 4, device=device)
        add_into(a, a, out)
        assert torch.equal(out.cpu(), 2 * X)

    def test_refused_devices(self, device):
        with pytest.raises(ValueError, match="on cpu, xla:0"):
            add_into(X, X.to(device), X)

    def test_lowering_emits_a_custom_call(self, device):
        import torch_xla

        from nkisim.runtime.frameworks.torch import lowering

        x = X.to(device).to(torch.bfloat16)
        with lowering():
            y = twice(x)
        assert y.dtype == torch.bfloat16
        hlo = torch_xla._XLAC._get_xla_tensors_hlo([y * y])
        (line,) = [line for line in hlo.splitlines() if "custom-call(" in line]
        assert 'custom_call_target="AwsNeuronCustomNativeKernel"' in line
        assert "bf16[3,4]" in line
        (config,) = re.findall(r'backend_config="([^"]*)"', line)
        fields = json.loads(base64.b64decode(config))
        assert fields["func_name"] == "twice"
        assert fields["outputs"] == [["output0", [3, 4], "bfloat16"]]

    def test_lowering_of_an_output_argument(self, device):
        import torch_xla

        from nkisim.runtime.frameworks.torch import lowering

        a, out = X.to(device), torch.zeros(3, 4, device=device)
        with lowering():
            add_into(a, a, out)
        hlo = torch_xla._XLAC._get_xla_tensors_hlo([out])
        assert operand_count(hlo) == 2  # `a`, given twice; `out` is only a result

    def test_lowering_of_an_argument_that_is_read_and_written(self, device):
        import torch_xla

        from nkisim.runtime.frameworks.torch import lowering

        x = X.to(device)
        with lowering():
            increment(x)
        assert operand_count(torch_xla._XLAC._get_xla_tensors_hlo([x])) == 1

    def test_lowering_ends_with_its_context(self, device):
        from nkisim.runtime.frameworks.torch import lowering

        with lowering():
            pass
        assert torch.equal(twice(X.to(device)).cpu(), 2 * X)

    def test_lowering_reaches_the_backward_pass(self, device):
        """Autograd runs it in a thread of its own for XLA tensors."""
        import torch_xla

        from nkisim.runtime.frameworks.torch import lowering

        x = X.to(device).requires_grad_()
        with lowering():
            Twice.apply(x).sum().backward()
        hlo = torch_xla._XLAC._get_xla_tensors_hlo([x.grad])
        assert hlo.count("custom-call(") == 1
